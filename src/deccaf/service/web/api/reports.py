"""Numbers for the lead: today, everybody's record, and files to take away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from deccaf.service.core import Service
from deccaf.service.jobs.learning import read_config
from deccaf.service.ledger import check, shifts
from deccaf.service.ledger.assignments import list_outcomes
from deccaf.service.reports.letting_report import report_letting
from deccaf.service.reports.shift_report import report_shift
from deccaf.service.web.api.common import Lead, problems
from deccaf.service.web.common import Here, as_time
from deccaf.service.web.questions import download

router = APIRouter(prefix="/v1/reports", tags=["reports"], responses=problems(404, 409))

ShiftQuery = Annotated[
    int | None, Query(ge=1, le=2**31, description="The shift that runs now, unless named.")
]

_PART = 2_000


@router.get("/shift")
def shift_report(here: Here, who: Lead, shift: ShiftQuery = None) -> dict[str, Any]:
    """A shift at a glance: waiting, used and decided, expected cost against the machine alone and random."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        found = shifts.need_current(connection, time.time()) if shift is None else shift
        return asdict(report_shift(connection, found, here.live_losses))

    return here.read(look)


@router.get("/experts")
def expert_report(here: Here, who: Lead) -> dict[str, Any]:
    """Everybody's decisions against labels, with 95 % intervals, also on cases that were assigned by lot.

    `as_of` is when they were added up: now, or, with more than 100,000 cases, at most two minutes ago.
    """
    found, at = here.read(lambda connection: here.records.read(connection, time.time()))
    return {"as_of": as_time(at), "items": [asdict(row) for row in found]}


@router.get("/let-through")
def letting_report(here: Here, who: Lead) -> dict[str, Any]:
    """Rejects that were let through by lot where labels are selective, and what that costs."""
    return asdict(here.read(lambda c: report_letting(c, read_config(c))))


@router.get("/ledger")
def ledger_report(here: Here, who: Lead) -> dict[str, Any]:
    """Whether the ledger adds up; `wrong` lists what does not."""
    wrong = here.read(check.check)
    return {"sound": not wrong, "wrong": wrong[:100]}


@router.get(
    "/assignments.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def assignments_file(here: Here, who: Lead, shift: ShiftQuery = None) -> StreamingResponse:
    """All assignments of a shift as CSV; cells that a spreadsheet would run are made harmless."""
    if shift is not None:
        here.read(lambda connection: shifts.read_shift(connection, shift))
    head = ["case_id", "maker", "state", "method", "expected_loss", "price", "propensity", "model", "plan"]
    head += ["assigned_at", "decision", "decided_at", "label"]
    return download("assignments.csv", head, _rows(here, shift))


def _rows(here: Service, shift: int | None) -> Iterator[list[list[Any]]]:
    last = 0
    while rows := here.read(lambda connection, last=last: list_outcomes(connection, shift, last, _PART)):  # type: ignore[misc]
        yield [
            [
                row.case_id,
                row.maker,
                row.state,
                row.method,
                row.expected_loss,
                row.price,
                row.propensity,
                row.model_id,
                row.plan_id,
                as_time(row.created_at),
                row.decision,
                as_time(row.decided_at),
                row.label,
            ]
            for row in rows
        ]
        last = rows[-1].id
