"""Moving work: what a reassignment or an absence costs is shown first, then it is done; and undone."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import FormData

from deccaf.service.errors import invalid
from deccaf.service.ledger import shifts
from deccaf.service.ledger.moving import absence, priority, reassignment
from deccaf.service.ledger.moving.priority import Priority
from deccaf.service.ledger.moving.reassignment import Reassignment
from deccaf.service.ledger.review import second
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.questions import Named

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_SHOWN = 200
BEST = ""
"""Of the choice of a person: the best with room."""


@router.post("/moves/preview")
async def preview(request: Request, here: Here, visitor: LeadHere) -> Response:
    """What moving the chosen cases would cost; or, where only their priority changes, that is done."""
    form = await checked_form(request, visitor)
    if form.get("do") == "priority":
        wanted = _checked(Priority, {"case_ids": _ids(form), "priority": form.get("priority")})
        await here.writer.run(lambda c: priority.set_priority(c, wanted, visitor.actor, time.time()))
        return go(_back(form))
    if form.get("do") == "second":
        ids = _ids(form)
        await here.writer.run(lambda c: second.want(c, ids, visitor.actor, time.time()))
        return go(_back(form))
    move = _move(form)
    found = here.read(lambda connection: reassignment.preview(connection, move))
    return page(
        "move.html",
        visitor,
        move=move,
        found=found,
        back=_back(form),
        most=MOST_SHOWN,
        chosen=len(move.case_ids),
    )


@router.post("/moves")
async def do_move(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Move them."""
    form = await checked_form(request, visitor)
    move, back = _move(form), _back(form)
    found = await here.writer.run(lambda c: reassignment.reassign(c, move, visitor.actor, time.time()))
    mark = "&" if "?" in back else "?"
    return go(f"{back}{mark}moved={len(found.moves)}&stayed={len(found.refused)}")


@router.get("/absence")
def before_absence(here: Here, visitor: LeadHere, maker: Named) -> Response:
    """What it costs if somebody leaves now; or what goes back to somebody who returns."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        shift = shifts.need_current(connection, time.time())
        seat = next((s for s in shifts.read_roster(connection, shift) if s.maker == maker), None)
        if seat is not None and seat.absent:
            return {"back": absence.preview_return(connection, shift, maker), "away": None}
        return {"away": absence.preview_absence(connection, shift, maker), "back": None}

    return page("absence.html", visitor, maker=maker, **here.read(look))


@router.post("/return")
async def come_back(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Undo an absence, with the work or without it."""
    form = await checked_form(request, visitor)
    maker, with_work = str(form.get("maker", "")).replace("\x00", ""), form.get("work") == "yes"

    def change(connection: sa.Connection) -> None:
        at = time.time()
        shift = shifts.need_current(connection, at)
        absence.come_back(connection, shift, maker, with_work, visitor.actor, at)

    await here.writer.run(change)
    return go("/")


def _ids(form: FormData) -> list[str]:
    found = [str(value) for value in form.getlist("case")]
    if not found:
        raise invalid("nothing-chosen", "choose at least one case, by the box before its id")
    return found


def _move(form: FormData) -> Reassignment:
    to = str(form.get("to", BEST))
    fields = {"case_ids": _ids(form), "to": to or None, "begun": form.get("begun") == "yes"}
    found: Reassignment = _checked(Reassignment, {**fields, "reason": str(form.get("reason", ""))})
    return found


def _checked(kind: Any, fields: dict[str, Any]) -> Any:
    try:
        return TypeAdapter(kind).validate_python(fields)
    except ValidationError as error:
        raise invalid(
            "bad-form", "the form holds something that cannot be used; load the page again"
        ) from error


def _back(form: FormData) -> str:
    """The page to return to: one of our own lists of cases, or a case."""
    path = str(form.get("back", ""))
    return path if path.startswith("/cases") and "\\" not in path else "/cases"
