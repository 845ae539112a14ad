"""Cases: entering them, their status, and everything that is on record about one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.ledger import assignments, trail
from deccaf.service.ledger.assignments import Live, Reason
from deccaf.service.ledger.trail import Event
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, from_json, read_page

_AT_ONCE = 500
_KNOWN = sa.select(t.cases.c.case_id).where(
    t.cases.c.case_id.in_(sa.bindparam("ids", expanding=True)), ~unfinished.unfinished_import()
)
_LOCKED_AT_ONCE = 5_000
_STANDING = sa.select(
    *t.cases.c["case_id", "status", "excluded"], t.cases.c.label.is_not(None).label("is_labelled")
)
_READ = _STANDING.where(
    t.cases.c.case_id.in_(sa.bindparam("ids", expanding=True)), ~unfinished.unfinished_import()
)
_LOCK = (
    _STANDING.where(t.cases.c.case_id == sa.any_(sa.bindparam("ids", type_=sa.ARRAY(sa.Text))))
    .order_by(t.cases.c.case_id.collate("C"))
    .with_for_update(key_share=True)
)
_BRIEF = sa.select(*t.cases.c["id", "case_id", "status", "arrived_at", "label"])


@dataclass(frozen=True)
class Rival:
    """What the other arm of a trial believes about a case, which had its chance to be chosen by that."""

    losses: Mapping[str, float]
    objective: Mapping[str, float] | None
    chance: float
    """Of the arm that the case is in."""


@dataclass(frozen=True)
class Arrival:
    """A case to be entered, with what is believed about it where something is."""

    case_id: str
    features: str
    losses: Mapping[str, float] | None = None
    """Expected loss by maker."""
    says: str | None = None
    """What the machine would decide, as JSON."""
    model_id: int | None = None
    given: str | None = None
    """The losses as the caller gave them, where no model was asked."""
    excluded: tuple[str, ...] = ()
    objective: Mapping[str, float] | None = None
    """What the choice minimises, by maker, where that is not the expected loss."""
    due: float | None = None
    """When it is late."""
    waiting_cost: float | None = None
    """What an hour of its waiting costs."""
    rival: Rival | None = None


@dataclass(frozen=True)
class Case:
    """A case in a list."""

    id: int
    case_id: str
    status: str
    arrived_at: float
    label: int | str | None


@dataclass(frozen=True)
class ListedCase:
    """A case with who has it."""

    id: int
    case_id: str
    status: str
    arrived_at: float
    label: str | None
    """As JSON."""
    maker: str | None
    expected_loss: float | None
    method: str | None


@dataclass(frozen=True)
class Decided:
    """A decision on record."""

    maker: str
    decision: int | str
    at: float


@dataclass(frozen=True)
class CaseFile:
    """Everything on record about a case, as far as whoever asked may see it."""

    case: Case
    features: dict[str, Any]
    excluded: list[str]
    live: Live | None
    reason: Reason | None
    decision: Decided | None
    events: list[Event]
    priority: int = 0
    due: float | None = None
    waiting_cost: float | None = None


def known_cases(connection: sa.Connection, case_ids: Sequence[str]) -> set[str]:
    """Which of these ids are in the ledger already."""
    found: set[str] = set()
    for start in range(0, len(case_ids), _AT_ONCE):
        part = list(case_ids[start : start + _AT_ONCE])
        found.update(connection.execute(_KNOWN, {"ids": part}).scalars())
    return found


class Standing(NamedTuple):
    """How a case stands at this moment."""

    status: str
    excluded: str
    """As JSON."""
    is_labelled: bool


def lock(connection: sa.Connection, case_ids: Iterable[str]) -> dict[str, Standing]:
    """How cases stand; nobody else changes them until the transaction ends.

    Everybody who locks several takes them in the same order, so that no two wait for each other in a circle.
    """
    found: dict[str, Standing] = {}
    wanted = sorted(case_ids)  # the order of the collation "C"
    query = _LOCK if connection.dialect.name == "postgresql" else _READ  # SQLite has one writer at a time
    for start in range(0, len(wanted), _LOCKED_AT_ONCE):
        rows = connection.execute(query, {"ids": wanted[start : start + _LOCKED_AT_ONCE]})
        found |= {row.case_id: Standing(row.status, row.excluded, row.is_labelled) for row in rows}
    return found


def hold(
    connection: sa.Connection,
    arrivals: Sequence[Arrival],
    actor: Actor,
    at: float,
    import_id: int | None = None,
) -> None:
    """Enter cases that wait for the next plan."""
    if not arrivals:
        return
    add(connection, [(arrival, "waiting") for arrival in arrivals], at, import_id)
    if import_id is None:
        trail.write(connection, [trail.line("arrived", at, actor, case_id=a.case_id) for a in arrivals])
    else:
        record_import(connection, import_id, len(arrivals), actor, at)


def record_import(connection: sa.Connection, import_id: int, cases: int, actor: Actor, at: float) -> None:
    """The line of the trail for a file of cases."""
    trail.record(connection, "imported", at, actor, import_id=import_id, cases=cases)


def add(
    connection: sa.Connection,
    arrivals: Iterable[tuple[Arrival, str]],
    at: float,
    import_id: int | None = None,
) -> None:
    """Add rows of cases, each with its status."""
    new: list[dict[str, Any]] = [
        {
            "case_id": arrival.case_id,
            "status": status,
            "features": arrival.features,
            "given": arrival.given,
            "excluded": json.dumps(arrival.excluded),
            "import_id": import_id,
            "arrived_at": at,
            "due": arrival.due,
            "waiting_cost": arrival.waiting_cost,
        }
        for arrival, status in arrivals
    ]
    unfinished.make_way(connection, [row["case_id"] for row in new])
    many.add(connection, t.cases, new)


def set_status(connection: sa.Connection, case_ids: Sequence[str], status: str) -> None:
    """Say that cases wait, are assigned, or are decided."""
    for start in range(0, len(case_ids), _AT_ONCE):
        part = list(case_ids[start : start + _AT_ONCE])
        connection.execute(sa.update(t.cases).where(t.cases.c.case_id.in_(part)).values(status=status))


def set_waiting(connection: sa.Connection, case_id: str, barred: str) -> tuple[str, ...]:
    """Let a case wait again and exclude one more maker from it; everybody who is excluded now."""
    return set_many_waiting(connection, [case_id], barred)[case_id]


def set_many_waiting(
    connection: sa.Connection, case_ids: Sequence[str], barred: str
) -> dict[str, tuple[str, ...]]:
    """The same for many cases."""
    c = t.cases.c
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(case_ids), _AT_ONCE):
        part = list(case_ids[start : start + _AT_ONCE])
        query = sa.select(*c["case_id", "excluded"]).where(c.case_id.in_(part))
        before = {row.case_id: json.loads(row.excluded) for row in connection.execute(query)}
        found |= {case: tuple(dict.fromkeys((*before[case], barred))) for case in part}
    together: dict[tuple[str, ...], list[str]] = {}
    for case, excluded in found.items():
        together.setdefault(excluded, []).append(case)
    for excluded, cases in together.items():
        for start in range(0, len(cases), _AT_ONCE):
            connection.execute(
                sa.update(t.cases)
                .where(c.case_id.in_(cases[start : start + _AT_ONCE]))
                .values(status="waiting", excluded=json.dumps(list(excluded)))
            )
    return found


def admit_again(connection: sa.Connection, case_ids: Sequence[str], maker: str) -> None:
    """Let somebody get cases again that they were excluded from."""
    c = t.cases.c
    for start in range(0, len(case_ids), _AT_ONCE):
        part = list(case_ids[start : start + _AT_ONCE])
        query = sa.select(*c["case_id", "excluded"]).where(c.case_id.in_(part))
        for row in connection.execute(query).all():
            left = [name for name in json.loads(row.excluded) if name != maker]
            connection.execute(
                sa.update(t.cases).where(c.case_id == row.case_id).values(excluded=json.dumps(left))
            )


def waiting_count(connection: sa.Connection) -> int:
    """How many cases wait for a plan."""
    return _count(connection, t.cases.c.status == "waiting")


def labelled_count(connection: sa.Connection) -> int:
    """How many cases have a label."""
    return _count(connection, t.cases.c.label.is_not(None))


def list_cases(connection: sa.Connection, status: str | None, cut: Cut) -> Page[Case]:
    """Cases in order of arrival, of one status or of any."""
    query = _BRIEF if status is None else _BRIEF.where(t.cases.c.status == status)
    return read_page(connection, query, t.cases.c.id, cut, _brief)


def latest_cases(connection: sa.Connection, status: str | None, before: int, most: int) -> list[ListedCase]:
    """The latest cases with an id below `before`, the newest first."""
    c, a = t.cases.c, t.assignments.c
    query = (
        sa.select(c.id, c.case_id, c.status, c.arrived_at, c.label, a.maker, a.expected_loss, a.method)
        .outerjoin_from(t.cases, t.assignments, sa.and_(a.case_id == c.case_id, a.state.in_(t.LIVE)))
        .where(c.id < before)
    )
    if status is not None:
        query = query.where(c.status == status)
    return [ListedCase(*row) for row in connection.execute(query.order_by(c.id.desc()).limit(most))]


def read_case(connection: sa.Connection, case_id: str, who: Actor) -> CaseFile:
    """One case; a reviewer sees only cases that are theirs, and nobody's losses, decisions or labels."""
    row = connection.execute(sa.select(t.cases).where(t.cases.c.case_id == case_id)).one_or_none()
    live = None if row is None else assignments.live_of(connection, case_id)
    if row is None:
        raise not_found("case", case_id)
    case, features = _brief(row), from_json(row.features)
    if who.role == "reviewer":
        mine = live if live is not None and live.maker == who.expert else None
        if mine is None:
            mine = assignments.answered_by(connection, case_id, who.expert)
            case = replace(case, status="decided")  # as far as they know
        if mine is None:
            raise not_found("case", case_id)
        return CaseFile(case, features, [], mine, None, None, [], due=row.due)
    d = t.decisions.c
    made = connection.execute(sa.select(t.decisions).where(d.case_id == case_id)).one_or_none()
    return CaseFile(
        case=case,
        features=features,
        excluded=from_json(row.excluded),
        live=live,
        reason=None if live is None else assignments.reason_of(connection, live),
        decision=None if made is None else Decided(made.maker, from_json(made.decision), made.at),
        events=trail.events_of(connection, case_id),
        priority=row.priority,
        due=row.due,
        waiting_cost=row.waiting_cost,
    )


def _brief(row: Any) -> Case:
    return Case(row.id, row.case_id, row.status, row.arrived_at, from_json(row.label))


def _count(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(t.cases).where(condition)
    return int(connection.execute(query).scalar_one())
