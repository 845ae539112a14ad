"""Plans: draft, look, ask what if, commit."""

from __future__ import annotations

import time
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.service.decide import plans
from deccaf.service.ledger import ledger
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import (
    After,
    CaseId,
    Here,
    Id,
    IdempotencyKey,
    Lead,
    Limit,
    Maker,
    Strict,
    as_json,
    as_time,
    call_of,
    need_one,
    page,
    problems,
    send,
)

router = APIRouter(prefix="/v1/plans", tags=["plans"], responses=problems(404, 409))


class NewPlan(Strict):
    """A plan for the cases that wait, or some of them, in a shift (the one that runs now unless named)."""

    shift: Annotated[int, Field(ge=1, le=2**31)] | None = None
    case_ids: Annotated[list[CaseId], Field(min_length=1, max_length=10_000)] | None = None


class WhatIf(Strict):
    """Other capacities for what is left of the shift: "+10", "-5", or "40" to set it."""

    changes: Annotated[
        dict[Maker, Annotated[str, Field(pattern=r"^[+-]?[0-9]{1,7}$")]], Field(min_length=1, max_length=200)
    ]


@router.post("", status_code=201)
async def draft_plan(
    wish: NewPlan, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Draft the plan of least expected cost within everybody's limits. Nobody is bound by a draft."""
    call = await call_of(request, who, key)

    def look(connection: sa.Connection) -> plans.Waiting:
        shift = ledger.current_shift(connection, time.time()) if wish.shift is None else wish.shift
        return plans.waiting_cases(connection, need_one(shift, "shift that runs", "now"), wish.case_ids)

    waiting = await to_thread.run_sync(here.read, look)
    draft = await to_thread.run_sync(plans.make_draft, waiting, here.models.active)
    return send(
        await here.change(call, lambda c, at: plans.save_draft(c, waiting.shift_id, draft, who, at), 201)
    )


@router.get("")
def list_plans(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All plans."""
    names = ("id", "shift_id", "model_id", "state", "created_at", "committed_at", "cases", "summary")
    query = sa.select(*[t.plans.c[name] for name in names])
    return here.read(lambda connection: page(connection, query, t.plans.c.id, limit, after, _shown))


@router.get("/{plan_id}")
def get_plan(plan_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """A plan: cost against the machine alone and random cases, cases and price of every maker."""
    return here.read(lambda connection: _shown(plans.read_plan(connection, plan_id)))


@router.get("/{plan_id}/rows")
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
    return {"items": plans.draft_rows(draft, after, limit), "next": following}


@router.post("/{plan_id}/commit")
async def commit_plan(
    plan_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Turn a draft into assignments, whole or not at all; refused where the cases or the room are gone."""
    call = await call_of(request, who, key)
    return send(await here.change(call, lambda c, at: plans.commit(c, plan_id, who, at)))


@router.post("/{plan_id}/discard")
async def discard_plan(
    plan_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Give a draft up."""
    call = await call_of(request, who, key)
    return send(await here.change(call, lambda c, at: plans.discard(c, plan_id, who, at)))


@router.post("/{plan_id}/what-if")
def what_if(plan_id: Id, wish: WhatIf, here: Here, who: Lead) -> dict[str, Any]:
    """What the cases of a draft would cost with other capacities. Nothing is written."""
    draft = here.read(lambda connection: plans.open_draft(connection, plan_id))
    return plans.what_if(draft, wish.changes)


def _shown(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "state": row.state,
        "shift": row.shift_id,
        "model": row.model_id,
        "created_at": as_time(row.created_at),
        "committed_at": as_time(row.committed_at),
        **as_json(row.summary),
    }
