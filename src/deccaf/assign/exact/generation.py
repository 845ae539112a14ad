"""Arc generation: flows over the few arcs that can matter, at prices learned from a sample.

Where makers are nearly alike, every maker is nearly best for every case, so no box around the prices leaves
few arcs. But at good prices nearly every case ends at one of its few nearest makers. So: prices from a
sample, smoothed (`entropic`, `soft_newton`); then, over the nearest arcs of all cases (`near`), the same
Newton steps and a flow over the arcs that matter as far out as the makers' loads are off. A step counts only
if it raises the dual value of the whole matrix, and the end is a plan that no arc left out could improve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact import duals, soft_newton
from deccaf.assign.exact.entropic import entropic_prices
from deccaf.assign.exact.flow import Deadline, Limits, solve_flow
from deccaf.assign.exact.near import NEAR, Near, Search, loaded, near, windows
from deccaf.assign.exact.refine import repair
from deccaf.assign.exact.scan import (
    SUMMED,
    Floats,
    Ints,
    Losses,
    least_priced,
    loads_at,
    most_arcs,
    plan_losses,
    select,
)

SAMPLE = 1_000_000  # cells of the sample that gives the first prices
LARGER, FEW = 10, 0.25  # times as many in the next one, while they are few: this part of all cases
BLOCK = 64  # neighbours in such a sample
CORRECTIONS, OF_MANY, VERY_MANY = 1, 3, 2_000_000  # of a sample's prices by what all cases would do
TO_CORRECT = 10  # cases a maker in the sample, at least: fewer say too little
PER_MAKER = 4  # cases a maker in it, at least
SAMPLE_ROUNDS, BLOCK_ROUNDS, ADAPT_ROUNDS, ROUNDS = 5, 12, 3, 25
ADAPT_CASES, ADAPT_SHARE = 40.0, 0.005  # second choices to look at: by maker, and of all cases
ADAPT_OFF = 0.05  # of the cases, in the wrong place: no small change
SOFT = 6.0  # smoothing is this part of the distance to a case's nearest makers, at first
SHARPEN = 4.0  # and so much less in each round that puts loads right
BALANCED = 0.01  # of the cases, that may then be in the wrong place
SAMPLE_REACH, REACH = 2.0, 0.5  # how many such distances a Newton step goes, at first
LEAST_REACH = 0.02
ROOM = 1.5  # how much further than to the arcs it can choose from a price may move
LEAST_ROOM = 1 / 64  # of the distance to a case's nearest makers
BOLDEST = 64.0
CYCLES = 20  # of cases to exchange, that rounding and the tie rule may have left


@dataclass(frozen=True)
class Step:
    """The prices of a flow, its plan if it needed no bypass, and who used the bypass how much."""

    prices: Floats
    maker: NDArray[np.int32] | None
    short: Ints


@dataclass(frozen=True)
class Found:
    """The last prices, and the arcs around a plan that no other arc can improve, if one was found.

    `used` are the positions of the arcs that the plan uses.
    """

    prices: Floats
    around: Near | None = None
    used: Ints | None = None


def generate(
    losses: Losses, limits: Limits, seed: int, tie: float, deadline: Deadline, prices: Floats | None = None
) -> Found:
    """Search from prices, given or from a sample, for a plan that no arc can improve."""
    n = losses.shape[0]
    most = 1 + most_arcs(n) / (2 * n)
    if prices is None:
        prices = _sampled(losses, limits, seed, tie, deadline)
    search = Search(losses, limits, np.ones(n, np.int64), tie, min(NEAR, most), most_near=most)
    return _rounds(search, prices, ROUNDS, REACH, deadline)


def adapt(losses: Losses, limits: Limits, tie: float, deadline: Deadline, prices: Floats) -> Found:
    """The same from prices of a problem that differs little: few arcs around them are enough, or it fails."""
    n, makers = losses.shape
    near = 1 + max(ADAPT_SHARE, ADAPT_CASES * makers / n)
    search = Search(losses, limits, np.ones(n, np.int64), tie, near, most_off=ADAPT_OFF * n)
    return _rounds(search, prices, ADAPT_ROUNDS, 0.0, deadline)


def _sampled(losses: Losses, limits: Limits, seed: int, tie: float, deadline: Deadline) -> Floats:
    """Prices from a sample, smoothed first, then by the same search; of very many cases from larger ones too.

    Larger samples are blocks of neighbours, evenly spread, which files give quickly.
    """
    n, makers = losses.shape
    size = min(n, max(SAMPLE // makers, PER_MAKER * makers))
    rows = np.sort(np.random.default_rng([seed, 0x5A]).choice(n, size, replace=False, shuffle=False))
    search = Search(losses.take(rows), limits, _supply(n, size), tie)
    prices = entropic_prices(search.losses, limits, search.supply)
    prices = _rounds(search, prices, SAMPLE_ROUNDS, SAMPLE_REACH, deadline).prices
    while (larger := LARGER * len(rows)) <= FEW * n:
        first = np.arange(larger // BLOCK) * n // (larger // BLOCK)
        rows = (first[:, None] + np.arange(BLOCK)).ravel()
        most = 1 + most_arcs(len(rows)) / (2 * len(rows))
        supply = _supply(n, len(rows))
        search = Search(losses.part(rows), limits, supply, tie, min(NEAR, most), most_near=most)
        prices = _rounds(search, prices, BLOCK_ROUNDS, REACH, deadline).prices
    few = len(rows) <= FEW * n and len(rows) >= TO_CORRECT * makers
    return _corrected(search, losses, prices, deadline) if few else prices


def _corrected(search: Search, losses: Losses, prices: Floats, deadline: Deadline) -> Floats:
    """What all cases would do at a sample's prices differs from what the sample says by chance.

    So the sample is asked for prices at which it is off by as much the other way, maker by maker, as long as
    that raises the dual value of the whole matrix.
    """
    limits, (best, load) = search.limits, loads_at(losses, prices)
    best += search.paid(prices)
    for _ in range(OF_MANY if losses.shape[0] >= VERY_MANY else CORRECTIONS):
        missed = np.rint(search.weight * loads_at(search.losses, prices)[1]).astype(np.int64) - load
        corrected = _fitting(limits.lower + missed, limits.upper + missed, limits.total)
        tried = _rounds(replace(search, limits=corrected), prices, BLOCK_ROUNDS, REACH, deadline).prices
        if deadline.left() <= 0:
            break
        value, load = loads_at(losses, tried)
        value += search.paid(tried)
        if value <= best:
            break
        best, prices = value, tried
    return prices


def _fitting(lower: Ints, upper: Ints, total: int) -> Limits:
    """Limits next to these that are not below 0, and between which the total lies."""
    lower = np.maximum(lower, 0)
    lower = lower - _shared_out(int(lower.sum()) - total, lower)
    upper = np.maximum(upper, lower)
    return Limits(lower, upper + _shared_out(total - int(upper.sum()), upper), total)


def _shared_out(many: int, by: Ints) -> Ints:
    """Whole numbers in proportion to others, which sum to `many`, or all 0 if that is not above 0."""
    if many <= 0:
        return np.zeros_like(by)
    parts = by if by.any() else np.ones_like(by)
    ends = np.rint(np.cumsum(parts) * (many / parts.sum())).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0))


def _supply(n: int, size: int) -> Ints:
    """How many of all cases each case of a sample stands for."""
    supply = np.full(size, n // size)
    supply[: n - supply.sum()] += 1
    return supply


def _rounds(search: Search, prices: Floats, rounds: int, reach: float, deadline: Deadline) -> Found:
    """Newton steps, then a flow, over the arcs near the prices; what lowers the dual value is taken back."""
    boldness, soft, short, unsettled = 1.0, SOFT, np.zeros(len(prices), np.int64), True
    for _ in range(rounds):
        if deadline.left() <= 0:
            break
        around = near(search, prices, short)
        if around.off > search.most_off:
            break
        sharper, gain, balanced = _sharpened(search, around, soft, reach if unsettled else 0.0)
        reach, soft = (2 * reach if gain > 0 else reach / 2), (SHARPEN * soft if balanced else soft)
        step = _flow(search, around, sharper if gain > 0 else prices, boldness, short)
        best, short = least_priced(search.losses, step.prices), step.short
        if search.dual(step.prices, best) < around.value - 1e-12 * abs(around.value):
            boldness = boldness / 4
            if gain > 0:  # the flow went astray, the Newton steps did not
                prices = sharper
            else:
                reach = reach / 4
            continue
        prices, unsettled = step.prices, step.maker is None
        if step.maker is None:
            boldness *= 2 if gain > 0 else 4
            if boldness > BOLDEST:  # not for want of room: further arcs are needed
                search, boldness = replace(search, near=min(2 * search.near, search.most_near)), 1.0
        elif search.weight > 1:
            break
        elif _stands(search, step.maker, prices, best):
            arcs = around.arcs
            used = np.flatnonzero(arcs.maker == step.maker[arcs.rows][arcs.case])
            used, optimal = repair(arcs, used, search.limits, around.prices, CYCLES)
            if optimal:
                return Found(prices, around, used)
            search = replace(search, tie_rule=False)  # too many ties to undo one by one
    return Found(prices)


def _sharpened(search: Search, around: Near, soft: float, reach: float) -> tuple[Floats, float, bool]:
    """Newton steps over the nearest arcs, what they add to the dual value, and whether loads are right."""
    prices = around.prices
    arcs, width = around.arcs, around.width
    if reach < LEAST_REACH or not len(arcs.rows):
        return prices, 0.0, True
    found = soft_newton.newton(
        arcs, search.supply[arcs.rows], search.limits, prices, width / soft, width, reach
    )
    new = prices + found.shift
    balanced = float(np.abs(found.off).sum()) <= BALANCED * search.limits.total
    return new, search.gain(prices, new), balanced


def _flow(search: Search, around: Near, prices: Floats, boldness: float, short: Ints) -> Step:
    """A flow over the arcs that matter around these prices, `boldness` times as far out as loads ask for."""
    shift = prices - around.prices
    value = around.arcs.value(shift, search.flow_tie)
    above = value - around.arcs.least(value)[around.arcs.case]
    wide, least = windows(search, around.arcs, above, prices, short), LEAST_ROOM * around.width
    take, give = (
        ROOM * boldness * np.maximum(np.where(np.isnan(side), around.width, side), least)
        for side in (wide.take, wide.give)
    )
    home = wide.home[around.arcs.rows][around.arcs.case]
    arcs, _ = select(around.arcs, np.flatnonzero(above <= np.maximum(take[around.arcs.maker], give[home])))
    value, box = arcs.value(shift, search.flow_tie), np.maximum(take, give)
    arcs = loaded(search, arcs)
    flow = solve_flow(arcs, value, search.limits, prices, box, search.supply[arcs.rows])
    move = duals.box_prices(arcs, value, flow, search.limits, prices, box)
    if flow.bypassed:
        return Step(prices + move, None, flow.bypass_in + flow.bypass_out)
    maker, taken = arcs.settled.copy(), np.flatnonzero(flow.arcs)
    maker[arcs.rows[arcs.case[taken]]] = arcs.maker[taken]
    return Step(prices + move, maker, np.zeros_like(short))


def _stands(search: Search, maker: NDArray[np.int32], prices: Floats, best: Floats) -> bool:
    """Whether no arc of the matrix is better than the plan's, but for the tie rule."""
    own = plan_losses(search.losses, maker) + prices[maker]
    return bool((own - best <= 2 * search.tie + SUMMED * (np.abs(own) + np.abs(prices).max())).all())
