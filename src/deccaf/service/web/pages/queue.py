"""*Queue*: a reviewer's next case, a decision with one key, how far they are, and what else they can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData

from deccaf.data.display import DisplayTable, Mode
from deccaf.service.core import Service
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.ledger import assignments, claims, people
from deccaf.service.ledger.claims import WorkDay
from deccaf.service.ledger.review import lead_word, opinion, parking, undo
from deccaf.service.ledger.review.parking import ParkedCase
from deccaf.service.store.fields import MAKER, known_class
from deccaf.service.web.common import Here, classes_of
from deccaf.service.web.pages.access import AnyoneHere, Visitor, checked_form
from deccaf.service.web.pages.casework import facts
from deccaf.service.web.pages.render import PageRoute, go, page, segment

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LONGEST = 100_000.0
_LONGEST_REASON = 500

WhoseQueue = Query(None, pattern=MAKER)


@dataclass(frozen=True)
class Choice:
    """A decision that can be made, what it is called, and the key for it."""

    place: int
    name: str
    key: str


@dataclass(frozen=True)
class Bench:
    """What somebody has on their desk: the case in hand, those put aside, what can be taken back."""

    day: WorkDay
    display: DisplayTable
    until: float | None = None
    """When the claim on the case in hand ends."""
    mode: Mode = "hidden"
    machine: Any = None
    """What the machine would decide, where it may be seen now."""
    first: Any = None
    """The answer before it was seen."""
    notes: list[tuple[float, str]] | None = None
    parked: list[ParkedCase] | None = None
    last: tuple[str, int | str, float] | None = None
    """The decision that can be taken back."""

    @property
    def ready(self) -> int:
        """Cases that can be taken now."""
        return self.day.waiting - len(self.parked or [])


@router.get("/queue")
def queue(here: Here, visitor: AnyoneHere, expert: str | None = WhoseQueue) -> Response:
    """The case in hand, or the way to the next one. A lead chooses whose queue to look at."""
    if visitor.is_lead and expert is None:
        lengths, listed = here.read(lambda c: (claims.queue_lengths(c), lead_word.waiting_for_lead(c)))
        return page("queues.html", visitor, queues=lengths, opinions=listed)
    me, at = _whose(visitor, expert), time.time()
    bench = here.read(lambda connection: _bench(connection, me, at))
    look, day = None, bench.day
    if day.case_id is not None:
        look = facts.look(day.case_id, day.features, bench.display, here.models.active)
    return page(
        "queue.html",
        visitor,
        images=() if look is None else look.hosts,
        me=me,
        choices=_choices(here, bench.display),
        now=at,
        bench=bench,
        day=day,
        look=look,
    )


@router.get("/queue/waiting")
def waiting(here: Here, visitor: AnyoneHere, expert: str | None = WhoseQueue) -> Response:
    """The part of an empty desk that looks for new cases by itself."""
    me = _whose(visitor, expert)
    bench = here.read(lambda connection: _bench(connection, me, time.time()))
    return page("queue_waiting.html", visitor, me=me, bench=bench, day=bench.day)


@router.post("/queue/next")
async def take(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Take the next case, or the one that is named."""

    def change(connection: sa.Connection, me: str, case_id: str, at: float) -> None:
        if case_id:
            parking.take_up(connection, case_id, me, visitor.actor, at, here.claim_seconds)
        else:
            claims.claim_next(connection, me, visitor.actor, at, here.claim_seconds)

    return await _changed(request, here, visitor, change)


@router.post("/queue/decide")
async def decide(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Write the decision down (or the first answer, or the reason to hand it back), and go on."""
    form = await checked_form(request, visitor)
    seconds, who = _seconds(form.get("shown")), visitor.actor
    decision = None if form.get("back") else _decision(here, form.get("decision"))

    def change(connection: sa.Connection, me: str, case_id: str, at: float) -> None:
        if decision is None:
            reason = _words(form, "reason", _LONGEST_REASON) or "handed back"
            claims.hand_back(connection, case_id, me, reason, who, at, here.rng)
        elif form.get("first") and opinion.first_answer(connection, case_id, me) is None:
            opinion.answer_first(connection, case_id, me, decision, who, at)
            return
        else:
            claims.decide(connection, case_id, me, decision, seconds, who, at)
        claims.claim_next(connection, me, who, at, here.claim_seconds)

    return await _changed(request, here, visitor, change)


@router.post("/queue/{what}")
async def do(what: str, request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Take the last decision back, put the case aside, ask for more time, write a note."""
    form = await checked_form(request, visitor)
    who, seconds = visitor.actor, here.claim_seconds

    def change(connection: sa.Connection, me: str, case_id: str, at: float) -> None:
        match what:
            case "undo":
                undo.undo(connection, case_id, me, who, at, seconds)
            case "extend":
                parking.extend(connection, case_id, me, who, at, seconds)
            case "park":
                reason = _words(form, "reason", _LONGEST_REASON)
                parking.park(connection, case_id, me, reason, who, at)
                claims.claim_next(connection, me, who, at, seconds)
            case "note":
                text = _words(form, "text", parking.LONGEST_NOTE)
                if not text:
                    raise invalid("no-note", "write something down first")
                parking.add_note(connection, case_id, me, text, who, at)
            case _:
                raise RefusedError(404, "not-found", f"nothing can be done by {what!r}")

    return await _changed(request, here, visitor, change)


async def _changed(
    request: Request,
    here: Service,
    visitor: Visitor,
    change: Callable[[sa.Connection, str, str, float], None],
) -> Response:
    """Make a change about somebody's case, in their turn, and show their queue again."""
    form = await checked_form(request, visitor)
    me, case_id = _whose(visitor, _text(form.get("expert"))), str(form.get("case", ""))

    def run(connection: sa.Connection) -> None:
        people.take_turn(connection, me)  # a person's turn comes before the shift's
        change(connection, me, case_id, time.time())

    await here.writer.run(run)
    return go(_back(visitor, me))


def _bench(connection: sa.Connection, me: str, at: float) -> Bench:
    day, display = claims.read_work_day(connection, me, at), opinion.read_display(connection)
    parked, last = parking.parked_by(connection, me, at), undo.can_undo(connection, me, at)
    live = None if day.case_id is None else assignments.live_of(connection, day.case_id)
    if live is None:
        return Bench(day, display, parked=parked, last=last)
    return Bench(
        day=day,
        display=display,
        until=live.claimed_until,
        mode=opinion.mode_for(connection, live.case_id, me, display),
        machine=opinion.visible(connection, live.case_id, me, live.machine_says),
        first=opinion.first_answer(connection, live.case_id, me),
        notes=parking.notes_of(connection, live.case_id, me),
        parked=parked,
        last=last,
    )


def _whose(visitor: Visitor, named: str | None) -> str:
    if visitor.actor.role == "reviewer":
        if named not in (None, "", visitor.actor.expert):
            raise RefusedError(403, "not-yours", "a reviewer acts for nobody else")
        assert visitor.actor.expert is not None
        return visitor.actor.expert
    if not named:
        raise invalid("no-expert", "say whose queue this is")
    return named


def _classes(here: Service) -> tuple[int | str, ...]:
    return classes_of(here) or (0, 1)


def _choices(here: Service, display: DisplayTable) -> list[Choice]:
    """Classes 0 and 1 are on the keys 0 and 1; others are counted from 1."""
    classes = _classes(here)
    first = 0 if set(classes) == {0, 1} else 1
    return [
        Choice(k, display.called(name), str(first + k) if first + k < 10 else "")
        for k, name in enumerate(classes)
    ]


def _decision(here: Service, given: Any) -> str:
    """The decision that the button at a place among the classes means."""
    classes = _classes(here)
    if not isinstance(given, str) or not given.isdecimal() or int(given) >= len(classes):
        raise invalid("no-decision", "choose one of the decisions")
    return known_class(classes[int(given)], classes)


def _seconds(shown: Any) -> float | None:
    try:
        return min(max(time.time() - float(shown), 0.0), _LONGEST)
    except (TypeError, ValueError):
        return None


def _words(form: FormData, name: str, most: int) -> str:
    text = _text(form.get(name)) or ""
    return "".join(char for char in text if char in "\n\t" or char.isprintable()).strip()[:most]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _back(visitor: Visitor, me: str) -> str:
    return f"/queue?expert={segment(me)}" if visitor.is_lead else "/queue"
