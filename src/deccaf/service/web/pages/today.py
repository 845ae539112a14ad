"""*Today*: what waits, who has room, what it costs, what one more hour would save; other capacities."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response

from deccaf.data.costs import MACHINE
from deccaf.planning.comparing import is_worse
from deccaf.service.core import Service
from deccaf.service.errors import invalid, not_found
from deccaf.service.jobs.learning import read_config
from deccaf.service.ledger import case_records, claims, letting, roster, shifts
from deccaf.service.ledger.review import lead_word
from deccaf.service.ledger.roster import RosterChange
from deccaf.service.ledger.shifts import Shift
from deccaf.service.ledger.waiting import open_work
from deccaf.service.monitor.alerts import acknowledged
from deccaf.service.monitor.health import Alert
from deccaf.service.reports.installation import steps_left
from deccaf.service.reports.letting_report import report_letting
from deccaf.service.reports.shift_report import MakerLoad, ShiftReport, report_shift
from deccaf.service.reports.what_if import ask
from deccaf.service.web.common import Here, number, whole_number
from deccaf.service.web.pages.access import AnyoneHere, LeadHere, Visitor, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.pages.words import count, versus

router = APIRouter(route_class=PageRoute, include_in_schema=False)

DEFAULT_HOURS = 8.0


@dataclass(frozen=True)
class Person:
    """A maker's load, with what one more hour of their time is worth."""

    load: MakerLoad
    per_hour: float
    """Cases that they decide in an hour."""
    left: int
    """Cases of the day that nobody has decided yet."""
    at_stake: float
    """What these are expected to cost as things are: nobody can save more."""

    @property
    def hour(self) -> float:
        """What the next hour would save at most."""
        return min(self.load.price * min(self.per_hour, self.left), self.at_stake)


@router.get("/")
def today(here: Here, visitor: AnyoneHere) -> Response:
    """The page that a lead opens in the morning; a reviewer is sent to their queue."""
    if not visitor.is_lead:
        return go("/queue")
    if here.read(steps_left):
        return go("/setup")
    return page("today.html", visitor, letting=here.read(_letting), **_numbers(here, visitor))


@router.get("/today/numbers")
def numbers(here: Here, visitor: LeadHere) -> Response:
    """The part of the page that moves."""
    return page("today_numbers.html", visitor, **_numbers(here, visitor))


@router.get("/what-if")
def what_if(request: Request, here: Here, visitor: LeadHere) -> Response:
    """The cost of the day with the capacities of the sliders."""
    team, changes = _sliders(dict(request.query_params))

    def look(connection: sa.Connection) -> Any:
        shift = shifts.current_shift(connection, time.time())
        return None if shift is None else here.days.day(connection, shift)

    found = here.read(look)
    scenario = None if found is None else ask(found[0], found[1], team / 100.0, changes, visitor.unit)
    return page("what_if.html", visitor, scenario=scenario)


@router.post("/capacity")
async def set_capacity(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put the capacities of the sliders in force; work that no longer fits goes to others."""
    form = await checked_form(request, visitor)
    team, changes = _sliders({key: str(value) for key, value in form.items()})

    def change(connection: sa.Connection) -> None:
        at = time.time()
        shift = shifts.need_current(connection, at)
        for seat in shifts.read_roster(connection, shift):
            if seat.maker == MACHINE or seat.machine or seat.capacity is None:
                continue
            capacity = changes.get(seat.maker, round(seat.capacity * team / 100.0))
            if capacity != seat.capacity:
                wanted = RosterChange(capacity=capacity, release=True)
                roster.move_limits(connection, shift, seat.maker, wanted, visitor.actor, at, here.rng)

    await here.writer.run(change)
    return go("/")


@router.post("/absence")
async def set_absence(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Somebody went home, or came back."""
    form = await checked_form(request, visitor)
    maker, away = str(form.get("maker", "")), form.get("away") == "yes"

    def change(connection: sa.Connection) -> None:
        at = time.time()
        shift = shifts.current_shift(connection, at)
        if shift is None or maker not in shifts.roster_makers(connection, shift):
            raise not_found("person on today's roster", maker)
        wanted = RosterChange(absent=away, release=away)
        roster.move_limits(connection, shift, maker, wanted, visitor.actor, at, here.rng)

    await here.writer.run(change)
    return go("/")


def _letting(connection: sa.Connection) -> str:
    """What it costs to let rejects through by lot; empty where none are."""
    labels, _ = letting.in_force(connection)
    if not (labels.let_through or labels.let_through_machine):
        return ""
    return report_letting(connection, read_config(connection)).price_in_words


def _numbers(here: Service, visitor: Visitor) -> dict[str, Any]:
    """What the templates of the page need."""
    at, model, alerts = time.time(), here.models.active, here.monitor.report.alerts_with(visitor.called)

    outlook = here.read(lambda connection: open_work.read_outlook(connection, at))

    def look(connection: sa.Connection) -> tuple[int, Shift | None, ShiftReport | None, dict[str, float]]:
        waiting, current = case_records.waiting_count(connection), shifts.current_shift(connection, at)
        if current is None:
            return waiting, None, None, {}
        shift = shifts.read_shift(connection, current)
        day = report_shift(connection, current, here.live_losses)
        return waiting, shift, day, claims.mean_seconds(connection, shift.starts_at)

    waiting, shift, day, pace = here.read(look)
    alerts = [*_for_the_lead(here.read(lead_word.waiting_for_lead)), *alerts]
    seen = here.read(acknowledged) if alerts else {}
    if shift is None or day is None:
        return {
            "waiting": waiting,
            "shift": None,
            "alerts": alerts,
            "model": model,
            "people": [],
            "seen": seen,
        }
    left, at_stake = _undecided(day, shift)
    team = [Person(load, _per_hour(load, shift, pace.get(load.maker)), left, at_stake) for load in day.makers]
    return {
        "waiting": waiting,
        "shift": shift,
        "day": day,
        "alerts": [*_loss(day), *_overload(waiting, day.makers), *alerts],
        "seen": seen,
        "model": model,
        "costs": None if model is None else model.system.costs_,
        "people": [person for person in team if person.load.maker != MACHINE and not person.load.machine],
        "machines": [load for load in day.makers if load.machine],
        "machine": next((load for load in day.makers if load.maker == MACHINE), None),
        "over": shift.over(at),
        "outlook": outlook,
    }


def _per_hour(load: MakerLoad, shift: Shift, seconds: float | None) -> float:
    """Cases an hour: by the pace of this shift, else by the capacity."""
    return 3600.0 / seconds if seconds else (load.capacity or 0) / (shift.hours or DEFAULT_HOURS)


def _undecided(day: ShiftReport, shift: Shift) -> tuple[int, float]:
    """Cases of the day that are still to be decided, those to come among them, and what they should cost."""
    whole = max(shift.expected_cases or 0, day.assigned + day.waiting)
    left = whole - day.decided
    return left, left * day.expected_cost / day.assigned if day.assigned else 0.0


def _loss(day: ShiftReport) -> list[Alert]:
    """An alert where the day is worse than it would be without people."""
    if not is_worse(day.expected_cost, day.machine_cost):
        return []
    compared = versus(day.expected_cost, day.machine_cost, "the machine alone")
    todo = "Lower what is given out by lot, or what people must get; then plan again."
    return [Alert("cost", f"What was given out today costs {compared}", todo)]


def _for_the_lead(listed: int) -> list[Alert]:
    """An alert where cases wait for the lead's word."""
    if not listed:
        return []
    finding = f"{count(listed, 'case')} {'waits' if listed == 1 else 'wait'} for your word"
    return [Alert("second opinions", finding, "Open Second opinions under Queues.")]


def _overload(waiting: int, makers: list[MakerLoad]) -> list[Alert]:
    """An alert where more cases wait than there is room for."""
    room = 0
    for load in makers:
        if not load.absent:
            if load.room is None:
                return []
            room += load.room
    if waiting <= room:
        return []
    finding = f"{waiting:,} cases wait, and there is room for {room:,} more today"
    return [Alert("overload", finding, "Raise somebody's capacity, or let the machine decide more.")]


def _sliders(fields: dict[str, str]) -> tuple[float, dict[str, int]]:
    """The team's percentage, and the people whose slider was moved away from it."""
    given = number("team", fields.get("team", "100"))
    team = 100.0 if given is None else given
    changes = {
        name.removeprefix("of:"): capacity
        for name, value in fields.items()
        if name.startswith("of:")
        and value != fields.get("was:" + name.removeprefix("of:"))
        and (capacity := whole_number("capacity", value)) is not None
    }
    if not 0 <= team <= 1000 or any(not 0 <= value <= 10_000_000 for value in changes.values()):
        raise invalid("bad-slider", "capacities are from 0 to 10,000,000")
    return team, changes
