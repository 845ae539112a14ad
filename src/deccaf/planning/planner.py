"""The planner: from what is believed about cases, and everybody's limits, to a plan that is verified.

The library, the command line, the service and the pages all plan here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, solve_batches, verify
from deccaf.data.capacity import ONE_BATCH, UNLIMITED, Capacity
from deccaf.data.config import ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.data.names import two_spellings
from deccaf.errors import CapacityError, DataError, show
from deccaf.planning.constraints import ConstrainedPlanner
from deccaf.planning.plan import Plan, Summary, public_table
from deccaf.planning.random_sharing import random_cost
from deccaf.planning.scored import Scored

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE = 0.01
"""A case was a close call when the runner-up was nearer than this share of the plan's mean loss."""
_ROWS = 65_536
_SAME = 1e-9
"""Losses that differ by less than this share of the larger are the same."""


def make_plan(
    scored: Scored,
    capacity: Capacity,
    *,
    constraints: ConstraintsTable | None = None,
    pace: Mapping[str, float] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    start: pd.DataFrame | None = None,
) -> Plan:
    """The plan of least total loss within everyone's limits and under the constraints, verified.

    `pace` is cases an hour, by expert. Where a loss is not finite, the maker may not get the case. `start`
    are the `prices` of a plan that differs a little (an absence, a few cases more): the plan is the same as
    without them, and found sooner.
    """
    pace = pace or {}
    check_batches(capacity, scored.batch)
    rows = _rows_by_batch(scored.batch, len(scored.ids))
    problems = {name: _problem(scored, capacity, name, where) for name, where in rows.items()}
    constrained = None if constraints is None else ConstrainedPlanner(constraints, scored, pace, time_limit)
    if constrained is not None:
        found = [constrained(problems[name], where) for name, where in rows.items()]
    else:
        prices = None if start is None else [_start(start, name, scored.makers) for name in rows]
        found = solve_batches(list(problems.values()), time_limit=time_limit, seed=seed, warm_prices=prices)
        for problem, assignment in zip(problems.values(), found, strict=True):
            verify(problem, assignment)
    room = _room(capacity, scored.makers, list(rows))
    loads = [one.load for one in found] if constrained is None else constrained.loads()
    plan = _plan(scored, problems, rows, dict(zip(rows, found, strict=True)), loads, room, pace)
    return plan if constrained is None else constrained.extended(plan)


def _plan(
    scored: Scored,
    problems: Mapping[str, AssignmentProblem],
    rows: Mapping[str, Ints],
    solved: Mapping[str, Assignment],
    loads: Sequence[Ints],
    room: Array,
    pace: Mapping[str, float],
) -> Plan:
    cases = len(scored.ids)
    maker, second, margin = np.empty(cases, np.int64), np.empty(cases, np.int64), np.empty(cases)
    code, why = np.empty(cases, np.int64), np.empty(cases, dtype=object)
    for number, (name, where) in enumerate(rows.items()):
        maker[where], code[where] = solved[name].maker, number
        second[where], margin[where] = _runners_up(problems[name], solved[name])
        why[where] = _why(problems[name], solved[name].maker, loads[number])
    prices = pd.DataFrame(
        [assignment.prices for assignment in solved.values()],
        index=pd.Index(list(rows), name="batch"),
        columns=list(scored.makers),
    )
    frame = _plan_table(scored, maker, second, prices.to_numpy()[code, maker], why)
    summary = _summary(scored, maker, margin, problems, rows, prices, solved, room, pace)
    names = prices.index.to_numpy()[code]
    return Plan(public_table(frame), prices, summary, solved, frame, names)


def _start(prices: pd.DataFrame, batch: str, makers: Sequence[str]) -> Array | None:
    """The prices of a batch of another plan, 0 for whoever was not in it."""
    if batch not in prices.index:
        return None
    return np.asarray(prices.loc[batch].reindex(list(makers)).fillna(0.0), np.float64)


def _rows_by_batch(batch: pd.Series | None, cases: int) -> dict[str, Ints]:
    """Positions of the cases of each batch, in the order of first appearance."""
    if batch is None:
        return {ONE_BATCH: np.arange(cases)}
    codes, names = pd.factorize(batch.astype(str))
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
    return {str(name): part for name, part in zip(names, parts, strict=True)}


def _problem(scored: Scored, capacity: Capacity, batch: str, rows: Ints) -> AssignmentProblem:
    name = None if batch == ONE_BATCH else batch
    lower, upper = capacity.limits(scored.makers, len(rows), name)
    whole = len(rows) == len(scored.ids)
    ids = scored.ids if whole else scored.ids[rows]
    mask = capacity.mask(ids, scored.makers)
    loss = scored.objective if whole else scored.objective[rows]
    finite = np.isfinite(loss)
    if not finite.all():
        mask = finite if mask is None else mask & finite
    title = "" if name is None else f"batch {batch}"
    return AssignmentProblem(loss, upper, lower, mask, ids, pd.Index(scored.makers), title)


def _runners_up(problem: AssignmentProblem, solved: Assignment) -> tuple[Ints, Array]:
    """The maker who would get each case if the chosen one could not (-1: nobody), and by how much it is
    dearer, prices included."""
    cases = problem.shape[0]
    second, margin = np.full(cases, -1, np.int64), np.full(cases, np.inf)
    for start in range(0, cases, _ROWS):
        part = slice(start, start + _ROWS)
        total = problem.loss[part] + solved.prices
        total[:, problem.upper == 0] = np.inf
        if problem.eligible is not None:
            total[~problem.eligible[part]] = np.inf
        own, here = solved.maker[part], np.arange(len(total))
        chosen = total[here, own].copy()
        total[here, own] = np.inf
        best = total.argmin(axis=1)
        reach = total[here, best] - chosen
        second[part], margin[part] = np.where(np.isfinite(reach), best, -1), reach
    return second, margin


def _why(problem: AssignmentProblem, maker: NDArray[Any], load: Ints) -> NDArray[Any]:
    """Why each case went to its maker: `best`, `room` or `constraint` (`deccaf.planning.plan.Why`)."""
    cases = problem.shape[0]
    full = load >= problem.upper
    why = np.empty(cases, dtype=object)
    for start in range(0, cases, _ROWS):
        part = slice(start, start + _ROWS)
        loss, own = problem.loss[part], maker[part]
        here = np.arange(len(loss))
        chosen = loss[here, own]
        allowed = np.isfinite(loss)
        if problem.eligible is not None:
            allowed &= problem.eligible[part]
        least = chosen - _SAME * np.maximum(np.abs(chosen), _SAME)
        cheaper = np.isfinite(loss) & (loss < least[:, None])
        somebody, free = (cheaper & allowed), (cheaper & allowed & ~full)
        why[part] = np.where(
            free.any(axis=1) | (cheaper.any(axis=1) & ~somebody.any(axis=1)),
            "constraint",
            np.where(somebody.any(axis=1), "room", "best"),
        )
    return why


def _room(capacity: Capacity, makers: Sequence[str], batches: Sequence[str]) -> Array:
    """What everybody may get in all batches together, as the roster says it; NaN: there is a batch without
    a limit."""
    known = capacity.upper.reindex(columns=list(makers), fill_value=0)
    if MACHINE in makers and MACHINE not in capacity.upper:
        known[MACHINE] = UNLIMITED
    rows = [name if name in known.index else ONE_BATCH for name in batches]
    each = known.loc[rows].to_numpy(np.float64)
    return np.asarray(np.where(each >= UNLIMITED, np.nan, each).sum(axis=0))


def _plan_table(scored: Scored, maker: Ints, second: Ints, price: Array, why: NDArray[Any]) -> pd.DataFrame:
    here, names = np.arange(len(maker)), np.array(scored.makers, dtype=object)
    other = np.where(second < 0, 0, second)
    decided = pd.Series(np.array(scored.classes, dtype=object)[scored.says]).where(maker == 0, None)
    numbers = all(isinstance(name, int) for name in scored.classes)
    frame = pd.DataFrame(
        {
            "case_id": scored.ids,
            "maker": pd.Series(names[maker]).astype("str").to_numpy(),
            "expected_loss": scored.loss[here, maker],
            "runner_up": pd.Series(names[other]).where(second >= 0, None).astype("str").to_numpy(),
            "runner_up_loss": np.where(second < 0, np.nan, scored.loss[here, other]),
            "price": price,
            "decision": decided.astype("Int64" if numbers else "str").array,
            "why": pd.Series(why, dtype="str").array,
        },
    )
    if scored.p is not None:
        for k, name in enumerate(scored.classes):
            frame[f"p_{name}"] = scored.p[:, k]
    return frame


def _summary(
    scored: Scored,
    maker: Ints,
    margin: Array,
    problems: Mapping[str, AssignmentProblem],
    rows: Mapping[str, Ints],
    prices: pd.DataFrame,
    solved: Mapping[str, Assignment],
    room: Array,
    pace: Mapping[str, float],
) -> Summary:
    objective = float(sum(assignment.objective for assignment in solved.values()))
    typical = objective / max(len(maker), 1)
    mean_price = prices.mean(axis=0).to_numpy()
    hours = np.array([pace.get(name, np.nan) for name in scored.makers])
    table = pd.DataFrame(
        {
            "cases": np.bincount(maker, minlength=len(scored.makers)),
            "capacity": room,
            "price": mean_price,
            "next_hour": mean_price * hours,
        },
        index=pd.Index(scored.makers, name="maker"),
    )
    own = scored.loss[np.arange(len(maker)), maker]
    shared = [
        random_cost(
            scored.loss[where],
            np.bincount(maker[where], minlength=len(scored.makers)),
            problems[name].eligible,
        )
        for name, where in rows.items()
    ]
    return Summary(
        cases=len(maker),
        makers=table,
        cost=float(own.sum()),
        machine_cost=float(scored.loss[:, 0].sum()),
        random_cost=float(sum(shared)),
        close_calls=int((margin < CLOSE * abs(typical)).sum()),
        gap=float(sum(assignment.gap for assignment in solved.values())),
        objective=objective,
        notes=scored.notes,
        terms=scored.terms,
        warnings=scored.warnings,
    )


def roster_notes(known: Sequence[str], capacity: Capacity) -> list[str]:
    """Who on the roster was never seen, who was seen and is not on it, and whether nobody has any room."""
    roster = [name for name in capacity.makers if name != MACHINE]
    new = [name for name in roster if name not in set(known)]
    away = [name for name in known if name not in set(roster)]
    notes = []
    spelled = two_spellings(new, away)
    if spelled is not None:
        raise DataError(
            f"{show(spelled[0])} on the roster and {show(spelled[1])} in the model's history look like one "
            "person spelled in two ways; use one of them"
        )
    if new:
        notes.append(f"never seen, taken as the team's average: {_listed(new)}")
    if away:
        notes.append(f"not on the roster, gets nothing: {_listed(away)}")
    if roster and not capacity.upper[roster].to_numpy().any():
        notes.append("nobody on the roster has any capacity: the machine decides everything")
    return notes


def check_batches(capacity: Capacity, batch: pd.Series | None) -> None:
    """Every batch of the cases has a row in the capacity table."""
    if batch is None or capacity.batches == (ONE_BATCH,):
        return
    names = [name for name in pd.unique(batch.astype(str)) if name not in set(capacity.batches)]
    if names:
        raise CapacityError(
            f"batch {names[0]!r} has no row in the capacity table ({len(names)} batch(es) of the cases "
            f"have none; the table has {len(capacity.batches)}: {_listed(capacity.batches)})"
        )


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
