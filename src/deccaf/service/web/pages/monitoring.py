"""*Watch*: drift, calibration, people whose work has changed, labels that come late; what an alert starts."""

from __future__ import annotations

import time

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from deccaf.service.monitor import alerts, checks, windows
from deccaf.service.monitor.health import HealthReport
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import LeadHere, Visitor, checked_form
from deccaf.service.web.pages.charts import ErrorBar
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_FEATURES = 12
LATEST_EVENTS = 20


@router.get("/watch")
def watch(here: Here, visitor: LeadHere) -> Response:
    """The latest check, with the reasons for every alert."""
    report = here.monitor.report
    response, events = here.read(
        lambda c: (alerts.read_response(c), alerts.latest_alerts(c, LATEST_EVENTS) if report.at else [])
    )
    return page(
        "watch.html",
        visitor,
        report=report,
        limit=checks.INDEX_LIMIT,
        score_cases=windows.SCORE_REFERENCE,
        features=report.features[:MOST_FEATURES],
        finding=_finding(report),
        people=_people(report, visitor),
        most=max([max(person.high, person.expected) for person in report.experts] or [1.0]),
        response=response,
        events=events,
    )


@router.post("/watch/now")
async def check_now(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Check now instead of in a minute."""
    await checked_form(request, visitor)
    await to_thread.run_sync(here.monitor.check_now, time.time())
    return go("/watch")


@router.post("/watch/wish")
async def set_response(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Decide whether an alert starts a refit."""
    form = await checked_form(request, visitor)
    refit, activate = form.get("refit") == "yes", form.get("activate") == "yes"
    await here.writer.run(lambda c: alerts.write_response(c, refit, activate, visitor.actor, time.time()))
    return go("/watch")


def _finding(report: HealthReport) -> str:
    if not report.features:
        return f"Too few cases to say whether they have changed ({report.cases} of {checks.FEWEST_CASES})"
    odd = [name for name, _, is_odd in report.features if is_odd]
    if not odd:
        return f"Today's {report.cases:,} cases look like those the model was trained on"
    return f"{', '.join(odd[:3])} no longer {'looks' if len(odd) == 1 else 'look'} as in training"


def _people(report: HealthReport, visitor: Visitor) -> list[ErrorBar]:
    return [
        ErrorBar(visitor.called(e.name), e.seen, e.low, e.high, f"of {e.labelled}", e.odd, e.expected)
        for e in report.experts
    ]
