"""Arc generation: flows over the few arcs that can matter, at prices learned from a sample.

Where makers are nearly alike, every maker is nearly best for every case, so no box around the prices leaves
few arcs. But at good prices nearly every case ends at one of its few nearest makers. So: prices from a
sample, smoothed (`entropic`, `soft_newton`); then, over the nearest arcs of all cases (`near`), the same
Newton steps and a flow over the arcs that matter as far out as the makers' loads are off. A step counts only
if it raises the dual value of the whole matrix, and the end is a plan that no arc left out could improve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact import duals, soft_newton
from deccaf.assign.exact.entropic import entropic_prices
from deccaf.assign.exact.flow import Deadline, Limits, solve_flow
from deccaf.assign.exact.near import Near, Search, near, windows
from deccaf.assign.exact.refine import repair
from deccaf.assign.exact.scan import Arcs, Floats, Ints, Losses, least_priced, plan_losses, select

SAMPLE = 1_000_000  # cells of the sample that gives the first prices
PER_MAKER = 4  # cases a maker in it, at least
SAMPLE_ROUNDS, ROUNDS = 6, 25
TRIES = 4  # shorter reaches, on the sample
SOFT, SOFTER = 24.0, 6.0  # smoothing is this part of the distance to a case's nearest makers
LEAST_REACH = 0.02
ROOM = 1.5  # how much further than to the arcs it can choose from a price may move
CYCLES = 20  # of cases to exchange, that rounding and the tie rule may have left


@dataclass(frozen=True)
class Step:
    """Where a flow moves the prices, its plan if it needed no bypass, and who used the bypass how much."""

    move: Floats
    maker: NDArray[np.int32] | None
    short: Ints


def generate(
    losses: Losses, limits: Limits, seed: int, tie: float, deadline: Deadline, prices: Floats | None = None
) -> tuple[NDArray[np.int32] | None, Floats]:
    """A plan that no arc can improve, if the search ends in one, and the last prices."""
    search = Search(losses, limits, np.ones(losses.shape[0], np.int64), tie)
    if prices is None:
        prices = _sampled(losses, limits, seed, tie)
    value, boldness, reach, soft = search.dual(prices), 1.0, 0.5, SOFTER
    short = np.zeros(len(prices), np.int64)
    for _ in range(ROUNDS):
        if deadline.left() <= 0:
            break
        around = near(search, prices, short)
        sharper, gain = _sharpened(search, around, prices, value, soft, reach)
        if gain > 0:
            prices, value = sharper, value + gain
        reach, soft = (2 * reach if gain > 0 else reach / 4), SOFT
        step = _flow(search, around, prices, boldness, short)
        new, short = search.dual(prices + step.move), step.short
        if new < value - 1e-12 * abs(value):
            boldness /= 4
            continue
        prices, value = prices + step.move, new
        if step.maker is None:
            boldness *= 2 if gain > 0 else 4
        elif _stands(search, step.maker, prices):
            maker, optimal = _repaired(search, around.arcs, step.maker, around.prices)
            if optimal:
                return maker, prices
    return None, prices


def _sampled(losses: Losses, limits: Limits, seed: int, tie: float) -> Floats:
    """Prices from a sample, smoothed; Newton steps go further while they lead somewhere."""
    n, makers = losses.shape
    size = min(n, max(SAMPLE // makers, PER_MAKER * makers))
    rows = np.sort(np.random.default_rng([seed, 0x5A]).choice(n, size, replace=False, shuffle=False))
    supply = np.full(size, n // size)
    supply[: n - supply.sum()] += 1
    search = Search(losses.take(rows), limits, supply, tie)
    prices = entropic_prices(search.losses, limits, supply)
    value, reach = search.dual(prices), 2.0
    for _ in range(SAMPLE_ROUNDS):
        around = near(search, prices, np.zeros(makers, np.int64))
        for _ in range(TRIES):
            new, gain = _sharpened(search, around, prices, value, SOFTER, reach)
            short = float(np.abs(new - prices).max()) < around.width / 2
            if gain > 0 or short:
                break
            reach /= 4
        if gain > 0:
            prices, value, reach = new, value + gain, 2 * reach
        if gain <= 0 or short:
            break
    return prices


def _sharpened(
    search: Search, around: Near, prices: Floats, value: float, soft: float, reach: float
) -> tuple[Floats, float]:
    """Newton steps over the nearest arcs, and what they add to the dual value of all."""
    if reach < LEAST_REACH:
        return prices, 0.0
    arcs, width = around.arcs, around.width
    found = soft_newton.newton(
        arcs, search.supply[arcs.rows], search.limits, prices, width / soft, width, reach
    )
    new = prices + found.shift
    return new, search.dual(new) - value


def _flow(search: Search, around: Near, prices: Floats, boldness: float, short: Ints) -> Step:
    """A flow over the arcs that matter around these prices, `boldness` times as far out as loads ask for."""
    shift = prices - around.prices
    value = around.arcs.value(shift, search.tie)
    above = value - around.arcs.least(value)[around.arcs.case]
    wide = windows(search, around.arcs, above, prices, short)
    take, give = (
        ROOM * boldness * np.where(np.isnan(side), around.width, side) for side in (wide.take, wide.give)
    )
    home = wide.home[around.arcs.rows][around.arcs.case]
    arcs, _ = select(around.arcs, np.flatnonzero(above <= np.maximum(take[around.arcs.maker], give[home])))
    value, box = arcs.value(shift, search.tie), np.maximum(np.maximum(take, give), ROOM * search.tie)
    flow = solve_flow(arcs, value, search.limits, prices, box)
    move = duals.box_prices(arcs, value, flow, search.limits, prices, box)
    if flow.bypassed:
        return Step(move, None, flow.bypass_in + flow.bypass_out)
    maker, taken = arcs.settled.copy(), np.flatnonzero(flow.arcs)
    maker[arcs.rows[arcs.case[taken]]] = arcs.maker[taken]
    return Step(move, maker, np.zeros_like(short))


def _stands(search: Search, maker: NDArray[np.int32], prices: Floats) -> bool:
    """Whether no arc of the matrix is better than the plan's, but for the tie rule."""
    own = plan_losses(search.losses, maker) + prices[maker]
    slack = own - least_priced(search.losses, prices)
    return bool(slack.max() <= 2 * search.tie)


def _repaired(
    search: Search, arcs: Arcs, maker: NDArray[np.int32], centre: Floats
) -> tuple[NDArray[np.int32], bool]:
    """The plan without the cycles that rounding and the tie rule left; whether it is optimal now."""
    used = np.flatnonzero(arcs.maker == maker[arcs.rows][arcs.case])
    used, optimal = repair(arcs, used, search.limits, centre, CYCLES)
    result = arcs.settled.copy()
    result[arcs.rows] = arcs.maker[used]
    return result, optimal
