"""How strong an unseen reason must be to undo a saving: a bound by the marginal sensitivity model.

Estimates from a log assume that, among cases that look alike, it was chance who got which. If somebody also
saw what no column shows (a phone call, a hunch), people who got the harder cases look worse than they are.
Suppose such a reason made it up to `strength` times as likely, or unlikely, that a person got a case as the
recorded or estimated propensity says (Tan 2006; Zhao, Small and Bhattacharya 2019). Then the mean cost of a
person's decisions lies between two bounds, and both are means of the same decisions at other costs (Dorn and
Guo 2022):

    upper   c / s + (1 - 1/s) (t + (1 + s) max(c - t, 0))      t the s / (1 + s) quantile of the cost c
    lower   c / s + (1 - 1/s) (t - (1 + s) max(t - c, 0))      t the 1 / (1 + s) quantile

Any t gives a valid bound, the quantile the sharpest one. A rare error counts s times, or 1/s times. So what
estimates a policy's cost also bounds it: give it these costs instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deccaf.errors import ConfigError

Array = NDArray[np.float64]

STRENGTHS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)
"""Strengths that are tried."""


def upper_costs(costs: Array, said: Array, strength: float) -> Array:
    """(cases, K) costs whose mean bounds the true one from above; `said` are chances of the K decisions."""
    _check(strength)
    at = _quantile(costs, said, strength / (1 + strength))[:, None]
    tail = at + (1 + strength) * np.maximum(costs - at, 0.0)
    return np.asarray(costs / strength + (1 - 1 / strength) * tail)


def lower_costs(costs: Array, said: Array, strength: float) -> Array:
    """(cases, K) costs whose mean bounds the true one from below."""
    _check(strength)
    at = _quantile(costs, said, 1 / (1 + strength))[:, None]
    tail = at - (1 + strength) * np.maximum(at - costs, 0.0)
    return np.asarray(costs / strength + (1 - 1 / strength) * tail)


def strength_that_undoes(strengths: Array, savings: Array) -> float:
    """Where the savings, which fall with the strength, reach 0: between the strengths by a line.

    1 where there is nothing to undo, infinite where the strongest does not undo it.
    """
    below = np.flatnonzero(savings <= 0)
    if not below.size:
        return float("inf")
    k = int(below[0])
    if k == 0:
        return 1.0
    high, low = float(savings[k - 1]), float(savings[k])
    part = high / (high - low)
    return float(strengths[k - 1] + part * (strengths[k] - strengths[k - 1]))


def _quantile(costs: Array, said: Array, level: float) -> Array:
    """The least cost that, with its chances, is not exceeded with this chance."""
    order = np.argsort(costs, axis=1)
    chances = np.take_along_axis(said, order, axis=1)
    total = np.maximum(chances.sum(axis=1, keepdims=True), 1e-12)
    reached = (np.cumsum(chances, axis=1) / total >= level - 1e-9).argmax(axis=1)
    return np.asarray(np.take_along_axis(costs, order, axis=1)[np.arange(len(costs)), reached])


def _check(strength: float) -> None:
    if not strength >= 1:
        raise ConfigError(f"strength of an unseen reason: expected 1 or more, got {strength}")
