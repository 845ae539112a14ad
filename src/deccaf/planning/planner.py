"""The planner: from what is believed about cases, and everybody's limits, to a plan that is verified.

The library, the command line, the service and the pages all plan here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, solve_batches, verify
from deccaf.data.capacity import ONE_BATCH, Capacity
from deccaf.data.config import ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.data.names import two_spellings
from deccaf.errors import CapacityError, DataError, show
from deccaf.planning.constraints import ConstrainedPlanner
from deccaf.planning.plan import Plan, Summary
from deccaf.planning.random_sharing import random_cost
from deccaf.planning.scored import Scored

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE = 0.01
"""A case was a close call when the runner-up was nearer than this share of the plan's mean loss."""
_ROWS = 65_536


def make_plan(
    scored: Scored,
    capacity: Capacity,
    *,
    constraints: ConstraintsTable | None = None,
    pace: Mapping[str, float] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Plan:
    """The plan of least total loss within everyone's limits and under the constraints, verified.

    `pace` is cases an hour, by expert. Where a loss is not finite, the maker may not get the case.
    """
    pace = pace or {}
    check_batches(capacity, scored.batch)
    rows = _rows_by_batch(scored.batch, len(scored.ids))
    problems = {name: _problem(scored, capacity, name, where) for name, where in rows.items()}
    constrained = None if constraints is None else ConstrainedPlanner(constraints, scored, pace, time_limit)
    if constrained is not None:
        found = [constrained(problems[name], where) for name, where in rows.items()]
    else:
        found = solve_batches(list(problems.values()), time_limit=time_limit, seed=seed, n_jobs=1)
        for problem, assignment in zip(problems.values(), found, strict=True):
            verify(problem, assignment)
    plan = _plan(scored, problems, rows, dict(zip(rows, found, strict=True)), pace)
    return plan if constrained is None else constrained.extended(plan)


def _plan(
    scored: Scored,
    problems: Mapping[str, AssignmentProblem],
    rows: Mapping[str, Ints],
    solved: Mapping[str, Assignment],
    pace: Mapping[str, float],
) -> Plan:
    cases = len(scored.ids)
    maker, second, margin = np.empty(cases, np.int64), np.empty(cases, np.int64), np.empty(cases)
    code = np.empty(cases, np.int64)
    for number, (name, where) in enumerate(rows.items()):
        maker[where], code[where] = solved[name].maker, number
        second[where], margin[where] = _runners_up(problems[name], solved[name])
    prices = pd.DataFrame(
        [assignment.prices for assignment in solved.values()],
        index=pd.Index(list(rows), name="batch"),
        columns=list(scored.makers),
    )
    frame = _plan_table(scored, maker, second, prices.to_numpy()[code, maker])
    summary = _summary(scored, maker, margin, problems, rows, prices, solved, pace)
    names = prices.index.to_numpy()[code]
    return Plan(frame.rename(columns={"case_id": "case"}), prices, summary, solved, frame, names)


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


def _plan_table(scored: Scored, maker: Ints, second: Ints, price: Array) -> pd.DataFrame:
    here, names = np.arange(len(maker)), np.array(scored.makers, dtype=object)
    other = np.where(second < 0, 0, second)
    decided = pd.Series(np.array(scored.classes, dtype=object)[scored.says]).where(maker == 0, None)
    numbers = all(isinstance(name, int) for name in scored.classes)
    return pd.DataFrame(
        {
            "case_id": scored.ids,
            "maker": pd.Series(names[maker]).astype("str").to_numpy(),
            "expected_loss": scored.loss[here, maker],
            "runner_up": pd.Series(names[other]).where(second >= 0, None).astype("str").to_numpy(),
            "runner_up_loss": np.where(second < 0, np.nan, scored.loss[here, other]),
            "price": price,
            "decision": decided.astype("Int64" if numbers else "str").array,
        },
    )


def _summary(
    scored: Scored,
    maker: Ints,
    margin: Array,
    problems: Mapping[str, AssignmentProblem],
    rows: Mapping[str, Ints],
    prices: pd.DataFrame,
    solved: Mapping[str, Assignment],
    pace: Mapping[str, float],
) -> Summary:
    typical = float(np.mean([a.objective for a in solved.values()])) * len(solved) / max(len(maker), 1)
    room = np.sum([problem.upper for problem in problems.values()], axis=0).astype(np.float64)
    sizes = sum(len(where) for where in rows.values())
    free = (room >= sizes) & (np.array(scored.makers) == MACHINE)
    mean_price = prices.mean(axis=0).to_numpy()
    hours = np.array([pace.get(name, np.nan) for name in scored.makers])
    table = pd.DataFrame(
        {
            "cases": np.bincount(maker, minlength=len(scored.makers)),
            "capacity": np.where(free, np.nan, room),
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
        notes=scored.notes,
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
