"""The ledger: every change of cases, assignments and rosters, as functions over an open transaction.

Whoever takes or gives back capacity locks the shift first (`open_desk`), then assignments, then cases; so
changes of one shift take turns, and no two wait for each other in a circle. Counting is done by conditional
updates; constraints of the database stand behind them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE
from deccaf.service.decide.routing import choose
from deccaf.service.errors import conflict, not_found
from deccaf.service.store import tables as t

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Actor:
    """Who asks for a change: the key's id, its role, and for a reviewer the expert."""

    key_id: int | None
    role: str = "lead"
    expert: str | None = None


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


@dataclass(frozen=True)
class ToPlace:
    """A case that needs somebody."""

    case_id: str
    losses: Mapping[str, float]
    says: str | None
    model_id: int | None
    excluded: tuple[str, ...] = ()


@dataclass
class Desk:
    """A shift under lock: who is there, how much room they have, and today's prices."""

    shift_id: int
    makers: tuple[str, ...]
    room: Floats
    prices: Floats
    pricing_id: int
    random_share: float
    is_open: bool
    taken: Counter[str] = field(default_factory=Counter)

    def row(self, losses: Mapping[str, float], excluded: Iterable[str]) -> Floats:
        """The losses in the desk's order; infinite for who may not get the case."""
        barred = set(excluded)
        return np.array([np.inf if m in barred else losses.get(m, np.inf) for m in self.makers])


@dataclass(frozen=True)
class Placed:
    """Where a case went, and why."""

    case_id: str
    maker: str
    expected_loss: float
    price: float
    propensity: float
    method: str
    losses: Mapping[str, float | None]
    decision: str | None
    """The machine's decision, as JSON, where the machine decided at once."""


# Statements of the way that every case takes, built once: building one costs as much as running it.
_DESK = (
    sa.select(*t.shifts.c["state", "random_share", "pricing_id"], *t.pricings.c["makers", "prices"])
    .outerjoin_from(t.shifts, t.pricings, t.pricings.c.id == t.shifts.c.pricing_id)
    .where(t.shifts.c.id == sa.bindparam("shift"))
)
_LOCKED_DESK = _DESK.with_for_update(key_share=True, of=t.shifts)
_ROSTER = sa.select(*t.roster.c["maker", "capacity", "used", "absent"]).where(
    t.roster.c.shift_id == sa.bindparam("shift")
)
_CURRENT = (
    sa.select(t.shifts.c.id)
    .where(
        t.shifts.c.state == "open",
        t.shifts.c.starts_at <= sa.bindparam("at"),
        t.shifts.c.ends_at > sa.bindparam("at"),
    )
    .order_by(t.shifts.c.starts_at.desc(), t.shifts.c.id.desc())
    .limit(1)
)
_KNOWN = sa.select(t.cases.c.case_id).where(t.cases.c.case_id.in_(sa.bindparam("ids", expanding=True)))
_TAKE = (
    sa.update(t.roster)
    .where(
        t.roster.c.shift_id == sa.bindparam("shift"),
        t.roster.c.maker == sa.bindparam("of_maker"),
        t.roster.c.absent.is_(sa.false()),
        sa.or_(
            t.roster.c.capacity.is_(None),
            t.roster.c.used + sa.bindparam("units", type_=sa.Integer) <= t.roster.c.capacity,
        ),
    )
    .values(used=t.roster.c.used + sa.bindparam("units", type_=sa.Integer))
)
_ADD_CASE, _ADD_ASSIGNMENT = sa.insert(t.cases), sa.insert(t.assignments)
_ADD_DECISION, _ADD_EVENT = sa.insert(t.decisions), sa.insert(t.history)


# --- the desk ---------------------------------------------------------------------------------------------


def open_desk(connection: sa.Connection, shift_id: int, at: float) -> Desk:
    """Lock a shift and read who has room at which price; a roster that changed gets prices for all."""
    desk = _desk(connection, shift_id, lock=True)
    if desk.pricing_id == 0:
        desk.pricing_id = write_prices(connection, shift_id, desk.makers, desk.prices, "roster", None, at)
    return desk


def read_desk(connection: sa.Connection, shift_id: int) -> Desk:
    """The same for looking only."""
    return _desk(connection, shift_id, lock=False)


def _desk(connection: sa.Connection, shift_id: int, *, lock: bool) -> Desk:
    """The desk; `pricing_id` is 0 where the prices on record are not for everyone on the roster."""
    shift = connection.execute(_LOCKED_DESK if lock else _DESK, {"shift": shift_id}).one_or_none()
    if shift is None:
        raise not_found("shift", shift_id)
    rows = connection.execute(_ROSTER, {"shift": shift_id}).all()
    rows = sorted(rows, key=lambda row: (row.maker != MACHINE, row.maker))
    makers = tuple(row.maker for row in rows)
    room = [0.0 if r.absent else np.inf if r.capacity is None else float(r.capacity - r.used) for r in rows]
    known, prices = ((), ()) if shift.makers is None else _parsed(shift.makers, shift.prices)
    pricing_id = shift.pricing_id if known == makers else 0
    if known != makers:
        before = dict(zip(known, prices, strict=True))
        prices = tuple(before.get(maker, 0.0) for maker in makers)
    return Desk(
        shift_id,
        makers,
        np.array(room),
        np.array(prices),
        pricing_id,
        shift.random_share,
        shift.state == "open",
    )


@lru_cache(maxsize=256)
def _parsed(makers: str, prices: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    return tuple(json.loads(makers)), tuple(json.loads(prices))


def pricing(connection: sa.Connection, pricing_id: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Makers and their prices, as an assignment was based on them."""
    query = sa.select(*t.pricings.c["makers", "prices"]).where(t.pricings.c.id == pricing_id)
    row = connection.execute(query).one()
    return _parsed(row.makers, row.prices)


def write_prices(
    connection: sa.Connection,
    shift_id: int,
    makers: Sequence[str],
    prices: Iterable[float],
    basis: str,
    model_id: int | None,
    at: float,
) -> int:
    """Put new prices in force for a shift; old ones stay on record, as assignments refer to them."""
    made = connection.execute(
        sa.insert(t.pricings)
        .values(
            shift_id=shift_id,
            model_id=model_id,
            makers=json.dumps(list(makers)),
            prices=json.dumps([float(price) for price in prices]),
            basis=basis,
            at=at,
        )
        .returning(t.pricings.c.id)
    ).scalar_one()
    connection.execute(
        sa.update(t.shifts).where(t.shifts.c.id == shift_id).values(pricing_id=made, priced_at=at)
    )
    return int(made)


def current_shift(connection: sa.Connection, at: float) -> int | None:
    """The open shift that runs now, the latest to start where there are several."""
    found = connection.execute(_CURRENT, {"at": at}).scalar()
    return None if found is None else int(found)


def roster_makers(connection: sa.Connection, shift_id: int | None) -> tuple[str, ...]:
    """Everyone on a shift's roster, the machine first."""
    if shift_id is None:
        return ()
    query = sa.select(t.roster.c.maker).where(t.roster.c.shift_id == shift_id)
    return tuple(sorted(connection.execute(query).scalars(), key=lambda maker: (maker != MACHINE, maker)))


# --- cases in ---------------------------------------------------------------------------------------------


def known_cases(connection: sa.Connection, case_ids: Sequence[str]) -> set[str]:
    """Which of these ids are in the ledger already."""
    found: set[str] = set()
    for start in range(0, len(case_ids), 500):
        part = list(case_ids[start : start + 500])
        found.update(connection.execute(_KNOWN, {"ids": part}).scalars())
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
    connection.execute(_ADD_CASE, [_case_row(a, "waiting", at, import_id) for a in arrivals])
    if import_id is None:
        events = [_event("arrived", at, actor, case_id=a.case_id) for a in arrivals]
    else:
        events = [_event("imported", at, actor, import_id=import_id, cases=len(arrivals))]
    connection.execute(_ADD_EVENT, events)


def route(
    connection: sa.Connection,
    desk: Desk,
    arrivals: Sequence[Arrival],
    actor: Actor | Sequence[Actor],
    at: float,
    rng: np.random.Generator,
) -> list[Placed | None]:
    """Enter cases and give each to somebody at once; None where nobody has room, and the case waits."""
    actors = [actor] * len(arrivals) if isinstance(actor, Actor) else list(actor)
    wanted = [
        ToPlace(a.case_id, a.losses or {}, a.says, a.model_id, a.excluded) if desk.is_open else None
        for a in arrivals
    ]
    placed = [None if item is None else _choose(desk, item, rng) for item in wanted]
    connection.execute(
        _ADD_CASE,
        [_case_row(a, _status(p), at, None) for a, p in zip(arrivals, placed, strict=True)],
    )
    waiting = [
        _event("arrived", at, who, case_id=a.case_id)
        for a, p, who in zip(arrivals, placed, actors, strict=True)
        if p is None
    ]
    if waiting:
        connection.execute(_ADD_EVENT, waiting)
    made = [
        (item, p, who)
        for item, p, who in zip(wanted, placed, actors, strict=True)
        if p is not None and item is not None
    ]
    _write_assignments(connection, desk, made, at)
    return placed


def place_waiting(
    connection: sa.Connection,
    desk: Desk,
    items: Sequence[ToPlace],
    actor: Actor,
    at: float,
    rng: np.random.Generator,
) -> list[Placed | None]:
    """Give cases that are in the ledger and wait to somebody; None where nobody has room."""
    placed = [_choose(desk, item, rng) if desk.is_open else None for item in items]
    made = [(item, p, actor) for item, p in zip(items, placed, strict=True) if p is not None]
    for status in ("assigned", "decided"):
        ids = [p.case_id for _, p, _ in made if _status(p) == status]
        _set_status(connection, ids, status)
    _write_assignments(connection, desk, made, at)
    return placed


def _choose(desk: Desk, item: ToPlace, rng: np.random.Generator) -> Placed | None:
    row = desk.row(item.losses, item.excluded)
    choice = choose(row, desk.prices, desk.room, desk.random_share, rng)
    if choice is None:
        return None
    maker = desk.makers[choice.position]
    desk.room[choice.position] -= 1
    desk.taken[maker] += 1
    losses = {m: float(v) if np.isfinite(v) else None for m, v in zip(desk.makers, row, strict=True)}
    return Placed(
        case_id=item.case_id,
        maker=maker,
        expected_loss=float(row[choice.position]),
        price=float(desk.prices[choice.position]),
        propensity=choice.propensity,
        method="lot" if choice.by_lot else "stream",
        losses=losses,
        decision=item.says if maker == MACHINE else None,
    )


def _status(placed: Placed | None) -> str:
    if placed is None:
        return "waiting"
    return "assigned" if placed.decision is None else "decided"


def _write_assignments(
    connection: sa.Connection, desk: Desk, made: Sequence[tuple[ToPlace, Placed, Actor]], at: float
) -> None:
    if not made:
        return
    take(connection, desk.shift_id, desk.taken)
    desk.taken.clear()
    connection.execute(
        _ADD_ASSIGNMENT,
        [
            {
                "case_id": p.case_id,
                "shift_id": desk.shift_id,
                "maker": p.maker,
                "state": _status(p),
                "method": p.method,
                "pricing_id": desk.pricing_id,
                "model_id": item.model_id,
                "losses": numbers(p.losses.values()),
                "machine_says": item.says,
                "expected_loss": p.expected_loss,
                "price": p.price,
                "propensity": p.propensity,
                "created_at": at,
                "changed_at": at,
            }
            for item, p, _ in made
        ],
    )
    by_machine = [
        {"case_id": p.case_id, "maker": MACHINE, "decision": p.decision, "at": at}
        for _, p, _ in made
        if p.decision is not None
    ]
    if by_machine:
        connection.execute(_ADD_DECISION, by_machine)
    connection.execute(
        _ADD_EVENT,
        [
            _event(
                "assigned", at, who, p.case_id, desk.shift_id, p.maker, method=p.method, decided=p.decision
            )
            for _, p, who in made
        ],
    )


def take(connection: sa.Connection, shift_id: int, units: Mapping[str, int]) -> None:
    """Use up capacity, all of it or none: the update itself checks that there is room."""
    for maker, count in sorted(units.items()):
        done = connection.execute(_TAKE, {"shift": shift_id, "of_maker": maker, "units": count})
        if done.rowcount != 1:
            raise conflict("no-room", f"{maker} has no room for {count} more case(s) in this shift")


def give_back(connection: sa.Connection, shift_id: int, maker: str, count: int = 1) -> None:
    """Free capacity that a case no longer needs."""
    c = t.roster.c
    connection.execute(
        sa.update(t.roster).where(c.shift_id == shift_id, c.maker == maker).values(used=c.used - count)
    )


# --- the reviewer's day -----------------------------------------------------------------------------------


def claim_next(
    connection: sa.Connection, maker: str, actor: Actor, at: float, seconds: float
) -> dict[str, Any] | None:
    """The reviewer's open claim, or else the oldest case assigned to them, now claimed; None: nothing."""
    c = t.assignments.c
    mine = sa.select(*c["id", "case_id"]).where(c.maker == maker).order_by(c.id).limit(1)
    row = connection.execute(mine.where(c.state == "claimed", c.claimed_until > at)).one_or_none()
    if row is None:
        waiting = mine.where(c.state == "assigned").with_for_update(skip_locked=True)
        row = connection.execute(waiting).one_or_none()
        if row is None:
            return None
        _event_now(connection, "claimed", at, actor, row.case_id, None, maker)
    until = at + seconds
    connection.execute(
        sa.update(t.assignments)
        .where(c.id == row.id, c.state.in_(("assigned", "claimed")))
        .values(state="claimed", claimed_until=until, changed_at=at)
    )
    return {"case_id": row.case_id, "claimed_until": until}


def decide(
    connection: sa.Connection,
    case_id: str,
    maker: str,
    decision: str,
    seconds: float | None,
    actor: Actor,
    at: float,
) -> None:
    """Write down a decision; only by whom the case is assigned to, and only once."""
    c = t.assignments.c
    done = connection.execute(
        sa.update(t.assignments)
        .where(c.case_id == case_id, c.maker == maker, c.state.in_(("assigned", "claimed")))
        .values(state="decided", changed_at=at, claimed_until=None)
    )
    if done.rowcount != 1:
        raise _not_theirs(connection, case_id, maker)
    connection.execute(
        sa.insert(t.decisions).values(case_id=case_id, maker=maker, decision=decision, seconds=seconds, at=at)
    )
    _set_status(connection, [case_id], "decided")
    _event_now(connection, "decided", at, actor, case_id, None, maker, decision=json.loads(decision))


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
    live = _live(connection, case_id)
    if live is None or live.maker != maker or live.state not in {"assigned", "claimed"}:
        raise _not_theirs(connection, case_id, maker)
    desk = open_desk(connection, live.shift_id, at)
    c = t.assignments.c
    done = connection.execute(
        sa.update(t.assignments)
        .where(c.id == live.id, c.state.in_(("assigned", "claimed")))
        .values(state=state, changed_at=at, claimed_until=None)
    )
    if done.rowcount != 1:
        raise conflict("changed-meanwhile", f"case {case_id!r} was changed by somebody else; look again")
    give_back(connection, live.shift_id, maker)
    if maker in desk.makers:
        desk.room[desk.makers.index(maker)] += 1
    excluded = (*json.loads(_excluded(connection, case_id)), maker)
    connection.execute(
        sa.update(t.cases)
        .where(t.cases.c.case_id == case_id)
        .values(status="waiting", excluded=json.dumps(list(dict.fromkeys(excluded))))
    )
    _event_now(connection, state, at, actor, case_id, live.shift_id, maker, reason=reason)
    item = ToPlace(case_id, losses_of(connection, live), live.machine_says, live.model_id, excluded)
    return place_waiting(connection, desk, [item], actor, at, rng)[0]


def expire_claims(
    connection: sa.Connection, at: float, rng: np.random.Generator, most: int = 100
) -> list[str]:
    """Take cases from reviewers whose claims have run out; each goes to the next best."""
    c = t.assignments.c
    query = sa.select(*c["case_id", "maker"]).where(c.state == "claimed", c.claimed_until < at)
    late = connection.execute(query.order_by(c.shift_id, c.id).limit(most)).all()
    for row in late:
        hand_back(connection, row.case_id, row.maker, "claim expired", Actor(None), at, rng, "expired")
    return [row.case_id for row in late]


def any_expired(connection: sa.Connection, at: float) -> bool:
    """Whether some claim has run out."""
    c = t.assignments.c
    query = sa.select(c.id).where(c.state == "claimed", c.claimed_until < at).limit(1)
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
) -> int:
    """Take cases that somebody has not begun, newest first, and give them to others; how many."""
    c = t.assignments.c
    query = sa.select(c.case_id).where(c.shift_id == shift_id, c.maker == maker, c.state == "assigned")
    ids = connection.execute(query.order_by(c.id.desc()).limit(count)).scalars().all()
    for case_id in ids:
        hand_back(connection, case_id, maker, reason, actor, at, rng, "released")
    return len(ids)


def label(connection: sa.Connection, rows: Sequence[tuple[str, str]], actor: Actor, at: float) -> None:
    """Write down what the truth turned out to be; a later label corrects an earlier one."""
    ids = [case_id for case_id, _ in rows]
    missing = sorted(set(ids) - known_cases(connection, ids))
    if missing:
        raise not_found("case", missing[0])
    connection.execute(
        sa.insert(t.labels), [{"case_id": case, "label": value, "at": at} for case, value in rows]
    )
    connection.execute(
        sa.update(t.cases)
        .where(t.cases.c.case_id == sa.bindparam("of_case"))
        .values(label=sa.bindparam("truth"), labelled_at=at),
        [{"of_case": case, "truth": value} for case, value in sorted(rows)],
    )
    connection.execute(
        _ADD_EVENT,
        [_event("labelled", at, actor, case_id=case, label=json.loads(value)) for case, value in rows],
    )


# --- looking ----------------------------------------------------------------------------------------------


def losses_of(connection: sa.Connection, assignment: Any) -> dict[str, float]:
    """The losses that an assignment was based on, by maker."""
    makers, _ = pricing(connection, assignment.pricing_id)
    values = json.loads(assignment.losses)
    return {m: float(v) for m, v in zip(makers, values, strict=True) if v is not None}


def reason_of(connection: sa.Connection, assignment: Any) -> dict[str, Any]:
    """Why an assignment was made: losses and prices of everyone, model version, propensity."""
    makers, prices = pricing(connection, assignment.pricing_id)
    return {
        "losses": dict(zip(makers, json.loads(assignment.losses), strict=True)),
        "prices": dict(zip(makers, prices, strict=True)),
        "model": assignment.model_id,
        "propensity": assignment.propensity,
        "method": assignment.method,
        "plan": assignment.plan_id,
    }


def check(connection: sa.Connection) -> list[str]:
    """Everything about the ledger that does not add up; an empty list is what one wants to see."""
    a, r = t.assignments.c, t.roster.c
    wrong = []
    live = (
        sa.select(a.shift_id, a.maker, sa.func.count().label("live"))
        .where(a.state.in_(t.LIVE))
        .group_by(a.shift_id, a.maker)
    )
    counted = {(row.shift_id, row.maker): row.live for row in connection.execute(live)}
    for row in connection.execute(sa.select(*r["shift_id", "maker", "capacity", "used"])):
        have = counted.pop((row.shift_id, row.maker), 0)
        if have != row.used:
            wrong.append(f"shift {row.shift_id}, {row.maker}: used is {row.used}, live assignments {have}")
        if row.capacity is not None and row.used > row.capacity:
            wrong.append(f"shift {row.shift_id}, {row.maker}: {row.used} used of {row.capacity}")
    wrong += [
        f"shift {shift}, {maker}: {n} live cases, not on the roster" for (shift, maker), n in counted.items()
    ]
    doubled = sa.select(a.case_id).where(a.state.in_(t.LIVE)).group_by(a.case_id).having(sa.func.count() > 1)
    wrong += [f"case {case!r} has two live assignments" for case in connection.execute(doubled).scalars()]
    held = sa.select(a.case_id).where(a.state.in_(t.LIVE))
    decided = sa.select(t.decisions.c.case_id)
    k = t.cases.c
    odd = sa.select(k.case_id).where(
        sa.or_(
            sa.and_(k.status == "waiting", k.case_id.in_(held)),
            sa.and_(k.status != "waiting", k.case_id.not_in(held)),
            sa.and_(k.status == "decided", k.case_id.not_in(decided)),
            sa.and_(k.status != "decided", k.case_id.in_(decided)),
        )
    )
    wrong += [
        f"case {case!r}: its status contradicts its assignments" for case in connection.execute(odd).scalars()
    ]
    return wrong


def numbers(values: Iterable[float | None]) -> str:
    """A JSON list with seven digits each: enough to see who won, a third of the bytes."""
    return "[" + ",".join("null" if v is None else f"{v:.7g}" for v in values) + "]"


# --- small things -----------------------------------------------------------------------------------------


def _case_row(arrival: Arrival, status: str, at: float, import_id: int | None) -> dict[str, Any]:
    return {
        "case_id": arrival.case_id,
        "status": status,
        "features": arrival.features,
        "given": arrival.given,
        "excluded": json.dumps(arrival.excluded),
        "import_id": import_id,
        "arrived_at": at,
    }


def _event(
    kind: str,
    at: float,
    actor: Actor,
    case_id: str | None = None,
    shift_id: int | None = None,
    maker: str | None = None,
    **data: Any,
) -> dict[str, Any]:
    return {
        "at": at,
        "kind": kind,
        "case_id": case_id,
        "shift_id": shift_id,
        "maker": maker,
        "key_id": actor.key_id,
        "data": json.dumps(data),
    }


def _event_now(
    connection: sa.Connection, kind: str, at: float, actor: Actor, *where: Any, **data: Any
) -> None:
    connection.execute(_ADD_EVENT, _event(kind, at, actor, *where, **data))


record = _event_now
"""Write one line of history."""


def _set_status(connection: sa.Connection, case_ids: Sequence[str], status: str) -> None:
    for start in range(0, len(case_ids), 500):
        part = list(case_ids[start : start + 500])
        connection.execute(sa.update(t.cases).where(t.cases.c.case_id.in_(part)).values(status=status))


def _live(connection: sa.Connection, case_id: str) -> Any:
    c = t.assignments.c
    return connection.execute(
        sa.select(t.assignments).where(c.case_id == case_id, c.state.in_(t.LIVE))
    ).one_or_none()


def _excluded(connection: sa.Connection, case_id: str) -> str:
    return str(
        connection.execute(sa.select(t.cases.c.excluded).where(t.cases.c.case_id == case_id)).scalar_one()
    )


def _not_theirs(connection: sa.Connection, case_id: str, maker: str) -> Exception:
    if not known_cases(connection, [case_id]):
        return not_found("case", case_id)
    live = _live(connection, case_id)
    if live is not None and live.state == "decided":
        return conflict("already-decided", f"case {case_id!r} is decided already")
    return conflict("not-assigned", f"case {case_id!r} is not assigned to {maker}")
