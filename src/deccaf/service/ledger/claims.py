"""A reviewer's day: claim the next case, decide it or hand it back; claims that run out; work taken away."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.errors import RefusedError, conflict, not_found
from deccaf.service.ledger import assignments, case_records, desk, letting, people, shifts, trail
from deccaf.service.ledger.machines import seats
from deccaf.service.ledger.placing import Placed, ToPlace, place_waiting
from deccaf.service.ledger.review import opinion, second
from deccaf.service.ledger.waiting import open_work
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import from_json
from deccaf.service.store.unfinished import Unfinished

UNDECIDED = ("assigned", "claimed")
"""States of an assignment that somebody has still to decide."""
LATEST = 5
"""Of their latest decisions, so many are shown to somebody."""
RELEASED_AT_ONCE = 150
"""Cases that are taken from somebody in one transaction on SQLite."""
FINISHED = ~unfinished.unfinished_plan()
"""Of an assignment: that it is not of a plan whose commit goes on."""


class Claim(NamedTuple):
    """A case in somebody's hands, and until when."""

    case_id: str
    claimed_until: float


@dataclass(frozen=True)
class QueuedCase:
    """A case in somebody's queue."""

    case_id: str
    state: str
    assigned_at: float
    claimed_until: float | None
    parked_until: float | None
    """It was put aside until then, or until it is taken up."""
    due: float | None
    """When it is late."""


@dataclass(frozen=True)
class Queue:
    """What somebody has to decide, the most urgent first, then the oldest, and how much they have decided."""

    waiting: int
    decided: int
    items: list[QueuedCase]


@dataclass(frozen=True)
class QueueLength:
    """How much an expert has to decide."""

    name: str
    display: str
    cases: int | None
    oldest: float | None
    """When the oldest of these cases was given to them."""
    active: bool
    """False: out of use."""
    machine: bool = False


@dataclass(frozen=True)
class WorkDay:
    """How far a reviewer is in the shift that runs now."""

    case_id: str | None
    """The case in hand."""
    features: dict[str, object]
    arrived_at: float | None
    waiting: int
    decided: int
    seconds: float | None
    """Mean time for a decision."""
    latest: list[tuple[str, int | str, float]]
    """Their latest decisions: case, decision, time."""


def claim_next(
    connection: sa.Connection, maker: str, actor: Actor, at: float, seconds: float
) -> Claim | None:
    """The reviewer's open claim, or else their most urgent case, now claimed; None: nothing.

    Where something says what waiting costs, that and what they are expected to save decide, per hour of their
    time (`waiting.open_work`); else the cases come as they came.

    One person's claims take turns, so that two tabs get the same case. A case that somebody is just changing
    is waited for, not passed over: what comes of it decides whether it is still theirs.
    """
    people.take_turn(connection, maker)
    if seats.is_sent_its_cases(connection, maker):
        raise conflict("machine-claims-nothing", f"{maker} is a machine: its cases are sent to its address")
    c = t.assignments.c
    mine = sa.select(*c["id", "case_id", "state"]).where(c.maker == maker, FINISHED).limit(1)
    mine = _most_urgent(mine).with_for_update(key_share=True, of=t.assignments)
    row = connection.execute(mine.where(c.state == "claimed", c.claimed_until > at)).one_or_none()
    if row is None:
        ready = sa.or_(c.parked_until.is_(None), c.parked_until <= at)
        theirs = mine.where(c.state == "assigned", ready)
        first = open_work.next_of(connection, maker, at)
        if first is not None:
            row = connection.execute(theirs.where(c.id == first)).one_or_none()
        if row is None:  # nothing says what waiting costs, or somebody has just changed the case
            row = connection.execute(theirs).one_or_none()
        if row is None:
            return None
        trail.record(connection, "claimed", at, actor, row.case_id, None, maker)
    until = at + seconds
    connection.execute(
        sa.update(t.assignments)
        .where(c.id == row.id)
        .values(state="claimed", claimed_until=until, parked_until=None, changed_at=at)
    )
    return Claim(row.case_id, until)


def put_down(
    connection: sa.Connection, maker: str, actor: Actor, at: float, except_for: str | None = None
) -> None:
    """What somebody has in hand goes back to their queue: they have one case in hand at a time."""
    c = t.assignments.c
    held = sa.select(*c["id", "case_id"]).where(c.maker == maker, c.state == "claimed")
    rows = [
        row for row in connection.execute(held.with_for_update(key_share=True)) if row.case_id != except_for
    ]
    for row in rows:
        connection.execute(
            sa.update(t.assignments)
            .where(c.id == row.id, c.state == "claimed")
            .values(state="assigned", claimed_until=None, changed_at=at)
        )
        trail.record(connection, "put down", at, actor, row.case_id, None, maker)


def decide(
    connection: sa.Connection,
    case_id: str,
    maker: str,
    decision: str,
    seconds: float | None,
    actor: Actor,
    at: float,
    of_machine: Mapping[str, object] | None = None,
) -> float | None:
    """Write down a decision; only by whom the case is assigned to, and only once.

    `of_machine` is what a machine said beside its decision; people have seen what the classifier thinks, or
    have not.

    Where others are asked too it is an answer (see `second`). Gives the chance with which a reject was let
    through by lot, where it was (see `letting`).
    """
    course = second.course(connection, case_id, maker, decision, at)
    is_last = course.next == "decided"
    c = t.assignments.c
    done = connection.execute(
        sa.update(t.assignments)
        .where(c.case_id == case_id, c.maker == maker, c.state.in_(UNDECIDED), FINISHED)
        .values(state="decided" if is_last else t.ANSWERED, changed_at=at, claimed_until=None)
    )
    if done.rowcount != 1:
        raise not_theirs(connection, case_id, maker)
    if of_machine is None:
        of_machine = {} if maker == MACHINE else opinion.seen(connection, case_id, maker)
    facts = {"decision": json.loads(decision), **of_machine}
    if not is_last:
        trail.record(connection, "decided", at, actor, case_id, None, maker, **facts, second=course.why)
        second.ask_others(connection, course, maker, decision, seconds, at)
        return None
    connection.execute(
        sa.insert(t.decisions).values(case_id=case_id, maker=maker, decision=decision, seconds=seconds, at=at)
    )
    case_records.set_status(connection, [case_id], "decided")
    if maker != MACHINE:
        second.check_still(connection, case_id, course)
    trail.record(connection, "decided", at, actor, case_id, None, maker, **facts)
    second.agreed(connection, case_id, course, at)
    return letting.draw(connection, case_id, maker, decision, actor, at)


def hand_back(
    connection: sa.Connection,
    case_id: str,
    maker: str,
    reason: str,
    actor: Actor,
    at: float,
    rng: np.random.Generator,
    state: str = "returned",
) -> Placed | None:
    """Take a case from somebody and give it to the next best; None where it has to wait."""
    live = assignments.live_of(connection, case_id)
    if live is None or live.maker != maker or live.state not in UNDECIDED:
        raise not_theirs(connection, case_id, maker)
    at_desk = desk.open_desk(connection, live.shift_id, at)
    c = t.assignments.c
    done = connection.execute(
        sa.update(t.assignments)
        .where(c.id == live.id, c.state.in_(UNDECIDED))
        .values(state=state, changed_at=at, claimed_until=None)
    )
    if done.rowcount != 1:  # somebody was quicker
        raise not_theirs(connection, case_id, maker)
    desk.give_back(connection, live.shift_id, maker)
    if maker in at_desk.makers:
        at_desk.room[at_desk.makers.index(maker)] += 1
    excluded = case_records.set_waiting(connection, case_id, maker)
    trail.record(connection, state, at, actor, case_id, live.shift_id, maker, reason=reason)
    why = assignments.reason_of(connection, live)
    aim = None if why.objective is None else _known(why.objective)
    item = ToPlace(case_id, _known(why.losses), live.machine_says, live.model_id, excluded, aim)
    (placed,) = place_waiting(connection, at_desk, [item], actor, at, rng)
    if placed is None:
        second.to_lead(connection, [case_id], at)
    return placed


def expire_claims(
    connection: sa.Connection, at: float, rng: np.random.Generator, most: int = 100
) -> list[str]:
    """Take cases of one shift from reviewers whose claims have run out; each goes to the next best."""
    c = t.assignments.c
    late = sa.and_(t.IS_CLAIMED, c.claimed_until < at)
    shift = connection.execute(sa.select(c.shift_id).where(late).order_by(c.shift_id).limit(1)).scalar()
    if shift is None:
        return []
    desk.open_desk(connection, shift, at)  # the shift first, then its assignments, like everybody
    query = sa.select(*c["case_id", "maker"]).where(late, c.shift_id == shift).order_by(c.id).limit(most)
    rows = connection.execute(query.with_for_update(key_share=True)).all()
    for row in rows:
        hand_back(connection, row.case_id, row.maker, "claim expired", Actor(None), at, rng, "expired")
    return [row.case_id for row in rows]


def any_expired(connection: sa.Connection, at: float) -> bool:
    """Whether some claim has run out."""
    c = t.assignments.c
    query = sa.select(c.id).where(t.IS_CLAIMED, c.claimed_until < at).limit(1)
    return connection.execute(query).scalar() is not None


def release_work(
    connection: sa.Connection,
    shift_id: int,
    maker: str,
    count: int | None,
    reason: str,
    actor: Actor,
    at: float,
    rng: np.random.Generator,
    *,
    begun: bool = False,
    until: int | None = None,
) -> int:
    """Take cases that somebody has not begun, newest first, and give them to others; how many.

    With `begun` those that they have in hand too; with `until` only assignments up to that one. The caller
    has locked the shift.
    """
    mine = _open_work(shift_id, maker, begun)
    if until is not None:
        mine = sa.and_(mine, t.assignments.c.id <= until)
    taken = assignments.lock(connection, mine, count)
    if not taken:
        return 0
    at_desk = desk.open_desk(connection, shift_id, at)
    assignments.set_state(connection, [live.id for live in taken], "released", at)
    desk.give_back(connection, shift_id, maker, len(taken))
    excluded = case_records.set_many_waiting(connection, [live.case_id for live in taken], maker)
    lines = [
        trail.line("released", at, actor, live.case_id, shift_id, maker, reason=reason) for live in taken
    ]
    trail.write(connection, lines)
    items = []
    for live, why in zip(taken, assignments.reasons_of(connection, taken), strict=True):
        aim = None if why.objective is None else _known(why.objective)
        barred = excluded[live.case_id]
        items.append(ToPlace(live.case_id, _known(why.losses), live.machine_says, live.model_id, barred, aim))
    placed = place_waiting(connection, at_desk, items, actor, at, rng)
    left = [item.case_id for item, found in zip(items, placed, strict=True) if found is None]
    second.to_lead(connection, left, at)
    return len(taken)


class Released(NamedTuple):
    """How many cases go to others, and whether they still do."""

    cases: int
    later: bool


def release_all(
    connection: sa.Connection,
    shift_id: int,
    maker: str,
    reason: str,
    actor: Actor,
    at: float,
    rng: np.random.Generator,
    *,
    begun: bool = False,
    most: int | None = None,
    capacity: int | None = None,
) -> Released:
    """Take open work from somebody, all of it or the newest `most`. On SQLite much of it goes in pieces.

    They end within a second. Who shall have less `capacity` than they have work has as much as work until
    then: nothing new comes to them, and `used <= capacity` holds all the time.
    """
    c = t.assignments.c
    counted = sa.select(sa.func.count(), sa.func.max(c.id)).where(_open_work(shift_id, maker, begun))
    count, last = connection.execute(counted).one()
    count = count if most is None else min(count, most)
    if not unfinished.is_in_pieces(connection, count, RELEASED_AT_ONCE):
        moved = release_work(connection, shift_id, maker, most, reason, actor, at, rng, begun=begun)
        return Released(moved, later=False)
    units = {"maker": maker, "reason": reason, "begun": begun, "count": count, "capacity": capacity}
    unfinished.begin(
        connection,
        at,
        key_id=actor.key_id,
        request="",
        shift_id=shift_id,
        units=json.dumps(units),
        after_id=last,
    )
    return Released(int(count), later=True)


def release_piece(connection: sa.Connection, change: Unfinished, rng: np.random.Generator) -> bool:
    """The next cases of somebody whose work goes to others; whether any may be left."""
    wanted, done = json.loads(change.units), unfinished.done(connection, change)
    if change.shift_id is None or done is None:
        return False
    desk.open_desk(connection, change.shift_id, time.time())
    count = wanted.get("count", sys.maxsize)  # of an earlier version: all there is
    piece = min(RELEASED_AT_ONCE, count - done)
    moved = release_work(
        connection,
        change.shift_id,
        wanted["maker"],
        piece,
        wanted["reason"],
        Actor(change.key_id),
        change.at,  # all pieces are of one moment: whoever comes back gets them again (`moving.absence`)
        rng,
        begun=wanted["begun"],
        until=change.after_id,
    )
    unfinished.move_on(connection, change, done, moved)
    if wanted.get("capacity") is not None:
        unfinished.lower_capacity(connection, change.shift_id, wanted["maker"], wanted["capacity"])
    return (moved == piece and done + moved < count) or not unfinished.end(connection, change)


def _open_work(shift_id: int, maker: str, begun: bool) -> sa.ColumnElement[bool]:
    c = t.assignments.c
    states = UNDECIDED if begun else ("assigned",)
    return sa.and_(c.shift_id == shift_id, c.maker == maker, c.state.in_(states), FINISHED)


def read_queue(connection: sa.Connection, maker: str, most: int) -> Queue:
    """Somebody's queue, over all shifts."""
    c = t.assignments.c
    counted = sa.select(c.state, sa.func.count()).where(c.maker == maker, c.state.in_(t.HELD))
    counts: dict[str, int] = dict(connection.execute(counted.group_by(c.state)).all())
    columns = c["case_id", "state", "created_at", "claimed_until", "parked_until"]
    query = sa.select(*columns, t.cases.c.due, c.id).where(c.maker == maker, c.state.in_(UNDECIDED))
    place = open_work.places_of(connection, maker, time.time())
    rows = connection.execute(_most_urgent(query).limit(open_work.MOST if place else most)).all()
    if place:
        rows = sorted(rows, key=lambda row: place.get(row.id, len(place)))[:most]
    items = [QueuedCase(*row[:-1]) for row in rows]
    waiting = counts.get("assigned", 0) + counts.get("claimed", 0)
    return Queue(waiting, counts.get("decided", 0) + counts.get(t.ANSWERED, 0), items)


def read_work_day(connection: sa.Connection, maker: str, at: float) -> WorkDay:
    """How far somebody is, with the case in hand."""
    a = t.assignments.c
    current = shifts.current_shift(connection, at)
    since = 0.0 if current is None else shifts.read_shift(connection, current).starts_at
    claimed = sa.select(a.case_id).where(a.maker == maker, a.state == "claimed", a.claimed_until > at)
    case_id = connection.execute(claimed.order_by(a.id).limit(1)).scalar()
    k = t.cases.c
    case = connection.execute(
        sa.select(*k["features", "arrived_at"]).where(k.case_id == case_id)
    ).one_or_none()
    counted = sa.select(sa.func.count()).where(a.maker == maker, a.state.in_(UNDECIDED))
    decided, timed, seconds = 0, 0, 0.0
    latest: list[tuple[str, int | str, float]] = []
    for made in (t.decisions, t.opinions):  # an answer that others are asked about too is a decision to them
        d = made.c
        done = sa.select(sa.func.count(), sa.func.count(d.seconds), sa.func.sum(d.seconds)).where(
            d.maker == maker, d.at >= since
        )
        count, known, total = connection.execute(done).one()
        decided, timed, seconds = decided + count, timed + known, seconds + (total or 0.0)
        last = sa.select(*d["case_id", "decision", "at"]).where(d.maker == maker).order_by(d.at.desc())
        latest += [(r.case_id, from_json(r.decision), r.at) for r in connection.execute(last.limit(LATEST))]
    return WorkDay(
        case_id=case_id,
        features={} if case is None else from_json(case.features),
        arrived_at=None if case is None else case.arrived_at,
        waiting=connection.execute(counted).scalar_one(),
        decided=decided,
        seconds=seconds / timed if timed else None,
        latest=sorted(latest, key=lambda one: -one[2])[:LATEST],
    )


def queue_lengths(connection: sa.Connection) -> list[QueueLength]:
    """How much everybody has to decide; those out of use come last."""
    a, e = t.assignments.c, t.experts.c
    counted = (
        sa.select(a.maker, sa.func.count().label("cases"), sa.func.min(a.created_at).label("oldest"))
        .where(a.state.in_(UNDECIDED))
        .group_by(a.maker)
        .subquery()
    )
    machine = t.machines.c.maker.is_not(None)
    query = (
        sa.select(e.name, e.display, counted.c.cases, counted.c.oldest, e.active, machine)
        .outerjoin_from(t.experts, counted, counted.c.maker == e.name)
        .outerjoin(t.machines, t.machines.c.maker == e.name)
    )
    return [QueueLength(*row) for row in connection.execute(query.order_by(e.active.desc(), e.name))]


def mean_seconds(connection: sa.Connection, since: float) -> dict[str, float]:
    """Mean time for a decision by maker, of decisions since then."""
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    people = connection.execute(sa.select(t.experts.c.name)).scalars().all()
    for made in (t.decisions, t.opinions):
        d = made.c
        query = sa.select(d.maker, sa.func.count(d.seconds), sa.func.sum(d.seconds)).group_by(d.maker)
        query = query.where(d.maker.in_(people), d.at >= since)  # by name: a stretch of the index each
        for maker, many, seconds in connection.execute(query):
            counts[maker] = counts.get(maker, 0) + many
            totals[maker] = totals.get(maker, 0.0) + float(seconds or 0.0)
    return {maker: totals[maker] / count for maker, count in counts.items() if count}


def _most_urgent(query: sa.Select[Any]) -> sa.Select[Any]:
    """Assignments in the order in which they are worked through."""
    c = t.cases.c
    joined = query.join(t.cases, c.case_id == t.assignments.c.case_id)
    return joined.order_by(c.priority.desc(), t.assignments.c.id)


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Without those who could not get the case."""
    return {maker: float(value) for maker, value in values.items() if value is not None}


def not_theirs(connection: sa.Connection, case_id: str, maker: str) -> RefusedError:
    """Why somebody cannot do anything with a case."""
    if not case_records.known_cases(connection, [case_id]):
        return not_found("case", case_id)
    live = assignments.live_of(connection, case_id)
    if second.answer_of(connection, case_id, maker) or (live is not None and live.state == "decided"):
        return conflict("already-decided", f"case {case_id!r} is decided already")
    return conflict("not-assigned", f"case {case_id!r} is not assigned to {maker}")
