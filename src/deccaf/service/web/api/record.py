"""The whole record: finding cases, the trail, a person's record and data, and the erasure of a name."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from deccaf.client.lead_answers import Erased, FoundCases, TrailLines
from deccaf.service.ledger.record import erasure
from deccaf.service.ledger.record.audit import Line, read_trail
from deccaf.service.ledger.record.search import FoundCase, find_cases
from deccaf.service.reports.person_report import PersonReport, report_person
from deccaf.service.store.fields import MAKER, Maker, Strict
from deccaf.service.web.api.common import IdempotencyKey, Lead, Limit, call_of, gives, problems, send
from deccaf.service.web.common import Here, as_time
from deccaf.service.web.questions import Cases, Trail, case_file, data_file, trail_file

router = APIRouter(prefix="/v1", tags=["record"], responses=problems(404, 409))

_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}
Person = Annotated[str, Query(pattern=MAKER, description="Who, by the name that models know.")]


class Erasure(Strict):
    """Whose name gives way to a pseudonym; `again` is the name once more, so that no slip erases anybody."""

    name: Maker
    again: Maker


@router.get("/reports/cases", responses=gives(FoundCases), operation_id="find_cases")
def find(here: Here, who: Lead, asked: Cases, limit: Limit = 100) -> dict[str, Any]:
    """Cases by part of their id, person, status, decision, arrival, expected loss and disagreement, sorted.

    `next` is the `after` of the next page. Where no index serves a condition, `looked` says how many cases
    were looked through for this page; there may be more behind them.
    """
    found = here.read(lambda c: find_cases(c, asked.question(), asked.mark, limit))
    return {
        "items": [_case(case) for case in found.items],
        "next": None if found.next is None else str(found.next),
        "looked": found.looked,
        "beginnings": found.beginnings,
    }


@router.get(
    "/reports/cases.csv", response_class=StreamingResponse, responses=_CSV, operation_id="find_cases_file"
)
def find_file(here: Here, who: Lead, asked: Cases) -> StreamingResponse:
    """The same as CSV, whole."""
    return case_file(here, asked.question())


@router.get("/reports/trail", responses=gives(TrailLines), operation_id="get_trail")
def audit(here: Here, who: Lead, asked: Trail, limit: Limit = 100) -> dict[str, Any]:
    """The trail, the newest first, by person, key, case, kind and time."""
    found = here.read(lambda c: read_trail(c, asked.question(), asked.mark, limit))
    return {
        "items": [_line(line) for line in found.items],
        "next": None if found.next is None else str(found.next),
    }


@router.get(
    "/reports/trail.csv", response_class=StreamingResponse, responses=_CSV, operation_id="get_trail_file"
)
def audit_file(here: Here, who: Lead, asked: Trail) -> StreamingResponse:
    """The same as CSV, whole."""
    return trail_file(here, asked.question())


@router.get("/reports/person", responses=gives(PersonReport), operation_id="get_person_report")
def person(here: Here, who: Lead, name: Person) -> dict[str, Any]:
    """One person: load, cost expected and seen, calibration, learning curve, recent disagreements."""
    return asdict(here.read(lambda c: report_person(c, name, here.models.active, time.time())))


@router.get(
    "/reports/person-data",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
    operation_id="get_person_data",
)
def data(here: Here, who: Lead, name: Person) -> StreamingResponse:
    """Everything that is kept about a person, as one JSON document."""
    return data_file(here, name)


@router.post("/erasures", status_code=201, responses=gives(Erased, 201), operation_id="erase_person")
async def erase(
    wanted: Erasure, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Replace a person's name by a pseudonym, in the trail and in model files too; what they did stays.

    They are put out of use and their keys revoked. It cannot be undone.
    """

    def prepare() -> tuple[str, dict[int, bytes]]:
        erasure.confirm(wanted.name, wanted.again)
        return here.read(lambda c: erasure.rewritten_models(c, wanted.name))

    def change(connection: sa.Connection, at: float, files: tuple[str, dict[int, bytes]]) -> dict[str, Any]:
        return asdict(erasure.erase(connection, wanted.name, files, who, at, here.rng))

    answer = await here.prepared_change(await call_of(request, who, key), prepare, change, 201)
    here.keys.forget()
    return send(answer)


def _case(case: FoundCase) -> dict[str, Any]:
    times = {"arrived_at": as_time(case.arrived_at), "decided_at": as_time(case.decided_at)}
    return {**asdict(case), **times}


def _line(line: Line) -> dict[str, Any]:
    return {**asdict(line), "at": as_time(line.at)}
