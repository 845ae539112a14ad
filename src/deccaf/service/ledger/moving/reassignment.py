"""Moving open cases to a person, or to the best with room, in one step that races lose nothing in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import Field

from deccaf.service.errors import conflict
from deccaf.service.ledger import assignments, desk, placing, trail
from deccaf.service.ledger.assignments import Live
from deccaf.service.ledger.moving.weighing import Holding, Refusal, Weighed, weigh
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.fields import CaseId, Maker, Strict
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import from_json

MOST = 1_000
MOVED = "moved"
"""How assignments came about that a lead made."""
_NOTHING = Weighed([], [])


class Reassignment(Strict):
    """Cases to move: to somebody, or (no `to`) to the best with room; those in hand only with `begun`."""

    case_ids: Annotated[list[CaseId], Field(min_length=1, max_length=MOST)]
    to: Maker | None = None
    begun: bool = False
    reason: Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")] = ""


def preview(connection: sa.Connection, wanted: Reassignment) -> Weighed:
    """What a reassignment would come to if nothing changed until then."""
    found = _NOTHING
    for shift_id in _shifts_of(connection, wanted.case_ids):
        at_desk = desk.read_desk(connection, shift_id)
        held = [Live(*row) for row in connection.execute(assignments.live_where(_open(wanted, shift_id)))]
        found = found.and_also([weigh(at_desk, holdings_of(connection, held), wanted.to)])
    return _in_order(found.and_also([_others(connection, wanted, found)]), wanted)


def reassign(connection: sa.Connection, wanted: Reassignment, who: Actor, at: float) -> Weighed:
    """Move what can be moved, and say why the rest stays; refused where nothing can."""
    unfinished.wait_for_plans(connection)
    found = _NOTHING
    for shift_id in _shifts_of(connection, wanted.case_ids):
        at_desk = desk.open_desk(connection, shift_id, at)
        held = assignments.lock(connection, _open(wanted, shift_id), None)
        weighed = weigh(at_desk, holdings_of(connection, held), wanted.to)
        carry_out(connection, at_desk, weighed, MOVED, wanted.reason, who, at)
        found = found.and_also([weighed])
    found = _in_order(found.and_also([_others(connection, wanted, found)]), wanted)
    if not found.moves:
        first = found.refused[0]
        raise conflict(
            "nothing-moved",
            f"case {first.case_id!r}: {first.why}",
            refused=[{"case_id": r.case_id, "why": r.why} for r in found.refused],
        )
    return found


def carry_out(
    connection: sa.Connection,
    at_desk: desk.Desk,
    weighed: Weighed,
    method: str,
    reason: str,
    who: Actor,
    at: float,
) -> None:
    """Write moves within one shift down; the caller has locked the shift and the assignments."""
    lives = [move.holding.live for move in weighed.moves]
    assignments.set_state(connection, [live.id for live in lives], "released", at)
    for maker, count in sorted(Counter(live.maker for live in lives).items()):
        desk.give_back(connection, at_desk.shift_id, maker, count)
    lines = [
        trail.line("released", at, who, live.case_id, at_desk.shift_id, live.maker, reason=reason or method)
        for live in lives
    ]
    trail.write(connection, lines)
    made = [(move.holding.to_place(), move.maker) for move in weighed.moves]
    placing.give(connection, at_desk, made, method, who, at)


def holdings_of(connection: sa.Connection, lives: Sequence[Live]) -> list[Holding]:
    """Cases with why somebody has them and who may not get them, the oldest first."""
    ordered = sorted(lives, key=lambda live: live.id)
    c, ids = t.cases.c, [live.case_id for live in ordered]
    query = sa.select(*c["case_id", "excluded"]).where(c.case_id.in_(ids))
    excluded = {row.case_id: tuple(from_json(row.excluded)) for row in connection.execute(query)}
    reasons = assignments.reasons_of(connection, ordered)
    return [Holding(live, why, excluded[live.case_id]) for live, why in zip(ordered, reasons, strict=True)]


def _open(wanted: Reassignment, shift_id: int) -> sa.ColumnElement[bool]:
    a = t.assignments.c
    states = ("assigned", "claimed") if wanted.begun else ("assigned",)
    return sa.and_(a.case_id.in_(wanted.case_ids), a.shift_id == shift_id, a.state.in_(states))


def _shifts_of(connection: sa.Connection, case_ids: Sequence[str]) -> list[int]:
    a = t.assignments.c
    query = sa.select(a.shift_id).where(a.case_id.in_(case_ids), t.IS_LIVE, a.state != "decided")
    return sorted(set(connection.execute(query).scalars()))


def _others(connection: sa.Connection, wanted: Reassignment, found: Weighed) -> Weighed:
    """Why the other cases cannot be moved."""
    done = {*(move.case_id for move in found.moves), *(refusal.case_id for refusal in found.refused)}
    left = [case_id for case_id in dict.fromkeys(wanted.case_ids) if case_id not in done]
    if not left:
        return _NOTHING
    c, a = t.cases.c, t.assignments.c
    query = (
        sa.select(c.case_id, c.status, a.maker, a.state)
        .outerjoin_from(t.cases, t.assignments, sa.and_(a.case_id == c.case_id, t.IS_LIVE))
        .where(c.case_id.in_(left))
    )
    rows = {row.case_id: row for row in connection.execute(query)}
    return Weighed([], [Refusal(case_id, _why(rows.get(case_id))) for case_id in left])


def _why(row: Any) -> str:
    if row is None:
        return "there is no such case"
    if row.status == "waiting":
        return "nobody has it; a plan gives it out"
    if row.state == "claimed":
        return f"{row.maker} has it in hand"
    if row.status == "decided":
        return "it is decided already"
    return "it waits for the lead's word" if row.state is None else "it was moved a moment ago; look again"


def _in_order(found: Weighed, wanted: Reassignment) -> Weighed:
    """As the cases were named."""
    place = {case_id: k for k, case_id in enumerate(wanted.case_ids)}
    return Weighed(
        sorted(found.moves, key=lambda move: place[move.case_id]),
        sorted(found.refused, key=lambda refusal: place[refusal.case_id]),
    )
