"""The watch: measures over days, limits, alerts in force and who has seen them."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.client.lead_answers import Limits, SeenAlert, Watch
from deccaf.service.monitor import alerts, daily
from deccaf.service.monitor.limits import NewLimits, change_limits, read_limits
from deccaf.service.store.fields import Strict
from deccaf.service.web.api.common import IdempotencyKey, Lead, call_of, gives, problems, send
from deccaf.service.web.common import Here, as_time

router = APIRouter(prefix="/v1/watch", tags=["watch"], responses=problems(404, 409))


class Seen(Strict):
    """An alert in force that was seen, by its kind and subject ("errors ann"), and what is done about it."""

    alert: Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]
    note: Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")] = ""


@router.get("", responses=gives(Watch), operation_id="get_watch")
def watch(here: Here, who: Lead, days: Annotated[int, Query(ge=1, le=400)] = 60) -> dict[str, Any]:
    """Each measure over the last days with its limit; alerts in force, and who has seen them."""
    at, report = time.time(), here.monitor.report
    series, limits, seen = here.read(
        lambda c: (daily.read_series(c, at, days), read_limits(c), alerts.acknowledged(c))
    )
    return {
        "looked_at": as_time(report.at) if report.at else None,
        "limits": asdict(limits),
        "alerts": [
            {**asdict(alert), "seen": _seen(seen.get(f"{alert.kind} {alert.subject}"))}
            for alert in report.alerts
        ],
        "measures": [asdict(one) for one in series],
    }


@router.put("/limits", responses=gives(Limits))
async def set_limits(
    wanted: NewLimits, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say from where on a measure is an alert; in force from the next look on."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return asdict(change_limits(connection, wanted, who, at))

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/seen", responses=gives(SeenAlert))
async def set_seen(
    wanted: Seen, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say that an alert in force was seen."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        alerts.acknowledge(connection, wanted.alert, wanted.note, who, at)
        return {"alert": wanted.alert, "at": as_time(at)}

    return send(await here.change(await call_of(request, who, key), change))


def _seen(found: alerts.Acknowledged | None) -> dict[str, Any] | None:
    return None if found is None else {**asdict(found), "at": as_time(found.at)}
