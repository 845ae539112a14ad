"""Cases under way to a machine: taken for a while, sent, and then decided, sent again or handed back.

Whoever sends writes down first that it does (`take`); one who is killed meanwhile leaves the case to the
next, who sends it with the same id. The machine's answer is a decision like anybody's (`claims.decide`), so
that a second answer to the same assignment finds it decided; what it does not answer goes back like a
person's case (`claims.hand_back`), with the reason.
"""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from deccaf.service.errors import RefusedError
from deccaf.service.ledger import assignments, claims, trail
from deccaf.service.ledger.machines import standing
from deccaf.service.ledger.machines.standing import SYSTEM
from deccaf.service.store import tables as t

BURST_SECONDS = 1.0
"""A machine whose rate is limited may get what it could have got in so long at once."""
LATE_AT_ONCE = 50


@dataclass(frozen=True)
class Sending:
    """A case for a machine."""

    assignment_id: int
    uid: str
    """The same however often it is sent."""
    case_id: str
    shift_id: int
    features: str
    """As JSON."""
    assigned_at: float
    tries: int
    """Those before this one, all in vain."""


def any_due(connection: sa.Connection, name: str, at: float) -> bool:
    """Whether there is a case to send."""
    return connection.execute(_due(name, at).limit(1)).first() is not None


def take(
    connection: sa.Connection, name: str, at: float, most: int, held: float, per_minute: float | None
) -> list[Sending]:
    """The next cases for a machine, the most urgent first, for `held` seconds: nobody else sends them.

    As many as its rate allows; one at a time while it does not answer.
    """
    if not standing.try_again(connection, name, at):
        return []
    m, s = t.machines.c, t.sendings.c
    state = connection.execute(sa.select(*m["failures", "paced_until"]).where(m.maker == name)).one()
    most = 1 if state.failures else most
    if per_minute is not None:
        most = min(most, _free(state.paced_until, at, per_minute))
    found = connection.execute(_due(name, at).limit(most)).all() if most > 0 else []
    taken = []
    for row in found:
        uid = row.uid or uuid.uuid4().hex
        if row.uid is None:
            values = {"assignment_id": row.id, "uid": uid, "tries": 0, "next_at": at + held}
            connection.execute(sa.insert(t.sendings).values(**values))
        else:
            again = sa.update(t.sendings).where(s.assignment_id == row.id)
            connection.execute(again.values(next_at=at + held))
        taken.append(
            Sending(row.id, uid, row.case_id, row.shift_id, row.features, row.created_at, row.tries or 0)
        )
    if taken and per_minute is not None:
        until = _pace(state.paced_until, at, per_minute) + len(taken) * 60.0 / per_minute
        connection.execute(sa.update(t.machines).where(m.maker == name).values(paced_until=until))
    return taken


def answered(
    connection: sa.Connection,
    name: str,
    sending: Sending,
    decision: str,
    score: float | None,
    seconds: float,
    at: float,
) -> bool:
    """Write a machine's answer down as its decision; False: the case was taken from it meanwhile.

    That, or somebody else who sent the same case wrote its answer down: the first one counts.
    """
    standing.answered(connection, name, at)
    _forget(connection, sending)
    live = assignments.live_of(connection, sending.case_id)
    facts = {} if score is None else {"score": score}
    try:
        if live is None or live.id != sending.assignment_id:
            raise claims.not_theirs(connection, sending.case_id, name)
        claims.decide(connection, sending.case_id, name, decision, seconds, SYSTEM, at, facts)
    except RefusedError as error:
        said = json.loads(decision)
        late = {"decision": said, **facts, "reason": error.detail}
        trail.record(connection, "answer not used", at, SYSTEM, sending.case_id, None, name, **late)
        return False
    return True


def failed(
    connection: sa.Connection,
    name: str,
    sending: Sending,
    said: str,
    most: int,
    at: float,
    rng: np.random.Generator,
) -> None:
    """A request was in vain: the case is sent again later, or handed back after `most` of them."""
    live = assignments.live_of(connection, sending.case_id)
    if live is None or live.id != sending.assignment_id or live.state not in claims.UNDECIDED:
        _forget(connection, sending)
        return
    tries = sending.tries + 1
    facts = {"reason": said, "request": tries, "of": most}
    trail.record(connection, "not answered", at, SYSTEM, sending.case_id, sending.shift_id, name, **facts)
    if tries >= most:
        _forget(connection, sending)
        reason = f"{name} {said}, {tries} times" if tries > 1 else f"{name} {said}"
        claims.hand_back(connection, sending.case_id, name, reason, SYSTEM, at, rng)
        return
    c = t.sendings.c
    again = sa.update(t.sendings).where(c.assignment_id == sending.assignment_id)
    connection.execute(again.values(tries=tries, next_at=at + standing.pause(tries)))


def any_late(connection: sa.Connection, name: str, since: float, at: float) -> bool:
    """Whether some case has been with a machine since before then, and is not just being sent."""
    return connection.execute(_late(name, since, at).limit(1)).first() is not None


def hand_late_back(
    connection: sa.Connection, name: str, since: float, seconds: float, at: float, rng: np.random.Generator
) -> int:
    """Cases that a machine has not answered in its time go to the next best; how many."""
    rows = connection.execute(_late(name, since, at).limit(LATE_AT_ONCE)).all()
    for row in rows:
        connection.execute(sa.delete(t.sendings).where(t.sendings.c.assignment_id == row.id))
        reason = f"{name} has not answered within {seconds:g} s"
        claims.hand_back(connection, row.case_id, name, reason, SYSTEM, at, rng)
    return len(rows)


def forget_ended(connection: sa.Connection) -> int:
    """Take out what is about assignments that ended otherwise: moved, released, out of use; how many."""
    a, s = t.assignments.c, t.sendings.c
    open_ones = sa.select(a.id).where(a.state.in_(claims.UNDECIDED), a.id == s.assignment_id)
    return connection.execute(sa.delete(t.sendings).where(~sa.exists(open_ones))).rowcount


def _due(name: str, at: float) -> sa.Select[tuple[int, str, int, float, str, str | None, int | None]]:
    a, k, s = t.assignments.c, t.cases.c, t.sendings.c
    return (
        sa.select(a.id, a.case_id, a.shift_id, a.created_at, k.features, s.uid, s.tries)
        .join_from(t.assignments, t.cases, k.case_id == a.case_id)
        .outerjoin(t.sendings, s.assignment_id == a.id)
        .where(a.maker == name, a.state == "assigned", claims.FINISHED)
        .where(sa.or_(s.next_at.is_(None), s.next_at <= at))
        .order_by(k.priority.desc(), a.id)
    )


def _late(name: str, since: float, at: float) -> sa.Select[tuple[int, str]]:
    a, s = t.assignments.c, t.sendings.c
    return (
        sa.select(a.id, a.case_id)
        .outerjoin_from(t.assignments, t.sendings, s.assignment_id == a.id)
        .where(a.maker == name, a.state == "assigned", a.created_at < since, claims.FINISHED)
        .where(sa.or_(s.next_at.is_(None), s.next_at <= at))
        .order_by(a.id)
    )


def _forget(connection: sa.Connection, sending: Sending) -> None:
    connection.execute(sa.delete(t.sendings).where(t.sendings.c.assignment_id == sending.assignment_id))


def _pace(paced_until: float | None, at: float, per_minute: float) -> float:
    """From when on its rate counts: a pause does not allow more than a burst after it."""
    return max(paced_until or 0.0, at - max(BURST_SECONDS, 60.0 / per_minute) + 60.0 / per_minute)


def _free(paced_until: float | None, at: float, per_minute: float) -> int:
    """Cases that a machine may get now."""
    return math.floor((at - _pace(paced_until, at, per_minute)) * per_minute / 60.0) + 1
