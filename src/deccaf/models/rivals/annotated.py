"""What the rivals learn from and what they say: cases with one person's decision each, and losses of makers.

Their papers suppose that everybody decided every past case. Here one person did, drawn by lot, so in a sum
over people the one term that is known counts for all of them (times their number): the mean of that is the
sum. Everything is weighted by what an error on the case costs, as the paper's own baselines are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.linear.encoding import TreeEncoder
from deccaf.models.trees import boosting
from deccaf.models.trees.forest import Boosted

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"max_depth": 2, "num_leaves": 4, "learning_rate": 0.1, "min_child_samples": 40},
    {"max_depth": 4, "num_leaves": 12, "learning_rate": 0.05, "min_child_samples": 100},
)
_ROUNDS, _PATIENCE = 300, 25


@dataclass(frozen=True, eq=False)
class Annotated:
    """Past cases, their truth, and one person's decision on each."""

    features: pd.DataFrame
    truth: Ints
    expert: Ints
    """Position in `experts`; -1: nobody decided the case."""
    decision: Ints
    weight: Array
    """What an error on the case costs."""
    held: Mask
    """Cases that choose between settings and are not learned from."""
    experts: tuple[str, ...]
    classes: int = 2

    @property
    def right(self) -> Mask:
        """Whether whoever decided the case was right."""
        return np.asarray((self.expert >= 0) & (self.decision == self.truth))


@dataclass(frozen=True, eq=False)
class Deferral:
    """What a rival makes of new cases."""

    loss: Array
    """(cases, 1 + experts): the machine first; the rival itself would take the least of a row."""
    says: Ints
    """What its classifier decides."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted trees for P(target = k), with the encoding of the features."""

    encoder: TreeEncoder
    booster: Boosted
    classes: int

    def log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K)."""
        return boosting.log_chances(self.booster, self.encoder.transform(features), self.classes)


def boosted(
    features: pd.DataFrame, row: Ints, target: Ints, weight: Array, held: Mask, classes: int, seed: int = 0
) -> Trees:
    """Trees for weighted rows; `row` is the case of each. Held rows choose the settings and the rounds."""
    encoder = TreeEncoder().fit(features)
    matrix = encoder.transform(features)
    rows = boosting.TrainingRows(
        matrix[row[~held]],
        target[~held],
        classes=classes,
        categorical=encoder.categorical,
        weight=weight[~held],
        seed=seed,
    )
    if not held.any():
        return Trees(encoder, rows.train({**_SETTINGS[0], "n_estimators": 100}), classes)
    later = (matrix[row[held]], target[held], weight[held])
    found = []
    for params in _SETTINGS:
        wanted = {**params, "n_estimators": _ROUNDS}
        booster = rows.train(wanted, validation=later, patience=_PATIENCE)
        rounds = {**params, "n_estimators": boosting.rounds_of(booster)}
        best = rows.train(rounds)  # without the rounds that were of no use
        log_p = boosting.log_chances(best, later[0], classes)
        found.append((boosting.weighted_log_loss(log_p, later[1], later[2]), best))
    return Trees(encoder, min(found, key=lambda pair: pair[0])[1], classes)
