"""Taking back a decision: the last one, for a few minutes.

Nothing is edited. The decision moves, whole, from `decisions` (what counts) to `undone` (what was taken
back), where it stays; the database lets no decision go that is not there. The trail has both lines,
*decided* and *undone*, and the case is in its person's hands again, with the unit of capacity that it has
anyway. Reports, refits and labels see only what counts: the last decision.

Refused where somebody has acted on it or could know better by now: the label is known, the reject was let
through by lot, a later decision of the same person was made, or the time is up. An answer that others were
asked about too (see `second`) can be taken back until the next of them has begun.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import case_records, claims, letting, people, trail
from deccaf.service.ledger.claims import Claim
from deccaf.service.ledger.review import second
from deccaf.service.ledger.review.second import Opinion
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

UNDO_SECONDS = 600.0
"""How long a decision can be taken back."""


def undo(
    connection: sa.Connection, case_id: str, maker: str, actor: Actor, at: float, seconds: float
) -> Claim:
    """Take back the last decision of somebody; the case is theirs for so many seconds."""
    people.take_turn(connection, maker)
    answer = second.answer_of(connection, case_id, maker)
    if answer is not None:
        return _undo_answer(connection, answer, actor, at, seconds)
    a, d = t.assignments.c, t.decisions.c
    mine = sa.select(*a["id", "method"]).where(a.case_id == case_id, a.maker == maker, a.state == "decided")
    held = connection.execute(mine.with_for_update(key_share=True)).one_or_none()
    standing = case_records.lock(connection, [case_id])
    if case_id not in standing:
        raise not_found("case", case_id)
    made = connection.execute(sa.select(t.decisions).where(d.case_id == case_id)).one_or_none()
    if held is None or made is None or made.maker != maker or maker == MACHINE or held.method == "history":
        raise conflict("not-decided", f"case {case_id!r} was not decided here by {maker}")
    _refuse(connection, case_id, maker, made.at, at, standing[case_id].is_labelled)
    second.undo_agreed(connection, case_id, at)
    claims.put_down(connection, maker, actor, at)
    facts = {"case_id": case_id, "maker": maker, "decision": made.decision, "seconds": made.seconds}
    connection.execute(sa.insert(t.undone).values(**facts, decided_at=made.at, at=at))
    connection.execute(sa.delete(t.decisions).where(d.case_id == case_id))
    return _in_hand(connection, case_id, held.id, maker, made.decision, actor, at, at + seconds)


def _undo_answer(connection: sa.Connection, mine: Opinion, actor: Actor, at: float, seconds: float) -> Claim:
    """The same for an answer that others are asked about too."""
    other = second.lock_next(connection, mine, at)
    standing = case_records.lock(connection, [mine.case_id])[mine.case_id]
    _refuse(connection, mine.case_id, mine.maker, mine.at, at, standing.is_labelled)
    claims.put_down(connection, mine.maker, actor, at)
    second.take_back(connection, mine, other, at)
    until = at + seconds
    return _in_hand(connection, mine.case_id, mine.assignment_id, mine.maker, mine.decision, actor, at, until)


def _refuse(
    connection: sa.Connection, case_id: str, maker: str, made_at: float, at: float, is_labelled: bool
) -> None:
    if at > made_at + UNDO_SECONDS:
        raise conflict("too-late", f"a decision can be taken back for {UNDO_SECONDS / 60:.0f} minutes")
    if is_labelled:
        raise conflict("label-known", f"the truth of case {case_id!r} is known by now: its decision stays")
    if letting.was_let_through(connection, case_id):
        raise conflict("let-through", f"case {case_id!r} was let through by lot: its decision stays")
    for made in (t.decisions, t.opinions):
        later = sa.select(made.c.case_id).where(made.c.maker == maker, made.c.at > made_at).limit(1)
        if connection.execute(later).scalar() is not None:
            raise conflict("not-the-last", "only the last decision can be taken back")
    if not people.is_active(connection, maker):
        raise conflict("out-of-use", f"{maker} is out of use")


def _in_hand(
    connection: sa.Connection,
    case_id: str,
    assignment_id: int,
    maker: str,
    decision: str,
    actor: Actor,
    at: float,
    until: float,
) -> Claim:
    a = t.assignments.c
    shift = connection.execute(
        sa.update(t.assignments)
        .where(a.id == assignment_id)
        .values(state="claimed", claimed_until=until, parked_until=None, changed_at=at)
        .returning(a.shift_id)
    ).scalar_one()
    case_records.set_status(connection, [case_id], "assigned")
    trail.record(connection, "undone", at, actor, case_id, shift, maker, decision=json.loads(decision))
    return Claim(case_id, until)


def can_undo(connection: sa.Connection, maker: str, at: float) -> tuple[str, int | str, float] | None:
    """The case whose decision somebody can take back, that decision, and until when; None: there is none."""
    row = max(_last(connection, maker, at), key=lambda row: row.at, default=None)
    if row is None or row.label is not None or letting.was_let_through(connection, row.case_id):
        return None
    if second.answer_of(connection, row.case_id, maker) is None:
        if second.is_settled(connection, row.case_id):
            return None
    elif not second.can_take_back(connection, row.case_id, maker):
        return None
    return row.case_id, json.loads(row.decision), row.at + UNDO_SECONDS


def _last(connection: sa.Connection, maker: str, at: float) -> list[Any]:
    """Somebody's last decision, and their last answer that others are asked about too."""
    a, k = t.assignments.c, t.cases.c
    found: list[Any] = []
    for made, state in ((t.decisions, "decided"), (t.opinions, t.ANSWERED)):
        d = made.c
        query = (
            sa.select(d.case_id, d.decision, d.at, k.label)
            .join_from(made, t.cases, k.case_id == d.case_id)
            .join(t.assignments, sa.and_(a.case_id == d.case_id, a.maker == d.maker, a.state == state))
            .where(d.maker == maker, d.at > at - UNDO_SECONDS, a.method != "history")
            .order_by(d.at.desc())
            .limit(1)
        )
        found += connection.execute(query).all()
    return found
