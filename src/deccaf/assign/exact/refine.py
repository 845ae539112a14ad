"""The open cases: prices by Newton, then a small exact flow around them.

Newton brings the loads to within a few cases of their limits, so the flow only has to sort out the cases
near the boundaries. Where ties make the loads jump, the tie rule is added to the losses, large at first and
halved step by step; the prices are followed down until the plan is optimal without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deccaf.assign.exact import duals, newton
from deccaf.assign.exact.flow import Deadline, Limits, solve_flow
from deccaf.assign.exact.scan import Arcs, Bools, Floats, Ints, narrow

HALVINGS = 40
ROOM = 2.5  # prices move by about the size of the tie rule while it shrinks, and arcs differ by it
REPAIRS = 200
FEW_REPAIRS = 4
FAILURES = 5
HUGE_FLOW = 250_000
LARGE_FLOW = 50_000  # arcs: a narrow problem that is not narrow is better solved once, in full


@dataclass(frozen=True)
class Outcome:
    """The arc of every open case if the bypass stayed empty; else how to go on.

    That is better prices, the makers that need a wider box, and how much tie rule to start from.
    """

    used: Ints | None
    shift: Floats
    hit: Bools
    smoothing: float


def solve_open(
    arcs: Arcs,
    limits: Limits,
    centre: Floats,
    box: Floats,
    tie: float,
    smoothing: float,
    deadline: Deadline,
) -> Outcome:
    """Cheapest plan over `arcs`; `tie` is the size of the tie rule, `smoothing` where to start from."""
    zero, used, hit = np.zeros(len(centre)), None, np.zeros(len(centre), np.bool_)
    small = len(arcs.maker) <= LARGE_FLOW
    if smoothing <= 0 or small:
        now = newton.correct(arcs, limits, centre, zero, box, tie)
        hit = np.abs(now.shift) > 0.9 * box
        used = _around(arcs, arcs, limits, centre, box, now, tie)
    if used is None and not small and not hit.any():
        used, now, hit = _follow(arcs, limits, centre, box, tie, smoothing or float(np.median(box)) / 2)
    if used is not None or hit.any() or not deadline.allows(len(arcs.maker)):
        return Outcome(used, now.shift, hit, smoothing)
    value = arcs.value(zero, tie)
    flow = solve_flow(arcs, value, limits, centre, box)
    if flow.bypassed > 0:
        shift = duals.box_prices(arcs, value, flow, limits, centre, box)
        return Outcome(None, shift, (flow.bypass_in > 0) | (flow.bypass_out > 0), smoothing / 4)
    used, _ = repair(arcs, np.flatnonzero(flow.arcs), limits, centre, REPAIRS)
    return Outcome(used, now.shift, hit, smoothing / 4)


def _follow(
    arcs: Arcs, limits: Limits, centre: Floats, box: Floats, tie: float, smoothing: float
) -> tuple[Ints | None, newton.Balance, Bools]:
    """Follow the prices as the tie rule shrinks; they are soon linear in its size, which gives the start.

    Returns the arcs used if that led to a plan, the prices found first, and the makers that ran into the box.
    """
    inner, size, failures = arcs, smoothing, 0
    beginning = now = newton.correct(inner, limits, centre, np.zeros(len(centre)), box, size, smoothed=True)
    slope, hit = np.zeros(len(centre)), np.abs(now.shift) > 0.9 * box
    for _ in range(HALVINGS):
        arcs_before, window = len(inner.maker), np.minimum(ROOM * size, box)
        inner, _ = narrow(inner, inner.value(now.shift, size), window)
        small, steady = len(inner.maker) <= LARGE_FLOW, len(inner.maker) > 0.9 * arcs_before
        used = _around(arcs, inner, limits, centre, box, now, size) if steady else None
        failures += steady and used is None
        if used is None and small and (steady or not failures or len(inner.maker) < LARGE_FLOW / 8):
            used = _exactly(arcs, inner, limits, centre, now.shift, window, tie)[0]
            failures += 1
        if used is not None or failures >= FAILURES:
            return used, beginning, hit
        if now.left > 20 * len(box) + 0.005 * limits.total or size <= tie:
            break
        size /= 2
        start = np.clip(now.shift + slope / 2, -box, box)
        then = newton.correct(inner, limits, centre, start, box, size, reach=4 * size, smoothed=True)
        now, slope = then, then.shift - now.shift
        hit |= np.abs(now.shift) > 0.9 * box
    return None, beginning, hit


def _around(
    arcs: Arcs, near: Arcs, limits: Limits, centre: Floats, box: Floats, now: newton.Balance, tie: float
) -> Ints | None:
    """An exact flow over the arcs that can matter close to Newton's prices; None if that is not optimal.

    Makers that need the bypass get all the room there is, in a second try.
    """
    window = np.minimum(now.reach(), box)
    for candidates in (near, arcs):
        inner, _ = narrow(candidates, candidates.value(now.shift, tie), window)
        if len(inner.maker) > max(LARGE_FLOW, min(len(arcs.maker) // 3, HUGE_FLOW)):
            return None
        used, short = _exactly(arcs, inner, limits, centre, now.shift, window, tie)
        if used is not None or not short.any():
            return used
        window = np.where(short, box, np.minimum(8 * window, box))
    return None


def _exactly(
    arcs: Arcs, inner: Arcs, limits: Limits, centre: Floats, shift: Floats, window: Floats, tie: float
) -> tuple[Ints | None, Bools]:
    """The flow over `inner`, as arcs used, if optimal over `arcs`; and the makers that needed the bypass."""
    flow = solve_flow(inner, inner.value(shift, tie), limits, centre + shift, window)
    short = (flow.bypass_in > 0) | (flow.bypass_out > 0)
    if short.any():
        return None, short
    maker = inner.settled.copy()
    taken = np.flatnonzero(flow.arcs)
    maker[inner.rows[inner.case[taken]]] = inner.maker[taken]
    used = np.flatnonzero(arcs.maker == maker[arcs.rows][arcs.case])
    used, optimal = repair(arcs, used, limits, centre, FEW_REPAIRS)
    return (used if optimal else None), short


def repair(arcs: Arcs, used: Ints, limits: Limits, centre: Floats, most: int) -> tuple[Ints, bool]:
    """Cancel the cycles that rounding and the tie rule left; whether the plan is now optimal over `arcs`."""
    for _ in range(most):
        cycle = _cycle(arcs, used, limits, centre)
        if cycle is None:
            return used, True
        used = _move(arcs, used, cycle)
    return used, False


def _cycle(arcs: Arcs, used: Ints, limits: Limits, centre: Floats) -> list[int] | None:
    load = arcs.load + np.bincount(arcs.maker[used], minlength=len(centre))
    graph = duals.residual_graph(arcs, used)
    return duals.negative_cycle(duals.with_outside(graph, load > limits.lower, load < limits.upper, centre))


def _move(arcs: Arcs, used: Ints, cycle: list[int]) -> Ints:
    """Move one case along every edge of the cycle."""
    used, here = used.copy(), arcs.maker[used]
    for k, j in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        if len(arcs.load) in (k, j):  # the outside
            continue
        from_k = np.flatnonzero((here == k)[arcs.case] & (arcs.maker == j))
        arc = from_k[np.argmin(arcs.cost[from_k] - arcs.cost[used[arcs.case[from_k]]])]
        used[arcs.case[arc]] = arc
    return used
