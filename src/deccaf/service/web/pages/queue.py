"""*Queue*: a reviewer's next case, a decision with one key, and how far they are."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response

from deccaf.service.core import Service
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.ledger import claims, people
from deccaf.service.store.fields import MAKER
from deccaf.service.web.common import Here, classes_of, known_class
from deccaf.service.web.pages.access import AnyoneHere, Visitor, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LONGEST = 100_000.0


@router.get("/queue")
def queue(here: Here, visitor: AnyoneHere, expert: str | None = Query(None, pattern=MAKER)) -> Response:
    """The case in hand, or the way to the next one. A lead chooses whose queue to look at."""
    if visitor.is_lead and expert is None:
        return page("queues.html", visitor, queues=here.read(claims.queue_lengths))
    me = _whose(visitor, expert)
    day = here.read(lambda connection: claims.read_work_day(connection, me, time.time()))
    return page("queue.html", visitor, me=me, classes=_classes(here), now=time.time(), day=day)


@router.post("/queue/next")
async def take(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Take the next case."""
    form = await checked_form(request, visitor)
    me = _whose(visitor, _text(form.get("expert")))
    await here.writer.run(lambda c: claims.claim_next(c, me, visitor.actor, time.time(), here.claim_seconds))
    return go(_back(visitor, me))


@router.post("/queue/decide")
async def decide(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Write the decision down, and take the next case at once."""
    form = await checked_form(request, visitor)
    me, case_id = _whose(visitor, _text(form.get("expert"))), str(form.get("case", ""))
    seconds = _seconds(form.get("shown"))
    decision = None if form.get("back") else _decision(here, form.get("decision"))

    def change(connection: sa.Connection) -> None:
        at = time.time()
        people.take_turn(connection, me)  # a person's turn comes before the shift's
        if decision is None:
            claims.hand_back(connection, case_id, me, "handed back", visitor.actor, at, here.rng)
        else:
            claims.decide(connection, case_id, me, decision, seconds, visitor.actor, at)
        claims.claim_next(connection, me, visitor.actor, at, here.claim_seconds)

    await here.writer.run(change)
    return go(_back(visitor, me))


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


def _decision(here: Service, given: Any) -> str:
    """The decision that the button at a place among the classes means."""
    classes = _classes(here)
    if not isinstance(given, str) or not given.isdigit() or int(given) >= len(classes):
        raise invalid("no-decision", "choose one of the decisions")
    return known_class(classes[int(given)], classes)


def _seconds(shown: Any) -> float | None:
    try:
        return min(max(time.time() - float(shown), 0.0), _LONGEST)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _back(visitor: Visitor, me: str) -> str:
    return f"/queue?expert={me}" if visitor.is_lead else "/queue"
