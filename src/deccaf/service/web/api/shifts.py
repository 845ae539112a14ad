"""Shifts and rosters: who works when, how much, and what changes during the day."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import Field

from deccaf.data.costs import MACHINE
from deccaf.service.decide import pricing
from deccaf.service.errors import conflict, invalid
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import (
    After,
    Anyone,
    Count,
    Here,
    Id,
    IdempotencyKey,
    Lead,
    Limit,
    Maker,
    MakerPath,
    Name,
    Strict,
    Time,
    as_time,
    call_of,
    need_one,
    page,
    problems,
    send,
)

router = APIRouter(prefix="/v1", tags=["shifts"], responses=problems(404, 409))

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Place(Strict):
    """How much somebody may and must get; without a capacity there is no limit."""

    capacity: Count | None = None
    lower: Count = 0
    absent: bool = False


class RosterPlace(Place):
    """The same with the name."""

    maker: Maker


class NewShift(Strict):
    """A stretch of work with its roster; the machine is on it, without a limit, unless it is named."""

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


class RosterChange(Strict):
    """What changes for somebody; `release` takes work that they have not begun and gives it to others."""

    capacity: Count | None = None
    unlimited: bool = False
    lower: Count | None = None
    absent: bool | None = None
    release: bool = False


@router.post("/shifts", status_code=201)
async def add_shift(
    wish: NewShift, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Open a shift with its roster."""
    return send(
        await here.change(await call_of(request, who, key), lambda c, at: new_shift(c, wish, who, at), 201)
    )


def new_shift(connection: sa.Connection, wish: NewShift, who: Actor, at: float) -> dict[str, Any]:
    """The change behind POST /v1/shifts."""
    if wish.ends_at <= wish.starts_at:
        raise invalid("ends-before-start", "ends_at must be later than starts_at")
    team = connection.execute(sa.select(t.teams.c.id).where(t.teams.c.name == wish.team)).scalar()
    need_one(team, "team", wish.team)
    if connection.execute(sa.select(t.shifts.c.id).where(t.shifts.c.name == wish.name)).scalar():
        raise conflict("known-shift", f"there is a shift {wish.name!r} already")
    places = {place.maker: place for place in wish.roster}
    if len(places) < len(wish.roster):
        raise invalid("twice-on-roster", "somebody stands twice on the roster")
    experts = set(connection.execute(sa.select(t.experts.c.name).where(t.experts.c.active)).scalars())
    for maker in places:
        if maker != MACHINE and maker not in experts:
            raise invalid("unknown-expert", f"{maker!r} on the roster is no active expert")
    shift = connection.execute(
        sa.insert(t.shifts)
        .values(
            name=wish.name,
            team_id=team,
            starts_at=wish.starts_at.timestamp(),
            ends_at=wish.ends_at.timestamp(),
            expected_cases=wish.expected_cases,
            random_share=wish.random_share,
            state="open",
        )
        .returning(t.shifts.c.id)
    ).scalar_one()
    places.setdefault(MACHINE, RosterPlace(maker=MACHINE))
    connection.execute(sa.insert(t.roster), [_place_row(shift, place) for place in places.values()])
    ledger.open_desk(connection, shift, at)  # gives it prices to begin with
    ledger.record(connection, "shift opened", at, who, None, shift, None, name=wish.name, makers=len(places))
    return shown_shift(connection, shift)


@router.get("/shifts")
def list_shifts(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All shifts, without their rosters."""
    return here.read(lambda c: page(c, sa.select(t.shifts), t.shifts.c.id, limit, after, _facts))


@router.get("/shifts/{shift_id}")
def get_shift(shift_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """A shift with its roster: limits, what is used, and the price of everybody's next unit of time."""
    return here.read(lambda connection: shown_shift(connection, shift_id))


@router.patch("/shifts/{shift_id}")
async def change_shift(
    shift_id: Id, wish: ShiftChange, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Close a shift, open it again, or change its end, its forecast or its share of random assignments."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        ledger.open_desk(connection, shift_id, at)
        values = {k: v for k, v in wish.model_dump().items() if v is not None}
        if wish.ends_at is not None:
            values["ends_at"] = wish.ends_at.timestamp()
            query = sa.select(t.shifts.c.starts_at).where(t.shifts.c.id == shift_id)
            if values["ends_at"] <= connection.execute(query).scalar_one():
                raise invalid("ends-before-start", "ends_at must be later than starts_at")
        if values:
            connection.execute(sa.update(t.shifts).where(t.shifts.c.id == shift_id).values(**values))
            ledger.record(connection, "shift changed", at, who, None, shift_id, None, **values)
        return shown_shift(connection, shift_id)

    return send(await here.change(await call_of(request, who, key), change))


@router.put("/shifts/{shift_id}/roster/{maker}")
async def change_roster(
    shift_id: Id,
    maker: MakerPath,
    wish: RosterChange,
    request: Request,
    here: Here,
    who: Lead,
    key: IdempotencyKey = None,
) -> Response:
    """Add somebody to a roster, change their capacity, or report them absent or back."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        moved = move_limits(connection, shift_id, maker, wish, who, at, here.rng)
        return {"released": moved, **shown_shift(connection, shift_id)}

    return send(await here.change(await call_of(request, who, key), change))


def move_limits(
    connection: sa.Connection, shift_id: int, maker: str, wish: RosterChange, who: Actor, at: float, rng: Any
) -> int:
    """The change behind PUT .../roster/...; how many cases were taken from them."""
    ledger.open_desk(connection, shift_id, at)
    c = t.roster.c
    here = sa.and_(c.shift_id == shift_id, c.maker == maker)
    row = connection.execute(sa.select(t.roster).where(here)).one_or_none()
    if row is None:
        query = sa.select(t.experts.c.name).where(t.experts.c.name == maker, t.experts.c.active)
        need_one(connection.execute(query).scalar(), "active expert", maker)
        place = RosterPlace(
            maker=maker,
            capacity=wish.capacity if wish.capacity is not None or wish.unlimited else 0,
            lower=wish.lower or 0,
            absent=bool(wish.absent),
        )
        connection.execute(sa.insert(t.roster), _place_row(shift_id, place))
        ledger.open_desk(connection, shift_id, at)
        ledger.record(connection, "joined roster", at, who, None, shift_id, maker, **wish.model_dump())
        return 0
    capacity = None if wish.unlimited else row.capacity if wish.capacity is None else wish.capacity
    lower = row.lower if wish.lower is None else wish.lower
    absent = row.absent if wish.absent is None else wish.absent
    if capacity is not None and lower > capacity:
        if wish.lower is not None:
            raise invalid("lower-above-capacity", f"lower is {lower}, capacity {capacity}")
        lower = capacity
    connection.execute(sa.update(t.roster).where(here).values(absent=True))  # nothing comes while work leaves
    moved = 0
    if wish.release:
        excess = None if absent else max(row.used - capacity, 0) if capacity is not None else 0
        if excess is None or excess > 0:
            moved = ledger.release_work(connection, shift_id, maker, excess, "roster changed", who, at, rng)
    used = row.used - moved
    if capacity is not None and used > capacity:
        raise conflict(
            "capacity-below-used",
            f"{maker} has {used} case(s) already, capacity {capacity} is less; raise it, or set release",
            used=used,
        )
    values = {"capacity": capacity, "lower": lower, "absent": absent}
    connection.execute(sa.update(t.roster).where(here).values(**values))
    ledger.record(connection, "roster changed", at, who, None, shift_id, maker, released=moved, **values)
    return moved


@router.post("/shifts/{shift_id}/reprice")
async def reprice(shift_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """Renew the bid prices now instead of in a few seconds."""
    renewed = await to_thread.run_sync(pricing.renew, here.engine, here.writer, shift_id)
    return {"renewed": renewed, **await to_thread.run_sync(here.read, lambda c: shown_shift(c, shift_id))}


@router.get("/current-shift")
def current_shift(here: Here, who: Anyone) -> dict[str, Any]:
    """The shift that runs now."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        found = ledger.current_shift(connection, time.time())
        shift = need_one(found, "shift that runs", "now")
        shown = shown_shift(connection, shift)
        if who.role == "reviewer":
            shown["roster"] = [place for place in shown["roster"] if place["maker"] == who.expert]
        return shown

    return here.read(look)


def shown_shift(connection: sa.Connection, shift_id: int) -> dict[str, Any]:
    """A shift as the API gives it."""
    row = connection.execute(sa.select(t.shifts).where(t.shifts.c.id == shift_id)).one_or_none()
    facts = _facts(need_one(row, "shift", shift_id))
    desk = ledger.read_desk(connection, shift_id)
    prices = dict(zip(desk.makers, desk.prices.tolist(), strict=True))
    rows = connection.execute(sa.select(t.roster).where(t.roster.c.shift_id == shift_id)).all()
    places = [
        {
            "maker": place.maker,
            "capacity": place.capacity,
            "lower": place.lower,
            "used": place.used,
            "absent": place.absent,
            "price": prices[place.maker],
        }
        for place in sorted(rows, key=lambda place: (place.maker != MACHINE, place.maker))
    ]
    return {**facts, "roster": places}


def _facts(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "starts_at": as_time(row.starts_at),
        "ends_at": as_time(row.ends_at),
        "expected_cases": row.expected_cases,
        "random_share": row.random_share,
        "priced_at": as_time(row.priced_at),
    }


def _place_row(shift_id: int, place: RosterPlace) -> dict[str, Any]:
    if place.capacity is not None and place.lower > place.capacity:
        raise invalid(
            "lower-above-capacity", f"{place.maker}: lower {place.lower}, capacity {place.capacity}"
        )
    return {"shift_id": shift_id, "used": 0, **place.model_dump()}
