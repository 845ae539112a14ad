"""*Watch*: drift, calibration, people whose work has changed, labels that come late; what an alert starts."""

from __future__ import annotations

import time
from functools import partial

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from deccaf.service.errors import invalid
from deccaf.service.ledger.trail import Event
from deccaf.service.monitor import alerts, checks, daily, windows
from deccaf.service.monitor.daily import Series
from deccaf.service.monitor.health import DAY, HealthReport
from deccaf.service.monitor.limits import NewLimits, change_limits, read_limits
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
    report, at = here.monitor.report, time.time()
    response, events, limits, series, seen = here.read(
        lambda c: (
            alerts.read_response(c),
            alerts.latest_alerts(c, LATEST_EVENTS) if report.at else [],
            read_limits(c),
            daily.read_series(c, at),
            alerts.acknowledged(c),
        )
    )
    return page(
        "watch.html",
        visitor,
        report=report,
        alerts=report.alerts_with(visitor.called),
        said=partial(_said, visitor),
        limit=limits.drift,
        limits=limits,
        series=_shown(series),
        days=(int(at // DAY) - daily.SHOWN_DAYS + 1, int(at // DAY)),
        seen=seen,
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


@router.post("/watch/limits")
async def set_limits(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put other limits in force, and look again with them."""
    form = await checked_form(request, visitor)
    given = {name: str(form.get(name, "")).strip() or None for name in NewLimits.model_fields}
    try:
        wanted = NewLimits.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid("bad-limit", f"{first['loc'][0]}: {first['msg']}; nothing was changed") from error
    await here.writer.run(lambda c: change_limits(c, wanted, visitor.actor, time.time()))
    await to_thread.run_sync(here.monitor.check_now, time.time())
    return go("/watch")


@router.post("/watch/seen")
async def set_seen(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Say that an alert was seen."""
    form = await checked_form(request, visitor)
    name, note = (str(form.get(field, "")).replace("\x00", "")[:500] for field in ("alert", "note"))
    await here.writer.run(lambda c: alerts.acknowledge(c, name, note, visitor.actor, time.time()))
    return go("/watch")


def _shown(series: list[Series]) -> dict[str, list[Series]]:
    """Lines in the groups that the page shows; of many features those that have moved most."""
    drift = [one for one in series if one.name.startswith("drift ")]
    drift = sorted(drift, key=lambda one: (not one.latest.odd, -one.latest.value))[:MOST_FEATURES]
    whole = [one for one in series if one.name in ("score", "truth", "labels")]
    return {
        "whole": whole,
        "drift": drift,
        "errors": [one for one in series if one.name.startswith("errors ")],
    }


def _finding(report: HealthReport) -> str:
    if not report.features:
        return f"Too few cases to say whether they have changed ({report.cases} of {checks.FEWEST_CASES})"
    odd = [name for name, _, is_odd in report.features if is_odd]
    if not odd:
        return f"Today's {report.cases:,} cases look like those the model was trained on"
    return f"{', '.join(odd[:3])} no longer {'looks' if len(odd) == 1 else 'look'} as in training"


def _said(visitor: Visitor, event: Event) -> str:
    """What the trail says of an alert, with people as they are called on pages."""
    name = str(event.data.get("alert", ""))
    text, who = str(event.data.get("said", name)), name.removeprefix("errors ")
    if who == name or not (text == name or text.startswith(f"{who} ")):
        return text
    return text.replace(who, visitor.called(who), 1) if text != name else f"errors {visitor.called(who)}"


def _people(report: HealthReport, visitor: Visitor) -> list[ErrorBar]:
    return [
        ErrorBar(visitor.called(e.name), e.seen, e.low, e.high, f"of {e.labelled}", e.odd, e.expected)
        for e in report.experts
    ]
