"""Plans on record: drafts are kept for others to see, until they are committed (`committing`) or given up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.decide.draft import Draft, unpack
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import trail
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, read_page


@dataclass(frozen=True)
class PlanRecord:
    """A plan on record."""

    id: int
    shift_id: int
    model_id: int | None
    state: str
    created_at: float
    committed_at: float | None
    summary: dict[str, Any]
    """As the API gives it."""


_PLAN = sa.select(*[t.plans.c[name] for name in PlanRecord.__dataclass_fields__])


def save_draft(
    connection: sa.Connection, shift_id: int, draft: Draft, packed: bytes, actor: Actor, at: float
) -> int:
    """Keep a draft, and itself `packed`, for others to look at, and to commit; its id."""
    cases = len(draft.maker)
    made = connection.execute(
        sa.insert(t.plans)
        .values(
            shift_id=shift_id,
            model_id=draft.model_id,
            key_id=actor.key_id,
            state="draft",
            created_at=at,
            cases=cases,
            summary=json.dumps(draft.summary),
            payload=packed,
        )
        .returning(t.plans.c.id)
    ).scalar_one()
    trail.record(connection, "plan drafted", at, actor, None, shift_id, None, plan=made, cases=cases)
    return int(made)


def read_plan(connection: sa.Connection, plan_id: int) -> PlanRecord:
    """A plan, in whichever state."""
    row = connection.execute(_PLAN.where(t.plans.c.id == plan_id)).one_or_none()
    if row is None:
        raise not_found("plan", plan_id)
    return _record(row)


def size_of(connection: sa.Connection, plan_id: int) -> tuple[PlanRecord, int]:
    """A plan and how many cases it has."""
    plan = read_plan(connection, plan_id)
    return plan, connection.execute(sa.select(t.plans.c.cases).where(t.plans.c.id == plan_id)).scalar_one()


def list_plans(connection: sa.Connection, cut: Cut) -> Page[PlanRecord]:
    """All plans."""
    return read_page(connection, _PLAN, t.plans.c.id, cut, _record)


def open_draft(connection: sa.Connection, plan_id: int) -> Draft:
    """A draft with all that it was made from."""
    plan = read_plan(connection, plan_id)
    query = sa.select(t.plans.c.payload).where(t.plans.c.id == plan_id)
    payload = connection.execute(query).scalar_one()
    if payload is None:
        raise conflict("plan-not-draft", f"plan {plan_id} is {plan.state}; make a new draft")
    return unpack(payload, plan.summary, plan.model_id)


def discard(connection: sa.Connection, plan_id: int, actor: Actor, at: float) -> PlanRecord:
    """Give a draft up."""
    unfinished.wait_for_plans(connection)
    plan = read_plan(connection, plan_id)
    leave_draft(connection, plan_id, state="discarded", payload=None)
    trail.record(connection, "plan discarded", at, actor, None, plan.shift_id, None, plan=plan_id)
    return read_plan(connection, plan_id)


def leave_draft(connection: sa.Connection, plan_id: int, **values: Any) -> None:
    """Move a plan on from being a draft; whoever comes second is refused."""
    c = t.plans.c
    done = connection.execute(sa.update(t.plans).where(c.id == plan_id, c.state == "draft").values(**values))
    if done.rowcount != 1:
        raise conflict("plan-not-draft", f"plan {plan_id} is {read_plan(connection, plan_id).state} already")


def _record(row: Any) -> PlanRecord:
    return PlanRecord(**{**row._asdict(), "summary": json.loads(row.summary)})
