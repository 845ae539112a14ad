"""Shifts and rosters: who works when, how much, and what changes during the day."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response

from deccaf.client.answers import Page, Repriced, RosterChanged, ShiftBrief
from deccaf.client.answers import Shift as ShiftAnswer
from deccaf.service.decide import pricing
from deccaf.service.decide.pricing import NewPrices
from deccaf.service.ledger import roster, shifts
from deccaf.service.ledger.roster import RosterChange
from deccaf.service.ledger.shifts import NewShift, Shift, ShiftChange
from deccaf.service.store.listing import Cut
from deccaf.service.web.api.common import (
    After,
    Anyone,
    IdempotencyKey,
    Lead,
    Limit,
    call_of,
    gives,
    page_json,
    problems,
    send,
)
from deccaf.service.web.common import Here, Id, MakerPath, as_time

router = APIRouter(prefix="/v1", tags=["shifts"], responses=problems(404, 409))


@router.post("/shifts", status_code=201, responses=gives(ShiftAnswer, 201))
async def add_shift(
    wanted: NewShift, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Open a shift with its roster."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return _with_roster(connection, shifts.open_shift(connection, wanted, who, at))

    return send(await here.change(await call_of(request, who, key), change, 201))


@router.get("/shifts", responses=gives(Page[ShiftBrief]))
def list_shifts(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All shifts, without their rosters."""
    return page_json(here.read(lambda c: shifts.list_shifts(c, Cut(limit, after))), _shift)


@router.get("/shifts/{shift_id}", responses=gives(ShiftAnswer))
def get_shift(shift_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """A shift with its roster: limits, what is used, and the price of everybody's next unit of time."""
    return here.read(lambda connection: _with_roster(connection, shift_id))


@router.patch("/shifts/{shift_id}", responses=gives(ShiftAnswer))
async def change_shift(
    shift_id: Id, wanted: ShiftChange, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Close a shift, open it again, or change its end, its forecast or its share of random assignments."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        shifts.change_shift(connection, shift_id, wanted, who, at)
        return _with_roster(connection, shift_id)

    return send(await here.change(await call_of(request, who, key), change))


@router.put("/shifts/{shift_id}/roster/{maker:path}", responses=gives(RosterChanged))
async def change_roster(
    shift_id: Id,
    maker: MakerPath,
    wanted: RosterChange,
    request: Request,
    here: Here,
    who: Lead,
    key: IdempotencyKey = None,
) -> Response:
    """Add somebody to a roster, change their capacity, or report them absent or back."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        moved = roster.move_limits(connection, shift_id, maker, wanted, who, at, here.rng)
        return {"released": moved, **_with_roster(connection, shift_id)}

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/shifts/{shift_id}/reprice", responses=gives(Repriced), operation_id="reprice_shift")
async def reprice(
    shift_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Renew the bid prices now instead of in a few seconds."""

    def change(connection: sa.Connection, at: float, new: NewPrices | None) -> dict[str, Any]:
        renewed = new is not None and pricing.put_in_force(connection, new, at)
        return {"renewed": renewed, **_with_roster(connection, shift_id)}

    reckon = lambda: pricing.reckon(here.engine, shift_id, time.time())  # noqa: E731
    return send(await here.prepared_change(await call_of(request, who, key), reckon, change))


@router.get("/current-shift", responses=gives(ShiftAnswer), operation_id="get_current_shift")
def current_shift(here: Here, who: Anyone) -> dict[str, Any]:
    """The shift that runs now."""
    found = here.read(lambda c: _with_roster(c, shifts.need_current(c, time.time())))
    if who.role == "reviewer":
        found["roster"] = [seat for seat in found["roster"] if seat["maker"] == who.expert]
    return found


def _with_roster(connection: sa.Connection, shift_id: int) -> dict[str, Any]:
    shift = shifts.read_shift(connection, shift_id)
    return {**_shift(shift), "roster": [asdict(seat) for seat in shifts.read_roster(connection, shift_id)]}


def _shift(shift: Shift) -> dict[str, Any]:
    return {
        "id": shift.id,
        "name": shift.name,
        "state": shift.state,
        "starts_at": as_time(shift.starts_at),
        "ends_at": as_time(shift.ends_at),
        "expected_cases": shift.expected_cases,
        "random_share": shift.random_share,
        "priced_at": as_time(shift.priced_at),
    }
