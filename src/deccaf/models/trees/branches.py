"""Which way cases go at the splits of a forest, for many cases at once.

A number is replaced by its position among the forest's thresholds on that feature, one byte in general, so a
split is one vectorised comparison of bytes. What LightGBM does with missing values is put into the positions:
a missing value is before the first threshold where it goes left, behind the last where it goes right. A
category is replaced by a number with one bit of its own, so that a split on few categories is a mask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deccaf.models.positions import Positions
from deccaf.models.trees.forest import (
    CATEGORICAL,
    DEFAULT_LEFT,
    NAN_MISSING,
    NO_MISSING,
    ZERO,
    ZERO_MISSING,
    Array,
    Forest,
    Splits,
)

Bools = NDArray[np.bool_]
Mask = NDArray[np.uint8]
_BITS = 64
"""Categories up to which each has a bit."""
Key = tuple[int, int, bool]
"""A feature with a way to treat what is missing: (feature, what is missing, missing goes left)."""


class Cut(NamedTuple):
    """Numbers at or before a position go left."""

    key: Key
    position: int


class Members(NamedTuple):
    """Categories go left where the table says so."""

    feature: int
    table: Bools
    mask: int
    """The same as bits."""


class Router:
    """All splits of a forest, prepared once; `route` then asks them about cases."""

    def __init__(self, forest: Forest, wanted: Iterable[int]) -> None:
        features = set(wanted)
        self.thresholds = _thresholds(forest, features)
        self.rules: list[list[Cut | Members | None]] = [
            [self._rule(tree.splits, node, features) for node in range(len(tree.splits.feature))]
            for tree in forest.trees
        ]
        self.positions = {feature: Positions(edges) for feature, edges in self.thresholds.items()}
        self.keys: set[Key] = set()
        self.categories: dict[int, int] = {}
        """For each categorical feature, the number of categories that splits know."""
        for rule in (rule for rules in self.rules for rule in rules):
            if isinstance(rule, Cut):
                self.keys.add(rule.key)
            elif isinstance(rule, Members):
                known = self.categories.get(rule.feature, 0)
                self.categories[rule.feature] = max(len(rule.table), known)

    def _rule(self, splits: Splits, node: int, features: set[int]) -> Cut | Members | None:
        feature = int(splits.feature[node])
        if feature not in features:
            return None
        decision, threshold = int(splits.decision[node]), splits.threshold[node]
        if decision & CATEGORICAL:
            table = np.trim_zeros(splits.members[int(threshold)], "b")
            bits = np.packbits(table, bitorder="little").tobytes()
            return Members(feature, table, int.from_bytes(bits, "little"))
        missing = splits.missing(node)
        key = (feature, missing, missing != NO_MISSING and bool(decision & DEFAULT_LEFT))
        return Cut(key, int(np.searchsorted(self.thresholds[feature], threshold)))

    def route(self, columns: dict[int, Array]) -> Routes:
        """Prepare cases, given as one array per feature, for `Routes.left`."""
        return Routes(self, columns)


class Routes:
    """Cases at the splits of a router's forest."""

    def __init__(self, router: Router, columns: dict[int, Array]) -> None:
        self._rules = router.rules
        self._positions: dict[Key, NDArray[np.unsignedinteger]] = {}
        for feature in sorted({key[0] for key in router.keys}):
            keys = [key for key in router.keys if key[0] == feature]
            self._positions |= _positions(columns[feature], router.positions[feature], keys)
        self._bits: dict[int, NDArray[np.unsignedinteger]] = {}
        self._codes: dict[int, NDArray[np.intp]] = {}
        self._tables: dict[int, Bools] = {}
        for feature, levels in router.categories.items():
            codes = _codes(columns[feature], levels)
            if levels <= _BITS:
                self._bits[feature] = _bits(levels)[codes]
            else:
                self._codes[feature], self._tables[feature] = codes, np.zeros(levels + 1, np.bool_)

    def left(self, tree: int, node: int) -> Mask:
        """1 for the cases that go left at a node, 0 for the others."""
        rule = self._rules[tree][node]
        if isinstance(rule, Cut):
            left: Mask = np.less_equal(self._positions[rule.key], rule.position).view(np.uint8)
            return left
        assert rule is not None
        if rule.feature in self._bits:
            member: Mask = np.not_equal(self._bits[rule.feature] & rule.mask, 0).view(np.uint8)
            return member
        table = self._tables[rule.feature]
        table[:] = False
        table[: len(rule.table)] = rule.table
        return np.take(table, self._codes[rule.feature], mode="clip").view(np.uint8)


def _thresholds(forest: Forest, features: set[int]) -> dict[int, Array]:
    found: dict[int, list[Array]] = {feature: [] for feature in features}
    for tree in forest.trees:
        splits = tree.splits
        numeric = (splits.decision & CATEGORICAL) == 0
        for feature in set(splits.feature[numeric].tolist()) & features:
            found[feature].append(splits.threshold[numeric & (splits.feature == feature)])
    return {feature: np.unique(np.concatenate(parts)) for feature, parts in found.items() if parts}


def _positions(
    column: Array, thresholds: Positions, keys: Iterable[Key]
) -> dict[Key, NDArray[np.unsignedinteger]]:
    """x <= edges[k] exactly where the position of x is at most k, whatever counts as missing."""
    column = np.ascontiguousarray(column, np.float64)
    nan = np.isnan(column)
    plain = np.where(nan | (np.abs(column) <= ZERO), 0.0, column)
    last = len(thresholds.edges)
    found = thresholds.of(plain).astype(np.min_scalar_type(last))
    missing = {NO_MISSING: None, ZERO_MISSING: plain == 0.0, NAN_MISSING: nan}
    out = {}
    for key in keys:
        where = missing[key[1]]
        out[key] = found if where is None else np.where(where, found.dtype.type(0 if key[2] else last), found)
    return out


def _bits(levels: int) -> NDArray[np.unsignedinteger]:
    """A bit for each category, and none for whatever is not known."""
    kind = np.min_scalar_type((1 << levels) - 1)
    return np.array([*(1 << code for code in range(levels)), 0], kind)


def _codes(column: Array, levels: int) -> NDArray[np.intp]:
    """Category codes, with `levels` for whatever is missing, negative or not known to any split."""
    known = (column > -1.0) & (column < levels)
    return np.where(known, column, levels).astype(np.intp)
