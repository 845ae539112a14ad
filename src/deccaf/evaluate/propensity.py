"""Who would have got a case: propensities of a history, estimated where they were not kept.

A multinomial logistic model of the expert given the features, fitted on other cases than it is used on. Where
it predicts no better than everybody's share of the work, history was random as far as the features tell, and
the shares are the propensities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deccaf.errors import DataError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FOLDS = 5
RARE = 0.02
"""A case that an expert gets less often than this says almost nothing about them."""


@dataclass(frozen=True, eq=False)
class Propensities:
    """Chances of the experts to get each case, and how far they can be trusted."""

    chance: Array
    """(cases, experts)."""
    random: bool
    """Whether the case said nothing about who got it."""
    gain: float
    """Held-out log-loss that the features save, against everybody's share of the work."""
    gain_error: float

    def of(self, expert: ArrayLike) -> Array:
        """The chance of the expert who did get each case."""
        codes = np.asarray(expert, np.int64)
        return np.asarray(self.chance[np.arange(len(codes)), codes])

    def notes(self) -> list[str]:
        """Warnings with numbers; none where history was random and everybody could get everything."""
        notes = []
        if not self.random:
            notes.append(
                f"history was not random: the features predict who got a case (held-out log-loss lower by "
                f"{self.gain:.4f}, standard error {self.gain_error:.4f}); what was not recorded but decided "
                "who got which case makes the estimates wrong"
            )
        rare = (self.chance < RARE).mean(axis=0)
        if rare.max() > 0:
            notes.append(
                f"little overlap: {rare.mean():.1%} of the pairs of case and expert have a chance below "
                f"{RARE:.0%} (for one expert {rare.max():.1%} of the cases); there the estimates rest on few"
            )
        return notes


def estimate_propensities(
    features: pd.DataFrame, expert: Ints, experts: int, seed: int = 0, group: ArrayLike | None = None
) -> Propensities:
    """Cross-fitted chances of every expert for every case (`expert` holds positions)."""
    if len(features) != len(expert) or len(expert) < 2 * FOLDS:
        raise DataError(f"propensities: {len(expert)} decisions for {len(features)} cases are too few")
    matrix = _matrix(features)
    units = np.arange(len(expert)) if group is None else pd.factorize(np.asarray(group))[0]
    fold = np.random.default_rng(seed).permutation(units.max() + 1)[units] % FOLDS
    model, share = np.empty((len(expert), experts)), np.empty((len(expert), experts))
    for k in range(FOLDS):
        out = fold == k
        share[out] = _shares(expert[~out], experts)
        model[out] = _fitted(matrix[~out], expert[~out], matrix[out], experts)
    rows = np.arange(len(expert))
    saved = np.log(model[rows, expert]) - np.log(share[rows, expert])
    gain, error = float(saved.mean()), float(saved.std() / np.sqrt(len(saved)))
    random = gain < 2 * error
    everyone = np.tile(_shares(expert, experts), (len(expert), 1))
    return Propensities(everyone if random else model, random, gain, error)


def given_propensities_notes(propensity: ArrayLike) -> list[str]:
    """What is to be said of propensities that came with the log."""
    chance = np.asarray(propensity, np.float64)
    low, high = float(chance.min()), float(chance.max())
    notes = []
    if high > 1.5 * low:
        notes.append(f"history was not random: propensities range from {low:.3f} to {high:.3f}")
    rare = chance < RARE
    if rare.any():
        notes.append(
            f"little overlap: {rare.mean():.1%} of the decisions had a propensity below {RARE:.0%}; each of "
            f"them counts as more than {1 / RARE:.0f} cases"
        )
    return notes


def _matrix(features: pd.DataFrame) -> Array:
    """Numbers with missing values at the median and flagged, and levels as columns."""
    blocks = []
    for name in features:
        values = features[name]
        if isinstance(values.dtype, pd.CategoricalDtype):
            blocks.append(pd.get_dummies(values, dtype=float).to_numpy())
            continue
        missing = values.isna()
        middle = 0.0 if missing.all() else float(values.median())
        blocks.append(values.fillna(middle).to_numpy(np.float64)[:, None])
        if missing.any():
            blocks.append(missing.to_numpy(np.float64)[:, None])
    return np.hstack(blocks)


def _shares(expert: Ints, experts: int) -> Array:
    counts = np.bincount(expert, minlength=experts) + 0.5
    return np.asarray(counts / counts.sum())


def _fitted(train: Array, expert: Ints, test: Array, experts: int) -> Array:
    """Chances on test rows; somebody absent from the training rows has half a decision's share."""
    out = np.tile(_shares(expert, experts), (len(test), 1))
    seen = np.unique(expert)
    if len(seen) < 2:
        return out
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    absent = out[:, np.setdiff1d(np.arange(experts), seen)].sum(axis=1, keepdims=True)
    out[:, seen] = model.fit(train, expert).predict_proba(test) * (1.0 - absent)
    return np.asarray(np.maximum(out, 1e-6))
