"""A draft becomes assignments: verified against the ledger as it is at that moment, whole or not at all.

`commit` does so in one transaction. A large plan on SQLite goes in pieces (see `unfinished`): `look` verifies
it beforehand, `begin` decides, `write_piece` writes, and `finish` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, repeat
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.decide import plans
from deccaf.service.decide.draft import Draft
from deccaf.service.decide.plans import PlanRecord
from deccaf.service.errors import conflict
from deccaf.service.ledger import assignments, case_records, desk, letting, shifts, trail
from deccaf.service.ledger.assignments import NewAssignment, numbers
from deccaf.service.ledger.trials import planned_arms
from deccaf.service.ledger.webhooks import hooks, outbox
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.idempotency import Answer, Call, remember
from deccaf.service.store.keys import Actor
from deccaf.service.store.unfinished import Unfinished

_CHUNK = 5_000
_SHOWN = 100


def commit(connection: sa.Connection, plan_id: int, actor: Actor, at: float) -> PlanRecord:
    """Turn a draft into assignments: verified against the ledger as it is now, whole or not at all."""
    unfinished.wait_for_plans(connection)
    plan = plans.read_plan(connection, plan_id)
    at_desk = desk.open_desk(connection, plan.shift_id, at)
    plans.leave_draft(connection, plan_id, state="committed", committed_at=at)
    if not at_desk.is_open:
        raise conflict("shift-closed", f"shift {plan.shift_id} is closed")
    draft = plans.open_draft(connection, plan_id)
    draft.verify()
    _check_now(connection, plan.shift_id, draft, draft.scored.ids)
    _take_places(connection, draft)
    pricing_id = _take(connection, plan, draft, at)
    desk.put_in_force(connection, plan.shift_id, pricing_id, at)
    assignments.insert(connection, new_assignments(draft), plan.shift_id, pricing_id, at, plan_id)
    _settle(connection, plan_id, len(draft.maker), actor, at)
    _tell(connection, plan.shift_id, plan_id, actor, at)
    connection.execute(sa.update(t.plans).where(t.plans.c.id == plan_id).values(payload=None))
    return plans.read_plan(connection, plan_id)


@dataclass(frozen=True, eq=False)
class Looked:
    """A draft that fitted when it was looked at, and the last line of the trail then."""

    plan: PlanRecord
    draft: Draft
    seen: int


def look(connection: sa.Connection, plan_id: int) -> Looked:
    """Verify a draft before it is committed in pieces, while nobody waits for it."""
    plan, draft = plans.read_plan(connection, plan_id), plans.open_draft(connection, plan_id)
    draft.verify()
    seen = connection.execute(sa.select(sa.func.coalesce(sa.func.max(t.history.c.id), 0))).scalar_one()
    _check_now(connection, plan.shift_id, draft, draft.scored.ids)
    return Looked(plan, draft, seen)


def begin(
    connection: sa.Connection, looked: Looked, call: Call, at: float, answer: Callable[[PlanRecord], Any]
) -> Unfinished:
    """Decide that a draft is committed, and take the capacity: from here on nothing can refuse it.

    Of its cases only those are looked at again that the trail speaks of since: it knows of every change.
    """
    plan, draft = plans.read_plan(connection, looked.plan.id), looked.draft
    if plan.state != "draft":
        raise conflict("plan-not-draft", f"plan {plan.id} is {plan.state} already")
    if not desk.open_desk(connection, plan.shift_id, at).is_open:
        raise conflict("shift-closed", f"shift {plan.shift_id} is closed")
    h = t.history.c
    since = connection.execute(sa.select(h.case_id).where(h.id > looked.seen, h.case_id.is_not(None)))
    _check_now(connection, plan.shift_id, draft, set(since.scalars()) & set(draft.scored.ids))
    _take_places(connection, draft)
    done = replace(plan, state="committed", committed_at=at)
    return unfinished.begin(
        connection,
        at,
        key_id=call.actor.key_id,
        idempotency_key=call.key,
        request=call.request,
        plan_id=plan.id,
        shift_id=plan.shift_id,
        pricing_id=_take(connection, plan, draft, at),
        units=json.dumps(_loads(draft)),
        body=Answer.of(200, answer(done)).body,
    )


def write_piece(
    connection: sa.Connection, change: Unfinished, done: int, rows: Sequence[NewAssignment]
) -> bool:
    """The next assignments of a plan, with all that follows from them; False: somebody else wrote them."""
    if not unfinished.move_on(connection, change, done, len(rows)):
        return False
    assert change.shift_id is not None
    assert change.pricing_id is not None
    at, shift, plan = change.at, change.shift_id, change.plan_id
    assignments.insert(connection, rows, shift, change.pricing_id, at, plan)
    for state in ("assigned", "decided"):
        case_records.set_status(connection, [row.case_id for row in rows if row.state == state], state)
    decided = [
        {"case_id": row.case_id, "maker": row.maker, "decision": row.machine_says, "at": at}
        for row in rows
        if row.state == "decided"
    ]
    many.add(connection, t.decisions, decided)
    who = Actor(change.key_id)
    facts = {"method": "plan", "plan": plan}
    lines, told = (
        [trail.line("assigned", at, who, r.case_id, shift, r.maker, **facts, **said(r)) for r in rows]
        for said in (lambda _: {}, _says)
    )
    trail.write(connection, lines, told)
    by_machine = [
        (row.case_id, row.machine_says, who)
        for row in rows
        if row.state == "decided" and row.machine_says is not None
    ]
    letting.draw_many(connection, MACHINE, by_machine, at)
    return True


def finish(connection: sa.Connection, change: Unfinished) -> Answer:
    """Everything is written: show it to everybody."""
    answer = Answer(200, change.body)
    if unfinished.end(connection, change):
        assert change.plan_id is not None
        assert change.shift_id is not None
        assert change.pricing_id is not None
        plans.leave_draft(connection, change.plan_id, state="committed", committed_at=change.at, payload=None)
        desk.put_in_force(connection, change.shift_id, change.pricing_id, change.at)
        _tell(connection, change.shift_id, change.plan_id, Actor(change.key_id), change.at)
        call = Call(Actor(change.key_id), change.idempotency_key, change.request)
        remember(connection, [(call, answer)], change.at)
    return answer


def _take_places(connection: sa.Connection, draft: Draft) -> None:
    planned_arms.take_places(connection, None if draft.in_trial is None else draft.in_trial.arms)


def _says(row: Any) -> dict[str, Any]:
    """What the machine decides at once, where a case is its."""
    return {"decided": row.machine_says} if row.state == "decided" else {}


def _tell(connection: sa.Connection, shift_id: int, plan_id: int, actor: Actor, at: float) -> None:
    trail.record(connection, "plan committed", at, actor, None, shift_id, None, plan=plan_id)


def _loads(draft: Draft) -> dict[str, int]:
    return {draft.scored.makers[j]: int(n) for j, n in enumerate(draft.loads) if n}


def _take(connection: sa.Connection, plan: PlanRecord, draft: Draft, at: float) -> int:
    """Take everybody's capacity and write the plan's prices down; their id."""
    desk.take(connection, plan.shift_id, _loads(draft))
    basis = f"plan {plan.id}"
    return desk.add_prices(
        connection, plan.shift_id, draft.scored.makers, draft.prices, basis, plan.model_id, at
    )


def _check_now(connection: sa.Connection, shift_id: int, draft: Draft, cases: Collection[str]) -> None:
    """Refuse a draft that no longer fits, and say what changed: cases and people, the first hundred of them.

    Nothing of it is planned anew behind the lead's back: they saw another plan.
    """
    changed = [*_moved_cases(connection, draft, cases), *_lost_room(connection, shift_id, draft)]
    if changed:
        first = changed[0]
        what = f"case {first['case_id']!r}" if "case_id" in first else first["maker"]
        more = f" (and {len(changed) - 1:,} more)" if len(changed) > 1 else ""
        raise conflict(
            "plan-stale",
            f"this changed since the plan was drafted: {what} {first['why']}{more}; draft again",
            changed=changed[:_SHOWN],
        )


def _moved_cases(connection: sa.Connection, draft: Draft, cases: Collection[str]) -> Iterator[dict[str, str]]:
    """Those of some cases that cannot go where the draft says; they are locked, so that this stays so."""
    now = case_records.lock(connection, [str(case) for case in cases])
    makers = draft.scored.makers
    for case, j, labelled in zip(
        draft.scored.ids, draft.maker.tolist(), draft.labelled.tolist(), strict=True
    ):
        if case not in now:
            continue
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


def new_assignments(draft: Draft) -> Iterator[NewAssignment]:
    """What a draft becomes."""
    makers, scored = draft.scored.makers, draft.scored
    decisions = [json.dumps(name) for name in scored.classes]
    own = scored.loss[np.arange(len(draft.maker)), draft.maker]
    may = draft.allowed()
    losses, aims = np.where(may, scored.loss, np.inf), np.where(may, scored.objective, np.inf)
    own_aim = scored.objective is not scored.loss
    trial, place = draft.in_trial, count()
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
            k = next(place)
            ours = trial is not None and bool(trial.arms.candidate[k])
            yield NewAssignment(
                case_id=case,
                maker=makers[j],
                state="decided" if j == 0 and says >= 0 else "assigned",
                method="lot" if by_lot else "plan",
                losses=_finite(row),
                expected_loss=loss,
                price=float(trial.prices[j] if trial is not None and ours else draft.prices[j]),
                propensity=propensity,
                model_id=trial.arms.model_id if trial is not None and ours else draft.model_id,
                machine_says=decisions[says] if says >= 0 else None,
                objective=None if aim is None else _finite(aim),
                arm=None if trial is None else trial.row(k, case, makers),
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
    decided = (a.plan_id == plan_id, a.state == "decided")
    by_machine = sa.select(a.case_id, a.maker, a.machine_says, sa.literal(at)).where(*decided)
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
    if hooks.in_force(connection):
        new = sa.select(a.case_id, a.shift_id, a.maker, a.state, a.machine_says).where(a.plan_id == plan_id)
        told = {"method": "plan", "plan": plan_id}
        outbox.add(
            connection,
            [
                trail.line("assigned", at, actor, row.case_id, row.shift_id, row.maker, **told, **_says(row))
                for row in connection.execute(new).all()
            ],
        )
    if letting.in_force(connection)[0].let_through_machine:
        rows = connection.execute(sa.select(a.case_id, a.machine_says).where(*decided))
        letting.draw_many(connection, MACHINE, [(row.case_id, row.machine_says, actor) for row in rows], at)
