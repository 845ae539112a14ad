"""*Set-up*, step 1: a history from elsewhere, shown column by column and row by row before it is entered."""

from __future__ import annotations

import time

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData

from deccaf.service.imports import past_import, past_records
from deccaf.service.imports.past_columns import CHOICES, PARTS
from deccaf.service.store.idempotency import Call
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.web.common import Here, Id, in_reader
from deccaf.service.web.pages.access import LeadHere, checked_form, keep_upload
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.pages.uploads import file_name, file_of, file_suffix

router = APIRouter(route_class=PageRoute, include_in_schema=False)

SHOWN_ERRORS = 20
PART_WORDS = {
    "case": "case id",
    "expert": "person",
    "decision": "decision",
    "label": "truth (label)",
    "time": "time the case came",
    "decided_at": "time of the decision",
    "labelled_at": "time of the label",
    "seconds": "seconds it took",
    "feature": "feature: a number",
    "category": "feature: a category",
    "text": "feature: a text",
    "vector": "feature: a vector",
    "group": "group: kept together",
    "amount": "amount: a cost",
    "-": "leave out",
}


@router.post("/setup/history")
async def bring_history(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A file of decisions: looked at first, with what each column seems to be; then entered."""
    form = await checked_form(request, visitor)
    name, enter = file_name(form), form.get("do") == "enter"
    with scratch_folder() as folder:
        path = await keep_upload(file_of(form), folder, file_suffix(name))
        size = (here.limits.rows, here.limits.columns)
        past = await in_reader(past_import.read_past, path, folder / "rows", size, chosen_parts(form))
    if not enter or past.trouble is not None:
        found = await to_thread.run_sync(here.read, lambda c: past_records.without_known(c, past))
        return page(
            "past_preview.html",
            visitor,
            past=found,
            facts=found.facts(),
            errors=found.errors[:SHOWN_ERRORS],
            parts={part: PART_WORDS[part] for part in (*PARTS, *CHOICES)},
        )
    skip = form.get("skip") == "yes"
    call = Call(visitor.actor)
    await to_thread.run_sync(here.large.enter_past, call, past, name, skip, lambda _: {})
    return _on(request, "/setup?entered=yes#model")


@router.post("/setup/history/{entry_id}/withdraw")
async def withdraw(entry_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Take an entry back as a whole."""
    await checked_form(request, visitor)
    await here.writer.run(lambda c: past_records.withdraw(c, entry_id, visitor.actor, time.time()))
    return go("/setup#history")


def chosen_parts(form: FormData) -> dict[str, str]:
    """What somebody chose for columns: fields `part:NAME`."""
    known = {*PARTS, *CHOICES}
    return {
        name.removeprefix("part:"): str(value)
        for name, value in form.items()
        if name.startswith("part:") and value in known
    }


def _on(request: Request, path: str) -> Response:
    """To another page, also from a form that htmx sent."""
    if "hx-request" not in request.headers:
        return go(path)
    return Response(None, 204, {"HX-Redirect": path})
