"""*Plan*: a draft for everything that waits, shown before anybody is bound by it; commit it or give it up."""

from __future__ import annotations

import time

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response

from deccaf.service.decide import drafting, plans, two_arms
from deccaf.service.decide.draft import DraftedCase, pack
from deccaf.service.decide.plans import PlanRecord
from deccaf.service.errors import not_found
from deccaf.service.ledger import shifts
from deccaf.service.ledger.shifts import Seat
from deccaf.service.store.idempotency import Call
from deccaf.service.web.common import Here, Id
from deccaf.service.web.pages import words
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PREVIEW_ROWS = 50


@router.post("/plans")
async def draft(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Draft a plan for everything that waits, and show it; nothing is drawn by lot unless that is asked."""
    form = await checked_form(request, visitor)
    lot = form.get("lot") == "draw"

    def look(connection: sa.Connection) -> drafting.Waiting:
        at = time.time()
        return drafting.waiting_cases(connection, shifts.need_current(connection, at), None, at)

    waiting = await to_thread.run_sync(here.read, look)
    asked = two_arms.Asked(lot=lot)
    drafted = await to_thread.run_sync(lambda: two_arms.draft_plan(waiting, here.models, asked))
    packed = await to_thread.run_sync(pack, drafted)
    made = await here.writer.run(
        lambda c: plans.save_draft(c, waiting.shift_id, drafted, packed, visitor.actor, time.time())
    )
    return go(f"/plans/{made}")


@router.get("/plans/{plan_id}")
def preview(plan_id: Id, here: Here, visitor: LeadHere) -> Response:
    """A plan before it is committed: its cost, who gets how much, and its first cases."""

    def look(connection: sa.Connection) -> tuple[PlanRecord, list[Seat], list[DraftedCase]]:
        plan = plans.read_plan(connection, plan_id)
        rows = []
        if plan.state == "draft":
            rows = plans.open_draft(connection, plan_id).rows(0, PREVIEW_ROWS)
        return plan, shifts.read_roster(connection, plan.shift_id), rows

    plan, roster, rows = here.read(look)
    seats = {seat.maker: seat for seat in roster}
    return page(
        "plan.html",
        visitor,
        plan=plan,
        summary=plan.summary,
        roster=seats,
        rows=rows,
        warnings=words.plan_warnings(plan.summary, visitor.unit),
    )


@router.post("/plans/{plan_id}/{what}")
async def settle(plan_id: Id, what: str, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Commit a draft, or give it up."""
    await checked_form(request, visitor)
    if what == "commit":
        call = Call(visitor.actor)
        await to_thread.run_sync(here.large.commit_plan, call, plan_id, lambda plan: plan.state)
    elif what == "discard":
        await here.writer.run(lambda c: plans.discard(c, plan_id, visitor.actor, time.time()))
    else:
        raise not_found("thing to do with a plan", what)
    return go("/")
