"""`solve` and `solve_batches`: check, choose a method, solve, certify."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.assign import feasibility
from deccaf.assign.exact import duals, general, sample_prices, transport
from deccaf.assign.exact.flow import Deadline, InfeasibleFlowError, Limits
from deccaf.assign.exact.scan import Jitter, Losses, closed_prices, plan_losses, slack_pass
from deccaf.assign.exact.transport import Plan
from deccaf.assign.problem import Assignment, AssignmentProblem, LimitsLike
from deccaf.errors import ConfigError, SolverError

Method = Literal["auto", "flow", "priced", "cpsat", "lp"]

DIRECT_ARCS = 6_000  # up to here all arcs go to the flow solver: pruning costs more than it saves
DIRECT_ARCS_AT_MOST = 1_000_000  # and up to here if there are only
FEW_CASES = 20  # cases a maker


def solve(
    loss: pd.DataFrame | ArrayLike,
    upper: LimitsLike,
    lower: LimitsLike = None,
    eligible: pd.DataFrame | ArrayLike | None = None,
    method: Method = "auto",
    time_limit: float = 60.0,
    seed: int = 0,
) -> Assignment:
    """Give every case a maker so that the total loss is least and everyone's load is within limits.

    `loss` is cases x makers, an array or a frame. `upper` and `lower` are one whole number per maker (an
    array, or by label for a frame; `inf` is no limit); `lower` is 0 when left out. `eligible` says who may do
    what. `method`: `auto`, `flow` (all arcs to a min-cost flow), `priced` (prune first), `cpsat`, `lp`.

    Ties are broken by a seeded rule that treats makers alike: every case and maker has a random number, and
    among the cheapest plans the one with the smallest sum wins. Same input and seed, same plan.

    Raises `CapacityError` when no plan exists, and says why; `SolverError` when time runs out first.
    """
    return solve_problem(AssignmentProblem.of(loss, upper, lower, eligible), method, time_limit, seed)


def solve_problem(
    problem: AssignmentProblem, method: Method = "auto", time_limit: float = 60.0, seed: int = 0
) -> Assignment:
    """`solve` for inputs already checked."""
    if method not in get_args(Method):
        raise ConfigError(f"method: expected one of {', '.join(get_args(Method))}, got {method!r}")
    if not time_limit > 0:
        raise ConfigError(f"time_limit: expected more than 0 seconds, got {time_limit}")
    deadline = Deadline(time_limit)
    feasibility.check_totals(problem)
    closed = np.flatnonzero(problem.upper == 0)
    losses = Losses(problem.loss, problem.eligible, Jitter.of(seed, problem.shape[1]), closed)
    limits = Limits(problem.lower, problem.upper, problem.shape[0])
    if method == "auto":
        method = "flow" if _better_in_full(*problem.shape) else "priced"
    try:
        plan = _plan(problem, losses, limits, method, seed, deadline)
    except InfeasibleFlowError:
        feasibility.check_groups(problem)
        raise SolverError(
            f"{method}: found no plan, yet every group of cases fits; please report this"
        ) from None
    return _assignment(problem, losses, limits, plan, method, deadline)


def _better_in_full(n: int, makers: int) -> bool:
    """Whether pruning cannot pay: few arcs, or so few cases a maker that prices say little."""
    return n * makers <= DIRECT_ARCS or (n < FEW_CASES * makers and n * makers <= DIRECT_ARCS_AT_MOST)


def _plan(
    problem: AssignmentProblem, losses: Losses, limits: Limits, method: str, seed: int, deadline: Deadline
) -> Plan:
    n, makers = losses.shape
    if n == 0 or makers == 1:
        return Plan(np.zeros(n, np.int32), np.zeros(makers), 0.0)
    tie = transport.TIE_SIZE * _typical(losses)
    if method == "flow":
        return transport.solve_direct(losses, limits, seed, tie, deadline)
    if method == "priced":
        check = partial(feasibility.check_groups, problem)
        return transport.solve_priced(losses, limits, seed, tie, deadline, check)
    if method == "lp":
        maker = general.solve_lp(losses, limits, tie, deadline.left())
    else:
        maker = general.solve_cpsat(losses, limits, tie, deadline.left(), seed)
    return transport.certify_plan(losses, limits, maker) or _with_estimated_prices(
        losses, limits, maker, seed, tie
    )


def _with_estimated_prices(
    losses: Losses, limits: Limits, maker: NDArray[np.int32], seed: int, tie: float
) -> Plan:
    """A plan that is not optimal has no shadow prices; prices of a sample bound how far off it is."""
    prices = sample_prices.estimate(losses, limits, seed, tie).prices
    return Plan(maker, prices, slack_pass(losses, maker, prices))


def _typical(losses: Losses) -> float:
    """The size of an ordinary loss: the median of some, so that a few huge ones do not count."""
    some = losses.values[:: max(1, len(losses.values) // 1000)]
    if losses.eligible is not None:
        some = some[losses.eligible[:: max(1, len(losses.values) // 1000)]]
    size = np.abs(some[some != 0])
    return float(np.median(size)) if size.size else 1.0


def _assignment(
    problem: AssignmentProblem, losses: Losses, limits: Limits, plan: Plan, method: str, deadline: Deadline
) -> Assignment:
    own = plan_losses(losses, plan.maker)
    load = np.bincount(plan.maker, minlength=problem.shape[1])
    prices = closed_prices(losses, plan.maker, plan.prices) + 0.0  # no negative zeros
    return Assignment(
        maker=plan.maker,
        objective=math.fsum(own) if len(own) < 100_000 else float(own.sum()),
        prices=prices,
        gap=duals.certified_gap(plan.slack, load, limits, prices, own),
        method=method,
        seconds=deadline.spent(),
        cases=problem.cases,
        makers=problem.makers,
    )


def solve_batches(
    problems: Sequence[AssignmentProblem],
    method: Method = "auto",
    time_limit: float = 60.0,
    seed: int = 0,
    n_jobs: int = -1,
) -> list[Assignment]:
    """Solve independent batches in parallel, in order; `time_limit` is for each.

    Give every problem a `name` ("batch 3"), so that errors say which one.
    """
    work = joblib.delayed(solve_problem)
    plans: list[Assignment] = joblib.Parallel(n_jobs=n_jobs)(
        work(problem, method, time_limit, seed) for problem in problems
    )
    return plans
