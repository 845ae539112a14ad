"""Taking back a decision: the last one, for a few minutes.

Nothing is edited. The decision moves, whole, from `decisions` (what counts) to `undone` (what was taken
back), where it stays; the database lets no decision go that is not there. The trail has both lines,
*decided* and *undone*, and the case is in its person's hands again, with the unit of capacity that it has
anyway. Reports, refits and labels see only what counts: the last decision.

Refused where somebody has acted on it or could know better by now: the label is known, the reject was let
through by lot, a later decision of the same person was made, or the time is up.
"""

from __future__ import annotations

import json

import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import case_records, claims, letting, people, trail
from deccaf.service.ledger.claims import Claim
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

UNDO_SECONDS = 600.0
"""How long a decision can be taken back."""


def undo(
    connection: sa.Connection, case_id: str, maker: str, actor: Actor, at: float, seconds: float
) -> Claim:
    """Take back the last decision of somebody; the case is theirs for so many seconds."""
    people.take_turn(connection, maker)
    a, d = t.assignments.c, t.decisions.c
    mine = sa.select(*a["id", "shift_id", "method"]).where(
        a.case_id == case_id, a.maker == maker, a.state == "decided"
    )
    held = connection.execute(mine.with_for_update(key_share=True)).one_or_none()
    standing = case_records.lock(connection, [case_id])
    if case_id not in standing:
        raise not_found("case", case_id)
    made = connection.execute(sa.select(t.decisions).where(d.case_id == case_id)).one_or_none()
    if held is None or made is None or made.maker != maker or maker == MACHINE or held.method == "history":
        raise conflict("not-decided", f"case {case_id!r} was not decided here by {maker}")
    if at > made.at + UNDO_SECONDS:
        raise conflict("too-late", f"a decision can be taken back for {UNDO_SECONDS / 60:.0f} minutes")
    if standing[case_id].is_labelled:
        raise conflict("label-known", f"the truth of case {case_id!r} is known by now: its decision stays")
    if letting.was_let_through(connection, case_id):
        raise conflict("let-through", f"case {case_id!r} was let through by lot: its decision stays")
    later = sa.select(d.case_id).where(d.maker == maker, d.at > made.at).limit(1)
    if connection.execute(later).scalar() is not None:
        raise conflict("not-the-last", "only the last decision can be taken back")
    if not people.is_active(connection, maker):
        raise conflict("out-of-use", f"{maker} is out of use")
    claims.put_down(connection, maker, actor, at)
    facts = {"case_id": case_id, "maker": maker, "decision": made.decision, "seconds": made.seconds}
    connection.execute(sa.insert(t.undone).values(**facts, decided_at=made.at, at=at))
    connection.execute(sa.delete(t.decisions).where(d.case_id == case_id))
    until = at + seconds
    connection.execute(
        sa.update(t.assignments)
        .where(a.id == held.id)
        .values(state="claimed", claimed_until=until, changed_at=at)
    )
    case_records.set_status(connection, [case_id], "assigned")
    trail.record(
        connection, "undone", at, actor, case_id, held.shift_id, maker, decision=json.loads(made.decision)
    )
    return Claim(case_id, until)


def can_undo(connection: sa.Connection, maker: str, at: float) -> tuple[str, int | str, float] | None:
    """The case whose decision somebody can take back, that decision, and until when; None: there is none."""
    a, d, k = t.assignments.c, t.decisions.c, t.cases.c
    query = (
        sa.select(d.case_id, d.decision, d.at, k.label)
        .join_from(t.decisions, t.cases, k.case_id == d.case_id)
        .join(t.assignments, sa.and_(a.case_id == d.case_id, a.state == "decided", a.method != "history"))
        .where(d.maker == maker, d.at > at - UNDO_SECONDS)
        .order_by(d.at.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    if row is None or row.label is not None or letting.was_let_through(connection, row.case_id):
        return None
    return row.case_id, json.loads(row.decision), row.at + UNDO_SECONDS
