"""Bid prices: what a unit of everybody's time is worth, from a sample of the cases to come; and greed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact.duals import shortest
from deccaf.assign.exact.scan import Bools, Floats, Ints
from deccaf.assign.solve import solve
from deccaf.errors import CapacityError


def greedy_cost(rows: Floats, upper: Ints, lower: Ints) -> float:
    """The cost when every case in turn takes the best maker with room, lower limits held."""
    room, owed, cost = upper.copy(), lower.copy(), 0.0
    for k, row in enumerate(rows):
        opened: Bools = (owed > 0) if owed.sum() >= len(rows) - k else room > 0
        value = np.where(opened & (room > 0), row, np.inf)
        if not np.isfinite(value).any():
            value = np.where(room > 0, row, np.inf)
        j = int(value.argmin())
        cost += float(value[j])  # infinite where greed has left nobody for this case
        room[j] -= 1
        owed[j] = max(owed[j] - 1, 0)
    return cost


def bid_prices(sample: Floats, room: Ints, owed: Ints, left: float, before: Floats) -> Floats:
    """Shadow prices of a sample, with limits in the proportion that the room has to what is left."""
    size = len(sample)
    left = max(min(left, float(room.sum())), float(owed.sum()))
    upper = _scaled(room, size / left, size)
    lower = np.minimum(np.floor(owed * size / left + 1e-9).astype(np.int64), upper)
    eligible: Bools = np.isfinite(sample)
    try:
        if eligible.all():
            plan = solve(sample, upper, lower)
        else:
            plan = solve(np.where(eligible, sample, 0.0), upper, lower, eligible)
    except CapacityError:  # the sample's cases may go to fewer makers than have room for them
        return before
    return plan.prices if lower.any() else _midway(sample, plan.maker, plan.prices, upper)


def _midway(sample: Floats, maker: NDArray[np.int32], prices: Floats, upper: Ints) -> Floats:
    """Between what one more unit saves and what one unit less costs.

    A plan's prices are the former. In a small sample the two differ, and a case between them is a coin toss
    that must not always fall on the same side.
    """
    makers = len(prices)
    spare = np.bincount(maker, minlength=makers) < upper
    if not spare.any():
        return prices
    step = np.full((makers, makers), np.inf)  # least cost of moving a case from one maker to another
    for k in np.unique(maker):
        mine = sample[maker == k]
        step[k] = (mine - mine[:, [k]]).min(axis=0)
    less = shortest(step.T, np.where(spare, 0.0, np.inf)).to
    return np.where(np.isfinite(less) & ~spare, (prices + less) / 2, prices)


def _scaled(limit: Ints, factor: float, size: int) -> Ints:
    """Limits in proportion, in whole cases; what rounding down leaves out goes to large remainders."""
    exact = np.minimum(limit * factor, float(size))
    whole: Ints = np.floor(exact + 1e-9).astype(np.int64)
    missing = max(round(float(exact.sum())), size) - int(whole.sum())
    if missing > 0:
        whole[np.argsort(whole - exact, kind="stable")[:missing]] += 1
    return whole
