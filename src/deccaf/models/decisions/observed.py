"""What a few decisions tell about somebody, without fitting anything again.

The model of the team stays as it is. Beside it everybody who was observed has a shift of the log-odds,

    log-odds of person j  =  log-odds of the blend for j  +  shift_j . z,      z = columns of case and truth

with the columns of the pooled logistic part. Before any decision the shift of a newcomer is normal around 0
with the spread in which that part found people to differ, and somebody known has the spread of their own
coefficients. Decisions move it to its posterior mode (Newton), and the curvature there gives its new spread
(Laplace), with which the next decisions begin. This takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from deccaf.data.log_odds import log_expit, log_softmax, softmax

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEPS = 50
_LEANING = 0.5
"""Variance of a newcomer's log-odds given each truth, where no part of the blend knows how people differ."""


class Columns(Protocol):
    """The columns that shifts are made of, and how far people differ in them before they are observed."""

    def design(self, features: pd.DataFrame, truth: Ints) -> Array:
        """(rows, columns) for rows of case and truth."""

    def spread(self, expert: int) -> Array:
        """Covariance of somebody's coefficients, contrast by contrast."""

    @property
    def of_right(self) -> bool:
        """Whether a shift is of the log-odds of being right, and not of each class against the first."""


class Leaning(Columns):
    """One column per truth."""

    of_right = False

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def design(self, features: pd.DataFrame, truth: Ints) -> Array:
        """An indicator of the truth."""
        del features
        return np.asarray(np.eye(self.classes)[truth])

    def spread(self, expert: int) -> Array:
        """The same for everybody."""
        del expert
        return np.asarray(_LEANING * np.eye(self.classes * (self.classes - 1)))


@dataclass(frozen=True, eq=False)
class Shift:
    """What is known of one person beside the model."""

    mean: Array
    """(columns, contrasts)."""
    covariance: Array
    """Square over the same coefficients, contrast by contrast."""
    decisions: int = 0

    @classmethod
    def before(cls, spread: Array, columns: int) -> Shift:
        """Somebody who was not observed yet."""
        return cls(np.zeros((columns, len(spread) // columns)), spread)

    def after(self, base: Array, design: Array, told: Array, weight: Array) -> Shift:
        """With more decisions: `base` are (rows, contrasts + 1) log-chances without any shift.

        `told` are (rows, contrasts + 1) indicators of what was decided.
        """
        contrasts, flat = self.mean.shape[1], self.mean.T.ravel()
        adds = wide(design, contrasts)
        precision = _inverse(self.covariance)
        at, hessian = flat.copy(), precision
        value = _objective(at, flat, precision, base, adds, told, weight)
        for _ in range(_STEPS):
            chance = softmax(_moved(base, adds, at), axis=1)
            error = weight[:, None] * (told - chance)[:, 1:]
            gradient = np.einsum("rkc,rk->c", adds, error) - precision @ (at - flat)
            hessian = precision + _information(adds, chance[:, 1:], weight)
            step, length = scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), gradient), 1.0
            while length > 1e-4:
                after = _objective(at + length * step, flat, precision, base, adds, told, weight)
                if after <= value:
                    break
                length /= 2
            else:
                break
            at, value = at + length * step, after
            if gradient @ step < 1e-8:
                break
        mean = at.reshape(contrasts, -1).T
        return Shift(mean, _inverse(hessian), self.decisions + len(design))

    def to_dict(self) -> dict[str, Any]:
        """For a file."""
        return {"mean": self.mean, "covariance": self.covariance, "decisions": self.decisions}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Shift:
        """Rebuild what `to_dict` gave."""
        return cls(np.asarray(data["mean"]), np.asarray(data["covariance"]), int(data["decisions"]))


def shifted(log_q: Array, shift: Shift, design: Array, truth: Ints, of_right: bool) -> Array:
    """(rows, K) log-chances with a shift, on average over what is not known of it.

    Costs are linear in chances, so the mean counts and not the chance at the mode: log-odds shrink by
    sqrt(1 + pi / 8 variance) (MacKay 1992), here those of the greatest variance.
    """
    moved = design @ shift.mean
    spread = np.einsum("rkk->rk", variances(shift, design)).max(axis=1)
    calm = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * spread)
    if not of_right:
        odds = log_q - log_q[:, :1]
        odds[:, 1:] += moved
        return np.asarray(log_softmax(calm[:, None] * odds, axis=1))
    rows, right = np.arange(len(log_q)), np.exp(log_q[np.arange(len(log_q)), truth])
    odds = calm * (_logit(right) + moved[:, 0])
    wrong = log_q - np.log(np.maximum(1.0 - right, 1e-12))[:, None]
    out = wrong + log_expit(-odds)[:, None]
    out[rows, truth] = log_expit(odds)
    return np.asarray(out)


def learned(
    shift: Shift, log_q: Array, design: Array, truth: Ints, decision: Ints, weight: Array, of_right: bool
) -> Shift:
    """The shift after decisions; `log_q` are (rows, K) log-chances of the blend without any shift."""
    if not of_right:
        return shift.after(log_q, design, np.eye(log_q.shape[1])[decision], weight)
    right = np.exp(log_q[np.arange(len(log_q)), truth])
    base = np.log(np.clip(np.column_stack([1.0 - right, right]), 1e-12, 1.0))
    return shift.after(base, design, np.eye(2)[(decision == truth).astype(np.int64)], weight)


def variances(shift: Shift, design: Array) -> Array:
    """(rows, contrasts, contrasts): posterior covariance of the log-odds."""
    adds = wide(design, shift.mean.shape[1])
    return np.asarray(np.einsum("rkc,cd,rmd->rkm", adds, shift.covariance, adds))


def wide(design: Array, contrasts: int) -> Array:
    """(rows, contrasts, contrasts x columns): what each coefficient adds to each log-odds."""
    rows, columns = design.shape
    out = np.zeros((rows, contrasts, contrasts * columns))
    for k in range(contrasts):
        out[:, k, k * columns : (k + 1) * columns] = design
    return out


def _moved(base: Array, adds: Array, at: Array) -> Array:
    out = base.copy()
    out[:, 1:] += adds @ at
    return out


def _objective(
    at: Array, start: Array, precision: Array, base: Array, adds: Array, told: Array, weight: Array
) -> float:
    fit = -(told * log_softmax(_moved(base, adds, at), axis=1)).sum(axis=1)
    return float(weight @ fit + (at - start) @ precision @ (at - start) / 2)


def _information(adds: Array, chance: Array, weight: Array) -> Array:
    own = np.einsum("rk,rkc,rkd->cd", weight[:, None] * chance, adds, adds)
    mean = np.einsum("rk,rkc->rc", chance, adds)
    return np.asarray(own - (mean * weight[:, None]).T @ mean)


def _logit(chance: Array) -> Array:
    safe = np.clip(chance, 1e-12, 1.0 - 1e-12)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def _inverse(matrix: Array) -> Array:
    found = scipy.linalg.cho_solve(
        scipy.linalg.cho_factor(matrix + 1e-10 * np.eye(len(matrix))), np.eye(len(matrix))
    )
    return np.asarray((found + found.T) / 2)
