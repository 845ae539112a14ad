"""Trees from a model file, scored without LightGBM, which takes a second to import.

A few rows are walked through all trees at once, with the numbers of `lightgbm.Booster.predict` to the last
bit: the same comparisons, and leaves added up in the order of the trees. So LightGBM is asked only where it
is quicker, or where it alone can answer (contributions of features).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deccaf.models.trees.forest import (
    CATEGORICAL,
    DEFAULT_LEFT,
    NAN_MISSING,
    ZERO,
    ZERO_MISSING,
    Array,
    Forest,
    Ints,
    read_forest,
)

Bools = NDArray[np.bool_]
WALKED = 4_000_000
"""Rows x trees that a process walks; beyond that, importing LightGBM takes less time."""
_AT_ONCE = 500_000


def expect_many() -> None:
    """For a process that will score again and again: LightGBM is imported now, and not in mid-work."""
    import lightgbm  # noqa: F401


class StoredTrees:
    """A boosted model as its text, which must be checked before (`text_check`)."""

    walked: ClassVar[int] = 0
    """Rows x trees so far, of all models."""

    def __init__(self, text: str) -> None:
        self._text = text

    def model_to_string(self) -> str:
        """The text."""
        return self._text

    def num_trees(self) -> int:
        """How many trees there are."""
        return len(self._walk.roots)

    def predict(
        self, data: Array, *, raw_score: bool = False, pred_contrib: bool = False, num_threads: int = 1
    ) -> Any:
        """As `lightgbm.Booster.predict`: raw scores, (rows,) or (rows, K), or contributions of features."""
        if raw_score and "lightgbm" not in sys.modules:
            StoredTrees.walked += len(data) * self.num_trees()
            if StoredTrees.walked <= WALKED:
                return self._raw(np.asarray(data, np.float64))
        options = {"raw_score": raw_score, "pred_contrib": pred_contrib, "num_threads": num_threads}
        return self._booster.predict(data, **options)

    @cached_property
    def _booster(self) -> Any:
        import lightgbm as lgb

        return lgb.Booster(model_str=self._text)

    @cached_property
    def _forest(self) -> Forest:
        return read_forest(self)

    @cached_property
    def _walk(self) -> _Walk:
        return _Walk.of(self._forest)

    def _raw(self, matrix: Array) -> Array:
        trees, classes = self.num_trees(), self._forest.classes
        out = np.zeros((len(matrix), classes))
        rows = max(1, _AT_ONCE // max(trees, 1))
        for start in range(0, len(matrix) if trees else 0, rows):
            part = self._walk.leaves(matrix[start : start + rows])
            # one after the other, as LightGBM adds them up
            out[start : start + rows] = part.reshape(len(part), -1, classes).cumsum(axis=1)[:, -1]
        return out if classes > 1 else out[:, 0]


class _Walk(NamedTuple):
    """The nodes of all trees, one after the other; a child below zero is the leaf ~child."""

    roots: Ints
    feature: Ints
    threshold: Array
    category: Bools
    missing: Ints
    default_left: Bools
    left: Ints
    right: Ints
    value: Array
    set_of: Ints
    """For categorical splits, which set of categories goes left."""
    first: Ints
    """Where each set starts in `members`."""
    length: Ints
    members: Bools

    @classmethod
    def of(cls, forest: Forest) -> _Walk:
        """All trees of a forest."""
        splits = [tree.splits for tree in forest.trees]
        nodes = _starts([len(each.feature) for each in splits])
        leaves = _starts([len(tree.value) for tree in forest.trees])
        sets = _starts([len(each.members) for each in splits])
        members = [table for each in splits for table in each.members]
        decision = _joined([each.decision for each in splits], np.int64)
        category = (decision & CATEGORICAL) > 0
        threshold = _joined([each.threshold for each in splits], np.float64)
        owner = np.repeat(np.arange(len(splits)), [len(each.feature) for each in splits])
        set_of = np.where(category, np.where(category, threshold, 0.0).astype(np.int64) + sets[owner], 0)

        def placed(side: str) -> Ints:
            child = _joined([getattr(each, side) for each in splits], np.int64)
            return np.where(child < 0, child - leaves[owner], child + nodes[owner])

        empty = np.array([not len(each.feature) for each in splits], np.bool_)
        return cls(
            roots=np.where(empty, ~leaves[:-1], nodes[:-1]),
            feature=_joined([each.feature for each in splits], np.int64),
            threshold=threshold,
            category=category,
            missing=(decision >> 2) & 3,
            default_left=(decision & DEFAULT_LEFT) > 0,
            left=placed("left"),
            right=placed("right"),
            value=_joined([tree.value for tree in forest.trees], np.float64),
            set_of=set_of,
            first=_starts([len(table) for table in members])[:-1],
            length=np.array([len(table) for table in members], np.int64),
            members=_joined(members, np.bool_),
        )

    def leaves(self, matrix: Array) -> Array:
        """(rows, trees): the value of the leaf that each row ends in."""
        plain = np.where(np.abs(matrix) <= ZERO, 0.0, matrix)
        node = np.tile(self.roots, len(matrix))
        row = np.repeat(np.arange(len(matrix)), len(self.roots))
        walking = np.flatnonzero(node >= 0)
        while len(walking):
            at = node[walking]
            goes_left = self._goes_left(at, plain[row[walking], self.feature[at]])
            step = np.where(goes_left, self.left[at], self.right[at])
            node[walking] = step
            walking = walking[step >= 0]
        return self.value[~node].reshape(len(matrix), len(self.roots))

    def _goes_left(self, at: Ints, value: Array) -> Bools:
        missing, unknown = self.missing[at], np.isnan(value)
        number = np.where(unknown, 0.0, value)
        lost = ((missing == ZERO_MISSING) & (number == 0.0)) | ((missing == NAN_MISSING) & unknown)
        left = np.where(lost, self.default_left[at], number <= self.threshold[at])
        named = np.flatnonzero(self.category[at])
        if len(named):
            left[named] = self._is_member(self.set_of[at[named]], value[named])
        return left

    def _is_member(self, group: Ints, value: Array) -> Bools:
        """Whether categories belong to sets; missing, negative and unknown ones do not."""
        known = (value > -1.0) & (value < self.length[group])
        place = np.where(known, value, 0.0).astype(np.int64) + self.first[group]
        found: Bools = known & self.members[np.minimum(place, len(self.members) - 1)]
        return found


def _starts(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _joined(parts: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(parts).astype(kind) if len(parts) else np.zeros(0, kind)
