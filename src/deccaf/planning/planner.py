"""The planner: from what is believed about cases, and everybody's limits, to a plan that is verified.

The library, the command line, the service and the pages all plan here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, solve_batches, verify
from deccaf.assign.stored import StoredMask, StoredMatrix
from deccaf.data.capacity import ONE_BATCH, UNLIMITED, Capacity
from deccaf.data.config import ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.data.names import two_spellings
from deccaf.errors import CapacityError, ConfigError, DataError, show
from deccaf.planning.choices import Choices, plan_table
from deccaf.planning.constraints import ConstrainedPlanner
from deccaf.planning.large import LargePlan
from deccaf.planning.plan import Plan, Summary, public_table
from deccaf.planning.random_sharing import ROWS, random_cost
from deccaf.planning.scored import Scored
from deccaf.planning.waiting import Waits, as_assignment
from deccaf.tracing import traced

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE = 0.01
"""A case was a close call when the runner-up was nearer than this share of the plan's mean loss."""
IN_MEMORY = 20_000_000
"""Losses of a batch that are read into memory where all losses lie in files."""
_AT_PRICES = (
    "constraints are granted at the prices that waiting has without them; the gap counts these prices"
)
CELLS_A_LIMIT = 100_000_000
"""Losses in files for which the time limit is meant; more get more of it."""


@traced("plan")
def make_plan(
    scored: Scored,
    capacity: Capacity,
    *,
    constraints: ConstraintsTable | None = None,
    pace: Mapping[str, float] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    start: pd.DataFrame | None = None,
    waiting: Callable[[Scored], Waits | None] | None = None,
) -> Plan:
    """The plan of least total loss within everyone's limits and under the constraints, verified.

    `pace` is cases an hour, by expert. Where a loss is not finite, the maker may not get the case. `start`
    are the `prices` of a plan that differs a little (an absence, a few cases more): the plan is the same as
    without them, and found sooner. `waiting` says what waiting costs these cases: the plan then has
    everybody's order, and where waiting costs something, the whole of errors and waiting is least.
    """
    pace = pace or {}
    check_batches(capacity, scored.batch)
    rows = rows_by_batch(scored.batch, len(scored.ids))
    waits = None if waiting is None else waiting(scored)
    if waits is None and constraints is not None and constraints.on_order:
        raise ConfigError(
            "constraints: service levels and priorities need an order, which is planned by `deccaf assign` "
            "and DeCCaF.assign; take them out here"
        )
    if waits is not None and waits.counts:
        if not scored.by_cost:
            raise ConfigError(
                "waiting: needs a plan of least cost; a model of method 'paper' or 'ova' has none"
            )
        return _waiting(scored, capacity, rows, waits, constraints, pace, time_limit, seed)
    if constraints is not None and constraints.on_makers:
        plan = _constrained(scored, capacity, rows, constraints, pace, time_limit)
        return plan if waits is None else waits.shown(plan, scored)
    starts = {} if start is None else {name: _start(start, name, scored.makers) for name in rows}
    plan = _plan(scored, _solved(scored, capacity, rows, starts, time_limit, seed), capacity, pace)
    return plan if waits is None else waits.shown(plan, scored)


def _waiting(
    scored: Scored,
    capacity: Capacity,
    rows: Mapping[str, Ints],
    waiting: Waits,
    constraints: ConstraintsTable | None,
    pace: Mapping[str, float],
    time_limit: float,
    seed: int,
) -> Plan:
    """Errors and waiting together; constraints on makers are granted at the prices of waiting."""
    priced, done, costs, parts = np.array(scored.loss, np.float64), [], [], []
    for name, where in rows.items():
        began, problem = time.perf_counter(), problem_of(scored, capacity, name, where)
        found, harm, table = waiting.planned(problem, where, time_limit, seed)
        parts.append((where, harm))
        priced[where] = found.priced
        solved = as_assignment(found, problem, time.perf_counter() - began)
        done.append(_Batch(name, where, replace(problem, loss=found.priced), solved, solved.load))
        costs.append(table.assign(batch=name))
    with_waiting = replace(scored, objective=priced)
    if constraints is not None and constraints.on_makers:
        plan = _constrained(with_waiting, capacity, rows, constraints, pace, time_limit)
        plan = plan.summed(replace(plan.summary, notes=(*plan.summary.notes, _AT_PRICES)))
    else:
        plan = _plan(with_waiting, done, capacity, pace)
    table = pd.concat(costs, ignore_index=True)
    if len(table):
        table = table[["batch", "constraint", "with", "without", "price", "binds"]]
        known = [] if plan.constraints is None else [plan.constraints]
        plan = replace(plan, constraints=pd.concat([*known, table], ignore_index=True))
    return waiting.promising(parts).shown(replace(plan, priced=priced), scored)


@dataclass(frozen=True, eq=False)
class _Batch:
    """A batch that was solved."""

    name: str
    rows: Ints
    problem: AssignmentProblem
    solved: Assignment
    load: Ints


def _solved(
    scored: Scored,
    capacity: Capacity,
    rows: Mapping[str, Ints],
    starts: Mapping[str, Array | None],
    time_limit: float,
    seed: int,
) -> Iterator[_Batch]:
    """Every batch, verified: all at once in memory, one after the other where the losses lie in files."""
    together = [rows] if not scored.stored else [{name: where} for name, where in rows.items()]
    for some in together:
        problems = [problem_of(scored, capacity, name, where) for name, where in some.items()]
        prices = [starts.get(name) for name in some]
        limit = time_limit * max(1.0, scored.loss.size / CELLS_A_LIMIT) if scored.stored else time_limit
        found = solve_batches(problems, time_limit=limit, seed=seed, warm_prices=prices)
        for (name, where), problem, solved in zip(some.items(), problems, found, strict=True):
            verify(problem, solved)
            yield _Batch(name, where, problem, solved, solved.load)


def _constrained(
    scored: Scored,
    capacity: Capacity,
    rows: Mapping[str, Ints],
    constraints: ConstraintsTable,
    pace: Mapping[str, float],
    time_limit: float,
) -> Plan:
    if scored.stored:
        raise ConfigError(
            "constraints: plans under [constraints] are made in memory; leave out scratch (--scratch), or "
            "plan files of fewer cases, one batch each"
        )
    planner = ConstrainedPlanner(constraints, scored, pace, time_limit)
    problems = {name: problem_of(scored, capacity, name, where) for name, where in rows.items()}
    found = [planner(problems[name], where) for name, where in rows.items()]
    batches = zip(rows.items(), problems.values(), found, planner.loads(), strict=True)
    done = (_Batch(name, where, problem, one, load) for (name, where), problem, one, load in batches)
    return planner.extended(_plan(scored, done, capacity, pace))


def _plan(scored: Scored, batches: Iterable[_Batch], capacity: Capacity, pace: Mapping[str, float]) -> Plan:
    choices, solved, shared = Choices.empty(len(scored.ids)), {}, 0.0
    for number, batch in enumerate(batches):
        choices.fill(scored, batch.problem, batch.solved, batch.load, batch.rows, number)
        solved[batch.name] = batch.solved
        loads = np.bincount(batch.solved.maker, minlength=len(scored.makers))
        loss = batch.problem.loss if scored.by_cost else _rows_of(scored.loss, batch.rows)
        shared += random_cost(loss, loads, batch.problem.eligible)
    prices = pd.DataFrame(
        [assignment.prices for assignment in solved.values()],
        index=pd.Index(list(solved), name="batch"),
        columns=list(scored.makers),
    )
    room = _room(capacity, scored.makers, list(solved))
    summary = _summary(scored, choices, shared, prices, solved, room, pace)
    if scored.stored:
        return LargePlan(scored, choices, prices, summary, solved)
    frame = plan_table(scored, choices, prices.to_numpy(), slice(None))
    return Plan(public_table(frame), prices, summary, solved, frame, prices.index.to_numpy()[choices.batch])


def _start(prices: pd.DataFrame, batch: str, makers: Sequence[str]) -> Array | None:
    """The prices of a batch of another plan, 0 for whoever was not in it."""
    if batch not in prices.index:
        return None
    return np.asarray(prices.loc[batch].reindex(list(makers)).fillna(0.0), np.float64)


def rows_by_batch(batch: pd.Series | None, cases: int) -> dict[str, Ints]:
    """Positions of the cases of each batch, in the order of first appearance."""
    if batch is None:
        return {ONE_BATCH: np.arange(cases)}
    codes, names = pd.factorize(batch.astype(str))
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
    return {str(name): part for name, part in zip(names, parts, strict=True)}


def problem_of(scored: Scored, capacity: Capacity, batch: str, rows: Ints) -> AssignmentProblem:
    """The cases of one batch with everybody's limits."""
    name = None if batch == ONE_BATCH else batch
    lower, upper = capacity.limits(scored.makers, len(rows), name)
    whole = len(rows) == len(scored.ids)
    ids = scored.ids if whole else scored.ids[rows]
    loss = _rows_of(scored.objective, rows)
    if isinstance(loss, StoredMatrix):
        mask: Any = _stored_mask(loss, capacity, ids, scored.makers)
    else:
        mask = capacity.mask(ids, scored.makers)
        finite = np.isfinite(loss)
        if not finite.all():
            mask = finite if mask is None else mask & finite
    title = "" if name is None else f"batch {batch}"
    return AssignmentProblem(loss, upper, lower, mask, ids, pd.Index(scored.makers), title)


def _rows_of(losses: Any, rows: Ints) -> Any:
    """Some cases; in files they stay only where memory is too small for them."""
    if isinstance(losses, StoredMatrix) and len(rows) * losses.width > IN_MEMORY:
        return losses if len(rows) == len(losses) else losses.subset(rows)
    if len(rows) == len(losses):
        return losses[:]
    return losses[rows]


def _stored_mask(
    loss: StoredMatrix, capacity: Capacity, ids: pd.Index, makers: Sequence[str]
) -> StoredMask | None:
    """Who may do what; None: everybody everything."""
    listed = np.empty(0, np.int64)
    if capacity.eligible is not None:
        listed = np.flatnonzero(ids.isin(capacity.eligible.index))
    allowed = capacity.mask(ids[listed], makers) if len(listed) else None
    finite = all(np.isfinite(loss[start : start + ROWS]).all() for start in range(0, len(loss), ROWS))
    if finite and allowed is None:
        return None
    none = np.empty((0, len(makers)), np.bool_)
    return StoredMask(loss, listed, none if allowed is None else allowed)


def _room(capacity: Capacity, makers: Sequence[str], batches: Sequence[str]) -> Array:
    """What everybody may get in all batches together, as the roster says it; NaN: there is a batch without
    a limit."""
    known = capacity.upper.reindex(columns=list(makers), fill_value=0)
    if MACHINE in makers and MACHINE not in capacity.upper:
        known[MACHINE] = UNLIMITED
    rows = [name if name in known.index else ONE_BATCH for name in batches]
    each = known.loc[rows].to_numpy(np.float64)
    return np.asarray(np.where(each >= UNLIMITED, np.nan, each).sum(axis=0))


def _summary(
    scored: Scored,
    choices: Choices,
    shared: float,
    prices: pd.DataFrame,
    solved: Mapping[str, Assignment],
    room: Array,
    pace: Mapping[str, float],
) -> Summary:
    objective = float(sum(assignment.objective for assignment in solved.values()))
    typical = objective / max(len(choices.maker), 1)
    mean_price = prices.mean(axis=0).to_numpy()
    hours = np.array(
        [np.nan if name in scored.machines else pace.get(name, np.nan) for name in scored.makers]
    )
    table = pd.DataFrame(
        {
            "cases": np.bincount(choices.maker, minlength=len(scored.makers)),
            "capacity": room,
            "price": mean_price,
            "next_hour": mean_price * hours,
        },
        index=pd.Index(scored.makers, name="maker"),
    )
    return Summary(
        cases=len(choices.maker),
        makers=table,
        cost=float(choices.own.sum()),
        machine_cost=float(choices.machine.sum()),
        random_cost=shared,
        close_calls=int((choices.margin < CLOSE * abs(typical)).sum()),
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
