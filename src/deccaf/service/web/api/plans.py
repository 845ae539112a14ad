"""Plans: draft, look, ask what if, commit."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.client.answers import OtherPlan, Page, Plan, PlanEnded, PlanMade, PlanRow
from deccaf.client.lead_answers import ConstraintsInForce
from deccaf.data.config import ConstraintsTable, CostsTable
from deccaf.service.decide import drafting, plans, two_arms
from deccaf.service.decide.draft import Draft, DraftedCase, pack
from deccaf.service.decide.plans import PlanRecord
from deccaf.service.ledger import shifts
from deccaf.service.ledger.trials import trial_records
from deccaf.service.store.fields import CaseId, Maker, Strict
from deccaf.service.store.listing import Cut
from deccaf.service.web.api.common import (
    After,
    IdempotencyKey,
    Lead,
    Limit,
    call_of,
    gives,
    page_json,
    problems,
    send,
)
from deccaf.service.web.common import Here, Id, as_time

router = APIRouter(prefix="/v1/plans", tags=["plans"], responses=problems(404, 409))


class NewPlan(Strict):
    """A plan for the cases that wait, or some of them, in a shift (the one that runs now unless named)."""

    shift: Annotated[int, Field(ge=1, le=2**31)] | None = None
    case_ids: Annotated[list[CaseId], Field(min_length=1, max_length=10_000)] | None = None
    constraints: ConstraintsTable | None = None
    """What the plan must grant beside everybody's limits: a `[constraints]` table of a configuration file;
    left out: what is in force (`GET /v1/plans/constraints`)."""
    costs: CostsTable | None = None
    """What errors and reviews cost, instead of what the model was fitted with: a `[costs]` table."""
    strict: bool = False
    """Refuse cases that are unlike those that the model learned from."""
    lot: bool = True
    """Draw the share of the cases that the shift gives out by lot; `lot` of the answer says what it costs."""


class ConstraintsWanted(Strict):
    """What all plans grant: a `[constraints]` table of a configuration file, or nothing."""

    constraints: ConstraintsTable | None


class WhatIf(Strict):
    """Other capacities for what is left of the shift: "+10", "-5", or "40" to set it."""

    changes: Annotated[
        dict[Maker, Annotated[str, Field(pattern=r"^[+-]?[0-9]{1,7}$")]], Field(min_length=1, max_length=200)
    ]


@router.post("", status_code=201, responses=gives(PlanMade, 201))
async def draft_plan(
    wanted: NewPlan, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Draft the plan of least expected cost within everybody's limits. Nobody is bound by a draft.

    Where cases have due times or waiting costs, or the settings say what waiting costs, errors and waiting
    together are least; `waiting` of the answer says what waiting costs and how many cases will be late.
    """

    def look(connection: sa.Connection) -> drafting.Waiting:
        at = time.time()
        shift = shifts.need_current(connection, at) if wanted.shift is None else wanted.shift
        return drafting.waiting_cases(connection, shift, wanted.case_ids, at)

    def draft() -> tuple[int, Draft, bytes]:
        waiting = here.read(look)
        asked = two_arms.Asked(wanted.constraints, wanted.costs, wanted.strict, wanted.lot)
        drafted = two_arms.draft_plan(waiting, here.models, asked)
        return waiting.shift_id, drafted, pack(drafted)

    def change(connection: sa.Connection, at: float, made: tuple[int, Draft, bytes]) -> dict[str, Any]:
        shift, drafted, packed = made
        plan = plans.save_draft(connection, shift, drafted, packed, who, at)
        return {"id": plan, "state": "draft", "shift": shift, **drafted.summary}

    return send(await here.prepared_change(await call_of(request, who, key), draft, change, 201))


@router.get("", responses=gives(Page[Plan]))
def list_plans(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All plans."""
    return page_json(here.read(lambda c: plans.list_plans(c, Cut(limit, after))), _plan)


@router.get("/constraints", responses=gives(ConstraintsInForce), operation_id="get_constraints")
def get_constraints(here: Here, who: Lead) -> dict[str, Any]:
    """What plans grant unless they are asked for something else."""
    found = here.read(trial_records.constraints_in_force)
    return {"constraints": None if found is None else found.model_dump(mode="json")}


@router.put("/constraints", responses=gives(ConstraintsInForce), operation_id="put_constraints")
async def put_constraints(
    wanted: ConstraintsWanted, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Put constraints in force for all plans, or (null) take them back; `POST /v1/trials` tries them out."""
    drafting.check_constraints(wanted.constraints)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        trial_records.put_constraints_in_force(connection, wanted.constraints, who, at)
        return wanted.model_dump(mode="json")

    return send(await here.change(await call_of(request, who, key), change))


@router.get("/{plan_id}", responses=gives(Plan))
def get_plan(plan_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """A plan: cost against the machine alone and random cases, cases and price of every maker."""
    return _plan(here.read(lambda connection: plans.read_plan(connection, plan_id)))


@router.get("/{plan_id}/rows", responses=gives(Page[PlanRow]), operation_id="get_plan_rows")
def get_rows(
    plan_id: Id,
    here: Here,
    who: Lead,
    limit: Limit = 100,
    after: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> dict[str, Any]:
    """The cases of a draft: who would get them, and what each maker was expected to cost."""
    draft = here.read(lambda connection: plans.open_draft(connection, plan_id))
    following = after + limit if after + limit < len(draft.maker) else None
    return {"items": [_row(row) for row in draft.rows(after, limit)], "next": following}


@router.post("/{plan_id}/commit", responses=gives(PlanMade))
async def commit_plan(
    plan_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Turn a draft into assignments, whole or not at all; refused where the cases or the room are gone."""

    def answer(plan: PlanRecord) -> dict[str, Any]:
        return {"id": plan.id, "state": plan.state, "shift": plan.shift_id, **plan.summary}

    call = await call_of(request, who, key)
    return send(await to_thread.run_sync(here.large.commit_plan, call, plan_id, answer))


@router.post("/{plan_id}/discard", responses=gives(PlanEnded))
async def discard_plan(
    plan_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Give a draft up."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        plan = plans.discard(connection, plan_id, who, at)
        return {"id": plan.id, "state": plan.state}

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/{plan_id}/what-if", responses=gives(OtherPlan), operation_id="what_if_plan")
def what_if(plan_id: Id, wanted: WhatIf, here: Here, who: Lead) -> dict[str, Any]:
    """What the cases of a draft would cost with other capacities. Nothing is written."""
    draft = here.read(lambda connection: plans.open_draft(connection, plan_id))
    return asdict(drafting.what_if(draft, wanted.changes))


def _row(row: DraftedCase) -> dict[str, Any]:
    """As the API gives it; what waiting means for it only where something is said about waiting."""
    found = asdict(row)
    if row.finish is None:
        return {name: found[name] for name in ("case_id", "maker", "expected_loss", "losses")}
    return {**found, "finish": as_time(row.finish)}


def _plan(plan: PlanRecord) -> dict[str, Any]:
    return {
        "id": plan.id,
        "state": plan.state,
        "shift": plan.shift_id,
        "model": plan.model_id,
        "created_at": as_time(plan.created_at),
        "committed_at": as_time(plan.committed_at),
        **plan.summary,
    }
