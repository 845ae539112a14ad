"""Somebody leaves, and comes back: what their absence would cost, and how it is undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import assignments, case_records, desk, placing, trail
from deccaf.service.ledger.assignments import Live
from deccaf.service.ledger.moving.reassignment import MOVED, carry_out, holdings_of
from deccaf.service.ledger.moving.weighing import Holding, Move, Weighed, weigh
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import from_json

BACK = "back"
"""How assignments came about that an absence had taken away."""


@dataclass(frozen=True)
class Return:
    """What goes back to somebody who returns: from others, and from those that wait; and what does not."""

    taken: Weighed
    """From others, by the losses on record when it left."""
    waiting: list[Holding]
    kept: int
    """Cases of the absence that are begun, decided, moved by a lead, or that there is no room for."""

    @property
    def count(self) -> int:
        """How many go back."""
        return len(self.taken.moves) + len(self.waiting)


def preview_absence(connection: sa.Connection, shift_id: int, maker: str) -> Weighed:
    """Where the cases that somebody has not begun would go; those refused would wait for a plan."""
    _need_seat(connection, shift_id, maker)
    a = t.assignments.c
    mine = sa.and_(a.shift_id == shift_id, a.maker == maker, a.state == "assigned")
    rows = connection.execute(assignments.live_where(mine).order_by(a.id))
    at_desk = desk.read_desk(connection, shift_id)
    at_desk.room[at_desk.makers.index(maker)] = 0.0
    newest_first = list(reversed(holdings_of(connection, [Live(*row) for row in rows])))
    return weigh(at_desk, newest_first, None)


def preview_return(connection: sa.Connection, shift_id: int, maker: str) -> Return:
    """What would go back to somebody if they returned now."""
    seat = _need_seat(connection, shift_id, maker)
    return _return(connection, shift_id, maker, _room(seat), lock=False)


def come_back(
    connection: sa.Connection, shift_id: int, maker: str, with_work: bool, who: Actor, at: float
) -> Return:
    """Undo an absence: what it took away and nobody has begun goes back, as far as there is room."""
    unfinished.wait_for_plans(connection)
    unfinished.stop_releases(connection, maker, shift_id)
    desk.open_desk(connection, shift_id, at)
    seat = _need_seat(connection, shift_id, maker)
    if not seat.absent:
        raise conflict("not-away", f"{maker} is not away")
    r = t.roster.c
    connection.execute(
        sa.update(t.roster).where(r.shift_id == shift_id, r.maker == maker).values(absent=False)
    )
    found = Return(Weighed([], []), [], 0)
    if with_work:
        at_desk = desk.open_desk(connection, shift_id, at)
        if at_desk.room[at_desk.makers.index(maker)] > 0:
            found = _return(connection, shift_id, maker, _room(seat), lock=True)
        _give_back(connection, at_desk, found, maker, who, at)
    values = {"absent": False, "capacity": seat.capacity, "lower": seat.lower}
    trail.record(connection, "roster changed", at, who, None, shift_id, maker, returned=found.count, **values)
    return found


def _give_back(
    connection: sa.Connection, at_desk: desk.Desk, found: Return, maker: str, who: Actor, at: float
) -> None:
    returning = [*(move.holding for move in found.taken.moves), *found.waiting]
    if not returning:
        return
    case_records.admit_again(connection, [holding.live.case_id for holding in returning], maker)
    carry_out(connection, at_desk, found.taken, BACK, f"{maker} is back", who, at)
    case_records.set_status(connection, [holding.live.case_id for holding in found.waiting], "assigned")
    made = [(holding.to_place(), maker) for holding in found.waiting]
    placing.give(connection, at_desk, made, BACK, who, at)


def _return(connection: sa.Connection, shift_id: int, maker: str, room: int | None, *, lock: bool) -> Return:
    """Cases that this absence took away, as they stand now."""
    before = _released(connection, shift_id, maker)
    ids = list(before)
    a, c = t.assignments.c, t.cases.c
    held = sa.and_(a.case_id.in_(ids), a.shift_id == shift_id, a.state == "assigned", a.method != MOVED)
    if lock:
        lives = assignments.lock(connection, held, None)
        case_records.lock(connection, ids)
    else:
        lives = [Live(*row) for row in connection.execute(assignments.live_where(held))]
    query = sa.select(*c["case_id", "excluded"]).where(
        c.case_id.in_(ids), c.status == "waiting", c.label.is_(None)
    )
    waiting = [_as_before(before[row.case_id], row.excluded) for row in connection.execute(query)]
    moves = []
    for holding in holdings_of(connection, [live for live in lives if live.maker != maker]):
        mine = before[holding.live.case_id]
        # the losses are those of when it left: later ones say nothing of who was away
        again = Holding(holding.live, mine.reason, tuple(x for x in holding.excluded if x != maker))
        moves.append(Move(again, maker, holding.live.expected_loss, mine.live.expected_loss))
    if room is not None:
        moves, waiting = moves[:room], waiting[: max(room - len(moves), 0)]
    return Return(Weighed(moves, []), waiting, len(ids) - len(moves) - len(waiting))


def _as_before(holding: Holding, excluded: str) -> Holding:
    barred = tuple(name for name in from_json(excluded) if name != holding.live.maker)
    return Holding(holding.live, holding.reason, barred)


def _released(connection: sa.Connection, shift_id: int, maker: str) -> dict[str, Holding]:
    """The cases that were taken from somebody since they went away, as they had them."""
    h, a = t.history.c, t.assignments.c
    changes = (
        sa.select(*h["at", "data"])
        .where(h.maker == maker, h.kind == "roster changed", h.shift_id == shift_id)
        .order_by(h.at.desc(), h.id.desc())
        .limit(100)
    )
    times = []
    for row in connection.execute(changes):
        if not from_json(row.data)["absent"]:
            break
        times.append(row.at)
    gone = sa.select(a.id).where(
        a.shift_id == shift_id, a.maker == maker, a.state == "released", a.changed_at.in_(times)
    )
    rows = connection.execute(assignments.any_where(a.id.in_(gone)).order_by(a.id)).all()
    lives = [Live(*row) for row in rows]
    reasons = assignments.reasons_of(connection, lives)
    return {live.case_id: Holding(live, why) for live, why in zip(lives, reasons, strict=True)}


def _room(seat: Any) -> int | None:
    return None if seat.capacity is None else max(seat.capacity - seat.used, 0)


def _need_seat(connection: sa.Connection, shift_id: int, maker: str) -> Any:
    r = t.roster.c
    query = sa.select(*r["capacity", "lower", "used", "absent"]).where(
        r.shift_id == shift_id, r.maker == maker
    )
    seat = connection.execute(query).one_or_none()
    if seat is None:
        raise not_found("person on this roster", maker)
    return seat
