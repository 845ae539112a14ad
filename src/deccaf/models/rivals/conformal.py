"""Deferral by conformal prediction: Bary, Macq and Petit, *No Need for "Learning" to Defer? A Training Free
Deferral Framework to Multiple Experts through Conformal Prediction* (2025).

A classifier's conformal set holds the labels that cannot be excluded at a level. Where one label is left the
machine decides; else the expert does who tells the labels that are left apart best. As we read it, that is
the expert's mean share of right decisions over these labels, weighted by what errors on them cost.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from deccaf.models.rivals.annotated import Annotated, Array, Deferral, boosted

LEVEL = 0.1
_TIE = 1e-3
"""Experts differ by less than this: whether a case is deferred is for the conformal set alone to say."""


def conformal(known: Annotated, new: pd.DataFrame, seed: int = 0) -> Deferral:
    """The machine's loss is the p-value of its second label: above `LEVEL` more than one label is left."""
    rows = np.arange(len(known.truth))
    trees = boosted(known.features, rows, known.truth, known.weight, known.held, known.classes, seed)
    p = np.exp(trees.log_chances(new))
    calibration = known.held if known.held.any() else np.ones(len(rows), bool)
    chance = np.exp(trees.log_chances(known.features[calibration]))
    strange = 1.0 - chance[np.arange(len(chance)), known.truth[calibration]]
    values = p_values(strange, known.weight[calibration], 1.0 - p)
    left = values > LEVEL
    left |= np.eye(known.classes, dtype=bool)[p.argmax(axis=1)]
    skill = _skill(known)
    worth = left * _stakes(known)
    apart = worth @ skill.T / worth.sum(axis=1, keepdims=True)
    second = np.sort(values, axis=1)[:, -2]
    return Deferral(np.column_stack([second, LEVEL + _TIE * (1.0 - apart)]), p.argmax(axis=1))


def p_values(calibration: Array, weight: Array, new: Array) -> Array:
    """The weighted share of the calibration cases that are at least as strange, for every new score."""
    order = np.argsort(calibration)
    above = np.append(weight[order][::-1].cumsum()[::-1], 0.0) + weight.mean()
    place = np.searchsorted(calibration[order], new.ravel(), side="left")
    return np.asarray((above[place] / (weight.sum() + weight.mean())).reshape(new.shape))


def _skill(known: Annotated) -> Array:
    """(experts, K): share of right decisions by truth; one case of each kind is added, half of it right."""
    right = np.zeros((len(known.experts), known.classes))
    cases = np.zeros_like(right)
    seen = known.expert >= 0
    np.add.at(right, (known.expert[seen], known.truth[seen]), known.right[seen])
    np.add.at(cases, (known.expert[seen], known.truth[seen]), 1.0)
    return (right + 0.5) / (cases + 1.0)


def _stakes(known: Annotated) -> Array:
    """(K): what an error on a case of each truth costs on average, times how many there are."""
    return np.bincount(known.truth, known.weight, minlength=known.classes).astype(np.float64)
