"""Chances from log-odds, and back: what SciPy has too, for the arrays that plans are scored by.

NumPy computes these several numbers at a time where SciPy's take one after the other, and a plan of a hundred
cases need not wait for SciPy to be imported, which takes longer than to score and to solve it.
"""

from __future__ import annotations

from functools import reduce
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def expit(x: ArrayLike, out: Array | None = None) -> Array:
    """1 / (1 + exp(-x)), into `out` where that is given."""
    given = np.asarray(x, np.float64)
    found = np.empty_like(given) if out is None else out
    with np.errstate(over="ignore"):  # exp of a large number is infinity, and the chance 0
        np.exp(np.negative(given, out=found), out=found)
    found += 1.0
    return np.divide(1.0, found, out=found)


def log_expit(x: ArrayLike) -> Array:
    """log(expit(x)), in which a small chance is not rounded to 0."""
    given = np.asarray(x, np.float64)
    found = np.empty_like(given)
    np.exp(np.negative(np.abs(given, out=found), out=found), out=found)
    np.log1p(found, out=found)
    return np.subtract(np.minimum(given, 0.0), found, out=found)


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    """Chances in proportion to exp(x), along an axis."""
    found = log_softmax(x, axis)
    return np.exp(found, out=found)


def log_softmax(x: ArrayLike, axis: int = -1) -> Array:
    """Logarithms of chances in proportion to exp(x), along an axis."""
    given = np.asarray(x, np.float64)
    moved = given - np.expand_dims(_along(np.maximum, given, axis), axis)
    moved -= np.expand_dims(np.log(_along(np.add, np.exp(moved), axis)), axis)
    return moved


def _along(combine: np.ufunc, x: Array, axis: int) -> Array:
    """The greatest, or the sum, along an axis: of a few classes, whole columns at a time."""
    if x.shape[axis] > 16:
        return np.asarray(combine.reduce(x, axis=axis))
    return np.asarray(reduce(combine, np.moveaxis(x, axis, 0)))


def deviations(chance: float) -> float:
    """How many standard deviations of a normal distribution lie below a quantile."""
    return NormalDist().inv_cdf(chance)


def trigamma(x: ArrayLike) -> Array:
    """How sure a logarithm of a Dirichlet share is: the second derivative of log Gamma, for x > 0."""
    high, found = np.asarray(x, np.float64), np.zeros(np.shape(x))
    for _ in range(10):  # psi_1(x) = psi_1(x + 1) + 1 / x^2, until the series is exact
        found, high = found + high**-2.0, high + 1.0
    one = high**-2.0
    series = 1 / 6 - one * (1 / 30 - one * (1 / 42 - one * (1 / 30 - one * (5 / 66 - one * 691 / 2730))))
    return np.asarray(found + (1.0 + 0.5 / high + one * series) / high)
