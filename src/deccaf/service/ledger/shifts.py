"""Shifts: stretches of work with a roster; the one that runs now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import Field

from deccaf.data.costs import MACHINE
from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.ledger import desk, trail
from deccaf.service.ledger.desk import machine_first
from deccaf.service.ledger.machines import seats
from deccaf.service.ledger.people import active_experts
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.fields import Count, Maker, Name, Share, Strict, Time
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, read_page


class Place(Strict):
    """How much somebody may and must get; without a capacity there is no limit."""

    capacity: Count | None = None
    lower: Count = 0
    absent: bool = False


class RosterPlace(Place):
    """The same with the name."""

    maker: Maker


class NewShift(Strict):
    """A stretch of work with its roster; the machine is on it, without a limit, unless it is named.

    Machines of the configuration likewise, up to what they can take in so long.
    """

    name: Name
    team: Name
    starts_at: Time
    ends_at: Time
    expected_cases: Count | None = None
    random_share: Share = 0.0
    roster: tuple[RosterPlace, ...] = Field(default=(), max_length=2000)


class ShiftChange(Strict):
    """What can change about a shift while it runs."""

    state: Literal["open", "closed"] | None = None
    ends_at: Time | None = None
    expected_cases: Count | None = None
    random_share: Share | None = None


@dataclass(frozen=True)
class Shift:
    """A shift on record."""

    id: int
    name: str
    state: str
    starts_at: float
    ends_at: float
    expected_cases: int | None
    random_share: float
    priced_at: float | None

    @property
    def hours(self) -> float:
        """How long it is."""
        return (self.ends_at - self.starts_at) / 3600.0

    def over(self, at: float) -> float:
        """Which share of it has passed."""
        return min(max((at - self.starts_at) / (self.ends_at - self.starts_at), 0.0), 1.0)


@dataclass(frozen=True)
class Seat:
    """Somebody on a roster: limits, what is used of them, and the price of their next unit of time."""

    maker: str
    capacity: int | None
    lower: int
    used: int
    absent: bool
    active: bool
    """False: out of use, whatever the roster says."""
    price: float
    answered: int = 0
    """Cases that they answered and that others hold, with whom these are counted."""
    machine: bool = False
    """Whether it is a machine beside deccaf's own."""
    held_up: bool = False
    """Of a machine: that it does not answer, or is not in the configuration any more."""

    @property
    def cases(self) -> int:
        """Cases of this shift that are theirs."""
        return self.used - self.answered

    @property
    def free_for_cases(self) -> int | None:
        """Their capacity without what further opinions took of it; None: no limit."""
        return None if self.capacity is None else self.capacity - self.answered

    @property
    def away(self) -> bool:
        """Whether they get nothing."""
        return self.absent or not self.active or self.held_up

    @property
    def room(self) -> int | None:
        """How many more cases they can get; None: no limit."""
        if self.away:
            return 0
        return None if self.capacity is None else self.capacity - self.used


_SHIFT = sa.select(*[t.shifts.c[name] for name in Shift.__dataclass_fields__])
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


def open_shift(connection: sa.Connection, wanted: NewShift, who: Actor, at: float) -> int:
    """A new shift with its roster; its id."""
    if wanted.ends_at <= wanted.starts_at:
        raise invalid("ends-before-start", "ends_at must be later than starts_at")
    team = connection.execute(sa.select(t.teams.c.id).where(t.teams.c.name == wanted.team)).scalar()
    if team is None:
        raise not_found("team", wanted.team)
    if connection.execute(sa.select(t.shifts.c.id).where(t.shifts.c.name == wanted.name)).scalar():
        raise conflict("known-shift", f"there is a shift {wanted.name!r} already")
    places = {place.maker: place for place in wanted.roster}
    if len(places) < len(wanted.roster):
        raise invalid("twice-on-roster", "somebody stands twice on the roster")
    experts = set(active_experts(connection))
    for maker in places:
        if maker != MACHINE and maker not in experts:
            raise invalid("unknown-expert", f"{maker!r} on the roster is no active expert")
    shift = _insert(
        connection,
        name=wanted.name,
        team_id=team,
        starts_at=wanted.starts_at.timestamp(),
        ends_at=wanted.ends_at.timestamp(),
        expected_cases=wanted.expected_cases,
        random_share=wanted.random_share,
        state="open",
    )
    places.setdefault(MACHINE, RosterPlace(maker=MACHINE))
    hours = (wanted.ends_at - wanted.starts_at).total_seconds() / 3600.0
    for one in seats.usable(connection):
        places.setdefault(one.name, RosterPlace(maker=one.name, capacity=one.capacity(hours)))
    connection.execute(sa.insert(t.roster), [seat_row(shift, place) for place in places.values()])
    desk.open_desk(connection, shift, at)  # gives it prices to begin with
    makers = len(places)
    trail.record(connection, "shift opened", at, who, None, shift, None, name=wanted.name, makers=makers)
    return shift


def change_shift(
    connection: sa.Connection, shift_id: int, wanted: ShiftChange, who: Actor, at: float
) -> None:
    """Close a shift, open it again, or change its end, its forecast or its share of random assignments."""
    unfinished.wait_for_plans(connection)
    desk.open_desk(connection, shift_id, at)
    values = {k: v for k, v in wanted.model_dump().items() if v is not None}
    if wanted.ends_at is not None:
        values["ends_at"] = wanted.ends_at.timestamp()
        if values["ends_at"] <= read_shift(connection, shift_id).starts_at:
            raise invalid("ends-before-start", "ends_at must be later than starts_at")
    if values:
        connection.execute(sa.update(t.shifts).where(t.shifts.c.id == shift_id).values(**values))
        trail.record(connection, "shift changed", at, who, None, shift_id, None, **values)


def current_shift(connection: sa.Connection, at: float) -> int | None:
    """The open shift that runs now, the latest to start where there are several."""
    found = connection.execute(_CURRENT, {"at": at}).scalar()
    return None if found is None else int(found)


def need_current(connection: sa.Connection, at: float) -> int:
    """The shift that runs now; refused with 404 where none does."""
    found = current_shift(connection, at)
    if found is None:
        raise not_found("shift that runs", "now")
    return found


def any_open(connection: sa.Connection) -> bool:
    """Whether some shift is open, now or later."""
    query = sa.select(t.shifts.c.id).where(t.shifts.c.state == "open").limit(1)
    return connection.execute(query).scalar() is not None


def read_shift(connection: sa.Connection, shift_id: int) -> Shift:
    """One shift."""
    row = connection.execute(_SHIFT.where(t.shifts.c.id == shift_id)).one_or_none()
    if row is None:
        raise not_found("shift", shift_id)
    return Shift(*row)


def list_shifts(connection: sa.Connection, cut: Cut) -> Page[Shift]:
    """All shifts."""
    return read_page(connection, _SHIFT, t.shifts.c.id, cut, lambda row: Shift(*row))


def read_roster(connection: sa.Connection, shift_id: int) -> list[Seat]:
    """Everyone on a roster, the machine first, with the prices in force."""
    here = desk.read_desk(connection, shift_id)
    prices = dict(zip(here.makers, here.prices.tolist(), strict=True))
    c, active = t.roster.c, sa.func.coalesce(t.experts.c.active, sa.true()).label("active")
    kind = [
        t.machines.c.maker.is_not(None).label("machine"),
        seats.HELD_UP.label("held_up"),
    ]
    query = (
        sa.select(*c["maker", "capacity", "lower", "used", "absent"], active, *kind)
        .outerjoin_from(t.roster, t.experts, t.experts.c.name == c.maker)
        .outerjoin(t.machines, t.machines.c.maker == c.maker)
        .where(c.shift_id == shift_id)
    )
    a = t.assignments.c
    counted = sa.select(a.maker, sa.func.count()).where(a.shift_id == shift_id, t.IS_ANSWERED)
    answered: dict[str, int] = dict(connection.execute(counted.group_by(a.maker)).all())
    found = [
        Seat(**row._asdict(), price=prices[row.maker], answered=answered.get(row.maker, 0))
        for row in connection.execute(query)
    ]
    return sorted(found, key=lambda seat: machine_first(seat.maker))


def roster_makers(connection: sa.Connection, shift_id: int | None) -> tuple[str, ...]:
    """Everyone on a shift's roster, the machine first."""
    if shift_id is None:
        return ()
    query = sa.select(t.roster.c.maker).where(t.roster.c.shift_id == shift_id)
    return tuple(sorted(connection.execute(query).scalars(), key=machine_first))


def seat_row(shift_id: int, place: RosterPlace) -> dict[str, Any]:
    """A row of the roster for somebody who joins it."""
    if place.capacity is not None and place.lower > place.capacity:
        raise invalid(
            "lower-above-capacity", f"{place.maker}: lower {place.lower}, capacity {place.capacity}"
        )
    return {"shift_id": shift_id, "used": 0, **place.model_dump()}


def _insert(connection: sa.Connection, **values: Any) -> int:
    made = connection.execute(sa.insert(t.shifts).values(**values).returning(t.shifts.c.id)).scalar_one()
    return int(made)
