"""*Today*: what waits, who has room, what it costs, what one more hour would save; plan, look, commit."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response

from deccaf.data.costs import MACHINE
from deccaf.service.core import Service
from deccaf.service.decide import plans
from deccaf.service.errors import invalid, not_found
from deccaf.service.ledger import ledger
from deccaf.service.monitor import monitoring, reporting
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import Here, Id, as_json
from deccaf.service.web.api.shifts import RosterChange, move_limits
from deccaf.service.web.pages.access import AnyoneHere, LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.pages.setup import steps_left
from deccaf.service.web.pages.whatif import Day, Days, ask

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PREVIEW_ROWS = 50
DEFAULT_HOURS = 8.0
_days = Days()


@router.get("/")
def today(here: Here, visitor: AnyoneHere) -> Response:
    """The page that a lead opens in the morning; a reviewer is sent to their queue."""
    if not visitor.is_lead:
        return go("/queue")
    if here.read(steps_left):
        return go("/setup")
    return page("today.html", visitor, **_numbers(here))


@router.get("/today/numbers")
def numbers(here: Here, visitor: LeadHere) -> Response:
    """The part of the page that moves."""
    return page("today_numbers.html", visitor, **_numbers(here))


@router.get("/what-if")
def what_if(request: Request, here: Here, visitor: LeadHere) -> Response:
    """The cost of the day with the capacities of the sliders."""
    team, changes = _sliders(dict(request.query_params))

    def look(connection: sa.Connection) -> Any:
        shift = ledger.current_shift(connection, time.time())
        return None if shift is None else _days.day(connection, shift)

    found: tuple[Day, list[tuple[float, float]]] | None = here.read(look)
    scenario = None if found is None else ask(found[0], found[1], team / 100.0, changes)
    return page("what_if.html", visitor, scenario=scenario)


@router.post("/capacity")
async def set_capacity(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put the capacities of the sliders in force; work that no longer fits goes to others."""
    form = await checked_form(request, visitor)
    team, changes = _sliders({key: str(value) for key, value in form.items()})

    def change(connection: sa.Connection) -> None:
        at = time.time()
        shift = ledger.current_shift(connection, at)
        if shift is None:
            raise not_found("shift that runs", "now")
        rows = connection.execute(sa.select(t.roster).where(t.roster.c.shift_id == shift)).all()
        for row in rows:
            if row.maker == MACHINE or row.capacity is None:
                continue
            wanted = changes.get(row.maker, round(row.capacity * team / 100.0))
            if wanted != row.capacity:
                wish = RosterChange(capacity=wanted, release=True)
                move_limits(connection, shift, row.maker, wish, visitor.actor, at, here.rng)

    await here.writer.run(change)
    return go("/")


@router.post("/absence")
async def set_absence(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Somebody went home, or came back."""
    form = await checked_form(request, visitor)
    maker, away = str(form.get("maker", "")), form.get("away") == "yes"

    def change(connection: sa.Connection) -> None:
        at = time.time()
        shift = ledger.current_shift(connection, at)
        known = ledger.roster_makers(connection, shift)
        if shift is None or maker not in known:
            raise not_found("person on today's roster", maker)
        wish = RosterChange(absent=away, release=away)
        move_limits(connection, shift, maker, wish, visitor.actor, at, here.rng)

    await here.writer.run(change)
    return go("/")


@router.post("/plans")
async def draft(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Draft a plan for everything that waits, and show it before anybody is bound by it."""
    await checked_form(request, visitor)

    def look(connection: sa.Connection) -> plans.Waiting:
        shift = ledger.current_shift(connection, time.time())
        if shift is None:
            raise not_found("shift that runs", "now")
        return plans.waiting_cases(connection, shift, None)

    waiting = await to_thread.run_sync(here.read, look)
    drafted = await to_thread.run_sync(plans.make_draft, waiting, here.models.active)
    made = await here.writer.run(
        lambda c: plans.save_draft(c, waiting.shift_id, drafted, visitor.actor, time.time())
    )
    return go(f"/plans/{made['id']}")


@router.get("/plans/{plan_id}")
def preview(plan_id: Id, here: Here, visitor: LeadHere) -> Response:
    """A plan before it is committed: its cost, who gets how much, and its first cases."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        row = plans.read_plan(connection, plan_id)
        r = t.roster.c
        roster = connection.execute(sa.select(t.roster).where(r.shift_id == row.shift_id)).all()
        rows = []
        if row.payload is not None:
            rows = plans.draft_rows(plans.open_draft(connection, plan_id), 0, PREVIEW_ROWS)
        return {"plan": row, "roster": {place.maker: place for place in roster}, "rows": rows}

    found = here.read(look)
    return page("plan.html", visitor, summary=as_json(found["plan"].summary), **found)


@router.post("/plans/{plan_id}/{what}")
async def settle(plan_id: Id, what: str, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Commit a draft, or give it up."""
    await checked_form(request, visitor)
    changes = {"commit": plans.commit, "discard": plans.discard}
    if what not in changes:
        raise not_found("thing to do with a plan", what)
    await here.writer.run(lambda c: changes[what](c, plan_id, visitor.actor, time.time()))
    return go("/")


def _numbers(here: Service) -> dict[str, Any]:
    at = time.time()

    def look(connection: sa.Connection) -> dict[str, Any]:
        shift = ledger.current_shift(connection, at)
        waiting = sa.select(sa.func.count()).select_from(t.cases).where(t.cases.c.status == "waiting")
        found: dict[str, Any] = {"waiting": connection.execute(waiting).scalar_one(), "shift": None}
        if shift is None:
            return found
        s = t.shifts.c
        found["shift"] = connection.execute(sa.select(t.shifts).where(s.id == shift)).one()
        found["day"] = reporting.shift_numbers(connection, shift)
        found["pace"] = _pace(connection, found["shift"].starts_at)
        return found

    found = here.read(look)
    model = here.models.active
    alerts = here.watcher.report.alerts
    if found["shift"] is None:
        return {**found, "alerts": alerts, "model": model, "people": [], "machine": None}
    people = [_person(row, found) for row in found["day"]["makers"]]
    return {
        **found,
        "alerts": [*_overload(found, people), *alerts],
        "model": model,
        "costs": None if model is None else model.system.costs_,
        "people": [row for row in people if row["maker"] != MACHINE],
        "machine": next((row for row in people if row["maker"] == MACHINE), None),
        "over": min(
            max((at - found["shift"].starts_at) / (found["shift"].ends_at - found["shift"].starts_at), 0), 1
        ),
    }


def _pace(connection: sa.Connection, since: float) -> dict[str, float]:
    """Seconds per decision by person, in this shift."""
    d = t.decisions.c
    query = sa.select(d.maker, sa.func.avg(d.seconds)).where(d.at >= since, d.seconds.is_not(None))
    return {maker: float(mean) for maker, mean in connection.execute(query.group_by(d.maker))}


def _person(row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """A maker's row with the cases of an hour, and what that hour is worth."""
    shift = found["shift"]
    seconds = found["pace"].get(row["maker"])
    hours = (shift.ends_at - shift.starts_at) / 3600.0 or DEFAULT_HOURS
    per_hour = 3600.0 / seconds if seconds else (row["capacity"] or 0) / hours
    return {**row, "per_hour": per_hour, "hour": row["price"] * per_hour}


def _overload(found: dict[str, Any], people: list[dict[str, Any]]) -> list[monitoring.Alert]:
    room = [
        None if row["capacity"] is None else row["capacity"] - row["used"]
        for row in people
        if not row["absent"]
    ]
    if found["waiting"] and None not in room and sum(r or 0 for r in room) < found["waiting"]:
        said = (
            f"{found['waiting']:,} cases wait, and there is room for {sum(r or 0 for r in room):,} more today"
        )
        return [
            monitoring.Alert("overload", said, "Raise somebody's capacity, or let the machine decide more.")
        ]
    return []


def _sliders(fields: dict[str, str]) -> tuple[float, dict[str, int]]:
    """The team's percentage, and the people whose slider was moved away from it."""
    try:
        team = float(fields.get("team", "100"))
        changes = {
            name.removeprefix("of:"): int(value)
            for name, value in fields.items()
            if name.startswith("of:")
            and value != ""
            and value != fields.get("was:" + name.removeprefix("of:"))
        }
    except ValueError as error:
        raise invalid("bad-slider", "capacities are whole numbers") from error
    if not 0 <= team <= 1000 or any(not 0 <= value <= 10_000_000 for value in changes.values()):
        raise invalid("bad-slider", "capacities are from 0 to 10,000,000")
    return team, changes
