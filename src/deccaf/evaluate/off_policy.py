"""What another way to assign would have cost, from a log with one decision per case.

A case that the new policy gives to the machine has a known cost. One that it gives to a person has a known
cost only if the same person decided it in the log. Two estimates of the mean cost per case follow, with
w = P(new policy picks the person of the log) / P(the old one did, the propensity):

    inverse propensity   mean of  machine cost + w * observed cost
    doubly robust        mean of  machine cost + predicted cost of the new policy
                                   + w * (observed cost - predicted cost of what was observed)

Both are right if the propensities are; the second is also right if the predictions are, and usually tighter.

*Bounded weights.* Where history hardly ever gave such cases to such people, single cases count hundredfold
and the estimate is noise. `bounded` caps the weights and scales them so that they sum to the cases that the
new policy gives to people. The cap is the multiple of the usual weight (1, 2, 4, ... or none) at which the
estimated variance + (likely bias)^2 is least, as in Wang, Agarwal and Dudik (2017). The variance is that of
the weights times the mean squared residual of the whole log. The likely bias is the weight that the cap moves
times how far predictions are off where it can be seen; the bias bound is the same with predictions as far off
as can be.

*Intervals* come from the terms' variance and skewness between cases, or between groups of cases where given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.log_odds import deviations
from deccaf.errors import ConfigError, DataError

Array = NDArray[np.float64]

CAPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, np.inf)
"""Caps that are tried, as multiples of the usual weight (the median of those above 0)."""
FEWEST = 30.0
"""Effective cases below which an estimate is not told from chance."""
_MOST_SCALED = 2.0
_NO_OVERLAP = 3.0


@dataclass(frozen=True)
class Estimate:
    """A mean per case with its interval."""

    value: float
    low: float
    high: float
    error: float
    """Standard error."""

    def per_100(self, least: float = -np.inf) -> Estimate:
        """The same for a hundred cases; nothing below `least` (a cost is never below 0)."""
        value, low, high = (max(100 * part, least) for part in (self.value, self.low, self.high))
        return Estimate(value, low, high, 100 * self.error)


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
    asked: Array
    """The chance that the new policy asks a person."""
    worst: Array
    """How far the prediction for the person of the log can be off at most."""
    cap: float = np.inf
    """The largest weight, before scaling."""
    scale: float = 1.0
    bias_bound: float = 0.0
    """How far the cap can move the doubly-robust estimate at most, per case."""
    likely_bias: float = 0.0
    """The same if predictions are as far off where weights were capped as they are seen to be elsewhere."""

    def inverse_propensity(self) -> Array:
        """Terms of the inverse-propensity estimate; their mean is the estimate."""
        return np.asarray(self.machine_cost + self.weight * self.cost)

    def doubly_robust(self) -> Array:
        """Terms of the doubly-robust estimate; their mean is the estimate."""
        correction = self.weight * (self.cost - self.predicted)
        return np.asarray(self.machine_cost + self.predicted_new + correction)

    def event(self) -> float:
        """How large a costly decision counts where the new policy agrees with the log.

        The mean over all decisions of the log, agreed or not, as they weigh in a third moment; none counts
        more than the greatest weight in use.
        """
        greatest = float(self.weight.max())
        size = np.minimum(self.scale / self.propensity, greatest if greatest > 0 else np.inf)
        second = float((self.cost**2 * size).sum())
        return float((self.cost**3 * size**2).sum()) / second if second > 0 else 0.0

    def effective_cases(self) -> float:
        """How many equally weighted cases the weights of the people's cases are worth."""
        total, squares = self.weight.sum(), (self.weight**2).sum()
        return float(total**2 / squares) if squares > 0 else 0.0

    def usual(self) -> float:
        """The median weight where the new policy agrees with the log; 0 where it never does."""
        used = self.weight[self.weight > 0]
        return float(np.median(used)) if used.size else 0.0

    def reached(self) -> float:
        """The weights' sum over the cases given to people: 1 up to chance, less without overlap."""
        return float(self.weight.sum() / max(float(self.asked.sum()), 1e-12))

    def overlaps(self) -> bool:
        """Whether history reaches all that the new policy gives to people, as far as can be seen."""
        spread = float(np.sqrt(((self.weight - self.asked) ** 2).sum()))
        return float((self.asked - self.weight).sum()) <= _NO_OVERLAP * spread

    def among(self, rows: NDArray[np.bool_]) -> Logged:
        """The same where only some cases (drawn by lot) have a logged decision: they stand for all."""
        share = float(rows.mean())
        if share <= 0:
            raise DataError("evaluation from a log: no case is left to learn from")
        return replace(
            self, weight=np.where(rows, self.weight / share, 0.0), propensity=share * self.propensity
        )

    def bounded(self) -> Logged:
        """The same with the cap that the rule chooses, and weights that sum to the cases given to people."""
        usual, greatest = self.usual(), float(self.weight.max())
        if not usual:
            return self
        tried = [self._capped(multiple * usual) for multiple in CAPS if multiple * usual < greatest]
        return min([*tried, self._capped(np.inf)], key=lambda one: one._risk())

    def _capped(self, cap: float) -> Logged:
        capped = np.minimum(self.weight, cap)
        # weights that fall short because nobody like that ever got such cases are not scaled up
        wanted = float(self.asked.sum()) if self.overlaps() else float(self.weight.sum())
        scale = min(wanted / float(capped.sum()), _MOST_SCALED)
        if not np.isfinite(cap):
            return replace(self, weight=scale * capped, scale=scale)
        moved = np.abs(self.weight - scale * capped)
        bound = float((moved * self.worst).mean())
        likely = float(moved.mean()) * self._off(capped)
        return replace(
            self, weight=scale * capped, cap=cap, scale=scale, bias_bound=bound, likely_bias=likely
        )

    def _risk(self) -> float:
        """Variance + (likely bias)^2, with what residuals are over the whole log.

        Not over the cases where the log agrees with the new policy: a cap would be chosen that happens to
        miss the costly ones among them.
        """
        residual = float(((self.cost - self.predicted) ** 2).mean())
        return residual * float((self.weight**2).sum()) / len(self.weight) ** 2 + self.likely_bias**2

    def _off(self, weight: Array) -> float:
        """How far the predictions are off on average where it can be seen, with one standard error on top."""
        total, gap = float(weight.sum()), self.cost - self.predicted
        mean = float((weight * gap).sum()) / total
        return abs(mean) + float(np.sqrt((weight**2 * (gap - mean) ** 2).sum())) / total


def logged(
    chance: ArrayLike,
    propensity: ArrayLike,
    cost: ArrayLike,
    machine_cost: ArrayLike,
    predicted: ArrayLike,
    predicted_new: ArrayLike,
    asked: ArrayLike | None = None,
    worst: ArrayLike | None = None,
) -> Logged:
    """Check the parts; `chance` is P(new policy picks the person of the log).

    `asked` is P(it asks anybody), by default 1 where a cost is predicted for it; `worst` is how far a
    prediction can be off, by default the greatest cost in the log.
    """
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
    asks = np.maximum(parts[5] != 0, parts[0] > 0) if asked is None else np.asarray(asked, np.float64)
    off = np.full(len(parts[0]), np.abs(parts[2] - parts[4]).max()) if worst is None else np.asarray(worst)
    return Logged(
        parts[3],
        parts[0] / parts[1],
        parts[2],
        parts[4],
        parts[5],
        parts[1],
        np.asarray(asks, np.float64),
        np.asarray(off, np.float64),
    )


def mean_with_interval(
    terms: ArrayLike,
    group: ArrayLike | None = None,
    confidence: float = 0.95,
    event: float = 0.0,
    event_below: float = 0.0,
    bias: float = 0.0,
) -> Estimate:
    """The mean of the terms; cases of one group count as one observation of their sum.

    A few large terms (a missed fraud with weight 9) make the mean skewed, and a normal interval too short on
    their side. So the variance V of the sum grows with the sum as that of rare events of one size does,
    V + s d at a distance d, with s = third moment / second moment of the terms, and the interval holds
    every value whose distance is below z standard deviations (a score interval), and the normal interval.
    `event` is how large such an event is upwards (`Logged.event`), `event_below` downwards, for a saving:
    one is added to the moments of s, because a log in which none happened to agree with the new policy
    shows nothing of it. `bias` is how far the mean is likely to be off for another reason
    (`Logged.likely_bias`): it is no matter of chance, but independent of it, so squares are added.
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
    count, n = len(centred), len(values)
    spread = float((centred**2).sum()) * (count / (count - 1) if count > 1 else 1.0)
    z = deviations(0.5 + confidence / 2)
    up, down = _reach(centred, spread, z, event), _reach(-centred, spread, z, event_below)
    down, up = float(np.hypot(down / n, bias)), float(np.hypot(up / n, bias))
    return Estimate(mean, mean - down, mean + up, float(np.sqrt(spread)) / n)


def _reach(centred: Array, spread: float, z: float, event: float) -> float:
    """How far above the sum of the terms the interval reaches."""
    second = float((centred**2).sum()) + event**2
    size = (float((centred**3).sum()) + event**3) / second if second > 0 else 0.0
    shift = z**2 * size / 2
    # what varies for other reasons than rare events varies to both sides
    return max(shift + float(np.sqrt(z**2 * spread + shift**2)), z * float(np.sqrt(spread)))
