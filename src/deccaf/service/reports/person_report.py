"""One person: load, cost, calibration, learning curve, recent disagreements, from their latest decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.evaluate.measures import wilson
from deccaf.service.decide.registry import Model
from deccaf.service.errors import not_found
from deccaf.service.ledger import claims, people, shifts
from deccaf.service.ledger.people import Expert
from deccaf.service.ledger.shifts import Seat
from deccaf.service.monitor.health import DAY
from deccaf.service.reports.expert_report import Errors
from deccaf.service.reports.team_report import CostCurve, curve_of
from deccaf.service.store import tables as t
from deccaf.service.store.listing import from_json

LATEST = 2_000
"""Decisions that are looked at."""
OTHERS = 500
"""Of these, the latest on which others' decisions are looked up."""
DAYS = 14
BLOCKS, FEWEST = 8, 20
SHOWN = 20


@dataclass(frozen=True)
class LearningPoint:
    """Some labelled decisions in a row: from which on, how many, and the share that was wrong."""

    at: float
    labelled: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Disagreed:
    """A decision that the label, the machine or other people do not share."""

    case_id: str
    at: float
    decision: int | str
    label: int | str | None
    machine: int | str | None
    others: list[tuple[str, int | str]]


@dataclass(frozen=True)
class PersonReport:
    """Somebody at a glance."""

    person: Expert
    seat: Seat | None
    """In the shift that runs now."""
    waiting: int
    decided: int
    """Among the latest decisions, and whether these are all."""
    is_all: bool
    seconds: float | None
    """Mean time for a decision."""
    days: list[tuple[int, int]]
    """Decisions of the last days: days since 1970, how many."""
    errors: Errors
    by_lot: Errors
    costs: CostCurve | None
    learning: list[LearningPoint]
    disagreements: list[Disagreed]


def report_person(connection: sa.Connection, name: str, model: Model | None, at: float) -> PersonReport:
    """Everything about one person that a lead looks at."""
    person = next((one for one in people.list_experts(connection) if one.name == name), None)
    if person is None:
        raise not_found("expert", name)
    current = shifts.current_shift(connection, at)
    seats = [] if current is None else shifts.read_roster(connection, current)
    rows = _latest(connection, name)
    labelled = [row for row in rows if row.label is not None]
    drawn = [row for row in labelled if row.method == "lot"]
    times = [row.seconds for row in rows if row.seconds is not None]
    return PersonReport(
        person=person,
        seat=next((seat for seat in seats if seat.maker == name), None),
        waiting=claims.read_queue(connection, name, 1).waiting,
        decided=len(rows),
        is_all=len(rows) < LATEST,
        seconds=float(np.mean(times)) if times else None,
        days=_days(rows, at),
        errors=_errors(labelled),
        by_lot=_errors(drawn),
        costs=_costs(name, labelled, model),
        learning=_learning(labelled),
        disagreements=_disagreements(connection, name, rows),
    )


def _latest(connection: sa.Connection, name: str) -> Sequence[Any]:
    c, a = t.cases.c, t.assignments.c
    rows: list[Any] = []
    for made, _ in t.ANSWERS:
        d = made.c
        own = a.id == d.assignment_id if made is t.opinions else sa.and_(a.case_id == d.case_id, t.IS_LIVE)
        query = (
            sa.select(*d["case_id", "decision", "at", "seconds"], c.label)
            .add_columns(*a["machine_says", "expected_loss", "method"])
            .join_from(made, t.cases, c.case_id == d.case_id)
            .outerjoin(t.assignments, own)
            .where(d.maker == name)
            .order_by(d.at.desc())
            .limit(LATEST)
        )
        rows += connection.execute(query).all()
    return sorted(rows, key=lambda row: -row.at)[:LATEST]


def _days(rows: Sequence[Any], at: float) -> list[tuple[int, int]]:
    today = int(at // DAY)
    counted = dict.fromkeys(range(today - DAYS + 1, today + 1), 0)
    for row in rows:
        day = int(row.at // DAY)
        if day in counted:
            counted[day] += 1
    return sorted(counted.items())


def _errors(rows: Sequence[Any]) -> Errors:
    return Errors.of(len(rows), sum(row.decision != row.label for row in rows))


def _costs(name: str, labelled: Sequence[Any], model: Model | None) -> CostCurve | None:
    """None where costs differ from case to case, or nothing is known."""
    if model is None or model.system.costs_.columns:
        return None
    costs = model.system.costs_
    matrix, place = costs.array()[0], {json.dumps(one): k for k, one in enumerate(costs.classes)}
    pairs = [
        (row.expected_loss, float(matrix[place[row.label], place[row.decision]]))
        for row in labelled
        if row.expected_loss is not None and row.method != "history"
        if row.label in place and row.decision in place
    ]
    return curve_of(name, np.array(pairs)) if pairs else None


def _learning(labelled: Sequence[Any]) -> list[LearningPoint]:
    """The share of errors over their decisions, the oldest first."""
    blocks = min(BLOCKS, len(labelled) // FEWEST)
    if blocks < 2:
        return []
    oldest_first = list(reversed(labelled))
    points = []
    for part in np.array_split(np.arange(len(oldest_first)), blocks):
        rows = [oldest_first[k] for k in part]
        rate = sum(row.decision != row.label for row in rows) / len(rows)
        low, high = wilson(rate, len(rows))
        points.append(LearningPoint(rows[0].at, len(rows), rate, float(low), float(high)))
    return points


def _disagreements(connection: sa.Connection, name: str, rows: Sequence[Any]) -> list[Disagreed]:
    others = _others(connection, name, [row.case_id for row in rows[:OTHERS]])
    found = []
    for row in rows:
        theirs = [
            (who, said) for who, said in others.get(row.case_id, []) if json.dumps(said) != row.decision
        ]
        if theirs or (row.label is not None and row.label != row.decision):
            texts = (from_json(row.decision), from_json(row.label), from_json(row.machine_says))
            found.append(Disagreed(row.case_id, row.at, *texts, theirs))
        if len(found) == SHOWN:
            break
    return found


def _others(
    connection: sa.Connection, name: str, case_ids: Sequence[str]
) -> dict[str, list[tuple[str, int | str]]]:
    """What other people decided on the same cases, by the trail."""
    h = t.history.c
    query = sa.select(*h["case_id", "maker", "data"]).where(
        h.case_id.in_(case_ids), h.kind == "decided", h.maker != name
    )
    found: dict[str, list[tuple[str, int | str]]] = {}
    for row in connection.execute(query.order_by(h.id)):
        found.setdefault(row.case_id, []).append((row.maker, from_json(row.data)["decision"]))
    return found
