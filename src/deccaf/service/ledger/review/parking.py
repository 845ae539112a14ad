"""A case put aside and taken up again, more time for the one in hand, and notes.

A parked case stays with its person and keeps their unit of capacity; it is passed over when they ask for
the next case, until they take it up again or its time is over. It counts as not begun: where its person
goes home, it goes to others like the rest of their queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import assignments, case_records, claims, people, trail
from deccaf.service.ledger.claims import UNDECIDED, Claim
from deccaf.service.ledger.review import second
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

MOST_PARKED = 10
"""Cases that somebody may have parked at one time."""
PARK_SECONDS = 24 * 3600.0
"""After so long a parked case comes up again by itself."""
LONGEST_NOTE = 2_000


@dataclass(frozen=True)
class ParkedCase:
    """A case that was put aside."""

    case_id: str
    until: float
    """When it comes up again by itself."""


def park(connection: sa.Connection, case_id: str, maker: str, reason: str, actor: Actor, at: float) -> float:
    """Put a case aside; until when."""
    people.take_turn(connection, maker)
    a = t.assignments.c
    others = sa.select(sa.func.count()).where(
        a.maker == maker, a.state == "assigned", a.parked_until > at, a.case_id != case_id
    )
    if connection.execute(others).scalar_one() >= MOST_PARKED:
        detail = f"{maker} has {MOST_PARKED} parked cases already; take one up first"
        raise conflict("too-many-parked", detail)
    until = at + PARK_SECONDS
    done = connection.execute(
        sa.update(t.assignments)
        .where(a.case_id == case_id, a.maker == maker, a.state.in_(UNDECIDED), claims.FINISHED)
        .values(state="assigned", changed_at=at, claimed_until=None, parked_until=until)
    )
    if done.rowcount != 1:
        raise claims.not_theirs(connection, case_id, maker)
    trail.record(connection, "parked", at, actor, case_id, None, maker, reason=reason)
    return until


def take_up(
    connection: sa.Connection, case_id: str, maker: str, actor: Actor, at: float, seconds: float
) -> Claim:
    """Take one's own case in hand, parked or not; what was in hand goes back to the queue."""
    people.take_turn(connection, maker)
    a, until = t.assignments.c, at + seconds
    mine = sa.select(a.id).where(
        a.case_id == case_id, a.maker == maker, a.state.in_(UNDECIDED), claims.FINISHED
    )
    held = connection.execute(mine.with_for_update(key_share=True)).scalar()
    if held is None:
        raise claims.not_theirs(connection, case_id, maker)
    claims.put_down(connection, maker, actor, at, except_for=case_id)
    connection.execute(
        sa.update(t.assignments)
        .where(a.id == held)
        .values(state="claimed", claimed_until=until, parked_until=None, changed_at=at)
    )
    trail.record(connection, "claimed", at, actor, case_id, None, maker)
    return Claim(case_id, until)


def extend(
    connection: sa.Connection, case_id: str, maker: str, actor: Actor, at: float, seconds: float
) -> Claim:
    """More time for the case in hand, from now on."""
    people.take_turn(connection, maker)
    a, until = t.assignments.c, at + seconds
    done = connection.execute(
        sa.update(t.assignments)
        .where(a.case_id == case_id, a.maker == maker, a.state == "claimed", a.claimed_until > at)
        .values(claimed_until=until, changed_at=at)
    )
    if done.rowcount != 1:
        if not case_records.known_cases(connection, [case_id]):
            raise not_found("case", case_id)
        raise conflict("not-claimed", f"case {case_id!r} is not in {maker}'s hands")
    trail.record(connection, "extended", at, actor, case_id, None, maker)
    return Claim(case_id, until)


def add_note(
    connection: sa.Connection, case_id: str, maker: str | None, text: str, actor: Actor, at: float
) -> None:
    """Write something down about a case: a person about one that is theirs, a lead (None) about any."""
    if not case_records.known_cases(connection, [case_id]):
        raise not_found("case", case_id)
    if maker is not None:
        live = assignments.live_of(connection, case_id)
        mine = live is not None and live.maker == maker
        if not mine and second.answer_of(connection, case_id, maker) is None:
            raise conflict("not-assigned", f"case {case_id!r} is not assigned to {maker}")
    trail.record(connection, "note", at, actor, case_id, None, maker, text=text)


def notes_of(connection: sa.Connection, case_id: str, maker: str) -> list[tuple[float, str]]:
    """Somebody's own notes about a case, with their times."""
    events = trail.events_of(connection, case_id)
    return [(e.at, str(e.data["text"])) for e in events if e.kind == "note" and e.maker == maker]


def parked_by(connection: sa.Connection, maker: str, at: float) -> list[ParkedCase]:
    """What somebody has put aside, oldest first."""
    a = t.assignments.c
    query = sa.select(*a["case_id", "parked_until"]).where(
        a.maker == maker, a.state == "assigned", a.parked_until > at
    )
    return [ParkedCase(*row) for row in connection.execute(query.order_by(a.id))]
