"""`solve` and `solve_batches`: check, choose a method, solve, certify."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.assign import feasibility
from deccaf.assign.exact import duals, general, sample_prices, transport
from deccaf.assign.exact.flow import Deadline, InfeasibleFlowError, Limits
from deccaf.assign.exact.scan import (
    Floats,
    Jitter,
    Losses,
    closed_prices,
    map_chunks,
    plan_losses,
    slack_pass,
    threads_available,
)
from deccaf.assign.exact.transport import Plan
from deccaf.assign.problem import Assignment, AssignmentProblem, LimitsLike
from deccaf.errors import ConfigError, SolverError
from deccaf.threads import one_thread

Method = Literal["auto", "flow", "priced", "cpsat", "lp"]

DIRECT_ARCS = 6_000  # up to here all arcs go to the flow solver: pruning costs more than it saves
DIRECT_ARCS_AT_MOST = 1_000_000  # and up to here if there are only
FEW_CASES, FEW_CHOICES = 20, 4  # cases a maker, or makers a case
CELLS_A_PROCESS = 30_000_000  # that take about as long as a process takes to start

WarmPrices = pd.Series | ArrayLike | None


def solve(
    loss: pd.DataFrame | ArrayLike,
    upper: LimitsLike,
    lower: LimitsLike = None,
    eligible: pd.DataFrame | ArrayLike | None = None,
    method: Method = "auto",
    time_limit: float = 60.0,
    seed: int = 0,
    warm_prices: WarmPrices = None,
) -> Assignment:
    """Give every case a maker so that the total loss is least and everyone's load is within limits.

    `loss` is cases x makers, an array or a frame. `upper` and `lower` are one whole number per maker (an
    array, or by label for a frame; `inf` is no limit); `lower` is 0 when left out. `eligible` says who may do
    what. `method`: `auto`, `flow` (all arcs to a min-cost flow), `priced` (prune first), `cpsat`, `lp`.

    Ties are broken by a seeded rule that treats makers alike: every case and maker has a random number, and
    among the cheapest plans the one with the smallest sum wins. Same input and seed, same plan.

    `warm_prices`, the prices of a plan for a problem that differs a little (an absence, a few cases more), by
    maker, save most of the search; the plan is as good as without them, and certified alike.

    Raises `CapacityError` when no plan exists, and says why; `SolverError` when time runs out first.
    """
    problem = AssignmentProblem.of(loss, upper, lower, eligible)
    return solve_problem(problem, method, time_limit, seed, warm_prices)


def solve_problem(
    problem: AssignmentProblem,
    method: Method = "auto",
    time_limit: float = 60.0,
    seed: int = 0,
    warm_prices: WarmPrices = None,
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
    prices = None if warm_prices is None else _in_order(warm_prices, problem)
    if method == "auto":
        method = "flow" if _better_in_full(problem) else "priced"
    with one_thread():
        try:
            plan = _plan(problem, losses, limits, method, seed, deadline, prices)
        except InfeasibleFlowError:
            feasibility.check_groups(problem)
            raise SolverError(
                f"{method}: found no plan, yet every group of cases fits; please report this"
            ) from None
        return _assignment(problem, losses, limits, plan, method, deadline)


def _better_in_full(problem: AssignmentProblem) -> bool:
    """Whether pruning cannot pay: few arcs, a case or a maker; prices say little then."""
    n, makers = problem.shape
    arcs, eligible = n * makers, problem.eligible
    if eligible is not None:
        arcs = sum(map_chunks(lambda a, b: int(np.count_nonzero(eligible[a:b])), eligible))
    few = arcs <= FEW_CHOICES * n or n < FEW_CASES * makers
    return arcs <= DIRECT_ARCS or (few and arcs <= DIRECT_ARCS_AT_MOST)


def _in_order(given: pd.Series | ArrayLike, problem: AssignmentProblem) -> Floats:
    """One finite price per maker, in the problem's order."""
    if isinstance(given, pd.Series) and problem.makers is not None:
        given = given.reindex(problem.makers)
    prices = np.asarray(given, dtype=np.float64)
    if prices.shape != (problem.shape[1],) or not np.isfinite(prices).all():
        raise ConfigError(
            f"warm_prices: expected one finite price for each of {problem.shape[1]} makers, got {given!r}"
        )
    return np.where(problem.upper > 0, prices, 0.0)


def _plan(
    problem: AssignmentProblem,
    losses: Losses,
    limits: Limits,
    method: str,
    seed: int,
    deadline: Deadline,
    prices: Floats | None,
) -> Plan:
    n, makers = losses.shape
    if n == 0 or makers == 1:
        return Plan(np.zeros(n, np.int32), np.zeros(makers), 0.0)
    tie = transport.TIE_SIZE * _typical(losses)
    if method == "flow":
        return transport.solve_direct(losses, limits, seed, tie, deadline)
    if method == "priced":
        check = partial(feasibility.check_groups, problem)
        return transport.solve_priced(losses, limits, seed, tie, deadline, check, prices)
    if method == "lp":
        maker = general.solve_lp(losses, limits, tie, deadline.left())
    else:
        maker = general.solve_cpsat(losses, limits, tie, deadline.left(), seed)
    plan = transport.certify_plan(losses, limits, maker)
    if plan is None:
        plan = replace(_with_estimated_prices(losses, limits, maker, seed, tie), stopped=deadline.left() <= 0)
    return plan


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
        stopped=plan.stopped,
        cases=problem.cases,
        makers=problem.makers,
    )


def solve_batches(
    problems: Sequence[AssignmentProblem],
    method: Method = "auto",
    time_limit: float = 60.0,
    seed: int = 0,
    n_jobs: int | None = None,
    warm_prices: Sequence[WarmPrices] | None = None,
) -> list[Assignment]:
    """Solve independent batches, in order; `time_limit` is for each.

    `n_jobs` processes work side by side (-1: one a core); left out, as many as pay for their start. The plans
    are the same. Give every problem a `name` ("batch 3"), so that errors say which one.
    """
    starts = [None] * len(problems) if warm_prices is None else warm_prices
    asked = [(each, method, time_limit, seed, start) for each, start in zip(problems, starts, strict=True)]
    jobs = _jobs(problems) if n_jobs is None else n_jobs
    if jobs == 1:
        return [solve_problem(*each) for each in asked]
    import joblib

    plans: list[Assignment] = joblib.Parallel(n_jobs=jobs)(joblib.delayed(solve_problem)(*e) for e in asked)
    return plans


def _jobs(problems: Sequence[AssignmentProblem]) -> int:
    """A process takes seconds to start, so it must save more than that: the largest batch is not divided."""
    cells: list[int] = [problem.loss.size for problem in problems]
    saved = sum(cells) - max(cells, default=0)
    return min(threads_available(), 1 + saved // CELLS_A_PROCESS)
