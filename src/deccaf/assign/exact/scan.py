"""Passes over the loss matrix, in chunks that fit the cache and on every core.

Nothing here copies the matrix: a pass reads a block of rows, adds the makers' prices in a small buffer and
keeps what it was asked for. NumPy releases the interpreter lock, so plain threads are enough, and chunks are
put together in order, so the result does not depend on how many threads there are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.stored import Mask, Matrix, StoredMask, StoredMatrix
from deccaf.cluster import in_force

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
T = TypeVar("T")

CHUNK_ELEMENTS = 1 << 17  # about 1 MB of float64, a level-2 cache
ROUNDING = 8 * float(np.finfo(np.float64).eps)  # relative to a loss, what decimals and sums leave
SUMMED = 64 * ROUNDING  # the same of a sum along a chain of makers
THREAD_ELEMENTS = 1 << 20  # below this a second thread costs more than it saves
SPAN = 64  # blocks that a worker of a cluster looks at for one piece of work
FITS = 20_000_000  # cells of a matrix in files that may be in memory all the same
MEMORY = 1.7e9  # bytes that a search may take beside the losses
BYTES_PER_CASE, BYTES_PER_ARC = 90, 300  # at its peak
FEWEST_ARCS = 1_000_000


def most_arcs(n: int) -> int:
    """How many arcs may be looked at together: what memory leaves beside what every case needs.

    It depends on the number of cases alone, so that the search is the same wherever the losses are.
    """
    return int(max((MEMORY - BYTES_PER_CASE * n) / BYTES_PER_ARC, FEWEST_ARCS))


@dataclass(frozen=True)
class Jitter:
    """The tie rule: a seeded number in [0, 1) for every case and maker.

    Among plans of equal cost the one with the smallest sum of these numbers wins. Products of a random odd
    number per case and one per maker, modulo 2^32, are as good as independent here, cost one multiplication,
    and treat every column alike.
    """

    seed: int
    makers: NDArray[np.uint32]

    @classmethod
    def of(cls, seed: int, makers: int) -> Jitter:
        """Draw the makers' multipliers."""
        odd = np.random.default_rng([seed, 0x7135]).integers(0, 1 << 31, makers, dtype=np.uint32)
        return cls(seed, odd * np.uint32(2) + np.uint32(1))

    def of_cases(self, rows: Ints) -> NDArray[np.uint32]:
        """One random odd number per case (splitmix64 of its row number)."""
        key = np.uint64((self.seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**64 - 1))
        x = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ key
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (x >> np.uint64(32)).astype(np.uint32) | np.uint32(1)

    def of_arcs(self, rows: Ints, makers: NDArray[Any]) -> Floats:
        """The numbers of single arcs."""
        numbers: Floats = (self.of_cases(rows) * self.makers[makers]) * 2.0**-32
        return numbers

    def of_block(self, rows: Ints) -> Floats:
        """The numbers of whole rows."""
        numbers: Floats = (self.of_cases(rows)[:, None] * self.makers) * np.float64(2.0**-32)
        return numbers


@dataclass(frozen=True)
class Losses:
    """The matrix as the passes see it: values, who may do what, and the tie rule."""

    values: Matrix
    eligible: Mask | None
    jitter: Jitter
    closed: Ints  # makers with no capacity at all: they take no part
    row_ids: Ints | None = None  # rows of the full matrix, for a sample

    @property
    def shape(self) -> tuple[int, int]:
        """Cases and makers."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def fits(self) -> bool:
        """Whether all of the matrix may be looked at at once: it is in memory, or small."""
        return not isinstance(self.values, StoredMatrix) or self.values.size <= FITS

    def take(self, rows: Ints) -> Losses:
        """A sample of the cases."""
        eligible = None if self.eligible is None else self.eligible[rows]
        return replace(self, values=self.values[rows], eligible=eligible, row_ids=rows)

    def part(self, rows: Ints) -> Losses:
        """Many of the cases, in order: those that are in files stay there, unless they are few."""
        if not isinstance(self.values, StoredMatrix) or len(rows) * self.shape[1] <= FITS:
            return self.take(rows)
        eligible = self.eligible.subset(rows) if isinstance(self.eligible, StoredMask) else None
        return replace(self, values=self.values.subset(rows), eligible=eligible, row_ids=rows)

    def ids(self, rows: Ints) -> Ints:
        """Row numbers in the full matrix."""
        return rows if self.row_ids is None else self.row_ids[rows]

    def priced(
        self,
        start: int,
        stop: int,
        prices: NDArray[Any],
        tie: float = 0.0,
        values: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """A buffer with loss plus price (plus `tie` times the tie rule); infinite where not eligible.

        `values` are those of these rows, where they have been read already.
        """
        block: NDArray[Any] = np.add(self.values[start:stop] if values is None else values, prices, order="C")
        if tie > 0:
            noise = self.jitter.of_block(self.ids(np.arange(start, stop)))
            block += np.multiply(noise, tie, out=noise)
        if self.eligible is not None:
            block[~self.eligible[start:stop]] = np.inf
        if len(self.closed):
            block[:, self.closed] = np.inf
        return block


@dataclass(frozen=True)
class Arcs:
    """Arcs left to the cases that are still open, case by case.

    `cost` is loss + centre price, less a constant per case that keeps it small, so that differences keep
    their digits. `settled` holds the maker of every case that kept a single arc, and -1 for the open ones.
    """

    settled: NDArray[np.int32]
    load: Ints  # settled cases by maker
    rows: Ints  # row of each open case
    first: Ints  # position of its first arc
    case: Ints  # open case of each arc
    maker: NDArray[np.int32]
    cost: Floats
    tie: Floats  # the tie rule's numbers
    rounding: Floats  # by open case: differences in cost below this are ties

    @property
    def count(self) -> Ints:
        """Arcs of each open case."""
        return np.diff(np.append(self.first, len(self.maker)))

    def least(self, values: Floats) -> Floats:
        """The smallest value over each open case's arcs."""
        return np.minimum.reduceat(values, self.first) if len(self.first) else np.empty(0)

    def value(self, shift: Floats, tie: float) -> Floats:
        """Costs at prices `centre + shift`, the tie rule included."""
        return self.cost + shift[self.maker] + tie * self.tie


def threads_available() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _span(starts: range, work: Callable[[int, int], T], n: int) -> list[T]:
    """Some blocks of a pass."""
    return [work(start, min(start + starts.step, n)) for start in starts]


def map_chunks(work: Callable[[int, int], T], matrix: Mask) -> list[T]:
    """Apply `work(start, stop)` to blocks of rows, in order; the blocks are the same wherever it is done."""
    n, makers = matrix.shape
    rows = max(16, CHUNK_ELEMENTS // max(makers, 1))
    starts = range(0, n, rows)
    elsewhere = in_force()
    if elsewhere is not None and isinstance(matrix, StoredMatrix | StoredMask):  # files that workers see
        spans = [starts[at : at + SPAN] for at in range(0, len(starts), SPAN)]
        return [one for part in elsewhere.map(_span, spans, work, n) for one in part]
    return map_here(work, matrix)


def map_here(work: Callable[[int, int], T], matrix: Mask) -> list[T]:
    """The same where `work` needs more than workers elsewhere should be sent."""
    n, makers = matrix.shape
    rows = max(16, CHUNK_ELEMENTS // max(makers, 1))
    return _here(lambda start: work(start, min(start + rows, n)), range(0, n, rows), n * makers)


def map_rows(work: Callable[[Ints], T], rows: Ints, makers: int) -> list[T]:
    """Apply `work` to these rows, some at a time, in order: never are all of them in memory together."""
    step = max(16, CHUNK_ELEMENTS // max(makers, 1))
    return _here(
        lambda start: work(rows[start : start + step]), range(0, len(rows), step), len(rows) * makers
    )


def _here(work: Callable[[int], T], starts: range, elements: int) -> list[T]:
    """On this machine's cores, where it is enough work for more than one."""
    if elements <= THREAD_ELEMENTS or (workers := threads_available()) == 1:
        return [work(start) for start in starts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, starts))


def keep_arcs(losses: Losses, centre: Floats, box: Floats, tie: float = 0.0) -> Arcs:
    """Prune: keep the arcs that can be best for some prices within `box` of `centre`.

    An arc goes when another is better even with this maker's price at its lowest and the other's at its
    highest. A case that keeps one arc is settled. With `tie`, this is for losses plus that much tie rule.
    """
    work_type = _pass_type(losses, centre, box, tie)
    low, high = (centre - box).astype(work_type), (centre + box).astype(work_type)

    def work(start: int, stop: int) -> list[NDArray[Any]]:
        values = losses.values[start:stop]
        block = losses.priced(start, stop, high, tie, values)
        best = block.min(axis=1)
        block += low - high
        flat = np.flatnonzero(block <= best[:, None])
        return _open(losses, start, values, flat)

    return _collect(losses, centre, map_chunks(work, losses.values))


def near_arcs(losses: Losses, prices: Floats, width: float, most: int, tie: float) -> tuple[Arcs, Floats]:
    """The arcs within `width` of each case's best at these prices, of many only the nearest; and the bests.

    Which of several tied arcs stay is for the tie rule.
    """

    def work(start: int, stop: int) -> list[NDArray[Any]]:
        values = losses.values[start:stop]
        block = losses.priced(start, stop, prices, values=values)
        best = block.min(axis=1)
        stays = block <= (best + width)[:, None]
        flat = np.flatnonzero(stays)
        crowded = np.flatnonzero(np.bincount(flat // losses.shape[1], minlength=stop - start) > most)
        if len(crowded):
            rows = block[crowded] + tie * losses.jitter.of_block(losses.ids(start + crowded))
            nearest = np.argpartition(rows, most - 1, axis=1)[:, :most]
            stays[crowded] = False
            stays[crowded[:, None], nearest] = np.isfinite(np.take_along_axis(rows, nearest, axis=1))
            flat = np.flatnonzero(stays)
        return [*_open(losses, start, values, flat), best]

    parts = map_chunks(work, losses.values)
    best = np.concatenate([part.pop() for part in parts])
    return _collect(losses, prices, parts), best


def _pass_type(losses: Losses, centre: Floats, box: Floats, tie: float) -> type[np.floating[Any]]:
    """Single precision only where its rounding is small beside the box; the box is widened by it there."""
    if losses.values.dtype != np.float32 or tie > 0 or not len(losses.values):
        return np.float64
    stride = max(1, len(losses.values) // 1000)
    size = float(np.abs(losses.values[::stride]).max()) + float(np.abs(centre).max()) + float(box.max())
    return np.float32 if box.min() > 64 * np.finfo(np.float32).eps * size else np.float64


def _open(losses: Losses, start: int, values: Matrix, flat: NDArray[np.intp]) -> list[NDArray[Any]]:
    """Settle the cases of a block that have one arc; rows, makers, losses and tie rule of the other arcs.

    `values` are the block's, which begins at row `start`.
    """
    row = flat // losses.shape[1]
    maker = (flat - row * losses.shape[1]).astype(np.int32)
    alone = np.bincount(row, minlength=len(values))[row] == 1
    settled = np.full(len(values), -1, np.int32)
    settled[row[alone]] = maker[alone]
    row, maker = row[~alone], maker[~alone]
    loss = values[row, maker].astype(np.float64)
    row = row + start
    return [settled, row, maker, loss, losses.jitter.of_arcs(losses.ids(row), maker)]


def _collect(losses: Losses, centre: Floats, parts: list[list[NDArray[Any]]]) -> Arcs:
    """Put the blocks together, and let go of them; arcs are sorted by row."""
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    settled, rows, maker, loss, tie = (np.concatenate(columns.pop(0)) for _ in range(5))
    first, case = _runs(rows)
    cost = loss + centre[maker]
    best = np.minimum.reduceat(cost, first) if len(first) else np.empty(0)
    smallest = np.minimum.reduceat(np.abs(loss), first) if len(first) else best
    cost -= best[case]
    load = np.bincount(settled[settled >= 0], minlength=losses.shape[1])
    rounding = ROUNDING * (np.abs(best) + smallest)
    return Arcs(settled, load, rows[first], first, case, maker, cost, tie, rounding)


def _runs(sorted_keys: Ints) -> tuple[Ints, Ints]:
    """Where each run of equal keys begins, and the run of every element."""
    begins = np.diff(sorted_keys, prepend=-1) != 0
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def all_arcs(losses: Losses) -> Arcs:
    """Every eligible arc, nothing settled."""
    n, makers = losses.shape
    flat = np.arange(n * makers) if losses.eligible is None else np.flatnonzero(losses.eligible[:])
    if len(losses.closed):
        flat = flat[~np.isin(flat % makers, losses.closed)]
    rows, makers_of = np.divmod(flat, makers)
    maker = makers_of.astype(np.int32)
    loss = losses.values[rows, maker].astype(np.float64)
    tie = losses.jitter.of_arcs(losses.ids(rows), maker)
    return _collect(losses, np.zeros(makers), [[np.full(n, -1, np.int32), rows, maker, loss, tie]])


def add_arcs(losses: Losses, prices: Floats, arcs: Arcs, home: NDArray[np.int32], more: Ints) -> Arcs:
    """Arcs at other positions of the matrix too; `arcs` are around these prices, each case's best is `home`.

    Only new arcs, and their cases' best, are looked up; what the others hold stays as it is.
    """
    makers = losses.shape[1]
    old, more = arcs.rows[arcs.case] * makers + arcs.maker, np.unique(more)
    more = more[(arcs.settled[more // makers] != more % makers) & ~_among(more, old)]
    begins, place = _runs(more // makers)
    touched = more[begins] // makers
    opened = arcs.settled[touched] >= 0
    new = np.concatenate([more, touched[opened] * makers + home[touched[opened]]])
    rows, place = new // makers, np.concatenate([place, np.flatnonzero(opened)])
    maker = (new - rows * makers).astype(np.int32)
    loss = np.asarray(losses.values[rows, maker], np.float64)
    best = (losses.values[touched, home[touched]] + prices[home[touched]])[place]
    settled = arcs.settled.copy()
    settled[touched] = -1
    order = np.argsort(np.concatenate([old, new]), kind="stable")
    of_row = np.concatenate([arcs.rows[arcs.case], rows])[order]
    first, case = _runs(of_row)
    rounding = np.concatenate([arcs.rounding[arcs.case], ROUNDING * (np.abs(best) + np.abs(loss))])[order]
    return Arcs(
        settled,
        arcs.load - np.bincount(arcs.settled[touched[opened]], minlength=makers),
        of_row[first],
        first,
        case,
        np.concatenate([arcs.maker, maker])[order],
        np.concatenate([arcs.cost, loss + prices[maker] - best])[order],
        np.concatenate([arcs.tie, losses.jitter.of_arcs(losses.ids(rows), maker)])[order],
        np.minimum.reduceat(rounding, first) if len(first) else np.empty(0),
    )


def _among(some: Ints, known: Ints) -> Bools:
    """Which of these are known; both in order."""
    if not len(known):
        return np.zeros(len(some), np.bool_)
    place = np.minimum(np.searchsorted(known, some), len(known) - 1)
    return np.asarray(known[place] == some)


def narrow(arcs: Arcs, value: Floats, box: Floats) -> tuple[Arcs, Ints]:
    """Prune the open cases again, around `value`; also the positions of the arcs that stay."""
    kept = np.flatnonzero(value - box[arcs.maker] <= arcs.least(value + box[arcs.maker])[arcs.case])
    return select(arcs, kept)


def select(arcs: Arcs, kept: Ints) -> tuple[Arcs, Ints]:
    """Some of the arcs, at least one of every open case; cases left with one are settled."""
    alone = np.bincount(arcs.case[kept], minlength=len(arcs.rows))[arcs.case[kept]] == 1
    done, kept = kept[alone], kept[~alone]
    settled = arcs.settled.copy()
    settled[arcs.rows[arcs.case[done]]] = arcs.maker[done]
    load = arcs.load + np.bincount(arcs.maker[done], minlength=len(arcs.load))
    first, case = _runs(arcs.case[kept])
    rows = arcs.rows[arcs.case[kept[first]]]
    rounding = arcs.rounding[arcs.case[kept[first]]]
    inner = Arcs(
        settled, load, rows, first, case, arcs.maker[kept], arcs.cost[kept], arcs.tie[kept], rounding
    )
    return inner, kept


def residual_pass(losses: Losses, maker: NDArray[Any]) -> Floats:
    """W[k, j]: the least a case now at k would lose by going to j, over the whole matrix (design, section 5).

    Rounding is added, so that what looks like a gain is one.
    """
    makers = losses.shape[1]
    zero = np.zeros(makers)

    def work(start: int, stop: int) -> tuple[NDArray[Any], Floats]:
        here = maker[start:stop]
        order = np.argsort(here, kind="stable")
        block = losses.priced(start, stop, zero)
        own = block[np.arange(stop - start), here]
        block -= (own - ROUNDING * np.abs(own))[:, None]
        begins = np.flatnonzero(np.diff(here[order], prepend=-1) != 0)
        return here[order[begins]], np.minimum.reduceat(block[order], begins, axis=0)

    return fold_chunks(work, losses.values)


def fold_chunks(work: Callable[[int, int], tuple[NDArray[Any], Floats]], matrix: Mask) -> Floats:
    """J x J minima: of the rows that each block tells of, reduced as they come."""
    makers = matrix.shape[1]
    result, lock = np.full((makers, makers), np.inf), Lock()

    def reduce(start: int, stop: int) -> None:
        rows, least = work(start, stop)
        with lock:  # a minimum is the same in any order
            result[rows] = np.minimum(result[rows], least)

    elsewhere = in_force()
    if elsewhere is None or not isinstance(matrix, StoredMatrix):
        map_chunks(reduce, matrix)
        return result
    rows = max(16, CHUNK_ELEMENTS // max(makers, 1))
    starts = range(0, len(matrix), rows)
    spans = [starts[at : at + SPAN] for at in range(0, len(starts), SPAN)]
    for part in elsewhere.map(_folded, spans, work, matrix.shape):
        np.minimum(result, part, out=result)
    return result


def _folded(
    starts: range, work: Callable[[int, int], tuple[NDArray[Any], Floats]], shape: tuple[int, int]
) -> Floats:
    """The minima of some blocks."""
    result = np.full((shape[1], shape[1]), np.inf)
    for start in starts:
        rows, least = work(start, min(start + starts.step, shape[0]))
        result[rows] = np.minimum(result[rows], least)
    return result


def least_priced(losses: Losses, prices: Floats, tie: float = 0.0) -> Floats:
    """Every case's cheapest loss plus price (plus `tie` times the tie rule)."""
    parts = map_chunks(lambda start, stop: losses.priced(start, stop, prices, tie).min(axis=1), losses.values)
    return np.concatenate(parts)


def loads_at(losses: Losses, prices: Floats) -> tuple[float, Ints]:
    """If every case went where it is cheapest at these prices: the sum of what that costs, and the loads."""
    makers = losses.shape[1]

    def work(start: int, stop: int) -> tuple[float, Ints]:
        block = losses.priced(start, stop, prices)
        best = block.argmin(axis=1)
        return float(block[np.arange(stop - start), best].sum()), np.bincount(best, minlength=makers)

    parts = map_chunks(work, losses.values)
    return math.fsum(value for value, _ in parts), np.sum([load for _, load in parts], axis=0)


def nearest_rows(
    losses: Losses,
    best: Floats,
    prices: Floats,
    makers: Ints,
    counts: Ints,
    tie: float = 0.0,
    home: NDArray[np.int32] | None = None,
) -> list[tuple[Ints, Floats]]:
    """For each of these makers the `counts` cases whose `best` it is least above: rows and by how much.

    Cases that are at `home` there already do not count. One pass, whatever the number of makers.
    """
    found = [[(np.empty(0, np.int64), np.empty(0))] for _ in makers]
    size, limit = np.zeros(len(makers), np.int64), np.full(len(makers), np.inf)
    for start in range(0, losses.shape[0], rows := max(16, 4 * CHUNK_ELEMENTS // losses.shape[1])):
        stop = min(start + rows, losses.shape[0])
        block = losses.priced(start, stop, prices, tie)[:, makers] - best[start:stop, None]
        for k, j in enumerate(makers):
            here = block[:, k]
            keep = np.isfinite(here) & (here <= limit[k])
            if home is not None:
                keep &= home[start:stop] != j
            at = np.flatnonzero(keep)
            found[k].append((at + start, here[at]))
            size[k] += len(at)
            if size[k] > 2 * counts[k] + rows:
                found[k] = [_nearest(found[k], int(counts[k]))]
                size[k], limit[k] = len(found[k][0][0]), found[k][0][1].max(initial=-np.inf)
    return [_nearest(parts, int(count)) for parts, count in zip(found, counts, strict=True)]


def _nearest(parts: list[tuple[Ints, Floats]], count: int) -> tuple[Ints, Floats]:
    """The lowest values, of equal ones the first rows, in order of value."""
    rows, value = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(value, kind="stable")[:count]
    return rows[order], value[order]


def slack_pass(losses: Losses, maker: NDArray[Any], prices: Floats) -> float:
    """Sum over cases of what their maker costs, priced, above their best one."""

    def work(start: int, stop: int) -> float:
        block = losses.priced(start, stop, prices)
        chosen = block[np.arange(stop - start), maker[start:stop]]
        return float((chosen - block.min(axis=1)).sum())

    return math.fsum(map_chunks(work, losses.values))


def closed_prices(losses: Losses, maker: NDArray[Any], prices: Floats) -> Floats:
    """Prices of the closed makers: the most that a first case there would save."""
    result = prices.copy()
    if not len(losses.closed):
        return result
    value = plan_losses(losses, maker) + prices[maker]

    def work(start: int, stop: int) -> Floats:
        saving: Floats = value[start:stop, None] - losses.values[start:stop][:, losses.closed]
        if losses.eligible is not None:
            saving = np.where(losses.eligible[start:stop][:, losses.closed], saving, 0.0)
        return np.asarray(saving.max(axis=0, initial=0.0))

    most = np.max(map_chunks(work, losses.values), axis=0, initial=0.0)
    result[losses.closed] = np.where(most > 0, np.nextafter(most, np.inf), 0.0)  # a higher price is safe
    return result


def plan_losses(losses: Losses, maker: NDArray[Any]) -> Floats:
    """The loss of every case under a plan."""
    own: Floats = losses.values[np.arange(len(maker)), maker].astype(np.float64)
    return own
