"""Plans on record: drafts are kept for others to see, and committed whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.decide.draft import Draft, pack, unpack
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import assignments, case_records, desk, letting, shifts, trail
from deccaf.service.ledger.assignments import NewAssignment, numbers
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, read_page

_CHUNK = 5_000
_SHOWN = 100


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


def save_draft(connection: sa.Connection, shift_id: int, draft: Draft, actor: Actor, at: float) -> int:
    """Keep a draft for others to look at, and to commit; its id."""
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
            payload=pack(draft),
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


def commit(connection: sa.Connection, plan_id: int, actor: Actor, at: float) -> PlanRecord:
    """Turn a draft into assignments: verified against the ledger as it is now, whole or not at all."""
    plan = read_plan(connection, plan_id)
    at_desk = desk.open_desk(connection, plan.shift_id, at)
    _leave_draft(connection, plan_id, state="committed", committed_at=at)
    if not at_desk.is_open:
        raise conflict("shift-closed", f"shift {plan.shift_id} is closed")
    draft = open_draft(connection, plan_id)
    draft.verify()
    _check_now(connection, plan.shift_id, draft)
    makers = draft.scored.makers
    loads = {makers[j]: int(n) for j, n in enumerate(draft.loads) if n}
    desk.take(connection, plan.shift_id, loads)
    pricing_id = desk.write_prices(
        connection, plan.shift_id, makers, draft.prices, f"plan {plan_id}", plan.model_id, at
    )
    assignments.insert(connection, _assignments(draft), plan.shift_id, pricing_id, at, plan_id)
    _settle(connection, plan_id, len(draft.maker), actor, at)
    connection.execute(sa.update(t.plans).where(t.plans.c.id == plan_id).values(payload=None))
    return read_plan(connection, plan_id)


def _check_now(connection: sa.Connection, shift_id: int, draft: Draft) -> None:
    """Refuse a draft that no longer fits, and say what changed: cases and people, the first hundred of them.

    Nothing of it is planned anew behind the lead's back: they saw another plan.
    """
    changed = [*_moved_cases(connection, draft), *_lost_room(connection, shift_id, draft)]
    if changed:
        first = changed[0]
        what = f"case {first['case_id']!r}" if "case_id" in first else first["maker"]
        more = f" (and {len(changed) - 1:,} more)" if len(changed) > 1 else ""
        raise conflict(
            "plan-stale",
            f"this changed since the plan was drafted: {what} {first['why']}{more}; draft again",
            changed=changed[:_SHOWN],
        )


def _moved_cases(connection: sa.Connection, draft: Draft) -> Iterator[dict[str, str]]:
    """Cases that cannot go where the draft says; all are locked, so that this stays so."""
    now = case_records.lock(connection, [str(case) for case in draft.scored.ids])
    makers = draft.scored.makers
    for case, j, labelled in zip(
        draft.scored.ids, draft.maker.tolist(), draft.labelled.tolist(), strict=True
    ):
        standing, maker = now[case], makers[j]
        why = None
        if standing.status != "waiting":
            why = f"no longer waits, it is {standing.status}"
        elif standing.excluded != "[]" and maker in json.loads(standing.excluded):
            why = f"may not go to {maker} any more, who gave it back or lost it"
        elif standing.is_labelled and not labelled:
            why = "has a label now, nobody needs to decide it"
        if why is not None:
            yield {"case_id": str(case), "maker": maker, "why": why}


def _lost_room(connection: sa.Connection, shift_id: int, draft: Draft) -> Iterator[dict[str, str]]:
    """Makers who cannot take what the draft gives them."""
    seats = {seat.maker: seat for seat in shifts.read_roster(connection, shift_id)}
    for maker, cases in zip(draft.scored.makers, draft.loads.tolist(), strict=True):
        seat = seats.get(maker)
        room = 0 if seat is None else seat.room
        if cases and room is not None and cases > room:
            why = f"has room for {room} of {cases} case(s)"
            if seat is not None and seat.away:
                why = "is absent" if seat.active else "is out of use"
            yield {"maker": maker, "why": why}


def discard(connection: sa.Connection, plan_id: int, actor: Actor, at: float) -> PlanRecord:
    """Give a draft up."""
    plan = read_plan(connection, plan_id)
    _leave_draft(connection, plan_id, state="discarded", payload=None)
    trail.record(connection, "plan discarded", at, actor, None, plan.shift_id, None, plan=plan_id)
    return read_plan(connection, plan_id)


def _leave_draft(connection: sa.Connection, plan_id: int, **values: Any) -> None:
    """Move a plan on from being a draft; whoever comes second is refused."""
    c = t.plans.c
    done = connection.execute(sa.update(t.plans).where(c.id == plan_id, c.state == "draft").values(**values))
    if done.rowcount != 1:
        raise conflict("plan-not-draft", f"plan {plan_id} is {read_plan(connection, plan_id).state} already")


def _assignments(draft: Draft) -> Iterator[NewAssignment]:
    makers, scored = draft.scored.makers, draft.scored
    decisions = [json.dumps(name) for name in scored.classes]
    own = scored.loss[np.arange(len(draft.maker)), draft.maker]
    may = draft.allowed()
    losses, aims = np.where(may, scored.loss, np.inf), np.where(may, scored.objective, np.inf)
    own_aim = scored.objective is not scored.loss
    for start in range(0, len(draft.maker), _CHUNK):
        part = slice(start, start + _CHUNK)
        for case, j, says, row, aim, loss, by_lot, propensity in zip(
            scored.ids[part],
            draft.maker[part].tolist(),
            scored.says[part].tolist(),
            losses[part].tolist(),
            aims[part].tolist() if own_aim else repeat(None, len(scored.ids[part])),
            own[part].tolist(),
            (draft.lot[part] >= 0).tolist(),
            draft.propensity[part].tolist(),
            strict=True,
        ):
            yield NewAssignment(
                case_id=case,
                maker=makers[j],
                state="decided" if j == 0 and says >= 0 else "assigned",
                method="lot" if by_lot else "plan",
                losses=_finite(row),
                expected_loss=loss,
                price=float(draft.prices[j]),
                propensity=propensity,
                model_id=draft.model_id,
                machine_says=decisions[says] if says >= 0 else None,
                objective=None if aim is None else _finite(aim),
            )


def _finite(values: list[float]) -> str:
    return numbers([value if value < np.inf else None for value in values])


def _settle(connection: sa.Connection, plan_id: int, cases: int, actor: Actor, at: float) -> None:
    """Everything that follows from a plan's assignments, done by the database itself."""
    a = t.assignments.c
    moved = 0
    for state in ("assigned", "decided"):
        mine = sa.select(a.case_id).where(a.plan_id == plan_id, a.state == state)
        moved += connection.execute(
            sa.update(t.cases)
            .where(t.cases.c.status == "waiting", t.cases.c.case_id.in_(mine))
            .values(status=state)
        ).rowcount
    if moved != cases:
        raise conflict("cases-moved", f"{cases - moved} case(s) of the plan no longer wait; plan again")
    by_machine = sa.select(a.case_id, a.maker, a.machine_says, sa.literal(at)).where(*_by_machine(plan_id))
    connection.execute(sa.insert(t.decisions).from_select(["case_id", "maker", "decision", "at"], by_machine))
    lines = sa.select(
        sa.literal(at),
        sa.literal("assigned"),
        a.case_id,
        a.shift_id,
        a.maker,
        sa.literal(actor.key_id, sa.BigInteger),
        sa.literal(json.dumps({"method": "plan", "plan": plan_id})),
    ).where(a.plan_id == plan_id)
    names = ["at", "kind", "case_id", "shift_id", "maker", "key_id", "data"]
    connection.execute(sa.insert(t.history).from_select(names, lines))
    if letting.in_force(connection)[0].let_through_machine:
        rows = connection.execute(sa.select(a.case_id, a.machine_says).where(*_by_machine(plan_id)))
        letting.draw_many(connection, MACHINE, [(row.case_id, row.machine_says, actor) for row in rows], at)


def _by_machine(plan_id: int) -> tuple[sa.ColumnElement[bool], ...]:
    a = t.assignments.c
    return a.plan_id == plan_id, a.state == "decided"


def _record(row: Any) -> PlanRecord:
    return PlanRecord(**{**row._asdict(), "summary": json.loads(row.summary)})
