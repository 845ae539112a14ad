"""The past: files of decisions that were made elsewhere, to learn from; entered whole, taken back whole."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from deccaf.client.answers import Page
from deccaf.client.lead_answers import Past as PastAnswer
from deccaf.client.lead_answers import PastLooked
from deccaf.service.errors import invalid
from deccaf.service.imports import past_import, past_records
from deccaf.service.imports.past_columns import PARTS
from deccaf.service.imports.past_import import Past
from deccaf.service.imports.past_records import Entry
from deccaf.service.store.idempotency import Call
from deccaf.service.store.listing import Cut
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.web.api.common import (
    FILE_BODY,
    After,
    IdempotencyKey,
    Lead,
    Limit,
    call_of,
    file_suffix,
    gives,
    page_json,
    problems,
    receive_file,
    send,
)
from deccaf.service.web.common import Here, Id, as_time, in_reader

router = APIRouter(prefix="/v1/history", tags=["history"], responses=problems(404, 409))

_ColumnName = Annotated[str | None, Query(max_length=200, description="The column's name, unless guessed.")]


@router.post(
    "",
    status_code=201,
    openapi_extra=FILE_BODY,
    responses=gives(PastAnswer, 201) | gives(PastLooked, 200, "Looked at only (dry_run)."),
)
async def enter_history(
    request: Request,
    here: Here,
    who: Lead,
    filename: Annotated[str, Query(max_length=200, pattern=r"^[^\x00-\x1f]*$")] = "upload",
    dry_run: bool = False,
    skip_bad: bool = False,
    case: _ColumnName = None,
    expert: _ColumnName = None,
    decision: _ColumnName = None,
    label: _ColumnName = None,
    time: _ColumnName = None,
    decided_at: _ColumnName = None,
    labelled_at: _ColumnName = None,
    seconds: _ColumnName = None,
    key: IdempotencyKey = None,
) -> Response:
    """Enter a file of decisions (CSV or parquet, as the body), one row each, any number of them for a case.

    Times are the past's own: nothing of it counts as decided or labelled today. With `dry_run` the file is
    only looked at. A file with bad rows is refused, and the rows are named, unless `skip_bad` asks for the
    good rows alone. What each column seems to be is in the answer; `PUT /v1/settings` says what it is.
    """
    given = (case, expert, decision, label, time, decided_at, labelled_at, seconds)
    chosen = {name: part for part, name in zip(PARTS, given, strict=True) if name is not None}
    if len(chosen) < sum(name is not None for name in given):
        raise invalid("part-twice", "one column cannot have two parts")

    with scratch_folder() as folder:
        path, digest = await receive_file(request, folder, file_suffix(request))

        def check() -> Past:
            size = (here.limits.rows, here.limits.columns)
            return past_import.read_past(path, folder / "rows", size, chosen)

        if not dry_run:
            text = f"history {request.url.query} {digest}"
            call = Call(who, key, hashlib.sha256(text.encode()).hexdigest())
            enter = lambda past: to_thread.run_sync(  # noqa: E731
                here.large.enter_past, call, past, filename, skip_bad, _entry
            )
            return send(await here.prepared(call, check, enter, 201, in_reader))
        past = await in_reader(check)
    found = await to_thread.run_sync(here.read, lambda c: past_records.without_known(c, past))
    facts = {**found.facts(), **_times(found.facts()), "trouble": found.trouble}
    return Response(json.dumps(facts), 200, media_type="application/json")


@router.get("", responses=gives(Page[PastAnswer]))
def list_history(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """Histories that were entered, those that were taken back too."""
    return page_json(here.read(lambda c: past_records.list_entries(c, Cut(limit, after))), _entry)


@router.get("/{entry_id}", responses=gives(PastAnswer))
def get_history(entry_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """One of them."""
    return _entry(here.read(lambda connection: past_records.read_entry(connection, entry_id)))


@router.delete("/{entry_id}", responses=gives(PastAnswer))
async def take_history_back(
    entry_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Take an entry back as a whole: no refit learns from it any more. The trail keeps that it was there."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return _entry(past_records.withdraw(connection, entry_id, who, at))

    return send(await here.change(await call_of(request, who, key), change))


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "filename": entry.filename,
        "at": as_time(entry.at),
        "withdrawn_at": as_time(entry.withdrawn_at),
        **entry.facts,
        **_times(entry.facts),
    }


def _times(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: as_time(facts[name]) for name in ("first_at", "last_at")}
