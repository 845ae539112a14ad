"""Plans: made from the cases that wait, looked at, and committed whole or not at all.

A draft holds everything that it was made from (losses, limits, prices), so that it can be verified again
before it is committed, and asked "what if" without scoring anything twice.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, verify
from deccaf.data.capacity import UNLIMITED, Capacity
from deccaf.data.costs import MACHINE
from deccaf.errors import CapacityError
from deccaf.planning.plan import Plan
from deccaf.planning.planner import make_plan
from deccaf.planning.scored import Scored
from deccaf.planning.what_if import changed
from deccaf.service.decide.registry import Model
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.ledger.lottery import draw_lots, no_lots
from deccaf.service.store import tables as t

MOST_CASES = 200_000
_CHUNK = 5_000


@dataclass(frozen=True, eq=False)
class Waiting:
    """Cases without anybody, and the roster that could take them."""

    shift_id: int
    case_ids: list[str]
    features: list[str]
    given: list[str | None]
    excluded: list[str]
    roster: pd.DataFrame
    """maker, upper (what is left), lower (what is still owed)."""
    random_share: float
    """How much of it is given out by lot."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan that nobody is bound by yet."""

    scored: Scored
    roster: pd.DataFrame
    excluded: list[str]
    lot: NDArray[np.int64]
    """The maker drawn by lot for each case; -1: none."""
    propensity: NDArray[np.float64]
    maker: NDArray[np.int32]
    objective: float
    gap: float
    prices: NDArray[np.float64]
    summary: dict[str, Any]
    model_id: int | None


def waiting_cases(connection: sa.Connection, shift_id: int, case_ids: Sequence[str] | None) -> Waiting:
    """Everything a plan for a shift is made from."""
    query = sa.select(*t.shifts.c["state", "random_share"]).where(t.shifts.c.id == shift_id)
    shift = connection.execute(query).one_or_none()
    if shift is None:
        raise not_found("shift", shift_id)
    if shift.state != "open":
        raise conflict("shift-closed", f"shift {shift_id} is closed; open it, or plan for another")
    c = t.cases.c
    query = sa.select(*c["case_id", "features", "given", "excluded"]).where(c.status == "waiting")
    if case_ids is not None:
        query = query.where(c.case_id.in_(list(case_ids)))
    rows = connection.execute(query.order_by(c.id).limit(MOST_CASES)).all()
    if case_ids is not None and len(rows) < len(set(case_ids)):
        missing = sorted(set(case_ids) - {row.case_id for row in rows})
        raise conflict("not-waiting", f"{len(missing)} case(s) do not wait for a plan, first: {missing[0]!r}")
    if not rows:
        raise conflict("nothing-waits", "no case waits for a plan")
    return Waiting(
        shift_id=shift_id,
        case_ids=[row.case_id for row in rows],
        features=[row.features for row in rows],
        given=[row.given for row in rows],
        excluded=[row.excluded for row in rows],
        roster=_roster(connection, shift_id),
        random_share=float(shift.random_share),
    )


def make_draft(waiting: Waiting, model: Model | None) -> Draft:
    """Score, draw the lots, solve, verify; nothing is written."""
    experts = [name for name in waiting.roster["maker"] if name != MACHINE]
    scored = _scored(waiting, model, experts)
    allowed = _allowed(scored, waiting.excluded)
    room = waiting.roster["upper"].to_numpy(np.int64)
    lots = draw_lots(allowed, room, waiting.random_share, np.random.default_rng())
    try:
        plan = make_plan(scored, _capacity(waiting.roster, scored, allowed, lots.maker))
    except CapacityError:  # everything that somebody is owed leaves nothing to draw, or it fits in no way
        lots = no_lots(*allowed.shape)
        plan = make_plan(scored, _capacity(waiting.roster, scored, allowed, lots.maker))
    (solved,) = plan.assignments.values()
    return Draft(
        scored=scored,
        roster=waiting.roster,
        excluded=waiting.excluded,
        lot=lots.maker,
        propensity=lots.propensity(np.where(allowed, scored.loss, np.inf), solved.prices, solved.maker),
        maker=solved.maker,
        objective=solved.objective,
        gap=solved.gap,
        prices=solved.prices,
        summary=_summary(plan, lots.maker),
        model_id=model.id if model else None,
    )


def save_draft(
    connection: sa.Connection, shift_id: int, draft: Draft, actor: Actor, at: float
) -> dict[str, Any]:
    """Keep a draft for others to look at, and to commit."""
    made = connection.execute(
        sa.insert(t.plans)
        .values(
            shift_id=shift_id,
            model_id=draft.model_id,
            key_id=actor.key_id,
            state="draft",
            created_at=at,
            cases=len(draft.maker),
            summary=json.dumps(draft.summary),
            payload=_pack(draft),
        )
        .returning(t.plans.c.id)
    ).scalar_one()
    ledger.record(
        connection, "plan drafted", at, actor, None, shift_id, None, plan=made, cases=len(draft.maker)
    )
    return {"id": int(made), "state": "draft", "shift": shift_id, **draft.summary}


def what_if(draft: Draft, changes: Mapping[str, str]) -> dict[str, Any]:
    """What the same cases would cost with other capacities; nothing is written."""
    roster = draft.roster
    unknown = [name for name in changes if name not in set(roster["maker"])]
    if unknown:
        raise not_found("maker on this plan's roster", unknown[0])
    allowed = _allowed(draft.scored, draft.excluded)
    capacity = Capacity.from_frame(roster.rename(columns={"maker": "expert_id"}))
    capacity = changed(capacity, changes)
    room = capacity.upper[list(draft.scored.makers)].to_numpy()[0]
    lot = _fitting(draft.lot, room)
    plan = make_plan(draft.scored, _only(capacity, draft.scored, allowed, lot))
    other = _summary(plan, lot)
    return {"cost": other["cost"], "change": other["cost"] - draft.summary["cost"], "plan": other}


def commit(connection: sa.Connection, plan_id: int, actor: Actor, at: float) -> dict[str, Any]:
    """Turn a draft into assignments: verified, in one transaction, and refused if the world moved on."""
    row = read_plan(connection, plan_id)
    desk = ledger.open_desk(connection, row.shift_id, at)
    taken = connection.execute(
        sa.update(t.plans)
        .where(t.plans.c.id == plan_id, t.plans.c.state == "draft")
        .values(state="committed", committed_at=at)
    )
    if taken.rowcount != 1:
        raise conflict("plan-not-draft", f"plan {plan_id} is {read_plan(connection, plan_id).state} already")
    if not desk.is_open:
        raise conflict("shift-closed", f"shift {row.shift_id} is closed")
    draft = unpack(row.payload, json.loads(row.summary), row.model_id)
    verify(_problem(draft), _assignment(draft))
    makers = draft.scored.makers
    loads = {makers[j]: int(n) for j, n in enumerate(np.bincount(draft.maker, minlength=len(makers))) if n}
    ledger.take(connection, row.shift_id, loads)
    pricing_id = ledger.write_prices(
        connection, row.shift_id, makers, draft.prices, f"plan {plan_id}", row.model_id, at
    )
    _insert_assignments(connection, row, draft, pricing_id, at)
    _settle(connection, plan_id, len(draft.maker), actor, at)
    connection.execute(sa.update(t.plans).where(t.plans.c.id == plan_id).values(payload=None))
    return {"id": plan_id, "state": "committed", "shift": row.shift_id, **draft.summary}


def discard(connection: sa.Connection, plan_id: int, actor: Actor, at: float) -> dict[str, Any]:
    """Give a draft up."""
    row = read_plan(connection, plan_id)
    done = connection.execute(
        sa.update(t.plans)
        .where(t.plans.c.id == plan_id, t.plans.c.state == "draft")
        .values(state="discarded", payload=None)
    )
    if done.rowcount != 1:
        raise conflict("plan-not-draft", f"plan {plan_id} is {row.state} already")
    ledger.record(connection, "plan discarded", at, actor, None, row.shift_id, None, plan=plan_id)
    return {"id": plan_id, "state": "discarded"}


def read_plan(connection: sa.Connection, plan_id: int) -> Any:
    """A plan's row."""
    row = connection.execute(sa.select(t.plans).where(t.plans.c.id == plan_id)).one_or_none()
    if row is None:
        raise not_found("plan", plan_id)
    return row


def open_draft(connection: sa.Connection, plan_id: int) -> Draft:
    """A draft with all that it was made from."""
    row = read_plan(connection, plan_id)
    if row.payload is None:
        raise conflict("plan-not-draft", f"plan {plan_id} is {row.state}; make a new draft")
    return unpack(row.payload, json.loads(row.summary), row.model_id)


def draft_rows(draft: Draft, start: int, count: int) -> list[dict[str, Any]]:
    """Some cases of a draft: who would get them, and at which loss."""
    part = slice(start, start + count)
    ids = draft.scored.ids[part]
    return [
        {
            "case_id": str(case),
            "maker": draft.scored.makers[int(j)],
            "expected_loss": _number(losses[int(j)]),
            "losses": {m: _number(v) for m, v in zip(draft.scored.makers, losses.tolist(), strict=True)},
        }
        for case, j, losses in zip(ids, draft.maker[part], draft.scored.loss[part], strict=True)
    ]


# --- inside -----------------------------------------------------------------------------------------------


def _roster(connection: sa.Connection, shift_id: int) -> pd.DataFrame:
    rows = connection.execute(sa.select(t.roster).where(t.roster.c.shift_id == shift_id)).all()
    left = [
        (
            row.maker,
            0 if row.absent else UNLIMITED if row.capacity is None else row.capacity - row.used,
            0 if row.absent else max(row.lower - row.used, 0),
        )
        for row in sorted(rows, key=lambda row: (row.maker != MACHINE, row.maker))
    ]
    if not any(maker == MACHINE for maker, _, _ in left):
        left.insert(0, (MACHINE, 0, 0))  # a machine that is not on the roster decides nothing
    return pd.DataFrame(left, columns=["maker", "upper", "lower"])


def _scored(waiting: Waiting, model: Model | None, experts: list[str]) -> Scored:
    """Losses of all waiting cases: as given, else by the model."""
    makers = (MACHINE, *experts)
    count = len(waiting.case_ids)
    given = np.array([text is not None for text in waiting.given])
    classes: list[int | str] = list(model.classes) if model is not None else []
    loss, says = np.full((count, len(makers)), np.inf), np.full(count, -1, np.int64)
    if not given.all():
        if model is None:
            raise conflict("no-model", f"{(~given).sum()} case(s) need a model, and none is active")
        rows = np.flatnonzero(~given)
        frame = pd.DataFrame([json.loads(waiting.features[k]) for k in rows])
        found = model.score_frame(frame, experts)
        columns = np.array([makers.index(name) for name in found.makers])
        loss[np.ix_(rows, columns)], says[rows] = found.loss, found.says
    for k in np.flatnonzero(given):
        beliefs = json.loads(waiting.given[k] or "{}")
        loss[k] = [beliefs["losses"].get(maker, np.inf) for maker in makers]
        if beliefs["says"] is not None:
            said = json.loads(beliefs["says"])
            classes += [] if said in classes else [said]
            says[k] = classes.index(said)
    if (says < 0).any():
        classes.append("")  # the last class, which -1 points to: nobody said what the machine would decide
    return Scored(pd.Index(waiting.case_ids, dtype=object), makers, loss, loss, says, tuple(classes))


def _allowed(scored: Scored, excluded: Sequence[str]) -> NDArray[np.bool_]:
    """Who may get each case."""
    allowed = np.isfinite(scored.loss)
    for row, text in enumerate(excluded):
        if text != "[]":
            barred = set(json.loads(text))
            allowed[row] &= [maker not in barred for maker in scored.makers]
    return allowed


def _capacity(
    roster: pd.DataFrame, scored: Scored, allowed: NDArray[np.bool_], lot: NDArray[np.int64]
) -> Capacity:
    return _only(Capacity.from_frame(roster.rename(columns={"maker": "expert_id"})), scored, allowed, lot)


def _only(capacity: Capacity, scored: Scored, allowed: NDArray[np.bool_], lot: NDArray[np.int64]) -> Capacity:
    """The capacity for those who may get each case; a case given by lot may go to its maker alone."""
    drawn = np.flatnonzero(lot >= 0)
    if len(drawn):
        allowed = allowed.copy()
        allowed[drawn] = False
        allowed[drawn, lot[drawn]] = True
    if allowed.all():
        return capacity
    return capacity.only(pd.DataFrame(allowed, index=scored.ids, columns=list(scored.makers)))


def _fitting(lot: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lots that still find room; who has less of it now gets the first of theirs."""
    kept = lot.copy()
    for maker in np.unique(lot[lot >= 0]):
        kept[np.flatnonzero(lot == maker)[max(int(room[maker]), 0) :]] = -1
    return kept


def _summary(plan: Plan, lot: NDArray[np.int64]) -> dict[str, Any]:
    found: dict[str, Any] = _plain(plan.summary.to_dict())
    drawn = int((lot >= 0).sum())
    if drawn:
        found["notes"].append(f"given out by lot, as the shift asks: {drawn:,} of {len(lot):,} cases")
    return {**found, "by_lot": drawn}


def _problem(draft: Draft) -> AssignmentProblem:
    allowed = _allowed(draft.scored, draft.excluded)
    capacity = _capacity(draft.roster, draft.scored, allowed, draft.lot)
    lower, upper = capacity.limits(draft.scored.makers, len(draft.maker))
    mask = capacity.mask(draft.scored.ids, draft.scored.makers)
    return AssignmentProblem.of(draft.scored.loss, upper, lower, mask)


def _assignment(draft: Draft) -> Assignment:
    return Assignment(draft.maker, draft.objective, draft.prices, draft.gap, "stored", 0.0)


def _pack(draft: Draft) -> bytes:
    """One parquet file in memory: cases, their losses, the choice; all else as its metadata."""
    loss = {f"loss {j}": draft.scored.loss[:, j] for j in range(len(draft.scored.makers))}
    table = pa.table(
        {
            "case_id": pa.array([str(case) for case in draft.scored.ids]),
            "maker": draft.maker,
            "says": draft.scored.says,
            "excluded": pa.array(draft.excluded),
            "lot": draft.lot,
            "propensity": draft.propensity,
            **loss,
        }
    )
    more = {
        "makers": list(draft.scored.makers),
        "classes": list(draft.scored.classes),
        "objective": draft.objective,
        "gap": draft.gap,
        "prices": draft.prices.tolist(),
        "roster": draft.roster.to_dict("list"),
    }
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"deccaf": json.dumps(more)}), out, compression="zstd")
    return out.getvalue()


def unpack(payload: bytes, summary: dict[str, Any], model_id: int | None) -> Draft:
    """Rebuild what `_pack` gave."""
    table = pq.read_table(io.BytesIO(payload))
    more = json.loads(table.schema.metadata[b"deccaf"])
    makers = tuple(more["makers"])
    loss = np.column_stack([table.column(f"loss {j}").to_numpy() for j in range(len(makers))])
    ids = pd.Index(table.column("case_id").to_pylist(), dtype=object)
    scored = Scored(ids, makers, loss, loss, table.column("says").to_numpy(), tuple(more["classes"]))
    return Draft(
        scored=scored,
        roster=pd.DataFrame(more["roster"]),
        excluded=table.column("excluded").to_pylist(),
        lot=table.column("lot").to_numpy(),
        propensity=table.column("propensity").to_numpy(),
        maker=table.column("maker").to_numpy().astype(np.int32),
        objective=more["objective"],
        gap=more["gap"],
        prices=np.array(more["prices"]),
        summary=summary,
        model_id=model_id,
    )


def _insert_assignments(
    connection: sa.Connection, plan: Any, draft: Draft, pricing_id: int, at: float
) -> None:
    makers, scored = draft.scored.makers, draft.scored
    sayings = [json.dumps(name) for name in scored.classes]
    own = scored.loss[np.arange(len(draft.maker)), draft.maker]
    for start in range(0, len(draft.maker), _CHUNK):
        part = slice(start, start + _CHUNK)
        rows = [
            {
                "case_id": case,
                "shift_id": plan.shift_id,
                "maker": makers[j],
                "state": "decided" if j == 0 and says >= 0 else "assigned",
                "method": "lot" if by_lot else "plan",
                "plan_id": plan.id,
                "pricing_id": pricing_id,
                "model_id": plan.model_id,
                "losses": ledger.numbers([v if v < np.inf else None for v in losses]),
                "machine_says": sayings[says] if says >= 0 else None,
                "expected_loss": loss,
                "price": float(draft.prices[j]),
                "propensity": propensity,
                "created_at": at,
                "changed_at": at,
            }
            for case, j, says, losses, loss, by_lot, propensity in zip(
                scored.ids[part],
                draft.maker[part].tolist(),
                scored.says[part].tolist(),
                scored.loss[part].tolist(),
                own[part].tolist(),
                (draft.lot[part] >= 0).tolist(),
                draft.propensity[part].tolist(),
                strict=True,
            )
        ]
        connection.execute(sa.insert(t.assignments), rows)


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
    by_machine = sa.select(a.case_id, a.maker, a.machine_says, sa.literal(at)).where(
        a.plan_id == plan_id, a.state == "decided"
    )
    connection.execute(sa.insert(t.decisions).from_select(["case_id", "maker", "decision", "at"], by_machine))
    told = sa.select(
        sa.literal(at),
        sa.literal("assigned"),
        a.case_id,
        a.shift_id,
        a.maker,
        sa.literal(actor.key_id, sa.BigInteger),
        sa.literal(json.dumps({"method": "plan", "plan": plan_id})),
    ).where(a.plan_id == plan_id)
    names = ["at", "kind", "case_id", "shift_id", "maker", "key_id", "data"]
    connection.execute(sa.insert(t.history).from_select(names, told))


def _plain(value: Any) -> Any:
    """JSON without NaN, infinity and NumPy's numbers."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
