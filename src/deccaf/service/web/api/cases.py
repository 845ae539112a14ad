"""Cases: one at a time, routed on arrival; many at a time, held for a plan; files; labels."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.errors import DataError
from deccaf.service.core import Service
from deccaf.service.decide.arrivals import Incoming
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.imports import case_import, reading
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor, Arrival
from deccaf.service.store import tables as t
from deccaf.service.store.idempotency import Call
from deccaf.service.web.api.common import (
    After,
    Anyone,
    CaseId,
    CasePath,
    Class,
    Here,
    Id,
    IdempotencyKey,
    LeadOrMachine,
    Limit,
    Maker,
    Strict,
    as_json,
    as_time,
    call_of,
    known_class,
    need_one,
    page,
    problems,
    send,
)

router = APIRouter(prefix="/v1", tags=["cases"], responses=problems(404, 409))

MOST_COLUMNS = 2_000

Text = Annotated[str, Field(max_length=case_import.LONGEST_TEXT)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e300, le=1e300)]
Value = bool | Annotated[int, Field(ge=-(2**53), le=2**53)] | Number | Text | None
ColumnName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]
Features = Annotated[dict[ColumnName, Value], Field(max_length=MOST_COLUMNS)]
Loss = Annotated[float, Field(allow_inf_nan=False, ge=-1e12, le=1e12)]


class NewCase(Strict):
    """A case; `losses` (expected loss by maker) only where your own model scores it."""

    case_id: CaseId
    features: Features = Field(default_factory=dict)
    losses: Annotated[dict[Maker, Loss], Field(min_length=1, max_length=2000)] | None = None
    machine_decision: Class | None = None
    excluded: Annotated[list[Maker], Field(max_length=100)] = Field(default_factory=list)
    """Who may not get it."""


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


@router.post("/cases", status_code=201, responses={202: {"description": "Nobody can take it now; it waits."}})
async def add_case(
    case: Arriving, request: Request, here: Here, who: LeadOrMachine, key: IdempotencyKey = None
) -> Response:
    """Enter a case and route it at once to the person or the machine of least loss + price with room."""
    _check(here, case)
    incoming = Incoming(
        call=await call_of(request, who, key),
        case_id=case.case_id,
        features=case.features,
        losses=case.losses,
        says=None if case.machine_decision is None else _said(here, case),
        excluded=tuple(case.excluded),
        shift_id=case.shift,
    )
    return send(await asyncio.shield(asyncio.wrap_future(here.intake.submit(incoming))))


@router.post("/cases/bulk", status_code=201)
async def add_cases(
    many: ManyCases, request: Request, here: Here, who: LeadOrMachine, key: IdempotencyKey = None
) -> Response:
    """Enter many cases; they wait for the next plan. All are entered, or none."""
    errors = []
    for row, case in enumerate(many.cases, 1):
        try:
            _check(here, case)
        except (DataError, RefusedError) as error:
            errors.append({"row": row, "case_id": case.case_id, "message": str(error)})
    ids = [case.case_id for case in many.cases]
    if len(set(ids)) < len(ids):
        errors.append({"row": 0, "case_id": None, "message": "a case_id stands twice"})
    if errors:
        raise invalid(
            "bad-rows", f"{len(errors)} row(s) cannot be used", errors=errors[: case_import.SHOWN_ERRORS]
        )
    arrivals = [_arrival(here, case) for case in many.cases]

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        known = ledger.known_cases(connection, ids)
        if known:
            said = f"{len(known)} case(s) are in the ledger already, first: {min(known)!r}"
            raise RefusedError(409, "known-case", said)
        ledger.hold(connection, arrivals, who, at)
        return {"accepted": len(arrivals)}

    return send(await here.change(await call_of(request, who, key), change, 201))


@router.get("/cases")
def list_cases(
    here: Here,
    who: LeadOrMachine,
    status: Literal["waiting", "assigned", "decided"] | None = None,
    limit: Limit = 100,
    after: After = None,
) -> dict[str, Any]:
    """Cases in order of arrival."""
    c = t.cases.c
    query = sa.select(*c["id", "case_id", "status", "arrived_at", "label"])
    if status is not None:
        query = query.where(c.status == status)
    return here.read(lambda connection: page(connection, query, c.id, limit, after, _brief))


@router.get("/cases/{case_id}")
def get_case(case_id: CasePath, here: Here, who: Anyone) -> dict[str, Any]:
    """A case: features, who has or decided it and why, and its history."""
    return here.read(lambda connection: shown_case(connection, case_id, who))


def shown_case(connection: sa.Connection, case_id: str, who: Actor) -> dict[str, Any]:
    """A case as the API gives it; a reviewer sees only cases that are theirs, and no one else's losses."""
    row = connection.execute(sa.select(t.cases).where(t.cases.c.case_id == case_id)).one_or_none()
    a = t.assignments.c
    query = sa.select(t.assignments).where(a.case_id == case_id, a.state.in_(t.LIVE))
    live = None if row is None else connection.execute(query).one_or_none()
    if who.role == "reviewer" and (live is None or live.maker != who.expert):
        row = None
    row = need_one(row, "case", case_id)
    facts = {**_brief(row), "features": as_json(row.features)}
    if live is not None and who.role == "reviewer":
        return {**facts, "label": None, "claimed_until": as_time(live.claimed_until)}
    assignment = None
    if live is not None:
        assignment = {
            "maker": live.maker,
            "state": live.state,
            "shift": live.shift_id,
            "expected_loss": live.expected_loss,
            "price": live.price,
            "created_at": as_time(live.created_at),
            "claimed_until": as_time(live.claimed_until),
            "reason": ledger.reason_of(connection, live),
        }
    said = connection.execute(sa.select(t.decisions).where(t.decisions.c.case_id == case_id)).one_or_none()
    decision = None
    if said is not None:
        decision = {"maker": said.maker, "decision": as_json(said.decision), "at": as_time(said.at)}
    h = t.history.c
    events = connection.execute(sa.select(t.history).where(h.case_id == case_id).order_by(h.id)).all()
    history = [
        {"at": as_time(e.at), "kind": e.kind, "maker": e.maker, "key": e.key_id, "data": as_json(e.data)}
        for e in events
    ]
    return {
        **facts,
        "excluded": as_json(row.excluded),
        "assignment": assignment,
        "decision": decision,
        "history": history,
    }


@router.post(
    "/imports",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
    responses={200: {"description": "Looked at only (dry_run)."}},
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
    with tempfile.TemporaryDirectory(prefix="deccaf-upload-") as folder:
        path, digest = await receive_file(request, Path(folder), _suffix(request))
        frame = await to_thread.run_sync(reading.read_table, path, here.limits.rows, here.limits.columns)
    checked = await to_thread.run_sync(case_import.check_frame, frame, here.models.active)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        found = case_import.without_known(connection, checked)
        if found.rejected and not skip_bad:
            raise invalid(
                "bad-rows", f"{found.rejected} of {found.rows} rows cannot be used", **found.shown()
            )
        return case_import.enter(connection, found, filename, who, at)

    if dry_run:
        found = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, checked))
        return Response(json.dumps(found.shown()), 200, media_type="application/json")
    call = Call(who, key, hashlib.sha256(f"import {request.url.query} {digest}".encode()).hexdigest())
    return send(await here.change(call, change, 201))


@router.get("/imports")
def list_imports(here: Here, who: LeadOrMachine, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """Files that were entered."""
    return here.read(lambda c: page(c, sa.select(t.imports), t.imports.c.id, limit, after, _import))


@router.get("/imports/{import_id}")
def get_import(import_id: Id, here: Here, who: LeadOrMachine) -> dict[str, Any]:
    """One file that was entered, with the errors of its rows."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        row = connection.execute(sa.select(t.imports).where(t.imports.c.id == import_id)).one_or_none()
        return _import(need_one(row, "import", import_id))

    return here.read(look)


@router.post("/labels")
async def add_labels(
    many: ManyLabels, request: Request, here: Here, who: LeadOrMachine, key: IdempotencyKey = None
) -> Response:
    """Write down what the truth of some cases turned out to be; all of them, or none."""
    classes = here.models.active.classes if here.models.active else ()
    rows = [(label.case_id, known_class(label.label, classes)) for label in many.labels]
    if len({case for case, _ in rows}) < len(rows):
        raise invalid("label-twice", "a case stands twice among the labels")

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        ledger.label(connection, rows, who, at)
        return {"accepted": len(rows)}

    return send(await here.change(await call_of(request, who, key), change))


async def receive_file(request: Request, folder: Path, suffix: str) -> tuple[Path, str]:
    """Write the body to a file as it arrives; the path and the content's SHA-256."""
    path, digest = folder / f"upload{suffix}", hashlib.sha256()
    with path.open("wb") as file:
        async for part in request.stream():
            digest.update(part)
            file.write(part)
    return path, digest.hexdigest()


def _suffix(request: Request) -> str:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    known = {
        "text/csv": ".csv",
        "application/vnd.apache.parquet": ".parquet",
        "application/x-parquet": ".parquet",
    }
    if kind not in known:
        said = "send text/csv or application/vnd.apache.parquet as Content-Type"
        raise RefusedError(415, "unknown-kind", said)
    return known[kind]


def _check(here: Service, case: NewCase) -> None:
    """What the model could not score is refused at the door; without a model anything is kept."""
    if case.losses is None and here.models.active is not None:
        here.models.active.check(case.features)
    if case.machine_decision is not None:
        _said(here, case)


def _said(here: Service, case: NewCase) -> str:
    classes = here.models.active.classes if here.models.active else ()
    assert case.machine_decision is not None
    return known_class(case.machine_decision, classes)


def _arrival(here: Service, case: NewCase) -> Arrival:
    given = None
    if case.losses is not None:
        says = None if case.machine_decision is None else _said(here, case)
        given = json.dumps({"losses": case.losses, "says": says})
    return Arrival(case.case_id, json.dumps(case.features), given=given, excluded=tuple(case.excluded))


def _brief(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "case_id": row.case_id,
        "status": row.status,
        "arrived_at": as_time(row.arrived_at),
        "label": as_json(row.label),
    }


def _import(row: Any) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in ("id", "filename", "rows", "accepted", "rejected")}
    return {**facts, "at": as_time(row.at), "errors": as_json(row.errors)}
