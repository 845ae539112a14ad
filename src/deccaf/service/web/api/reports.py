"""Numbers for the lead: today, everybody's record, and files to take away."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from deccaf.service.core import Service
from deccaf.service.ledger import ledger
from deccaf.service.monitor import reporting
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import Here, Lead, as_json, as_time, need_one, problems

router = APIRouter(prefix="/v1/reports", tags=["reports"], responses=problems(404, 409))

ShiftQuery = Annotated[
    int | None, Query(ge=1, le=2**31, description="The shift that runs now, unless named.")
]

_PART = 2_000


@router.get("/shift")
def shift_report(here: Here, who: Lead, shift: ShiftQuery = None) -> dict[str, Any]:
    """A shift at a glance: waiting, used and decided, expected cost against the machine alone and random."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        found = ledger.current_shift(connection, time.time()) if shift is None else shift
        return reporting.shift_numbers(connection, need_one(found, "shift that runs", "now"))

    return here.read(look)


@router.get("/experts")
def expert_report(here: Here, who: Lead) -> dict[str, Any]:
    """Everybody's decisions against labels, with 95 % intervals, also on cases that were assigned by lot."""
    return here.read(lambda connection: {"items": reporting.expert_numbers(connection)})


@router.get("/ledger")
def ledger_report(here: Here, who: Lead) -> dict[str, Any]:
    """Whether the ledger adds up; `wrong` lists what does not."""
    wrong = here.read(ledger.check)
    return {"sound": not wrong, "wrong": wrong[:100]}


@router.get(
    "/assignments.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def assignments_file(here: Here, who: Lead, shift: ShiftQuery = None) -> StreamingResponse:
    """All assignments of a shift as CSV; cells that a spreadsheet would run are made harmless."""
    if shift is not None:
        here.read(lambda c: need_one(_name(c, shift), "shift", shift))
    headers = {"Content-Disposition": 'attachment; filename="assignments.csv"'}
    return StreamingResponse(_lines(here, shift), media_type="text/csv; charset=utf-8", headers=headers)


def _name(connection: sa.Connection, shift: int) -> str | None:
    return connection.execute(sa.select(t.shifts.c.name).where(t.shifts.c.id == shift)).scalar()


def _lines(here: Service, shift: int | None) -> Iterator[str]:
    a, d, k = t.assignments.c, t.decisions.c, t.cases.c
    head = ["case_id", "maker", "state", "method", "expected_loss", "price", "propensity", "model", "plan"]
    yield _csv([[*head, "assigned_at", "decision", "decided_at", "label"]])
    columns = (*a["id", "case_id", "maker", "state", "method", "expected_loss", "price"], a.propensity)
    query = (
        sa.select(*columns, a.model_id, a.plan_id, a.created_at, d.decision, d.at, k.label)
        .join_from(t.assignments, t.cases, a.case_id == k.case_id)
        .outerjoin(t.decisions, sa.and_(d.case_id == a.case_id, a.state == "decided"))
        .order_by(a.id)
        .limit(_PART)
    )
    if shift is not None:
        query = query.where(a.shift_id == shift)
    last = 0
    while True:
        part = query.where(a.id > last)
        rows = here.read(lambda connection, part=part: connection.execute(part).all())  # type: ignore[misc]
        if not rows:
            return
        yield _csv(
            [
                [
                    *row[1:10],
                    as_time(row.created_at),
                    as_json(row.decision),
                    as_time(row.at),
                    as_json(row.label),
                ]
                for row in rows
            ]
        )
        last = rows[-1].id


def _csv(rows: list[list[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([[harmless(cell) for cell in row] for row in rows])
    return out.getvalue()


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe."""
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + cell
    return cell
