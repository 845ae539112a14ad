"""Score a LightGBM model for all experts at once, without a pass over the cases for each.

The model's features are those of the case and those of the expert (its number as a category, or several
columns). `ExpertScorer` gives the raw score of every case with every expert, the numbers of
`booster.predict(raw_score=True)` up to rounding. How it works is in `docs/scoring.md`, in short:

1. `forest` reads the trees, `routing` turns splits into comparisons of bytes,
2. `slots` rewrites the forest as a sum of table lookups with a column per expert,
3. here the lookups are summed as one sparse matrix product, in blocks that stay in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from deccaf.data.log_odds import expit, softmax
from deccaf.errors import ConfigError, DataError
from deccaf.models.trees.branches import Router, Routes
from deccaf.models.trees.forest import Array, Boosted, Forest, read_forest
from deccaf.models.trees.slots import Lookup, Regions, Slot, build_slots

ROWS = 32_768
"""Cases that are routed together: one byte of each fills a good part of the cache."""
_PIECE = 8_192
"""Cases of one thread, at least: with fewer, most of the time goes into calling NumPy."""
_SUMMED = 1_024
_TABLE_ROWS = 4_096
_TABLE_EXPERTS = 128
_KEPT_CELLS = 16_000_000
"""Numbers of all tables together up to which they are kept from one call to the next."""
_FEW = 5_000
"""Scores up to which LightGBM itself is quicker, because nothing is gained by preparing tables."""
_ALONE = 500
"""Scores up to which one thread is quicker than several that wait for each other."""
_PROBABILISTIC = {"binary", "cross_entropy", "multiclass", "multiclassova"}
_DEEPEST = 200
"""Trees deeper than this are left to LightGBM: they are walked here by recursion."""


class _Numbers(NamedTuple):
    """A slot whose rows are the same for all experts."""

    lookup: Lookup
    values: Array


@dataclass(frozen=True)
class _Group:
    """Slots whose tables fit the cache together, stacked: a slot's rows start at `starts`."""

    lookups: tuple[Lookup, ...]
    starts: NDArray[np.int32]
    values: Array
    regions: NDArray[np.int32]

    def table(self, members: Array) -> Array:
        """Rows x experts, for the experts of `members` (region x expert)."""
        values = self.values.astype(members.dtype)
        out = values[:, :1] * members[self.regions[:, 0]]
        for value, region in zip(values.T[1:], self.regions.T[1:], strict=True):
            used = np.flatnonzero(value)
            out[used] += value[used, None] * members[region[used]]
        return out


class ExpertScorer:
    """Scores of cases with every expert, from one LightGBM model.

    Parameters
    ----------
    booster
        A model in memory. Linear trees are refused.
    columns
        The position, or positions, of the features that belong to the expert.
    values
        What each expert has there: (experts,) or (experts, columns). A value that training never saw goes
        where LightGBM sends it. One row of no columns where no feature belongs to an expert.
    threads
        Threads to use; all cores by default.
    single
        Add up in single precision, which is enough to rank makers and nearly twice as fast: scores are then
        off by about 1e-7.
    """

    def __init__(
        self,
        booster: Boosted,
        columns: int | Sequence[int],
        values: ArrayLike,
        *,
        threads: int | None = None,
        single: bool = False,
    ) -> None:
        self._kind = np.dtype(np.float32 if single else np.float64)
        forest = read_forest(booster)
        self._booster = booster
        self.columns = tuple(int(column) for column in np.atleast_1d(columns))
        self.values = _expert_values(values, self.columns, forest.features)
        self.experts, self.classes = len(self.values), forest.classes
        self.threads = threads or os.cpu_count() or 1
        self._objective, self._divisor = forest.objective, forest.divisor
        self._features = [f for f in range(forest.features) if f not in self.columns]
        self._router = Router(forest, self._features)
        self._deep = max((tree.depth for tree in forest.trees), default=0) > _DEEPEST
        trees = () if self._deep else forest.trees
        self._shared, self._groups, self._members = _compile(
            replace(forest, trees=trees), self.columns, self.values
        )
        self._kept: tuple[tuple[Array, ...], ...] | None = None

    def raw(self, cases: ArrayLike, experts: ArrayLike | None = None) -> Array:
        """Raw scores, (cases, experts), or (cases, experts, K) for a K-class model.

        `cases` has the model's features in their order without the expert's columns; `experts` are positions
        in `values`, by default all.
        """
        matrix, chosen = self._checked(cases), self._chosen(experts)
        out = np.empty((len(matrix), len(chosen), self.classes), self._kind)
        self._fill(matrix, chosen, out)
        return out if self.classes > 1 else out[:, :, 0]

    def raw_rows(self, cases: ArrayLike, experts: ArrayLike) -> Array:
        """One class: raw scores of each case with experts of its own, (cases, m) as their positions."""
        matrix, chosen = self._checked(cases), np.asarray(experts, np.int64)
        self._chosen(chosen)
        tables = self._tables()
        if self._deep or tables is None:
            each = np.concatenate(
                [np.repeat(matrix, chosen.shape[1], axis=0), self.values[chosen.ravel()]], axis=1
            )
            order = np.argsort([*self._features, *self.columns])
            scores = self._booster.predict(each[:, order], raw_score=True, num_threads=1)
            return np.asarray(scores).reshape(chosen.shape)
        out = np.empty(chosen.shape)
        for start in range(0, len(matrix), ROWS):
            part = slice(start, start + ROWS)
            self._fill_rows(matrix[part], chosen[part], out[part], tables[0])
        return out

    def _fill_rows(
        self, matrix: Array, chosen: NDArray[np.int64], out: Array, tables: Sequence[Array]
    ) -> None:
        cases = self._router.route({feature: matrix[:, k] for k, feature in enumerate(self._features)})
        out[...] = _shared_scores(self._shared[0], cases, len(matrix))[:, None]
        for group, table in zip(self._groups[0], tables, strict=True):
            flat = table.ravel()
            for start, lookup in zip(group.starts.tolist(), group.lookups, strict=True):
                row = np.asarray(lookup.pick(cases), np.int64) + start
                out += flat.take(row[..., None] * self.experts + chosen)

    def probabilities(self, cases: ArrayLike, experts: ArrayLike | None = None) -> Array:
        """Probability of class 1 (two classes), or of each class (K), as `booster.predict` gives it."""
        name, *options = self._objective.split(" ")
        if name not in _PROBABILISTIC:
            raise ConfigError(f"objective {name or 'of the user'!r} has no probabilities; use raw scores")
        slope = next((float(text[8:]) for text in options if text.startswith("sigmoid:")), 1.0)
        out = self.raw(cases, experts)
        for start in range(0, len(out), ROWS):
            part = out[start : start + ROWS]
            part *= slope / self._divisor
            part[...] = softmax(part, axis=-1) if name == "multiclass" else expit(part)
        return out

    def iter_chunks(
        self, cases: ArrayLike, experts: ArrayLike | None = None, *, rows: int = ROWS
    ) -> Iterator[tuple[slice, Array]]:
        """Raw scores of `rows` cases at a time, for outputs that should not be held at once."""
        matrix = self._checked(cases)
        for start in range(0, len(matrix), rows):
            part = slice(start, min(start + rows, len(matrix)))
            yield part, self.raw(matrix[part], experts)

    def _checked(self, cases: ArrayLike) -> Array:
        matrix = np.asarray(cases)
        if not np.issubdtype(matrix.dtype, np.floating):
            matrix = matrix.astype(np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != len(self._features):
            raise DataError(
                f"cases: expected {len(self._features)} columns (the model's features without the expert's "
                f"{list(self.columns)}), got an array of shape {matrix.shape}"
            )
        return matrix

    def _chosen(self, experts: ArrayLike | None) -> NDArray[np.int64]:
        if experts is None:
            return np.arange(self.experts)
        chosen = np.asarray(experts, np.int64).reshape(-1)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < self.experts):
            raise DataError(f"experts: positions must lie in 0 .. {self.experts - 1}, got {chosen.tolist()}")
        return chosen

    def _fill(self, matrix: Array, chosen: NDArray[np.int64], out: Array) -> None:
        few = bool(self.columns) and out.shape[0] * out.shape[1] <= _FEW
        if self._deep or few:
            self._fill_by_lightgbm(matrix, chosen, out)
            return
        pieces = min(self.threads, max(len(matrix) // _PIECE, 1))
        rows = min(ROWS, -(-len(matrix) // pieces))
        parts = [slice(start, start + rows) for start in range(0, len(matrix), rows)]
        members = self._members[:, chosen]
        whole = np.array_equal(chosen, np.arange(self.experts))
        tables = self._tables() if whole else None
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(lambda part: self._fill_part(matrix[part], members, out[part], tables), parts):
                pass

    def _tables(self) -> tuple[tuple[Array, ...], ...] | None:
        """The tables of each class's groups for all experts, made once; None: too much memory."""
        rows = sum(len(group.values) for of_class in self._groups for group in of_class)
        if rows * self.experts > _KEPT_CELLS:
            return None
        if self._kept is None:
            members = self._members.astype(self._kind)
            self._kept = tuple(tuple(group.table(members) for group in groups) for groups in self._groups)
        return self._kept

    def _fill_part(
        self,
        matrix: Array,
        members: NDArray[np.bool_],
        out: Array,
        tables: tuple[tuple[Array, ...], ...] | None,
    ) -> None:
        columns = {feature: matrix[:, k] for k, feature in enumerate(self._features)}
        cases = self._router.route(columns)
        for class_ in range(self.classes):
            target = out[:, :, class_]
            target[...] = _shared_scores(self._shared[class_], cases, len(matrix))[:, None]
            for number, group in enumerate(self._groups[class_]):
                _add_group(group, cases, members, target, None if tables is None else tables[class_][number])

    def _fill_by_lightgbm(self, matrix: Array, chosen: NDArray[np.int64], out: Array) -> None:
        rows = max(_FEW // max(len(chosen), 1), 1)
        for start in range(0, len(matrix) if len(chosen) else 0, rows):
            part = matrix[start : start + rows]
            full = np.empty((len(part), len(chosen), len(self._features) + len(self.columns)))
            full[:, :, self._features] = part[:, None, :]
            full[:, :, list(self.columns)] = self.values[chosen]
            flat = full.reshape(-1, full.shape[-1])
            threads = self.threads if len(flat) > _ALONE else 1
            scores = self._booster.predict(flat, raw_score=True, num_threads=threads)
            out[start : start + rows] = np.asarray(scores).reshape(len(part), len(chosen), -1)


def _expert_values(values: ArrayLike, columns: tuple[int, ...], features: int) -> Array:
    if len(set(columns)) < len(columns) or not all(0 <= c < features for c in columns):
        raise ConfigError(f"expert columns {list(columns)}: need distinct positions in 0 .. {features - 1}")
    table = np.asarray(values, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] != len(columns) or not len(table):
        raise ConfigError(f"expert values: shape {table.shape}, expected at least one row of {len(columns)}")
    return table


def _compile(
    forest: Forest, columns: tuple[int, ...], values: Array
) -> tuple[list[list[_Numbers]], list[list[_Group]], NDArray[np.bool_]]:
    """For each class the slots shared by all experts and the groups of the others; who is in which region."""
    routes = Router(forest, columns).route({column: values[:, k] for k, column in enumerate(columns)})
    regions = Regions(len(values))
    slots = [build_slots(forest, k, set(columns), routes, regions) for k in range(forest.classes)]
    shared = [
        [_Numbers(slot.lookup, slot.values.sum(axis=1)) for slot in of_class if slot.shared]
        for of_class in slots
    ]
    groups = [_grouped([slot for slot in of_class if not slot.shared]) for of_class in slots]
    return shared, groups, regions.table()


def _grouped(slots: list[Slot]) -> list[_Group]:
    parts: list[list[Slot]] = []
    held = _TABLE_ROWS
    for slot in slots:
        if held + len(slot.values) > _TABLE_ROWS:
            parts.append([])
            held = 0
        parts[-1].append(slot)
        held += len(slot.values)
    return [_group(part) for part in parts]


def _group(slots: list[Slot]) -> _Group:
    width = max(slot.values.shape[1] for slot in slots)
    pad = [((0, 0), (0, width - slot.values.shape[1])) for slot in slots]
    sizes = [len(slot.values) for slot in slots]
    return _Group(
        lookups=tuple(slot.lookup for slot in slots),
        starts=np.cumsum([0, *sizes[:-1]], dtype=np.int32),
        values=np.vstack([np.pad(slot.values, p) for slot, p in zip(slots, pad, strict=True)]),
        regions=np.vstack([np.pad(slot.regions, p) for slot, p in zip(slots, pad, strict=True)]),
    )


def _shared_scores(slots: Sequence[_Numbers], cases: Routes, rows: int) -> Array:
    out = np.zeros(rows)
    for lookup, numbers in slots:
        out += numbers.take(np.asarray(lookup.pick(cases), np.intp))
    return out


def _add_group(
    group: _Group, cases: Routes, members: NDArray[np.bool_], out: Array, whole: Array | None = None
) -> None:
    """out[i, j] += the sum over slots of the row that case i picks, at expert j: a sparse product."""
    width = len(group.lookups)
    picked = np.empty((width, len(out)), np.min_scalar_type(max(lookup.size for lookup in group.lookups)))
    for position, lookup in enumerate(group.lookups):
        picked[position] = lookup.pick(cases)
    for first in range(0, out.shape[1], _TABLE_EXPERTS):
        experts = slice(first, first + _TABLE_EXPERTS)
        table = group.table(members[:, experts].astype(out.dtype)) if whole is None else whole[:, experts]
        if len(out) <= _SUMMED:  # SciPy takes longer to import than to do without
            total = np.zeros((len(out), table.shape[1]), out.dtype)  # in the order of a product's sums
            for start, rows in zip(group.starts, picked, strict=True):
                total += table[rows + start]
            out[:, experts] += total
        else:
            _add_products(group, picked, table, out[:, experts])


def _add_products(group: _Group, picked: NDArray[np.unsignedinteger], table: Array, out: Array) -> None:
    width = len(picked)
    ones = np.ones(_SUMMED * width, out.dtype)
    pointer = np.arange(0, (_SUMMED + 1) * width, width, dtype=np.int32)
    for start in range(0, len(out), _SUMMED):
        rows = (picked[:, start : start + _SUMMED].T + group.starts).ravel()
        count = len(rows) // width
        shape = count, len(table)
        matrix = scipy.sparse.csr_array((ones[: len(rows)], rows, pointer[: count + 1]), shape=shape)
        out[start : start + count] += np.asarray(matrix @ table)
