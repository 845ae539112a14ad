"""Cases: one at a time, routed on arrival; many at a time, held for a plan; files; labels."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.client.answers import Accepted, Case, CaseBrief, ImportMade, Looked, Page, Placed
from deccaf.client.answers import Import as ImportAnswer
from deccaf.data.vectors import LONGEST_VECTOR
from deccaf.errors import DeccafError
from deccaf.service.core import Service
from deccaf.service.decide.arrivals import Incoming
from deccaf.service.errors import conflict, invalid
from deccaf.service.imports import case_import
from deccaf.service.imports.case_import import Checked, Import
from deccaf.service.large_changes import File
from deccaf.service.ledger import case_records, labels
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.ledger.labels import Labelled
from deccaf.service.store import unfinished
from deccaf.service.store.fields import LONGEST_TEXT, CaseId, Class, Maker, Strict, Time, known_class
from deccaf.service.store.idempotency import Answer, Call
from deccaf.service.store.listing import Cut
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.web.api.case_json import brief_json, case_json
from deccaf.service.web.api.common import (
    FILE_BODY,
    After,
    Anyone,
    IdempotencyKey,
    LeadOrMachine,
    Limit,
    call_of,
    file_suffix,
    gives,
    page_json,
    problems,
    receive_file,
    send,
)
from deccaf.service.web.common import CasePath, Here, Id, as_time, classes_of, in_reader

router = APIRouter(prefix="/v1", tags=["cases"], responses=problems(404, 409))

MOST_COLUMNS = 2_000

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e300, le=1e300)]
Vector = Annotated[list[Number], Field(max_length=LONGEST_VECTOR)]
Value = bool | Annotated[int, Field(ge=-(2**53), le=2**53)] | Number | Text | Vector | None
ColumnName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]
Features = Annotated[dict[ColumnName, Value], Field(max_length=MOST_COLUMNS)]
Loss = Annotated[float, Field(allow_inf_nan=False, ge=-1e12, le=1e12)]


TOGETHER = 3_000
"""Cases of a request that are entered as single ones are; more go in as a file does, on SQLite in pieces."""


class NewCase(Strict):
    """A case; `losses` (expected loss by maker) only where your own model scores it."""

    case_id: CaseId
    features: Features = Field(default_factory=dict)
    losses: Annotated[dict[Maker, Loss], Field(min_length=1, max_length=2000)] | None = None
    machine_decision: Class | None = None
    excluded: Annotated[list[Maker], Field(max_length=100)] = Field(default_factory=list)
    """Who may not get it."""
    due: Time | None = None
    """When it is late."""
    waiting_cost: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    """What an hour of its waiting costs."""

    @property
    def due_at(self) -> float | None:
        """In seconds since 1970."""
        return None if self.due is None else self.due.timestamp()


class Arriving(NewCase):
    """A case that is routed at once, into the shift that runs now unless another is named."""

    shift: Annotated[int, Field(ge=1, le=2**31)] | None = None


class ManyCases(Strict):
    """Cases that wait for the next plan."""

    cases: Annotated[list[NewCase], Field(min_length=1, max_length=10_000)]


class Label(Strict):
    """What the truth turned out to be."""

    case_id: CaseId
    label: Class


class ManyLabels(Strict):
    """Labels, in any order; a later one corrects an earlier one."""

    labels: Annotated[list[Label], Field(min_length=1, max_length=10_000)]


@router.post(
    "/cases",
    status_code=201,
    responses=gives(Placed, 201) | gives(Placed, 202, "Nobody can take it now; it waits."),
)
async def add_case(
    case: Arriving, request: Request, here: Here, who: LeadOrMachine, key: IdempotencyKey = None
) -> Response:
    """Enter a case and route it at once to the person or the machine of least loss + price with room."""
    refusal = _refusal(here, case)
    if refusal is not None and key is None:
        raise refusal
    incoming = Incoming(
        call=await call_of(request, who, key),
        case_id=case.case_id,
        features=case.features,
        losses=case.losses,
        says=None if case.machine_decision is None else json.dumps(case.machine_decision),
        excluded=tuple(case.excluded),
        shift_id=case.shift,
        refusal=refusal,
        due=case.due_at,
        waiting_cost=case.waiting_cost,
    )
    return send(await asyncio.shield(asyncio.wrap_future(here.intake.submit(incoming))))


@router.post("/cases/bulk", status_code=201, responses=gives(Accepted, 201))
async def add_cases(
    many: ManyCases, request: Request, here: Here, who: LeadOrMachine, key: IdempotencyKey = None
) -> Response:
    """Enter many cases; they wait for the next plan. All are entered, or none."""
    call = await call_of(request, who, key)

    def refuse_known(known: set[str]) -> None:
        if known:
            detail = f"{len(known)} case(s) are in the ledger already, first: {min(known)!r}"
            raise conflict("known-case", detail)

    def change(connection: sa.Connection, at: float, arrivals: list[Arrival]) -> dict[str, Any]:
        refuse_known(case_records.known_cases(connection, [arrival.case_id for arrival in arrivals]))
        case_records.hold(connection, arrivals, who, at)
        return {"accepted": len(arrivals)}

    async def write(arrivals: list[Arrival]) -> Answer:
        if len(arrivals) <= TOGETHER:
            return await here.change(call, lambda connection, at: change(connection, at, arrivals), 201)
        file = File(
            Checked.whole(arrivals),
            "cases/bulk",
            lambda found: refuse_known({a.case_id for a in arrivals} - {a.case_id for a in found.arrivals}),
            lambda _, found: {"accepted": len(found.arrivals)},
        )
        return await to_thread.run_sync(here.large.enter_file, call, file)

    return send(await here.prepared(call, lambda: _arrivals(here, many.cases), write, 201))


@router.get("/cases", responses=gives(Page[CaseBrief]))
def list_cases(
    here: Here,
    who: LeadOrMachine,
    status: Literal["waiting", "assigned", "decided"] | None = None,
    limit: Limit = 100,
    after: After = None,
) -> dict[str, Any]:
    """Cases in order of arrival."""
    return page_json(here.read(lambda c: case_records.list_cases(c, status, Cut(limit, after))), brief_json)


@router.get("/cases/{case_id:path}", responses=gives(Case))
def get_case(case_id: CasePath, here: Here, who: Anyone) -> dict[str, Any]:
    """A case: features, who has or decided it and why, and its history."""
    return case_json(here.read(lambda connection: case_records.read_case(connection, case_id, who)), who)


@router.post(
    "/imports",
    status_code=201,
    openapi_extra=FILE_BODY,
    responses=gives(ImportMade, 201) | gives(Looked, 200, "Looked at only (dry_run)."),
)
async def import_file(
    request: Request,
    here: Here,
    who: LeadOrMachine,
    filename: Annotated[str, Query(max_length=200, pattern=r"^[^\x00-\x1f]*$")] = "upload",
    dry_run: bool = False,
    skip_bad: bool = False,
    key: IdempotencyKey = None,
) -> Response:
    """Enter a file of cases (CSV or parquet, as the body); they wait for the next plan.

    With `dry_run` the file is only looked at. A file with bad rows is refused, and the rows are named, unless
    `skip_bad` asks for the good rows alone.
    """

    def accept(found: Checked) -> None:
        if found.rejected and not skip_bad:
            raise invalid(
                "bad-rows", f"{found.rejected} of {found.rows} rows cannot be used", **found.to_dict()
            )

    with scratch_folder() as folder:
        path, digest = await receive_file(request, folder, file_suffix(request))

        def check() -> Checked:
            size = (here.limits.rows, here.limits.columns)
            return case_import.read_cases(path, folder / "rows", size, here.models.active, look=dry_run)

        if not dry_run:
            call = Call(who, key, hashlib.sha256(f"import {request.url.query} {digest}".encode()).hexdigest())
            enter = lambda checked: to_thread.run_sync(  # noqa: E731
                here.large.enter_file, call, File(checked, filename, accept)
            )
            return send(await here.prepared(call, check, enter, 201, in_reader))
        checked = await in_reader(check)
    found = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, checked))
    return Response(json.dumps(found.to_dict()), 200, media_type="application/json")


@router.get("/imports", responses=gives(Page[ImportAnswer]))
def list_imports(here: Here, who: LeadOrMachine, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """Files that were entered."""
    return page_json(here.read(lambda c: case_import.list_imports(c, Cut(limit, after))), _import)


@router.get("/imports/{import_id}", responses=gives(ImportAnswer))
def get_import(import_id: Id, here: Here, who: LeadOrMachine) -> dict[str, Any]:
    """One file that was entered, with the errors of its rows."""
    return _import(here.read(lambda connection: case_import.read_import(connection, import_id)))


@router.post("/labels", responses=gives(Accepted))
async def add_labels(
    many: ManyLabels, request: Request, here: Here, who: LeadOrMachine, key: IdempotencyKey = None
) -> Response:
    """Write down what the truth of some cases turned out to be; all of them, or none."""

    def check() -> list[tuple[str, str]]:
        classes = classes_of(here)
        rows = [(label.case_id, known_class(label.label, classes)) for label in many.labels]
        if len({case for case, _ in rows}) < len(rows):
            raise invalid("label-twice", "a case stands twice among the labels")
        return rows

    call = await call_of(request, who, key)

    async def write(rows: list[Labelled]) -> Answer:
        if unfinished.is_in_pieces(here.engine, len(rows), labels.AT_ONCE):
            return await to_thread.run_sync(here.large.enter_labels, call, rows)
        return await here.change(call, lambda connection, at: labels.label(connection, rows, who, at))

    return send(await here.prepared(call, check, write))


def _check(here: Service, case: NewCase) -> None:
    """What the model could not score is refused at the door; without a model anything is kept."""
    if case.losses is None and here.models.active is not None:
        here.models.active.check(case.features)
    _machine_decision(here, case)


def _refusal(here: Service, case: NewCase) -> DeccafError | None:
    try:
        _check(here, case)
    except DeccafError as error:
        return error
    return None


def _arrivals(here: Service, cases: list[NewCase]) -> list[Arrival]:
    """Cases that can all be entered; else every row that cannot is named."""
    refused = [(row, case, _refusal(here, case)) for row, case in enumerate(cases, 1)]
    errors: list[dict[str, Any]] = [
        {"row": row, "case_id": case.case_id, "message": str(error)} for row, case, error in refused if error
    ]
    if len({case.case_id for case in cases}) < len(cases):
        errors.append({"row": 0, "case_id": None, "message": "a case_id stands twice"})
    if errors:
        raise invalid(
            "bad-rows", f"{len(errors)} row(s) cannot be used", errors=errors[: case_import.SHOWN_ERRORS]
        )
    return [_arrival(here, case) for case in cases]


def _machine_decision(here: Service, case: NewCase) -> str | None:
    return None if case.machine_decision is None else known_class(case.machine_decision, classes_of(here))


def _arrival(here: Service, case: NewCase) -> Arrival:
    given = None
    if case.losses is not None:
        given = json.dumps({"losses": case.losses, "says": _machine_decision(here, case)})
    return Arrival(
        case.case_id,
        json.dumps(case.features),
        given=given,
        excluded=tuple(case.excluded),
        due=case.due_at,
        waiting_cost=case.waiting_cost,
    )


def _import(entered: Import) -> dict[str, Any]:
    return {
        "id": entered.id,
        "filename": entered.filename,
        "rows": entered.rows,
        "accepted": entered.accepted,
        "rejected": entered.rejected,
        "at": as_time(entered.at),
        "errors": entered.errors,
    }
