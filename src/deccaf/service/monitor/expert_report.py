"""Everybody's decisions against labels, on all cases, and on those that were assigned by lot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.evaluate.measures import wilson
from deccaf.service.ledger.desk import machine_first
from deccaf.service.store import tables as t


@dataclass(frozen=True)
class Errors:
    """Wrong decisions among those with a label, with a 95 % interval of their share."""

    labelled: int
    wrong: int
    error_rate: float | None
    interval: list[float] | None

    @classmethod
    def of(cls, labelled: int, wrong: int) -> Errors:
        """With the share and its interval; None where no label is known."""
        if not labelled:
            return cls(labelled, wrong, None, None)
        low, high = wilson(wrong / labelled, labelled)
        return cls(labelled, wrong, wrong / labelled, [float(low), float(high)])


@dataclass(frozen=True)
class ErrorsByTruth(Errors):
    """The same, also for each truth."""

    by_truth: dict[str, Errors]


@dataclass(frozen=True)
class ExpertReport:
    """Somebody's record."""

    maker: str
    decisions: int
    all_cases: ErrorsByTruth
    assigned_by_lot: ErrorsByTruth


def report_experts(connection: sa.Connection) -> list[ExpertReport]:
    """For every maker: decisions, decisions with a known label, errors; the machine first."""
    a, d, k = t.assignments.c, t.decisions.c, t.cases.c
    by_lot = sa.case((a.method == "lot", 1), else_=0)
    wrong = sa.case((d.decision != k.label, 1), else_=0)
    query = (
        sa.select(
            d.maker,
            by_lot.label("lot"),
            k.label,
            sa.func.count().label("decisions"),
            sa.func.sum(wrong).label("wrong"),
        )
        .join_from(t.decisions, t.cases, d.case_id == k.case_id)
        .join(t.assignments, sa.and_(a.case_id == d.case_id, a.state == "decided"))
        .group_by(d.maker, by_lot, k.label)
    )
    found: dict[str, list[Any]] = {}
    for row in connection.execute(query):
        found.setdefault(row.maker, []).append(row)
    return [
        ExpertReport(
            maker=maker,
            decisions=sum(row.decisions for row in rows),
            all_cases=_errors([row for row in rows if row.label is not None]),
            assigned_by_lot=_errors([row for row in rows if row.label is not None and row.lot]),
        )
        for maker, rows in sorted(found.items(), key=lambda item: machine_first(item[0]))
    ]


def _errors(rows: Sequence[Any]) -> ErrorsByTruth:
    counts: dict[str, list[int]] = {}
    for row in rows:
        entry = counts.setdefault(str(json.loads(row.label)), [0, 0])
        entry[0] += row.decisions
        entry[1] += row.wrong
    whole = Errors.of(sum(row.decisions for row in rows), sum(row.wrong for row in rows))
    by_truth = {truth: Errors.of(labelled, wrong) for truth, (labelled, wrong) in counts.items()}
    return ErrorsByTruth(whole.labelled, whole.wrong, whole.error_rate, whole.interval, by_truth)
