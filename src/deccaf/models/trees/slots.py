"""A forest as a sum of lookups: for each slot, a case picks one row of a table with a column per expert.

A tree that never asks for the expert is one lookup of a number. At a split on the expert both sides count,
each for its own experts (a *region*), so the tree becomes several lookups, its *slots*; their rows are zero
outside their regions. Slots with few rows are multiplied out into one, which saves additions later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.models.trees.branches import Bools, Routes
from deccaf.models.trees.forest import Array, Forest, Tree

MOST_ROWS = 256
"""Rows up to which slots are multiplied out: their numbers fit a byte, and tables stay in the cache."""


@dataclass(slots=True)
class Leaf:
    """One row: `value` for the experts of a region, zero for the others."""

    value: float
    region: int
    size: int = 1
    first: int = 0


@dataclass(slots=True)
class Choice:
    """The rows of `left` for the cases that go left at a split, else those of `right`."""

    tree: int
    node: int
    left: Lookup
    right: Lookup
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.left.size + self.right.size


@dataclass(slots=True)
class Product:
    """Every row of `major` plus every row of `minor`."""

    major: Lookup
    minor: Lookup
    first: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.major.size * self.minor.size


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
    slots = [_finished(lookup) for lookup in [*_merged(shared), *_merged(own)]]
    return [*slots, *_constant_slots(constants)]


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


def _merged(slots: Sequence[Lookup]) -> list[Lookup]:
    """Multiply the smallest slots out as long as the result has few rows; largest first."""
    rising = sorted(slots, key=lambda slot: slot.size)
    out: list[Lookup] = []
    for slot in rising:
        if out and out[-1].size * slot.size <= max(MOST_ROWS, slot.size):
            slot = Product(slot, out.pop())
        out.append(slot)
    return sorted(out, key=lambda slot: -slot.size)


def _finished(lookup: Lookup) -> Slot:
    _number(lookup, 0)
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


def _number(lookup: Lookup, first: int) -> None:
    """Give every lookup the number of its first row; left rows come behind right ones, see `pick`."""
    if isinstance(lookup, Choice):
        _number(lookup.right, first)
        _number(lookup.left, first + lookup.right.size)
        return
    lookup.first = first
    if isinstance(lookup, Product):
        _number(lookup.major, 0)
        _number(lookup.minor, 0)


def pick(lookup: Lookup, cases: Routes) -> NDArray[np.unsignedinteger] | int:
    """The row of the slot's table that each case picks, or one number where all pick the same."""
    return _pick(lookup, cases, np.min_scalar_type(lookup.size - 1))


def _pick(lookup: Lookup, cases: Routes, kind: np.dtype[Any]) -> NDArray[np.unsignedinteger] | int:
    if isinstance(lookup, Leaf):
        return lookup.first
    if isinstance(lookup, Product):
        row = _pick(lookup.major, cases, kind) * lookup.minor.size
        return row + _pick(lookup.minor, cases, kind) + lookup.first
    left, right = _pick(lookup.left, cases, kind), _pick(lookup.right, cases, kind)
    goes = cases.left(lookup.tree, lookup.node)
    # Without a branch: right + goes * (left - right), which never wraps because left rows come behind.
    row = np.multiply(goes, left - right, dtype=kind)
    row += right
    return row
