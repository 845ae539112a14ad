"""Which arcs are near: each case's nearest makers, and more for makers whose loads are far off."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact.flow import Limits
from deccaf.assign.exact.scan import (
    Arcs,
    Floats,
    Ints,
    Losses,
    arcs_at,
    least_priced,
    map_rows,
    near_arcs,
    nearest_rows,
)

NEAR = 6.0
TINY = float(np.finfo(np.float64).tiny) * 1e20
MOST = 2.5  # times as many at most
EXTRA = 5.0  # cases beyond those a load is off by, that a maker can choose from
FAR_OFF = 0.05  # of a maker's limit: loads off by more call for arcs further out
WIDTH_CASES = 2_000  # to tell distances from
GAIN_CELLS = 4_000_000  # to judge Newton steps by
ALTERNATIVES = 3  # other makers for a case that may have to leave


@dataclass(frozen=True)
class Search:
    """The cases (all, or a sample whose cases stand for `supply` each) and the limits they must meet."""

    losses: Losses
    limits: Limits
    supply: Ints
    tie: float
    near: float = NEAR  # nearest makers of a case, on average, to look at
    most_near: float = np.inf
    most_off: float = np.inf  # cases in the wrong place: more are too many
    tie_rule: bool = True  # whether flows obey the tie rule, beside choosing near arcs by it

    def dual(self, prices: Floats, best: Floats) -> float:
        """What the prices prove, from every case's best priced loss: no plan costs less."""
        paid = np.maximum(prices, 0) @ self.limits.upper - np.maximum(-prices, 0) @ self.limits.lower
        return float(best @ self.supply.astype(np.float64) - paid)

    def gain(self, old: Floats, new: Floats) -> float:
        """What new prices prove beyond old ones; on part of the cases where there are many."""
        stride = max(1, self.losses.values.size // GAIN_CELLS)
        rows = np.arange(0, self.losses.shape[0], stride)
        some = self.losses.take(rows) if stride > 1 else self.losses
        more = least_priced(some, new) - least_priced(some, old)
        scale = self.supply.sum() / self.supply[rows].sum()
        zero = np.zeros(0)
        search = replace(self, supply=np.zeros(0, np.int64))
        return float(more @ self.supply[rows] * scale) + search.dual(new, zero) - search.dual(old, zero)

    @property
    def flow_tie(self) -> float:
        """What the tie rule adds to the losses in a flow."""
        return self.tie if self.tie_rule else 0.0

    @property
    def weight(self) -> float:
        """How many cases each one stands for."""
        return self.limits.total / self.losses.shape[0]


@dataclass(frozen=True)
class Near:
    """The arcs near every case's best at these prices, and within what most of them are."""

    prices: Floats
    arcs: Arcs
    width: float
    value: float  # that the prices prove
    off: float  # cases by which loads are off, in all


@dataclass(frozen=True)
class Windows:
    """How far each maker looks for more cases, and its cases for other makers (NaN: too few arcs to tell)."""

    home: NDArray[np.int32]  # each case's best maker
    off: Floats  # load beyond what the price wants
    needed: Ints  # cases to choose from
    take: Floats
    give: Floats


def near(search: Search, prices: Floats, short: Ints) -> Near:
    """The nearest arcs; more for makers far off their load, or `short` of so many cases in the last flow."""
    losses, makers = search.losses, len(prices)
    width = _width(search, prices)
    most = int(MOST * max(NEAR, min(search.near, makers)))
    arcs, best = near_arcs(losses, prices, width, most, search.tie)
    arcs, value = loaded(search, arcs), search.dual(prices, best)
    wide = windows(search, arcs, arcs.cost, prices, short)
    off = float(np.abs(wide.off).sum())
    far_off = np.abs(wide.off) > np.maximum(2 * search.weight, FAR_OFF * search.limits.upper)
    starved = np.flatnonzero((far_off & (wide.off < 0) | (short > 0)) & np.isnan(wide.take))
    crowded = np.flatnonzero((far_off & (wide.off > 0) | (short > 0)) & np.isnan(wide.give))
    if not len(starved) + len(crowded) or off > search.most_off:
        return Near(prices, arcs, width, value, off)
    nearest = nearest_rows(losses, best, prices, starved, wide.needed[starved] + 1, home=wide.home)
    more = [rows * makers + j for j, (rows, _) in zip(starved, nearest, strict=True)]
    more += [_givers(losses, prices, best, wide, int(j)) for j in crowded]
    flat = np.sort(np.concatenate([arcs.flat(makers), *more]))
    arcs = arcs_at(losses, prices, flat[np.diff(flat, prepend=-1) != 0])
    return Near(prices, loaded(search, arcs), width, value, off)


def _width(search: Search, prices: Floats) -> float:
    """Within which a case has so many makers, on average."""
    losses, (n, makers) = search.losses, search.losses.shape
    rows = np.arange(0, n, max(1, n // WIDTH_CASES))
    above = losses.take(rows).priced(0, len(rows), prices)
    above -= above.min(axis=1)[:, None]
    rank = int(min(search.near, makers) * len(rows)) - 1
    distance = np.partition(above.ravel(), rank)[: rank + 1]
    return max(float(distance[np.isfinite(distance)].max(initial=0.0)), search.tie, TINY)


def loaded(search: Search, arcs: Arcs) -> Arcs:
    """Count what the settled cases stand for."""
    done = arcs.settled >= 0
    load = np.bincount(arcs.settled[done], search.supply[done], minlength=search.losses.shape[1])
    return replace(arcs, load=load.astype(np.int64))


def windows(search: Search, arcs: Arcs, above: Floats, prices: Floats, short: Ints) -> Windows:
    """From what each arc costs `above` its case's best: far enough for twice the cases a load is off by."""
    makers, limits = len(prices), search.limits
    best = np.flatnonzero(above <= 0)
    best = best[np.diff(arcs.case[best], prepend=-1) != 0]
    home = arcs.settled.copy()
    home[arcs.rows] = arcs.maker[best]
    load = np.bincount(home, search.supply, minlength=makers).astype(np.float64)
    full = (limits.room == 0) | (prices > 0)
    inside = np.where(prices < 0, limits.lower, np.clip(load, limits.lower, limits.upper))
    off = load - np.where(full, limits.upper, inside)
    held = ~full & (prices == 0) & (off == 0)  # they take, or give, what the others have too many or too few
    off = np.where(held, np.clip(-off.sum(), load - limits.upper, load - limits.lower), off)
    needed = np.ceil(2 * (np.abs(off) + 2 * short) / search.weight + EXTRA).astype(np.int64)
    other = np.ones(len(arcs.maker), np.bool_)
    other[best] = False
    second = arcs.least(np.where(other, above, np.inf))
    take = _ranked(arcs.maker[other], above[other], needed, makers)
    return Windows(home, off, needed, take, _ranked(home[arcs.rows], second, needed, makers))


def _ranked(group: NDArray[np.int32], value: Floats, rank: Ints, groups: int) -> Floats:
    """The value of this rank in each group; NaN where there are fewer."""
    order = np.argsort(value)
    order = order[np.argsort(group[order].astype(np.uint16 if groups < 1 << 16 else np.int64), kind="stable")]
    begin = np.searchsorted(group[order], np.arange(groups + 1))
    enough = begin[:-1] + rank < begin[1:]
    result: Floats = np.full(groups, np.nan)
    result[enough] = value[order][(begin[:-1] + rank)[enough]]
    return result


def _givers(losses: Losses, prices: Floats, best: Floats, wide: Windows, j: int) -> Ints:
    """The arcs of maker j's cases to their nearest other makers."""
    makers, rows = losses.shape[1], np.flatnonzero(wide.home == j)
    count = min(ALTERNATIVES, makers)
    if not len(rows):
        return rows

    def work(part: Ints) -> tuple[NDArray[np.int32], Floats]:
        above = losses.take(part).priced(0, len(part), prices) - best[part, None]
        above[:, j] = np.inf
        nearest = np.argpartition(above, count - 1, axis=1)[:, :count]
        least = np.take_along_axis(above, nearest, axis=1)
        return np.where(np.isfinite(least), nearest, -1).astype(np.int32), least.min(axis=1)

    parts = map_rows(work, rows, makers)
    distance = np.concatenate([part for _, part in parts])
    leaving = np.argsort(distance, kind="stable")[: int(wide.needed[j]) + 1]
    nearest = np.concatenate([part for part, _ in parts])[leaving]
    arcs: Ints = rows[leaving, None] * makers + nearest
    return arcs[nearest >= 0]
