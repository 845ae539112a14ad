"""A candidate beside today's practice: shadow, trial, switch-on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import Field

from deccaf.client.lead_answers import Trials, TrialState
from deccaf.data.config import ConstraintsTable
from deccaf.evaluate.trial import Rules
from deccaf.service.decide.drafting import check_constraints
from deccaf.service.errors import invalid
from deccaf.service.ledger.trials import trial_records
from deccaf.service.reports.trial_report import report_trial
from deccaf.service.store.fields import Strict
from deccaf.service.web.api.common import IdempotencyKey, Lead, call_of, gives, problems, send
from deccaf.service.web.common import Here, Id, as_time

router = APIRouter(prefix="/v1/trials", tags=["trials"], responses=problems(404, 409))

MOST = 20
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotBelow = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NewTrial(Strict):
    """A candidate and what is settled before it begins (see `deccaf trial plan`)."""

    model: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """Left out: the one in force, with the constraints."""
    constraints: ConstraintsTable | None = None
    """What plans of the candidate grant; the trial is then about plans alone, not about single arrivals."""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    bound: Positive
    """The most that a case costs; more counts as this."""
    worth: NotBelow = 0.0
    tolerated: NotBelow = 0.0
    chance: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    aim: Positive | None = None
    """Planned saving per case / variance of a case's term; without it any saving alike."""


@router.get("", responses=gives(Trials), operation_id="list_trials")
def read(here: Here, who: Lead) -> dict[str, Any]:
    """The latest trials with what is known of them, the newest first."""
    model = here.models.active

    def look(connection: sa.Connection) -> list[dict[str, Any]]:
        trials = trial_records.list_trials(connection, MOST)
        return [_json(asdict(report_trial(connection, trial, model))) for trial in trials]

    return {"trials": here.read(look), "aside": here.trying.aside}


@router.post("", status_code=201, responses=gives(TrialState, 201), operation_id="start_trial")
async def start(
    wanted: NewTrial, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Let a model, or constraints on plans, run as the shadow of today's practice: it changes nothing."""
    check_constraints(wanted.constraints)
    if wanted.model is None and wanted.constraints is None:
        raise invalid("no-candidate", "a trial needs a candidate: a model, constraints, or both")

    def prepare() -> None:  # the candidate is loaded before the transaction
        if wanted.model is not None:
            here.models.version(wanted.model)

    def change(connection: sa.Connection, at: float, _: None) -> dict[str, Any]:
        rules, check = Rules(**wanted.model_dump(exclude={"model", "constraints"})), here.trying.check
        made = trial_records.start(connection, wanted.model, rules, who, at, wanted.constraints, check)
        return {"id": made.id, "state": made.state}

    answer = await here.prepared_change(await call_of(request, who, key), prepare, change, 201)
    await to_thread.run_sync(here.trying.refresh)
    return send(answer)


@router.post("/{trial_id}/begin", responses=gives(TrialState), operation_id="begin_trial")
async def begin(
    trial_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Give the candidate its share of the cases by lot, from the next one on."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return {"id": trial_id, "state": trial_records.begin(connection, trial_id, who, at).state}

    answer = await here.change(await call_of(request, who, key), change)
    await to_thread.run_sync(here.trying.refresh)
    return send(answer)


@router.post("/{trial_id}/end", responses=gives(TrialState), operation_id="end_trial")
async def end(trial_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None) -> Response:
    """All cases go by today's practice again."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return {
            "id": trial_id,
            "state": trial_records.end(connection, trial_id, "ended by a lead", who, at).state,
        }

    answer = await here.change(await call_of(request, who, key), change)
    await to_thread.run_sync(here.trying.refresh)
    return send(answer)


@router.post("/{trial_id}/switch-on", responses=gives(TrialState), operation_id="switch_on_trial")
async def switch_on(
    trial_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Put the candidate in force for all cases.

    Back again with POST /v1/models/roll-back; constraints with PUT /v1/plans/constraints.
    """

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        found = trial_records.switch_on(connection, trial_id, who, at)
        return {"id": trial_id, "state": found.state, "model": found.model_id}

    answer = await here.change(await call_of(request, who, key), change)
    await to_thread.run_sync(here.trying.refresh)
    await to_thread.run_sync(here.models.refresh)
    return send(answer)


def _json(report: dict[str, Any]) -> dict[str, Any]:
    trial = report.pop("trial")
    times = {name: as_time(trial[name]) for name in ("at", "ended_at")}
    del trial["seed"]
    loads = [{"maker": name, "today": a, "candidate": b} for name, a, b in report.pop("loads")]
    return {**trial, **times, **report, "loads": loads}
