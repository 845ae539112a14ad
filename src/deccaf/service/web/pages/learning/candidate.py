"""*Models*, one version beside the one in force, before anybody activates it; and going back."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response

from deccaf.errors import DeccafError
from deccaf.service.errors import invalid
from deccaf.service.jobs import kinds
from deccaf.service.ledger import versions
from deccaf.service.reports import candidate_report
from deccaf.service.reports.model_report import report_versions
from deccaf.service.web.common import Here, Id, model_file
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

LONGEST_NOTE = 2_000


@router.get("/models/{model_id}")
def version(model_id: Id, here: Here, visitor: LeadHere) -> Response:
    """A version beside the one in force."""
    costs = None if here.models.active is None else here.models.active.system.costs_

    def look(connection: sa.Connection) -> dict[str, Any]:
        active = versions.active_id(connection)
        both = [number for number in (active, model_id) if number is not None]
        rows = {row.version.id: row for row in report_versions(connection, costs, both)}
        return {
            "shown": rows[model_id],
            "active": rows[active] if active is not None else None,
            "notes": candidate_report.notes(connection, model_id),
            "backtests": {n: candidate_report.backtest_of(connection, n) for n in dict.fromkeys(both)},
        }

    return page("candidate.html", visitor, **here.read(look))


@router.get("/models/{model_id}/compared")
def compared(model_id: Id, here: Here, visitor: LeadHere) -> Response:
    """What takes a moment: whether both are right, and what would change today."""
    before, after = here.models.active, here.models.version(model_id)
    try:
        found, trouble = candidate_report.compare(here.read, before, after, time.time()), None
    except DeccafError as error:
        found, trouble = None, str(error)
    return page("candidate_compared.html", visitor, before=before, after=after, found=found, trouble=trouble)


@router.post("/models/{model_id}/notes")
async def add_note(model_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Write down what is known about a version."""
    form = await checked_form(request, visitor)
    text = str(form.get("text", "")).strip()
    if not text or len(text) > LONGEST_NOTE:
        raise invalid("bad-note", f"a note has 1 to {LONGEST_NOTE:,} characters")

    def change(connection: sa.Connection) -> None:
        versions.read_version(connection, model_id)
        candidate_report.add_note(connection, model_id, text, visitor.actor, time.time())

    await here.writer.run(change)
    return go(f"/models/{model_id}#notes")


@router.post("/models/{model_id}/backtest")
async def ask_backtest(model_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Test the settings of a version on the ledger's history, in the background."""
    await checked_form(request, visitor)

    def change(connection: sa.Connection) -> None:
        name = versions.read_version(connection, model_id).name
        params = {"name": f"backtest of {name}", "model": model_id}
        kinds.ask(connection, "backtest", params, visitor.actor, time.time())

    await here.writer.run(change)
    return go(f"/models/{model_id}#backtest")


@router.get("/models/{model_id}/file")
def download(model_id: Id, here: Here, visitor: LeadHere) -> Response:
    """The model file, as `deccaf fit` writes it."""
    return model_file(here, model_id)


@router.post("/models/go-back")
async def go_back(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put the version in force that was in force before this one."""
    await checked_form(request, visitor)
    await here.writer.run(lambda c: versions.roll_back(c, visitor.actor, time.time()))
    await to_thread.run_sync(here.models.refresh)
    return go("/models")
