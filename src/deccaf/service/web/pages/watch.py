"""*Watch*: drift, calibration, people who are not themselves, labels that come late; what then happens."""

from __future__ import annotations

import json
import time
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response

from deccaf.service.monitor import monitoring
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import Here
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

SHOWN_FEATURES = 12


@router.get("/watch")
def watch(here: Here, visitor: LeadHere) -> Response:
    """The latest look, with the reasons for every alert."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        h = t.history.c
        latest = (
            sa.select(t.history).where(h.kind.in_(("alert raised", "alert cleared"))).order_by(h.id.desc())
        )
        rows = connection.execute(latest.limit(20)).all() if report.at else []
        events = [(row.at, row.kind, json.loads(row.data)) for row in rows]
        return {"wish": monitoring.read_wish(connection), "events": events}

    report = here.watcher.report
    found = here.read(look)
    return page(
        "watch.html",
        visitor,
        report=report,
        limit=monitoring.INDEX_LIMIT,
        score_cases=monitoring.SCORE_REFERENCE,
        features=report.features[:SHOWN_FEATURES],
        finding=_finding(report),
        people=_people(report),
        most=max([max(w.high, w.expected) for w in report.experts] or [1.0]),
        **found,
    )


@router.post("/watch/now")
async def look_now(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Look now instead of in a minute."""
    await checked_form(request, visitor)
    await to_thread.run_sync(here.watcher.look_now, time.time())
    return go("/watch")


@router.post("/watch/wish")
async def set_wish(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Say whether an alert starts a refit."""
    form = await checked_form(request, visitor)
    refit, activate = form.get("refit") == "yes", form.get("activate") == "yes"
    await here.writer.run(lambda c: monitoring.write_wish(c, refit, activate, visitor.actor, time.time()))
    return go("/watch")


def _finding(report: monitoring.Report) -> str:
    if not report.features:
        return f"Too few cases to say whether they have changed ({report.cases} of {monitoring.FEWEST_CASES})"
    odd = [name for name, _, is_odd in report.features if is_odd]
    if not odd:
        return f"Today's {report.cases:,} cases look like those the model was trained on"
    return f"{', '.join(odd[:3])} no longer {'looks' if len(odd) == 1 else 'look'} as in training"


def _people(report: monitoring.Report) -> list[dict[str, Any]]:
    return [
        {
            "name": w.name,
            "rate": w.seen,
            "low": w.low,
            "high": w.high,
            "odd": w.odd,
            "expected": w.expected,
            "note": f"of {w.labelled}",
        }
        for w in report.experts
    ]
