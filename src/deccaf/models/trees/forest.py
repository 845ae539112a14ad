"""A LightGBM model as plain arrays, read from the text of a booster that is already in memory.

Only for boosters that LightGBM itself wrote: text from a file is checked first (`text_check`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deccaf.errors import ConfigError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CATEGORICAL, DEFAULT_LEFT = 1, 2
NO_MISSING, ZERO_MISSING, NAN_MISSING = 0, 1, 2
ZERO = 1e-35
"""LightGBM takes anything closer to zero than this for zero."""


@dataclass(frozen=True)
class Splits:
    """Inner nodes of trees, one entry each; a child below zero is the leaf ~child."""

    feature: Ints
    threshold: Array
    decision: Ints
    """Bits: 1 categorical, 2 missing goes left, then two bits for what counts as missing."""
    left: Ints
    right: Ints
    members: tuple[NDArray[np.bool_], ...]
    """For categorical splits, at position `threshold`: whether each category goes left."""

    def missing(self, node: int) -> int:
        """What counts as missing: nothing, zero, or NaN."""
        return int(self.decision[node] >> 2) & 3


@dataclass(frozen=True)
class Tree:
    """One tree; without splits it is the constant `value[0]`."""

    splits: Splits
    value: Array

    @property
    def depth(self) -> int:
        """Splits on the longest way to a leaf."""
        depth, nodes = 0, [0] if len(self.splits.feature) else []
        while nodes:
            children = [int(side[node]) for node in nodes for side in (self.splits.left, self.splits.right)]
            depth, nodes = depth + 1, [child for child in children if child >= 0]
        return depth


@dataclass(frozen=True)
class Forest:
    """All trees of a model; tree t adds to the raw score of class t modulo `classes`."""

    trees: tuple[Tree, ...]
    features: int
    classes: int
    objective: str
    divisor: int = 1
    """What a random forest divides its raw scores by before they become probabilities."""


class Boosted(Protocol):
    """A LightGBM booster, or `stored_trees.StoredTrees`, which is one without LightGBM."""

    def model_to_string(self) -> str:
        """The model as text, up to its best iteration, if it has one."""

    def num_trees(self) -> int:
        """How many trees it has."""

    def predict(
        self, data: Array, *, raw_score: bool = False, pred_contrib: bool = False, num_threads: int = 1
    ) -> Any:
        """Raw scores of rows, or what each feature contributed to them."""


def read_forest(booster: Boosted) -> Forest:
    """The trees that `booster.predict` would use (up to its best iteration, if it has one)."""
    head, *parts = booster.model_to_string().split("\nTree=")
    fields = _fields(head)
    classes = int(fields["num_tree_per_iteration"])
    averaged = "average_output" in head.splitlines()
    return Forest(
        trees=tuple(_tree(_fields(part.split("\n\n", 1)[0])) for part in parts),
        features=int(fields["max_feature_idx"]) + 1,
        classes=classes,
        objective=fields.get("objective", ""),
        divisor=max(len(parts) // classes, 1) if averaged else 1,
    )


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def _tree(fields: dict[str, str]) -> Tree:
    if int(fields.get("is_linear", 0)):
        raise ConfigError("models with linear trees cannot be scored for all experts; set linear_tree=false")
    value = np.array(fields["leaf_value"].split(), np.float64)
    splits = Splits(
        feature=_ints(fields, "split_feature"),
        threshold=np.array(fields.get("threshold", "").split(), np.float64),
        decision=_ints(fields, "decision_type"),
        left=_ints(fields, "left_child"),
        right=_ints(fields, "right_child"),
        members=_members(fields),
    )
    return Tree(splits, value)


def _ints(fields: dict[str, str], name: str) -> Ints:
    return np.array(fields.get(name, "").split(), np.int64)


def _members(fields: dict[str, str]) -> tuple[NDArray[np.bool_], ...]:
    """Bit c of a split's words says that category c goes left."""
    if not int(fields.get("num_cat", 0)):
        return ()
    bounds = _ints(fields, "cat_boundaries")
    words = np.array(fields["cat_threshold"].split(), np.uint32).astype("<u4")
    return tuple(
        np.unpackbits(words[start:stop].view(np.uint8), bitorder="little").astype(np.bool_)
        for start, stop in pairwise(bounds)
    )
