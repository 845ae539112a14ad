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
    add_arcs,
    least_priced,
    map_here,
    map_rows,
    most_arcs,
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
FEWEST_MORE = 200_000  # arcs beyond the nearest that there is always room for
COUNTED = 1 << 20  # cases that are counted together
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
        value = best.sum() if self.weight == 1 else best @ self.supply.astype(np.float64)
        return float(value + self.paid(prices))

    def paid(self, prices: Floats) -> float:
        """The part of it that the limits pay."""
        high, low = np.maximum(prices, 0) @ self.limits.upper, np.maximum(-prices, 0) @ self.limits.lower
        return float(low - high)

    def loads(self, maker: NDArray[np.int32]) -> Ints:
        """By maker, what the cases that are there (not -1) stand for; some at a time."""
        load = np.zeros(self.losses.shape[1], np.int64)
        for start in range(0, len(maker), COUNTED):
            here, supply = maker[start : start + COUNTED], self.supply[start : start + COUNTED]
            load += np.bincount(here[here >= 0], supply[here >= 0], len(load)).astype(np.int64)
        return load

    def gain(self, old: Floats, new: Floats) -> float:
        """What new prices prove beyond old ones; on part of the cases where there are many."""
        stride = max(1, self.losses.values.size // GAIN_CELLS)
        rows = np.arange(0, self.losses.shape[0], stride)
        some = self.losses.take(rows) if stride > 1 else self.losses
        more = least_priced(some, new) - least_priced(some, old)
        scale = self.supply.sum() / self.supply[rows].sum()
        return float(more @ self.supply[rows] * scale) + self.paid(new) - self.paid(old)

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
    needed = _affordable(wide.needed, starved, crowded, most_arcs(losses.shape[0]) - len(arcs.maker))
    nearest = nearest_rows(losses, best, prices, starved, needed[starved] + 1, home=wide.home)
    more = [rows * makers + j for j, (rows, _) in zip(starved, nearest, strict=True)]
    if len(crowded):
        more += _givers(losses, prices, best, wide.home, crowded, needed[crowded] + 1)
    if sum(map(len, more)):  # a maker that is short of room may have no case to give
        arcs = add_arcs(losses, prices, arcs, wide.home, np.concatenate(more))
    return Near(prices, loaded(search, arcs), width, value, off)


def _affordable(needed: Ints, starved: Ints, crowded: Ints, room: int) -> Ints:
    """Cases to choose from, so many that memory has room for their arcs; more of them in later rounds."""
    asked = needed[starved].sum() + ALTERNATIVES * needed[crowded].sum()
    share = max(room, FEWEST_MORE) / max(asked, 1)
    return needed if share >= 1 else np.ceil(share * needed).astype(np.int64)


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
    return replace(arcs, load=search.loads(arcs.settled))


def windows(search: Search, arcs: Arcs, above: Floats, prices: Floats, short: Ints) -> Windows:
    """From what each arc costs `above` its case's best: far enough for twice the cases a load is off by."""
    makers, limits = len(prices), search.limits
    best = np.flatnonzero(above <= 0)
    best = best[np.diff(arcs.case[best], prepend=-1) != 0]
    home = arcs.settled.copy()
    home[arcs.rows] = arcs.maker[best]
    load = search.loads(home).astype(np.float64)
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


def _givers(
    losses: Losses, prices: Floats, best: Floats, home: NDArray[np.int32], crowded: Ints, counts: Ints
) -> list[Ints]:
    """Of each crowded maker's cases so many that leave it most easily: their arcs to the nearest others."""
    makers, wanted = losses.shape[1], np.zeros(losses.shape[1], np.bool_)
    wanted[crowded] = True

    def easily(start: int, stop: int) -> Floats:
        here = np.flatnonzero(wanted[home[start:stop]])
        if not len(here):
            return np.empty(0)
        block = losses.priced(start, stop, prices)
        block[here, home[start:stop][here]] = np.inf
        return np.asarray(block[here].min(axis=1) - best[start:stop][here])

    def nearest(part: Ints) -> Ints:
        block = losses.take(part).priced(0, len(part), prices)
        block[np.arange(len(part)), home[part]] = np.inf
        ways = np.argpartition(block, min(ALTERNATIVES, makers) - 1, axis=1)[:, :ALTERNATIVES]
        able = np.isfinite(np.take_along_axis(block, ways, axis=1))
        return np.asarray((part[:, None] * makers + ways)[able])

    far, rows = np.concatenate(map_here(easily, losses.values)), np.flatnonzero(wanted[home])
    leaving = []
    for j, count in zip(crowded, counts, strict=True):
        mine = np.flatnonzero(home[rows] == j)
        leaving.append(rows[mine[np.argsort(far[mine], kind="stable")[:count]]])
    return map_rows(nearest, np.sort(np.concatenate(leaving)), makers)
