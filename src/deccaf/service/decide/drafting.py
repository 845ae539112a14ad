"""Making a draft from the cases that wait: score, draw the lottery, solve, verify; and asking "what if"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.capacity import UNLIMITED
from deccaf.data.costs import MACHINE
from deccaf.errors import CapacityError
from deccaf.planning.plan import Plan
from deccaf.planning.planner import make_plan
from deccaf.planning.random_sharing import random_cost
from deccaf.planning.scored import Scored
from deccaf.planning.what_if import changed
from deccaf.service.decide.draft import Bools, Draft, Ints, allowed, only, roster_capacity
from deccaf.service.decide.lottery import draw_lottery, no_lottery
from deccaf.service.decide.registry import Model
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import shifts
from deccaf.service.store import tables as t

MOST_CASES = 200_000


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


@dataclass(frozen=True)
class OtherPlan:
    """What the cases of a draft would cost with other capacities."""

    cost: float
    change: float
    """Against the draft."""
    plan: dict[str, Any]
    """The other plan's summary."""


def waiting_cases(connection: sa.Connection, shift_id: int, case_ids: Sequence[str] | None) -> Waiting:
    """Everything a plan for a shift is made from."""
    shift = shifts.read_shift(connection, shift_id)
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
    """Score, draw the lottery, solve, verify; nothing is written."""
    experts = [name for name in waiting.roster["maker"] if name != MACHINE]
    scored = _scored(waiting, model, experts)
    may = allowed(scored, waiting.excluded)
    room = waiting.roster["upper"].to_numpy(np.int64)
    capacity = roster_capacity(waiting.roster)
    lottery = draw_lottery(may, room, waiting.random_share, np.random.default_rng())
    try:
        plan = make_plan(scored, only(capacity, scored, may, lottery.maker))
    except CapacityError:  # everything that somebody is owed leaves nothing to draw, or it fits in no way
        lottery = no_lottery(*may.shape)
        plan = make_plan(scored, only(capacity, scored, may, lottery.maker))
    (solved,) = plan.assignments.values()
    return Draft(
        scored=scored,
        roster=waiting.roster,
        excluded=waiting.excluded,
        lot=lottery.maker,
        propensity=lottery.propensity(np.where(may, scored.loss, np.inf), solved.prices, solved.maker),
        maker=solved.maker,
        objective=solved.objective,
        gap=solved.gap,
        prices=solved.prices,
        summary=_summary(plan, scored, may, lottery.maker),
        model_id=model.id if model else None,
    )


def what_if(draft: Draft, changes: Mapping[str, str]) -> OtherPlan:
    """What the same cases would cost with other capacities; nothing is written."""
    unknown = [name for name in changes if name not in set(draft.roster["maker"])]
    if unknown:
        raise not_found("maker on this plan's roster", unknown[0])
    may = draft.allowed()
    capacity = roster_capacity(draft.roster)
    capacity = changed(capacity, changes)
    room = capacity.upper[list(draft.scored.makers)].to_numpy()[0]
    lot = _fitting(draft.lot, room)
    plan = make_plan(draft.scored, only(capacity, draft.scored, may, lot))
    other = _summary(plan, draft.scored, may, lot)
    return OtherPlan(other["cost"], other["cost"] - draft.summary["cost"], other)


def _roster(connection: sa.Connection, shift_id: int) -> pd.DataFrame:
    """What is left of everybody's capacity, and what they are still owed."""
    left = [
        (
            seat.maker,
            UNLIMITED if seat.room is None else seat.room,
            0 if seat.absent else max(seat.lower - seat.used, 0),
        )
        for seat in shifts.read_roster(connection, shift_id)
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
            decision = json.loads(beliefs["says"])
            classes += [] if decision in classes else [decision]
            says[k] = classes.index(decision)
    if (says < 0).any():
        classes.append("")  # the last class, which -1 points to: the machine's decision is not known
    return Scored(pd.Index(waiting.case_ids, dtype=object), makers, loss, loss, says, tuple(classes))


def _fitting(lot: Ints, room: Ints) -> Ints:
    """The draws of the lottery that still find room; who has less of it now keeps the first of theirs."""
    kept = lot.copy()
    for maker in np.unique(lot[lot >= 0]):
        kept[np.flatnonzero(lot == maker)[max(int(room[maker]), 0) :]] = -1
    return kept


def _summary(plan: Plan, scored: Scored, may: Bools, lot: Ints) -> dict[str, Any]:
    """The plan's summary as plain JSON.

    Random sharing is reckoned over everybody who may get a case, also where the lottery has fixed its maker:
    the page Today reckons it so from the ledger, where the lottery is over.
    """
    loads = plan.summary.makers["cases"].to_numpy()
    shared = replace(plan.summary, random_cost=random_cost(scored.loss, loads, may))
    found: dict[str, Any] = _plain(shared.to_dict())
    drawn = int((lot >= 0).sum())
    if drawn:
        found["notes"].append(f"given out by lot, as the shift asks: {drawn:,} of {len(lot):,} cases")
    return {**found, "by_lot": drawn}


def _plain(value: Any) -> Any:
    """JSON without NaN, infinity and NumPy's numbers."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
