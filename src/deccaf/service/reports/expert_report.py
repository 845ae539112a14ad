"""Everybody's decisions against labels, on all cases, and on those that were assigned by lot."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.evaluate.measures import wilson
from deccaf.service.imports import past_records
from deccaf.service.ledger.desk import machine_first
from deccaf.service.store import tables as t

MANY_CASES = 100_000
KEPT_SECONDS = 120.0
"""Records of more cases than the one may be as old as the other."""


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
    a, k = t.assignments.c, t.cases.c
    everything: dict[str, list[Any]] = {}
    by_lot: dict[str, list[Any]] = {}
    for made, _ in t.ANSWERS:
        d = made.c
        groups = (d.maker, k.label, d.decision)
        counted = sa.select(*groups, sa.func.count().label("decisions")).group_by(*groups)
        # of a million rows: SQLite goes through the cases, whose wide rows it would look up one by one
        same = d.case_id == (k.case_id + "" if connection.dialect.name == "sqlite" else k.case_id)
        _by_maker(connection, counted.join_from(t.cases, made, same), everything)
        if made is t.decisions:
            drawn = counted.join_from(t.assignments, made, d.case_id == a.case_id).where(t.DECIDED_BY_LOT)
        else:
            drawn = counted.join_from(made, t.assignments, d.assignment_id == a.id).where(a.method == "lot")
        _by_maker(connection, drawn.join(t.cases, k.case_id == d.case_id), by_lot)
    for row in past_records.counted(connection):
        everything.setdefault(row.maker, []).append(row)
    return [
        ExpertReport(
            maker=maker,
            decisions=sum(row.decisions for row in rows),
            all_cases=_errors([row for row in rows if row.label is not None]),
            assigned_by_lot=_errors([row for row in by_lot.get(maker, []) if row.label is not None]),
        )
        for maker, rows in sorted(everything.items(), key=lambda item: machine_first(item[0]))
    ]


class Records:
    """Everybody's record, kept: to add up a million decisions takes a second, and a page has half of one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[ExpertReport] = []
        self._at = 0.0

    def read(self, connection: sa.Connection, at: float) -> tuple[list[ExpertReport], float]:
        """The records, and of when they are: of now, unless there are many cases."""
        with self._lock:
            if not _are_many(connection) or at > self._at + KEPT_SECONDS:
                self._add_up(connection, at)
            return self._kept, self._at

    def keep_fresh(self, connection: sa.Connection, at: float) -> None:
        """Add up in time what takes long, so that nobody waits for it."""
        with self._lock:
            if at > self._at + KEPT_SECONDS / 2 and _are_many(connection):
                self._add_up(connection, at)

    def _add_up(self, connection: sa.Connection, at: float) -> None:
        self._kept, self._at = report_experts(connection), at


def _are_many(connection: sa.Connection) -> bool:
    return (connection.execute(sa.select(sa.func.max(t.cases.c.id))).scalar() or 0) > MANY_CASES


def _by_maker(connection: sa.Connection, query: sa.Select[Any], found: dict[str, list[Any]]) -> None:
    for row in connection.execute(query):
        found.setdefault(row.maker, []).append(row)


def _errors(rows: Sequence[Any]) -> ErrorsByTruth:
    counts: dict[str, list[int]] = {}
    for row in rows:
        entry = counts.setdefault(str(json.loads(row.label)), [0, 0])
        entry[0] += row.decisions
        entry[1] += row.decisions if row.decision != row.label else 0
    whole = Errors.of(sum(n for n, _ in counts.values()), sum(wrong for _, wrong in counts.values()))
    by_truth = {truth: Errors.of(labelled, wrong) for truth, (labelled, wrong) in counts.items()}
    return ErrorsByTruth(whole.labelled, whole.wrong, whole.error_rate, whole.interval, by_truth)
