"""The exact solver of the transportation problem: price, prune, solve, certify, widen (design, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact import duals, generation, out_of_time, refine, sample_prices
from deccaf.assign.exact.flow import Deadline, Limits, solve_flow
from deccaf.assign.exact.scan import (
    SUMMED,
    Arcs,
    Floats,
    Ints,
    Losses,
    all_arcs,
    keep_arcs,
    least_priced,
    most_arcs,
    plan_losses,
    residual_pass,
    slack_pass,
)
from deccaf.errors import SolverError

TIE_SIZE = 2.0**-34  # of the typical loss: far above rounding, far below differences that matter
MANY = 400  # makers: from here on arcs are generated at once
WIDEN = 8.0
BOXES = 2
REPAIR_ARCS = 2e7  # arcs that repairing the plan of a full flow may look at
SOME = 2_000  # cases to tell from how many arcs a box leaves
SMALL = 300_000  # entries: where the first certificate fails, solving in full is quicker than widening


@dataclass(frozen=True)
class Plan:
    """A maker for every case, prices that prove how good it is, and the slack they leave."""

    maker: NDArray[np.int32]
    prices: Floats
    slack: float
    stopped: bool = False  # by the time limit


def solve_direct(losses: Losses, limits: Limits, seed: int, tie: float, deadline: Deadline) -> Plan:
    """All arcs to the flow solver, which cannot be stopped: so it is not started when time is short.

    Where losses differ so much in size that the solver's integers do not tell the small ones apart, what it
    leaves is put right by arc generation, which looks at near arcs only and so at small numbers.
    """
    n, makers = losses.shape
    if not losses.fits:
        raise SolverError(
            f"{n:,} x {makers:,} losses do not fit into memory, and no plan was proved on parts of them;"
            " give the cases batches, or raise time_limit"
        )
    if not deadline.allows(n * makers):
        raise SolverError(
            f"flow: {n * makers:,} arcs take more than the time limit of {deadline.limit:g} s;"
            " raise time_limit or use method='priced'"
        )
    arcs, centre = all_arcs(losses), np.zeros(makers)
    value = arcs.value(centre, tie)
    first = np.flatnonzero(solve_flow(arcs, value, limits, centre).arcs)
    cycles = int(np.clip(REPAIR_ARCS / max(len(arcs.maker), 1), refine.FEW_REPAIRS, refine.REPAIRS))
    used, optimal = refine.repair(arcs, first, limits, centre, cycles)
    if not optimal:  # the flow is, for losses with the tie rule
        used = first
    graph = duals.residual_graph(arcs, used, None if optimal else value)
    load = np.bincount(arcs.maker[used], minlength=makers)
    prices = duals.shadow_prices(graph, load, limits, centre)
    found = Plan(arcs.maker[used], prices, _slack(arcs, used, prices))
    return found if optimal else _better(losses, limits, seed, tie, deadline, found)


def _better(losses: Losses, limits: Limits, seed: int, tie: float, deadline: Deadline, found: Plan) -> Plan:
    """The plan of arc generation, from these prices or anew, if it is optimal; else the plan there is."""
    for prices in (found.prices, None):
        generated = generation.generate(losses, limits, seed, tie, deadline, prices)
        plan = _certify_generated(losses, limits, generated)
        if plan is not None:
            return plan
    return replace(found, stopped=deadline.left() <= 0)


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
    prices: Floats | None = None,
) -> Plan:
    """Prune by a box around prices of a sample; with many makers, or where that fails, generate arcs.

    If that fails too, all arcs go to the flow solver while there is time, and when it is up the last prices
    make a plan, and prove its gap. Before what takes long, `check` looks whether there is a plan at all.
    `prices` of a problem that differs little make a sample unnecessary.
    """
    n, makers = losses.shape
    if prices is not None:
        plan = _certify_generated(losses, limits, generation.adapt(losses, limits, tie, deadline, prices))
        if plan is not None:
            return plan
    prices = None
    if n < 2 * sample_prices.sample_sizes(n, makers)[0]:
        return solve_direct(losses, limits, seed, tie, deadline)
    if makers < MANY:
        plan, prices = _boxed(losses, limits, seed, tie, deadline)
        if plan is not None:
            return plan
        if losses.values.size <= SMALL:
            return solve_direct(losses, limits, seed, tie, deadline)
    check()
    generated = generation.generate(losses, limits, seed, tie, deadline, prices)
    plan = _certify_generated(losses, limits, generated)
    if plan is not None:
        return plan
    if deadline.allows(n * makers) or not losses.fits:
        return solve_direct(losses, limits, seed, tie, deadline)
    prices = generated.prices
    maker = out_of_time.plan_at(losses, limits, prices)
    return Plan(maker, prices, slack_pass(losses, maker, prices), stopped=True)


def _boxed(
    losses: Losses, limits: Limits, seed: int, tie: float, deadline: Deadline
) -> tuple[Plan | None, Floats | None]:
    """Price on a sample, prune the matrix, solve what is open, certify; once more with a wider box."""
    found = sample_prices.estimate(losses, limits, seed, tie)
    if found.alike:
        return None, None
    centre, box, smoothing = found.prices, np.maximum(found.box, tie * 2.0**-14), found.tie
    for _ in range(BOXES):
        arcs = keep_arcs(losses, centre, box, smoothing)
        outcome = refine.solve_open(arcs, limits, centre, box, tie, smoothing, deadline)
        if outcome.used is not None:
            plan = certify(losses, limits, arcs, outcome.used, centre, box, smoothing > 0)
            if plan is not None:
                return plan, plan.prices
        centre = centre + outcome.shift
        if losses.values.size <= SMALL or not deadline.allows(len(arcs.maker)):
            break
        box = np.where(outcome.hit, np.maximum(WIDEN * box, np.median(box)), 1.5 * box)
        smoothing = outcome.smoothing
        if _open_arcs(losses, centre, box, smoothing) > most_arcs(len(losses.values)):
            break
    return None, centre


def _open_arcs(losses: Losses, centre: Floats, box: Floats, tie: float) -> float:
    """About how many arcs a box leaves open, from some of the cases."""
    n = len(losses.values)
    rows = np.arange(0, n, max(1, n // SOME))
    return len(keep_arcs(losses.take(rows), centre, box, tie).maker) * n / len(rows)


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


def _certify_generated(losses: Losses, limits: Limits, found: generation.Found) -> Plan | None:
    """The plan with its prices, if it is optimal for the whole matrix.

    Shortest distances over the arcs near the plan are those over all arcs, if as prices they leave no case
    anything to gain elsewhere: that takes a pass that keeps one number a case, not J x J.
    """
    if found.around is None or found.used is None:
        return None
    arcs, centre = found.around.arcs, found.around.prices
    maker = _merged(arcs, found.used)
    load = np.bincount(maker, minlength=len(centre))
    shift = duals.shadow_prices(duals.residual_graph(arcs, found.used), load, limits, centre)
    prices = centre + shift
    own = plan_losses(losses, maker) + prices[maker]
    slack = own - least_priced(losses, prices)
    if (slack <= SUMMED * (np.abs(own) + np.abs(prices).max())).all():
        return Plan(maker, prices, float(slack.sum()))
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
