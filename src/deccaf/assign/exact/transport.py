"""The exact solver of the transportation problem: price, prune, solve, certify, widen (design, section 5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact import duals, out_of_time, refine, sample_prices
from deccaf.assign.exact.flow import Deadline, Limits, solve_flow
from deccaf.assign.exact.scan import (
    Arcs,
    Floats,
    Ints,
    Losses,
    all_arcs,
    keep_arcs,
    residual_pass,
    slack_pass,
)
from deccaf.errors import SolverError

TIE_SIZE = 2.0**-34  # of the typical loss: far above rounding, far below differences that matter
WIDEN = 8.0
SMALL = 300_000  # entries: where the first certificate fails, solving in full is quicker than widening


@dataclass(frozen=True)
class Plan:
    """A maker for every case, prices that prove how good it is, and the slack they leave."""

    maker: NDArray[np.int32]
    prices: Floats
    slack: float


def solve_direct(losses: Losses, limits: Limits, tie: float, deadline: Deadline) -> Plan:
    """All arcs to the flow solver, which cannot be stopped: so it is not started when time is short."""
    n, makers = losses.shape
    if not deadline.allows(n * makers):
        raise SolverError(
            f"flow: {n * makers:,} arcs take more than the time limit of {deadline.limit:g} s;"
            " raise time_limit or use method='priced'"
        )
    arcs, centre = all_arcs(losses), np.zeros(makers)
    flow = solve_flow(arcs, arcs.value(centre, tie), limits, centre)
    used, _ = refine.repair(arcs, np.flatnonzero(flow.arcs), limits, centre, refine.REPAIRS)
    maker = arcs.maker[used]
    load = np.bincount(maker, minlength=makers)
    prices = duals.shadow_prices(duals.residual_graph(arcs, used), load, limits, centre)
    return Plan(maker, prices, _slack(arcs, used, prices))


def _slack(arcs: Arcs, used: Ints, shift: Floats) -> float:
    value = arcs.value(shift, 0.0)
    return float((value[used] - arcs.least(value)).sum())


def solve_priced(
    losses: Losses,
    limits: Limits,
    seed: int,
    tie: float,
    deadline: Deadline,
    check: Callable[[], None] = lambda: None,
) -> Plan:
    """Price on a sample, prune the matrix, solve what is open, certify; widen where the certificate fails.

    Boxes grow until nothing is pruned, so this ends. If it takes long, `check` looks whether there is a plan
    at all. When the time is up, the last prices make a plan, and prove its gap.
    """
    if losses.shape[0] < 2 * sample_prices.sample_sizes(*losses.shape)[0]:
        return solve_direct(losses, limits, tie, deadline)
    found = sample_prices.estimate(losses, limits, seed, tie)
    centre, box, smoothing = found.prices, np.maximum(found.box, tie * 2.0**-14), found.tie
    for attempt in itertools.count(1):
        arcs = keep_arcs(losses, centre, box, smoothing)
        outcome = refine.solve_open(arcs, limits, centre, box, tie, smoothing, deadline)
        if outcome.used is not None:
            plan = certify(losses, limits, arcs, outcome.used, centre, box, smoothing > 0)
            if plan is not None:
                return plan
        centre = centre + outcome.shift
        if losses.values.size <= SMALL:
            return solve_direct(losses, limits, tie, deadline)
        if attempt == 3:
            check()
        if not deadline.allows(len(arcs.maker)):
            break
        box = np.where(outcome.hit, np.maximum(WIDEN**attempt * box, np.median(box)), 1.5 * box)
        smoothing = outcome.smoothing
    check()
    maker = out_of_time.plan_at(losses, limits, centre)
    return Plan(maker, centre, slack_pass(losses, maker, centre))


def certify(
    losses: Losses, limits: Limits, arcs: Arcs, used: Ints, centre: Floats, box: Floats, smoothed: bool
) -> Plan | None:
    """The plan with its prices, if it is optimal for the whole matrix."""
    maker = _merged(arcs, used)
    load = np.bincount(maker, minlength=len(centre))
    if not smoothed:
        graph = duals.residual_graph(arcs, used)
        shift = duals.shadow_prices(graph, load, limits, centre)
        some = limits.upper > 0
        if duals.within(centre[some], shift[some], box[some]):
            return Plan(maker, centre + shift, _slack(arcs, used, shift))
        if not duals.priced_within(graph, load, limits, centre, box):
            return None
    return certify_plan(losses, limits, maker)


def certify_plan(losses: Losses, limits: Limits, maker: NDArray[np.int32]) -> Plan | None:
    """The same for any plan, by a pass over the whole matrix."""
    load, zero = np.bincount(maker, minlength=losses.shape[1]), np.zeros(losses.shape[1])
    graph = residual_pass(losses, maker)
    full = duals.with_outside(graph, load > limits.lower, load < limits.upper, zero)
    if duals.negative_cycle(full) is not None:
        return None
    prices = duals.shadow_prices(graph, load, limits, zero)
    return Plan(maker, prices, duals.worst_slack(graph, load, prices))


def _merged(arcs: Arcs, used: Ints) -> NDArray[np.int32]:
    maker = arcs.settled.copy()
    maker[arcs.rows] = arcs.maker[used]
    return maker
