"""A forest as a sum of lookups: for each slot, a case picks one row of a table with a column per expert.

A tree that never asks for the expert is one lookup of a number. At a split on the expert both sides count,
each for its own experts (a *region*), so the tree becomes several lookups, its *slots*; their rows are zero
outside their regions. Slots with few rows are multiplied out into one, which saves additions later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.models.trees.branches import Bools, Routes
from deccaf.models.trees.forest import Array, Forest, Tree

Row = NDArray[np.unsignedinteger] | int
"""The row that each case picks, or 0 where all pick the only one."""
MOST_ROWS = 256
"""Rows up to which slots are multiplied out: their numbers fit a byte, and tables stay in the cache."""
MOST_NUMBERS = 4_096
"""The same where a row is one number, as all experts have the same."""


@dataclass(slots=True)
class Leaf:
    """One row: `value` for the experts of a region, zero for the others."""

    value: float
    region: int
    size: int = 1

    def pick(self, cases: Routes) -> Row:
        """The only row."""
        del cases
        return 0

    def numbers(self) -> Array:
        """The rows, where all experts have the same."""
        return np.array([self.value])


@dataclass(slots=True)
class Choice:
    """The rows of `right`, and behind them those of `left`, for the cases that go left at a split."""

    tree: int
    node: int
    left: Lookup
    right: Lookup
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.left.size + self.right.size

    def pick(self, cases: Routes) -> Row:
        """right + goes * (left - right), without a branch; numbers may wrap on the way, and come back."""
        goes, left, right = cases.left(self.tree, self.node), self.left.pick(cases), self.right.pick(cases)
        first, kind = self.right.size, _kind(self.size)
        if isinstance(right, int):
            if isinstance(left, int):
                return goes if first == 1 else np.multiply(goes, first, dtype=kind)
            step = np.add(left, first, dtype=kind)
            step *= goes
            return step
        step = np.subtract(first, right, dtype=kind)
        step += left
        step *= goes
        step += right
        return step

    def numbers(self) -> Array:
        """The rows, where all experts have the same."""
        return np.concatenate([self.right.numbers(), self.left.numbers()])


@dataclass(slots=True)
class Product:
    """Every row of `major` plus every row of `minor`."""

    major: Lookup
    minor: Lookup
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.major.size * self.minor.size

    def pick(self, cases: Routes) -> Row:
        """A row of each."""
        major, minor = self.major.pick(cases), self.minor.pick(cases)
        if isinstance(major, int):
            return minor
        row = np.multiply(major, self.minor.size, dtype=_kind(self.size))
        row += minor
        return row

    def numbers(self) -> Array:
        """The rows, where all experts have the same."""
        return np.add.outer(self.major.numbers(), self.minor.numbers()).ravel()


@cache
def _kind(size: int) -> np.dtype[Any]:
    return np.min_scalar_type(size - 1)


Lookup = Leaf | Choice | Product


@dataclass(frozen=True)
class Slot:
    """One lookup, and its table as sums: row r is sum over c of values[r, c] in regions[r, c]."""

    lookup: Lookup
    values: Array
    regions: NDArray[np.int32]

    @property
    def shared(self) -> bool:
        """Whether all experts have the same row: then it is a number."""
        return not self.regions.any()


class Regions:
    """Sets of experts by number; 0 is everyone."""

    def __init__(self, experts: int) -> None:
        self.everyone: Bools = np.ones(experts, np.bool_)
        self._masks = [self.everyone]
        self._known = {self.everyone.tobytes(): 0}

    def number(self, mask: Bools) -> int:
        """The number of a set, new or not."""
        number = self._known.setdefault(mask.tobytes(), len(self._masks))
        if number == len(self._masks):
            self._masks.append(mask)
        return number

    def table(self) -> Bools:
        """Region x expert: who belongs to which."""
        return np.array(self._masks)


def build_slots(
    forest: Forest, class_: int, columns: set[int], experts: Routes, regions: Regions
) -> list[Slot]:
    """The slots of one class's trees; `experts` says where each expert goes at the splits on `columns`."""
    constants: list[Leaf] = []
    shared: list[Lookup] = []
    own: list[Lookup] = []
    for number in range(class_, len(forest.trees), forest.classes):
        tree = forest.trees[number]
        asked = not columns.isdisjoint(tree.splits.feature.tolist())
        root = 0 if len(tree.splits.feature) else -1
        for slot in _grow(tree, number, root, columns, experts, regions.everyone, regions):
            if slot.size == 1:
                constants += _leaves(slot)
            else:
                (own if asked else shared).append(slot)
    slots = [_of_numbers(lookup) for lookup in _merged(shared, MOST_NUMBERS)]
    return [*slots, *(_finished(lookup) for lookup in _merged(own)), *_constant_slots(constants)]


def _leaves(lookup: Lookup) -> list[Leaf]:
    """The leaves of a lookup of one row, which has no choices."""
    if isinstance(lookup, Product):
        return _leaves(lookup.major) + _leaves(lookup.minor)
    assert isinstance(lookup, Leaf)
    return [lookup]


def _constant_slots(leaves: list[Leaf]) -> list[Slot]:
    """One row that every case picks, or none: what does not depend on the case, summed by region."""
    sums: dict[int, float] = {}
    for leaf in leaves:
        sums[leaf.region] = sums.get(leaf.region, 0.0) + leaf.value
    if not sums:
        return []
    return [Slot(Leaf(0.0, 0), np.array([list(sums.values())]), np.array([list(sums)], np.int32))]


def _grow(
    tree: Tree, number: int, node: int, columns: set[int], experts: Routes, here: Bools, regions: Regions
) -> list[Lookup]:
    """The slots of a subtree for the experts `here`, largest first."""
    splits = tree.splits
    if node < 0:
        return [Leaf(float(tree.value[~node]), regions.number(here))]
    left, right = int(splits.left[node]), int(splits.right[node])
    if int(splits.feature[node]) in columns:
        goes = experts.left(number, node).view(np.bool_)
        sides = [(child, mask) for child, mask in ((left, here & goes), (right, here & ~goes)) if mask.any()]
        grown = [
            slot
            for child, mask in sides
            for slot in _grow(tree, number, child, columns, experts, mask, regions)
        ]
        return _merged(grown)
    first = _grow(tree, number, left, columns, experts, here, regions)
    second = _grow(tree, number, right, columns, experts, here, regions)
    width = max(len(first), len(second))
    return [
        Choice(number, node, a, b) for a, b in zip(_padded(first, width), _padded(second, width), strict=True)
    ]


def _padded(slots: list[Lookup], width: int) -> list[Lookup]:
    return [*slots, *(Leaf(0.0, 0) for _ in range(width - len(slots)))]


def _merged(slots: Sequence[Lookup], most: int = MOST_ROWS) -> list[Lookup]:
    """Multiply the smallest slots out as long as the result has few rows; largest first."""
    rising = sorted(slots, key=lambda slot: slot.size)
    out: list[Lookup] = []
    for slot in rising:
        if out and out[-1].size * slot.size <= max(most, slot.size):
            slot = Product(slot, out.pop())
        out.append(slot)
    return sorted(out, key=lambda slot: -slot.size)


def _of_numbers(lookup: Lookup) -> Slot:
    """A slot whose rows are numbers."""
    values = lookup.numbers()[:, None]
    return Slot(lookup, values, np.zeros(values.shape, np.int32))


def _finished(lookup: Lookup) -> Slot:
    rows = _rows(lookup)
    width = max(map(len, rows))
    values, regions = np.zeros((len(rows), width)), np.zeros((len(rows), width), np.int32)
    filled = np.arange(width) < np.array([len(row) for row in rows])[:, None]
    values[filled] = [value for row in rows for value, _ in row]
    regions[filled] = [region for row in rows for _, region in row]
    return Slot(lookup, values, regions)


def _rows(lookup: Lookup) -> list[tuple[tuple[float, int], ...]]:
    """The rows in order, each a tuple of (value, region); zeros are left out."""
    if isinstance(lookup, Leaf):
        return [((lookup.value, lookup.region),) if lookup.value else ()]
    if isinstance(lookup, Choice):
        return _rows(lookup.right) + _rows(lookup.left)
    minor = _rows(lookup.minor)
    return [a + b for a in _rows(lookup.major) for b in minor]
