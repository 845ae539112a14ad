"""The level of each truth over time: how far off the next period will be, and in which direction.

Prevalence drifts for reasons that no feature shows, and features that drift with it mislead. So the level is
judged by what was really foretold: a logistic model of all periods before tells each period of the history,
and what its log-odds of each truth miss there is an error of the level. The errors have a common part, a
drift that goes on, and a part of their own, a walk at random:

    error_t = drift + N(0, omega^2) + its sampling error,      drift ~ N(0, sigma^2)

Every sigma (0: no drift) and omega of a grid counts by its posterior chance. The next error to be expected is
shrunken so (to a quarter, after one error); it is added to the log-odds unless that would have foretold later
periods of the history worse, and it is never larger than the largest error seen. What a calibration on the
latest time adds already is taken off it: it must not count twice. Its deviation is always kept, for the
interval of a plan's cost: with one period it is the grid's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.log_odds import log_softmax, softmax
from deccaf.models.cases.log import CaseLog
from deccaf.models.cases.logistic import LogisticCases

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

DRIFTS = {0.0: 0.5, 0.05: 0.125, 0.1: 0.125, 0.2: 0.125, 0.4: 0.125}
"""Deviations of the drift that are weighed, in log-odds, with their chances beforehand..."""
WALKS = {0.03: 0.2, 0.06: 0.2, 0.12: 0.2, 0.25: 0.2, 0.5: 0.2}
"""...and those of a period's own part."""
PER_PERIOD = 500
"""Cases that a period should have where times are not periods already..."""
MOST = 5
"""...and so many periods at most: the latest count, and each takes a fit."""
FEWEST = 50
"""Cases below which a period is none."""
ROWS = 8_000
"""Cases that a model of the level learns from at most, the latest."""


@dataclass(frozen=True, eq=False)
class Level:
    """What to add to the log-odds of each truth against the first, and how sure that is."""

    shift: Array
    """(K,), the first 0; all 0 where it does not help."""
    deviation: Array
    """(K,): of the error of the level in the next period, after the shift."""
    errors: Array
    """(periods, K): what the periods of the history missed."""
    gain: float = 0.0
    """Log-loss per case that shifts would have saved in the history; 0 where there was none to try."""

    @classmethod
    def none(cls, classes: int) -> Level:
        """No times, nothing known."""
        return cls(np.zeros(classes), np.zeros(classes), np.zeros((0, classes)))

    def apply(self, log_p: Array, deviations: float = 0.0) -> Array:
        """Log-chances at the level that is expected, or so many deviations above it."""
        if not (self.shift.any() or deviations):
            return log_p
        return np.asarray(log_softmax(log_p + self.shift + deviations * self.deviation, axis=-1))

    def to_dict(self) -> dict[str, Any]:
        """For a file."""
        return {
            "shift": self.shift.tolist(),
            "deviation": self.deviation.tolist(),
            "errors": self.errors,
            "gain": self.gain,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Level:
        """Rebuild what `to_dict` gave."""
        shift, deviation = (np.asarray(data[name], np.float64) for name in ("shift", "deviation"))
        return cls(shift, deviation, np.asarray(data["errors"], np.float64), float(data["gain"]))


def fit_level(rows: CaseLog, time: pd.Series, calibrated: Array | None = None) -> Level:
    """Foretell every period from those before, and learn what that missed.

    `calibrated` is what a calibration on the latest time adds to the log-odds of each truth already.
    """
    period, classes = periods_of(time), rows.classes
    told = [_foretold(rows, period, t) for t in range(1, int(period.max(initial=0)) + 1)]
    found = [one for one in told if one is not None]
    errors = np.array([error for error, _, _, _ in found]).reshape(-1, classes)
    noise = np.array([variance for _, variance, _, _ in found]).reshape(-1, classes)
    shift, deviation = np.zeros(classes), np.zeros(classes)
    for k in range(1, classes):
        most = float(np.abs(errors[:, k]).max(initial=0.0))
        mean, deviation[k] = forecast(errors[:, k], noise[:, k])[:2]
        mean = float(np.clip(mean, -most, most))
        rest = mean - (0.0 if calibrated is None else float(calibrated[k]))
        shift[k] = np.clip(rest, min(mean, 0.0), max(mean, 0.0))
    gain = _gain(errors, noise, [(log_p, held) for _, _, log_p, held in found])
    return Level(shift if gain >= 0.0 else np.zeros(classes), deviation, errors, gain)


def forecast(errors: Array, noise: Array) -> tuple[float, float, float]:
    """Mean and deviation of the next error, and the chance that there is no drift."""
    means, variances, fits, none = [], [], [], []
    for (drift, before), (walk, beside) in product(DRIFTS.items(), WALKS.items()):
        spread = np.diag(walk**2 + noise) + drift**2
        inverse = np.linalg.inv(spread) if len(errors) else spread
        pull = drift**2 * inverse.sum(axis=0)
        means.append(float(pull @ errors))
        variances.append(drift**2 - drift**2 * float(pull.sum()) + walk**2)
        fits.append(-0.5 * (np.linalg.slogdet(spread)[1] + errors @ inverse @ errors) if len(errors) else 0.0)
        fits[-1] += np.log(before * beside)
        none.append(drift == 0.0)
    chance, mean = softmax(fits), np.array(means)
    middle = float(chance @ mean)
    deviation = float(np.sqrt(chance @ (np.array(variances) + (mean - middle) ** 2)))
    return middle, deviation, float(chance @ np.array(none))


def periods_of(time: pd.Series) -> Ints:
    """The period of each row: its time where times repeat (months, days), else parts of equal size.

    There are `MOST` at most; what lies before the latest of them is one.
    """
    codes = pd.factorize(time, sort=True)[0].astype(np.int64)
    counts = np.bincount(codes)
    if counts.min(initial=len(codes)) < FEWEST or len(counts) > 4 * MOST:
        wanted = int(np.clip(len(codes) // PER_PERIOD, 1, MOST))
        after = counts.cumsum()
        place = np.minimum(((after - counts / 2) / len(codes) * wanted).astype(np.int64), wanted - 1)
        codes = np.unique(place, return_inverse=True)[1].astype(np.int64)[codes]
    return np.maximum(codes - max(int(codes.max(initial=0)) + 1 - MOST, 0), 0)


def _foretold(rows: CaseLog, period: Ints, t: int) -> tuple[Array, Array, Array, CaseLog] | None:
    """What a model of the periods before misses in a period; None where there is too little to tell."""
    before, mine = np.flatnonzero(period < t)[-ROWS:], np.flatnonzero(period == t)[-ROWS:]
    if len(np.unique(rows.label[before])) < rows.classes or len(mine) < FEWEST:
        return None
    past, held = (rows.take(np.isin(np.arange(len(rows)), part)) for part in (before, mine))
    log_p = LogisticCases().fit(past).log_chances(held.features)
    return *_missed(log_p, held), log_p, held


def _missed(log_p: Array, held: CaseLog) -> tuple[Array, Array]:
    """(K,), (K,): the biases of the log-odds that the labels ask for, with their variances (Newton)."""
    bias, told = np.zeros(log_p.shape[1]), np.eye(log_p.shape[1])[held.label]
    curve, weight = np.ones(log_p.shape[1]), held.weight[:, None]
    for _ in range(20):
        chance = softmax(log_p + bias, axis=1)
        slope = (weight * (told - chance)).sum(axis=0) - bias
        curve = (weight * chance * (1.0 - chance)).sum(axis=0) + 1.0  # the 1: a normal prior
        move = np.clip(slope[1:] / curve[1:], -1.0, 1.0)
        bias[1:] += move
        if np.abs(move).max(initial=0.0) < 1e-6:
            break
    return bias, 1.0 / curve


def _gain(errors: Array, noise: Array, told: list[tuple[Array, CaseLog]]) -> float:
    """Log-loss per case that the shifts would have saved from the second error on."""
    saved, total = 0.0, 0.0
    for t in range(1, len(errors)):
        shift = np.zeros(errors.shape[1])
        for k in range(1, errors.shape[1]):
            shift[k] = forecast(errors[:t, k], noise[:t, k])[0]
        log_p, held = told[t]
        here = np.arange(len(held))
        moved = log_softmax(log_p + shift, axis=1)
        saved += float(held.weight @ (moved - log_p)[here, held.label])
        total += float(held.weight.sum())
    return saved / total if total else 0.0
