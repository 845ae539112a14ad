"""Machines of the configuration enter the ledger; one that does not answer is held up until it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from deccaf.service.ledger import desk, people, roster, trail
from deccaf.service.ledger.machines import seats
from deccaf.service.ledger.machines.seats import Machine
from deccaf.service.ledger.shifts import RosterPlace, seat_row
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.keys import Actor

TEAM = "team"
"""Where machines are entered before there is any team."""
LONGEST_PAUSE = 300.0
"""Between requests to a machine that does not answer."""
PAUSE_SECONDS = 1.0
"""After the first of them; each further one doubles it."""
SYSTEM = Actor(None)


def enter(connection: sa.Connection, wanted: Sequence[Machine], at: float, rng: np.random.Generator) -> None:
    """The machines of the configuration are there, at all shifts that are open; others get nothing more.

    Nothing is written where everything is as it was.
    """
    known = {one.name: one for one in seats.read_machines(connection)}
    new = [one for one in wanted if one.name not in known]
    if new:
        people.add_unknown(connection, [one.name for one in new], TEAM, SYSTEM, at)
    for one in new:
        unfinished.stop_releases(connection, one.name)
        facts = {"configured": True, "has_address": one.has_address, "failures": 0}
        limits = {"cases_per_minute": one.cases_per_minute, "cases_per_day": one.cases_per_day}
        connection.execute(sa.insert(t.machines).values(maker=one.name, **facts, **limits))
        trail.record(connection, "machine entered", at, SYSTEM, None, None, one.name, **limits)
    for one in wanted:
        before = known.get(one.name)
        if before is not None and _facts(before) != _facts(one):
            limits = {"cases_per_minute": one.cases_per_minute, "cases_per_day": one.cases_per_day}
            values = {**limits, "configured": True, "has_address": one.has_address}
            connection.execute(sa.update(t.machines).where(t.machines.c.maker == one.name).values(**values))
            trail.record(connection, "machine changed", at, SYSTEM, None, None, one.name, **limits)
    _seat(connection, at)
    for name in sorted(set(known) - {one.name for one in wanted}):
        if known[name].configured:
            gone = sa.update(t.machines).where(t.machines.c.maker == name).values(configured=False)
            connection.execute(gone)
            reason = f"{name} is not in the configuration any more"
            moved = roster.release_everywhere(connection, name, reason, SYSTEM, at, rng)
            trail.record(connection, "machine left", at, SYSTEM, None, None, name, released=moved)


def _facts(one: Machine) -> tuple[object, ...]:
    return one.configured, one.has_address, one.cases_per_minute, one.cases_per_day


def _seat(connection: sa.Connection, at: float) -> None:
    """Machines that are not on an open shift yet join it."""
    s, r = t.shifts.c, t.roster.c
    there = seats.usable(connection)
    query = sa.select(*s["id", "ends_at", "starts_at"]).where(s.state == "open", s.ends_at > at)
    for shift in connection.execute(query.order_by(s.id)).all() if there else ():
        seated = set(connection.execute(sa.select(r.maker).where(r.shift_id == shift.id)).scalars())
        for one in there:
            if one.name not in seated:
                desk.open_desk(connection, shift.id, at)
                capacity = one.capacity((shift.ends_at - max(at, shift.starts_at)) / 3600.0)
                place = RosterPlace(maker=one.name, capacity=capacity)
                connection.execute(sa.insert(t.roster), seat_row(shift.id, place))
                desk.open_desk(connection, shift.id, at)
                facts = {"capacity": capacity, "machine": True}
                trail.record(connection, "joined roster", at, SYSTEM, None, shift.id, one.name, **facts)


def answered(connection: sa.Connection, name: str, at: float) -> None:
    """A machine gave an answer that can be used: whatever went wrong before is over."""
    c = t.machines.c
    failing = sa.and_(c.maker == name, sa.or_(c.failures > 0, c.down_since.is_not(None)))
    before = connection.execute(sa.select(c.failures).where(failing)).scalar()
    fresh = {"failures": 0, "down_since": None, "next_at": None}
    if before is None:
        return
    if connection.execute(sa.update(t.machines).where(failing).values(**fresh)).rowcount:
        trail.record(connection, "machine back", at, SYSTEM, None, None, name, failures=before)


def pause(times: int) -> float:
    """Seconds to wait after so many times in vain: twice as long each time, up to a limit."""
    return float(min(PAUSE_SECONDS * 2.0 ** min(times - 1, 30), LONGEST_PAUSE))


def in_vain(
    connection: sa.Connection, name: str, said: str, most: int, at: float, rng: np.random.Generator
) -> None:
    """None of the last requests was answered usably: it is left alone for a while, longer each time.

    After `most` of these in a row it is down: its cases go to the next best, and nothing comes to it until
    it is asked again (`try_again`).
    """
    c = t.machines.c
    mine = sa.update(t.machines).where(c.maker == name)
    # counted by the database: other processes send to the same machine
    row = connection.execute(mine.values(failures=c.failures + 1).returning(c.failures, c.down_since)).one()
    down = row.failures >= most
    since = at if down else row.down_since
    connection.execute(mine.values(next_at=at + pause(row.failures), down_since=since))
    if down and row.down_since is None:
        unfinished.wait_for_plans(connection)
        moved = roster.release_everywhere(connection, name, f"{name} is down: {said}", SYSTEM, at, rng)
        facts = {"reason": said, "failures": row.failures, "released": moved}
        trail.record(connection, "machine down", at, SYSTEM, None, None, name, **facts)


def is_awake(connection: sa.Connection, name: str, at: float, due: bool) -> bool:
    """Whether there is something to do for a machine: cases to send, or the end of its time to be down."""
    c = t.machines.c
    row = connection.execute(sa.select(c.down_since).where(_may_be_asked(name, at))).first()
    return row is not None and (due or row.down_since is not None)


def try_again(connection: sa.Connection, name: str, at: float) -> bool:
    """Whether cases may be sent to a machine now; one that was down gets new ones from here on."""
    c = t.machines.c
    query = sa.select(c.down_since).where(_may_be_asked(name, at))
    row = connection.execute(query.with_for_update(key_share=True)).one_or_none()
    if row is None:
        return False
    if row.down_since is not None:
        connection.execute(sa.update(t.machines).where(c.maker == name).values(down_since=None))
    return True


def _may_be_asked(name: str, at: float) -> sa.ColumnElement[bool]:
    """That a machine is in the configuration, and not left alone just now."""
    c = t.machines.c
    return sa.and_(c.maker == name, c.configured, sa.or_(c.next_at.is_(None), c.next_at <= at))
