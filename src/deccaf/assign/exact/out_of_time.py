"""A good plan when the time is up: everyone's favourite at the last prices, then the fewest regrets.

Prices leave the loads a little off. Makers with too many cases pass on those that mind least; makers with too
few take those that mind least. The gap is whatever the prices prove.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact.flow import Limits
from deccaf.assign.exact.scan import Bools, Floats, Ints, Losses, map_chunks
from deccaf.errors import SolverError


def plan_at(losses: Losses, limits: Limits, prices: Floats) -> NDArray[np.int32]:
    """A feasible plan close to the choices at these prices."""
    parts = map_chunks(
        lambda a, b: losses.priced(a, b, prices).argmin(axis=1).astype(np.int32), losses.values
    )
    maker = np.concatenate(parts)
    for j in range(len(prices)):  # too many: pass on to makers with room
        load = np.bincount(maker, minlength=len(prices))
        excess = int(load[j] - limits.upper[j])
        while excess > 0:
            room = np.maximum(limits.upper - load, 0)
            load = _move(losses, prices, maker, np.flatnonzero(maker == j), room, excess)
            excess = int(load[j] - limits.upper[j])
    for short in np.flatnonzero(np.bincount(maker, minlength=len(prices)) < limits.lower):
        _fill(losses, limits, prices, maker, int(short))
    return maker


def _move(
    losses: Losses, prices: Floats, maker: NDArray[np.int32], rows: Ints, room: Ints, count: int
) -> Ints:
    """Move up to `count` of the rows to their best maker with room, those that mind least first."""
    value = _values(losses, rows, prices)
    regret = value - value[np.arange(len(rows)), maker[rows]][:, None]
    regret[:, room == 0] = np.inf
    target = regret.argmin(axis=1)
    least = regret[np.arange(len(rows)), target]
    order = np.argsort(least, kind="stable")[:count]
    order = order[np.isfinite(least[order])]
    if not len(order):
        raise SolverError("time limit: no plan found; raise time_limit")
    for k in np.unique(target[order]):
        chosen = order[target[order] == k][: room[k]]
        maker[rows[chosen]] = k
    return np.bincount(maker, minlength=len(room))


def _fill(losses: Losses, limits: Limits, prices: Floats, maker: NDArray[np.int32], j: int) -> None:
    """Bring maker j up to its lower limit with cases from makers above theirs."""
    only_j: Bools = np.arange(len(prices)) == j
    while True:
        load = np.bincount(maker, minlength=len(prices))
        spare = np.maximum(load - limits.lower, 0)
        missing = int(limits.lower[j] - load[j])
        if missing <= 0:
            return
        donor = int(spare.argmax())
        room = np.where(only_j, missing, 0)
        _move(losses, prices, maker, np.flatnonzero(maker == donor), room, min(missing, int(spare[donor])))


def _values(losses: Losses, rows: Ints, prices: Floats) -> Floats:
    """Loss plus price of some rows, infinite where not eligible."""
    some = losses.take(rows)
    return np.asarray(some.priced(0, len(rows), prices), dtype=np.float64)
