"""Surrogate losses for learning to defer to several experts, with boosted trees.

- `softmax_surrogate`, `one_vs_all`: Verma, Barrejon and Nalisnick, *Learning to Defer to Multiple Experts:
  Consistent Surrogate Losses, Confidence Calibration, and Conformal Ensembles* (AISTATS 2023); the second is
  its calibrated form, after Verma and Nalisnick (ICML 2022).
- `two_stage`: Mao, Mohri, Mohri and Zhong, *Two-Stage Learning to Defer with Multiple Experts* (NeurIPS
  2023).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from deccaf.data.folds import fold_of
from deccaf.models.rivals.annotated import Annotated, Array, Deferral, Trees, boosted

_FOLDS = 3


def softmax_surrogate(known: Annotated, new: pd.DataFrame, seed: int = 0) -> Deferral:
    """-log s_y - sum over j of [j is right] log s_(K+j), with s a softmax over K classes and J experts.

    What minimises it has s_k = P(y = k) / (1 + sum of P(j is right)), and s_(K+j) = P(j is right) over the
    same, so that dividing by the sum over the classes gives both chances back.
    """
    many, classes = len(known.experts), known.classes
    right = np.flatnonzero(known.right)
    row = np.append(np.arange(len(known.truth)), right)
    target = np.append(known.truth, classes + known.expert[right])
    weight = np.append(known.weight, many * known.weight[right])
    trees = boosted(known.features, row, target, weight, known.held[row], classes + many, seed)
    chances = np.exp(trees.log_chances(new))
    whole = chances[:, :classes].sum(axis=1, keepdims=True)
    return _of_chances(chances[:, :classes] / whole, chances[:, classes:] / whole)


def one_vs_all(known: Annotated, new: pd.DataFrame, seed: int = 0) -> Deferral:
    """A logistic loss for each class, and one for each expert on what that expert decided.

    With trees nothing is shared between them, so each is a model of its own; the K of the classes are one.
    """
    p = np.exp(_classifier(known, seed).log_chances(new))
    correct = np.empty((len(new), len(known.experts)))
    for j in range(len(known.experts)):
        mine = np.flatnonzero(known.expert == j)
        if not (known.expert[~known.held] == j).any():  # nothing to learn from: as often right as the others
            seen = known.expert >= 0
            correct[:, j] = np.average(known.right[seen], weights=known.weight[seen])
            continue
        target = known.right[mine].astype(np.int64)
        trees = boosted(known.features, mine, target, known.weight[mine], known.held[mine], 2, seed)
        correct[:, j] = np.exp(trees.log_chances(new)[:, 1])
    return _of_chances(p, correct)


def two_stage(known: Annotated, new: pd.DataFrame, seed: int = 0) -> Deferral:
    """A classifier first; then, with it fixed, who: - sum over makers of [the maker is right] log r_maker.

    Whether the classifier is right on a case is taken from classifiers that have not learned from the case.
    The rejector gives chances of being right up to a factor; the classifier's own chance sets it.
    """
    many = len(known.experts)
    machine, right = np.flatnonzero(_right_unseen(known, seed)), np.flatnonzero(known.right)
    row = np.append(machine, right)
    target = np.append(np.zeros(len(machine), np.int64), 1 + known.expert[right])
    weight = np.append(known.weight[machine], many * known.weight[right])
    rejector = boosted(known.features, row, target, weight, known.held[row], 1 + many, seed)
    p = np.exp(_classifier(known, seed).log_chances(new))
    odds = rejector.log_chances(new)
    return _of_chances(p, np.exp(odds[:, 1:] - odds[:, :1]) * p.max(axis=1, keepdims=True))


def _classifier(known: Annotated, seed: int) -> Trees:
    rows = np.arange(len(known.truth))
    return boosted(known.features, rows, known.truth, known.weight, known.held, known.classes, seed)


def _right_unseen(known: Annotated, seed: int) -> Array:
    """Whether the classifier is right on each case, by one that has not learned from it."""
    fold = np.where(known.held, _FOLDS, fold_of(len(known.truth), _FOLDS, seed=seed))
    said = np.empty(len(known.truth), np.int64)
    for part in range(_FOLDS + 1):
        rows, here = np.flatnonzero((fold != part) & ~known.held), fold == part
        if here.any():
            none = np.zeros(len(rows), bool)
            trees = boosted(
                known.features, rows, known.truth[rows], known.weight[rows], none, known.classes, seed
            )
            said[here] = trees.log_chances(known.features[here]).argmax(axis=1)
    return np.asarray(said == known.truth)


def _of_chances(p: Array, correct: Array) -> Deferral:
    """The loss of a maker is one less the chance that it is right; estimates above 1 are left as they are."""
    return Deferral(np.hstack([1.0 - p.max(axis=1, keepdims=True), 1.0 - correct]), p.argmax(axis=1))
