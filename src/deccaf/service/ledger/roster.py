"""How a roster changes during the day: somebody joins, has more or less time, leaves or comes back."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa

from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.ledger import claims, desk, people, trail
from deccaf.service.ledger.people import Expert
from deccaf.service.ledger.shifts import RosterPlace, seat_row
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.fields import Count, Strict
from deccaf.service.store.keys import Actor


class RosterChange(Strict):
    """What changes for somebody; `release` takes work that they have not begun and gives it to others."""

    capacity: Count | None = None
    unlimited: bool = False
    lower: Count | None = None
    absent: bool | None = None
    release: bool = False


def move_limits(
    connection: sa.Connection,
    shift_id: int,
    maker: str,
    wanted: RosterChange,
    who: Actor,
    at: float,
    rng: np.random.Generator,
) -> int:
    """Change somebody's limits in a shift, or add them to it; how many cases were taken from them."""
    unfinished.wait_for_plans(connection)
    desk.open_desk(connection, shift_id, at)
    c = t.roster.c
    here = sa.and_(c.shift_id == shift_id, c.maker == maker)
    row = connection.execute(sa.select(t.roster).where(here)).one_or_none()
    if row is None:
        _join(connection, shift_id, maker, wanted, who, at)
        return 0
    capacity = None if wanted.unlimited else row.capacity if wanted.capacity is None else wanted.capacity
    lower = row.lower if wanted.lower is None else wanted.lower
    absent = row.absent if wanted.absent is None else wanted.absent
    if capacity is not None and lower > capacity:
        if wanted.lower is not None:
            raise invalid("lower-above-capacity", f"lower is {lower}, capacity {capacity}")
        lower = capacity
    unfinished.stop_releases(connection, maker, shift_id)
    connection.execute(sa.update(t.roster).where(here).values(absent=True))  # nothing comes while work leaves
    moved, later, cut = 0, False, None
    if wanted.release:
        excess = None if absent else max(row.used - capacity, 0) if capacity is not None else 0
        if excess is None or excess > 0:
            cut = capacity if capacity is not None and capacity < row.used else None
            moved, later = claims.release_all(
                connection, shift_id, maker, "roster changed", who, at, rng, most=excess, capacity=cut
            )
    used = row.used - moved
    if capacity is not None and used > capacity:
        raise conflict(
            "capacity-below-used",
            f"{maker} has {used} case(s) already, capacity {capacity} is less; raise it, or set release",
            used=used,
        )
    values = {"capacity": capacity, "lower": lower, "absent": absent}
    stored = {**values, "capacity": row.used} if later and cut is not None else values
    connection.execute(sa.update(t.roster).where(here).values(**stored))
    trail.record(connection, "roster changed", at, who, None, shift_id, maker, released=moved, **values)
    return moved


def change_expert(
    connection: sa.Connection,
    name: str,
    display: str | None,
    active: bool | None,
    who: Actor,
    at: float,
    rng: np.random.Generator,
) -> tuple[Expert, int]:
    """Rename a person, put them out of use or back; how many of their open cases went to others.

    Whoever is out of use gets nothing new, wherever they stand on a roster; places and record stay.
    """
    unfinished.wait_for_plans(connection)
    found = people.change_expert(connection, name, display, active, who, at)
    if active is True:
        unfinished.stop_releases(connection, name)
    if active is not False:
        return found, 0
    return found, release_everywhere(connection, name, "out of use", who, at, rng)


def release_everywhere(
    connection: sa.Connection, name: str, reason: str, who: Actor, at: float, rng: np.random.Generator
) -> int:
    """All open cases of somebody who gets nothing any more go to others; how many."""
    released, done = 0, set[int]()
    while left := _shifts_of(connection, name, at) - done:
        for shift_id in sorted(left):
            desk.open_desk(connection, shift_id, at)  # whoever is giving cases out in it has finished
            released += claims.release_all(connection, shift_id, name, reason, who, at, rng, begun=True).cases
        done |= left
    return released


def _shifts_of(connection: sa.Connection, name: str, at: float) -> set[int]:
    """Shifts in which somebody has cases to decide, or could get some."""
    a, r, s = t.assignments.c, t.roster.c, t.shifts.c
    held = sa.select(a.shift_id).where(a.maker == name, a.state.in_(claims.UNDECIDED))
    seated = (
        sa.select(r.shift_id)
        .join_from(t.roster, t.shifts, s.id == r.shift_id)
        .where(r.maker == name, sa.or_(s.state == "open", s.ends_at > at))
    )
    return set(connection.execute(held.union(seated)).scalars())


def _join(
    connection: sa.Connection, shift_id: int, maker: str, wanted: RosterChange, who: Actor, at: float
) -> None:
    if maker not in people.active_experts(connection):
        raise not_found("active expert", maker)
    place = RosterPlace(
        maker=maker,
        capacity=wanted.capacity if wanted.capacity is not None or wanted.unlimited else 0,
        lower=wanted.lower or 0,
        absent=bool(wanted.absent),
    )
    connection.execute(sa.insert(t.roster), seat_row(shift_id, place))
    desk.open_desk(connection, shift_id, at)
    trail.record(connection, "joined roster", at, who, None, shift_id, maker, **wanted.model_dump())
