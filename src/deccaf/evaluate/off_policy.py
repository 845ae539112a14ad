"""What another way to assign would have cost, from a log with one decision per case.

A case that the new policy gives to the machine has a known cost. One that it gives to a person has a known
cost only if the same person decided it in the log. Two unbiased estimates of the mean cost per case follow,
with w = P(new policy picks the person of the log) / P(the old one did, the propensity):

    inverse propensity   mean of  machine cost + w * observed cost
    doubly robust        mean of  machine cost + predicted cost of the new policy
                                   + w * (observed cost - predicted cost of what was observed)

Both are right if the propensities are; the second is also right if the predictions are, and usually tighter.
Intervals come from the terms' variance and skewness between cases, or between groups of cases where given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from deccaf.errors import ConfigError, DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean per case with its interval."""

    value: float
    low: float
    high: float
    error: float
    """Standard error."""

    def per_100(self) -> Estimate:
        """The same for a hundred cases."""
        return Estimate(100 * self.value, 100 * self.low, 100 * self.high, 100 * self.error)


@dataclass(frozen=True, eq=False)
class Logged:
    """What the log and a new policy say, one entry per case."""

    machine_cost: Array
    """What the machine's decision cost where the new policy lets it decide, else 0."""
    weight: Array
    """P(new policy picks the person of the log) / propensity; 0 where it picks somebody else."""
    cost: Array
    """What the logged decision cost."""
    predicted: Array
    """What the model expected the logged decision to cost."""
    predicted_new: Array
    """What the model expects the new policy's person to cost; 0 where the machine decides."""
    propensity: Array
    """The chance with which the person of the log got the case."""

    def inverse_propensity(self) -> Array:
        """Terms of the inverse-propensity estimate; their mean is the estimate."""
        return np.asarray(self.machine_cost + self.weight * self.cost)

    def doubly_robust(self) -> Array:
        """Terms of the doubly-robust estimate; their mean is the estimate."""
        correction = self.weight * (self.cost - self.predicted)
        return np.asarray(self.machine_cost + self.predicted_new + correction)

    def event(self) -> float:
        """How large a costly decision counts where the new policy agrees with the log: cost / propensity.

        The mean over all decisions of the log, agreed or not, as they weigh in a third moment.
        """
        second = float((self.cost**2 / self.propensity).sum())
        return float((self.cost**3 / self.propensity**2).sum()) / second if second > 0 else 0.0

    def effective_cases(self) -> float:
        """How many equally weighted cases the weights of the people's cases are worth."""
        total, squares = self.weight.sum(), (self.weight**2).sum()
        return float(total**2 / squares) if squares > 0 else 0.0


def logged(
    chance: ArrayLike,
    propensity: ArrayLike,
    cost: ArrayLike,
    machine_cost: ArrayLike,
    predicted: ArrayLike,
    predicted_new: ArrayLike,
) -> Logged:
    """Check the parts; `chance` is P(new policy picks the person of the log)."""
    parts = [
        np.asarray(part, np.float64)
        for part in (chance, propensity, cost, machine_cost, predicted, predicted_new)
    ]
    if len({part.shape for part in parts}) != 1 or parts[0].ndim != 1 or not parts[0].size:
        raise DataError(f"evaluation from a log: lengths differ: {[part.size for part in parts]}")
    if not all(np.isfinite(part).all() for part in parts):
        raise DataError("evaluation from a log: values are missing or infinite")
    if not ((parts[1] > 0) & (parts[1] <= 1)).all():
        raise DataError("propensity: must lie in (0, 1] for every decision")
    if not ((parts[0] >= 0) & (parts[0] <= 1)).all():
        raise DataError("the new policy's chances must lie in [0, 1]")
    return Logged(parts[3], parts[0] / parts[1], parts[2], parts[4], parts[5], parts[1])


def mean_with_interval(
    terms: ArrayLike,
    group: ArrayLike | None = None,
    confidence: float = 0.95,
    event: float = 0.0,
) -> Estimate:
    """The mean of the terms; cases of one group count as one observation of their sum.

    A few large terms (a missed fraud with weight 9) make the mean skewed, and a normal interval too short
    upwards. So the variance V of the sum grows with the sum as that of rare events of one size does,
    V + s d at a distance d, with s = third moment / second moment of the terms, and the interval holds
    every value whose distance is below z standard deviations (a score interval), and the normal interval.
    `event` is how large such an event is (`Logged.event`): one is added to the moments of s, because a log
    in which none happened to agree with the new policy shows nothing of it.
    """
    values = np.asarray(terms, np.float64)
    if values.ndim != 1 or not values.size or not 0 < confidence < 1:
        raise ConfigError(f"an interval needs terms and a confidence, got {values.size} and {confidence}")
    mean = float(values.mean())
    centred = values - mean
    if group is not None:
        codes = pd.factorize(np.asarray(group))[0]
        if len(codes) != len(values):
            raise DataError(f"groups: {len(codes)} for {len(values)} cases")
        centred = np.asarray(np.bincount(codes, centred), np.float64)
    count = len(centred)
    spread = float((centred**2).sum()) * (count / (count - 1) if count > 1 else 1.0)
    second = float((centred**2).sum()) + event**2
    size = (float((centred**3).sum()) + event**3) / second if second > 0 else 0.0
    z = float(norm.ppf(0.5 + confidence / 2))
    shift = z**2 * size / 2
    reach = float(np.sqrt(z**2 * spread + shift**2))
    error, n = float(np.sqrt(spread)) / len(values), len(values)
    low, high = mean + (shift - reach) / n, mean + (shift + reach) / n
    # what varies for other reasons than rare events varies to both sides
    return Estimate(mean, min(low, mean - z * error), max(high, mean + z * error), error)
