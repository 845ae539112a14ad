"""*Models*, a candidate beside today's practice: shadow, trial, switch-on and back."""

from __future__ import annotations

import time
import tomllib
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from deccaf.data.config import ConstraintsTable
from deccaf.evaluate.trial import Rules
from deccaf.service.decide.drafting import check_constraints
from deccaf.service.errors import invalid
from deccaf.service.ledger import versions
from deccaf.service.ledger.trials import trial_records
from deccaf.service.reports.trial_report import report_trial
from deccaf.service.web.common import Here, Id, number, whole_number
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

SHARES = (0.1, 0.25, 0.5)
MOST = 5


@router.get("/trial")
def trial(here: Here, visitor: LeadHere) -> Response:
    """The trial that runs, what is known of it, and those before."""
    model = here.models.active

    def look(connection: sa.Connection) -> dict[str, Any]:
        found = trial_records.list_trials(connection, MOST)
        active = versions.active_id(connection)
        others = [one for one in versions.latest_versions(connection, 20) if one.id != active]
        return {
            "reports": [report_trial(connection, one, model) for one in found],
            "candidates": others,
            "active": active,
            "in_force": trial_records.constraints_in_force(connection),
        }

    return page("trial.html", visitor, shares=SHARES, aside=here.trying.aside, **here.read(look))


@router.post("/trial")
async def start(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Let a version run as the shadow of the one in force."""
    form = await checked_form(request, visitor)
    model, asked = whole_number("version", form.get("model")), _constraints(str(form.get("constraints", "")))
    share, bound = number("share", form.get("share")), number("most that a case costs", form.get("bound"))
    if (model is None and asked is None) or share is None or bound is None:
        raise invalid(
            "bad-trial", "a trial needs a version or constraints, a share and the most that a case costs"
        )
    rules, check = Rules(share, bound), here.trying.check
    if model is not None:
        await to_thread.run_sync(here.models.version, model)
    await here.writer.run(
        lambda c: trial_records.start(c, model, rules, visitor.actor, time.time(), asked, check)
    )
    await to_thread.run_sync(here.trying.refresh)
    return go("/trial")


@router.post("/trial/constraints/off")
async def constraints_off(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Back: plans grant nothing beside everybody's limits."""
    await checked_form(request, visitor)
    await here.writer.run(
        lambda c: trial_records.put_constraints_in_force(c, None, visitor.actor, time.time())
    )
    return go("/trial")


def _constraints(text: str) -> ConstraintsTable | None:
    """The tables of a configuration's `[constraints]`, as they are written in a file."""
    if not text.strip():
        return None
    try:
        found = tomllib.loads(text)
        asked = ConstraintsTable.model_validate(found.get("constraints", found))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise invalid("bad-constraints", f"constraints: {str(error)[:500]}") from error
    check_constraints(asked)
    return asked


@router.post("/trial/{trial_id}/{step}")
async def change(trial_id: Id, step: str, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Give it its share, end it, or put it in force for all cases."""
    await checked_form(request, visitor)
    who, at = visitor.actor, time.time()
    steps = {
        "begin": lambda c: trial_records.begin(c, trial_id, who, at),
        "end": lambda c: trial_records.end(c, trial_id, "ended by a lead", who, at),
        "switch-on": lambda c: trial_records.switch_on(c, trial_id, who, at),
    }
    if step not in steps:
        raise invalid("bad-step", f"{step!r} is none of {', '.join(steps)}")
    await here.writer.run(steps[step])
    await to_thread.run_sync(here.trying.refresh)
    await to_thread.run_sync(here.models.refresh)
    return go("/trial")
