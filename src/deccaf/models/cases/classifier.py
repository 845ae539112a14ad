"""P(truth | case), calibrated, unweighted: one model for every cost structure.

A Bayesian logistic model and boosted trees, blended by their log-loss on held-out time, corrected (sigmoid,
isotonic or not at all) where that helps on held-out time, then fitted again on everything. The paper's
cost-weighted classifier is in `paper_classifier`; `reweighted` and `unweighted` convert between the two kinds
of probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.errors import ConfigError
from deccaf.models.blending.blend import Blend
from deccaf.models.cases.level import Level, fit_level
from deccaf.models.cases.log import CaseLog
from deccaf.models.protocols import CasePart
from deccaf.models.rows import aged, codes, column, known_rows, weights_of
from deccaf.plugins import CASE_PARTS

Array = NDArray[np.float64]

PARTS = ("logistic", "boosted")
"""What is blended unless something else is asked for."""


class CaseClassifier(Blend[CasePart, CaseLog]):
    """P(label | features) for K classes; parameters and attributes are those of every `Blend`.

    Attributes
    ----------
    level_ : how much more or less frequent each truth is to be expected next than the features say
    """

    registry = CASE_PARTS
    defaults = PARTS
    drift = True

    def fit(
        self,
        features: pd.DataFrame,
        label: ArrayLike,
        *,
        time: Sequence[Any] | pd.Series | None = None,
        group: Sequence[Any] | pd.Series | None = None,
        weight: ArrayLike | None = None,
    ) -> CaseClassifier:
        """Learn from one row per case; cases without label (-1) are left out and counted in a warning."""
        self._named()
        rows = len(features)
        labels, weights = codes(label, rows, self.classes, "label"), weights_of(weight, rows)
        times, groups = column(time, rows, "time"), column(group, rows, "group")
        useful = known_rows(labels, weights)
        weights = aged(weights, times, self.half_life)
        log = CaseLog(features, labels, weights, self.classes).take(useful)
        times = None if times is None else times[useful]
        self._learn(log, times, None if groups is None else groups[useful])
        self.level_ = Level.none(self.classes)
        if times is not None:
            self.level_ = fit_level(log, times, self._calibration_adds(log))
        return self

    def predict(self, features: pd.DataFrame, deviations: float = 0.0) -> Array:
        """p[i, y] = P(y | case i), at the level to be expected next, or so many deviations above it."""
        return np.asarray(np.exp(self.level_.apply(self._log_chances(features), deviations)))

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file, which names the parts."""
        return {**super().to_dict(), "level": self.level_.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave."""
        model = super().from_dict(data)
        kept = data.get("level")
        model.level_ = Level.none(model.classes) if kept is None else Level.from_dict(kept)
        return model

    def _log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K): as the features have it."""
        return self.calibrators_[0].transform(self._mixed(lambda part: part.log_chances(features)))

    def _calibration_adds(self, log: CaseLog) -> Array | None:
        """(K,): what calibration adds to the log-odds of each truth against the first, on average."""
        calibrator = self.calibrators_[0]
        if calibrator.kind_ == "none":
            return None
        plain = self._mixed(lambda part: part.log_chances(log.features))
        added = np.average(calibrator.transform(plain) - plain, axis=0, weights=log.weight)
        return np.asarray(added - added[0])

    def uncalibrated(self, features: pd.DataFrame) -> Array:
        """The same before its calibration, which may be flat where the parts still tell cases apart."""
        return np.asarray(np.exp(self._mixed(lambda part: part.log_chances(features))))

    def contributions(self, case: pd.DataFrame, k: int) -> pd.DataFrame:
        """What moved the log-odds of truth k against truth 0 for one case; one row per feature."""
        return self._moved(case, 0, lambda part: part.contributions(case, k))

    def _predicted(self, part: CasePart, rows: CaseLog) -> Array:
        return part.log_chances(rows.features)


def reweighted(p: Array, costs: ArrayLike) -> Array:
    """p~(y | x), proportional to c(y) p(y | x): what a model trained with case weights c(y) estimates.

    `costs` are K numbers, or (cases, K) where they differ by case.
    """
    return _scaled(p, np.asarray(costs, np.float64))


def unweighted(p: Array, costs: ArrayLike) -> Array:
    """p(y | x), proportional to p~(y | x) / c(y): undoes `reweighted`."""
    costs = np.asarray(costs, np.float64)
    if (costs <= 0).any():
        raise ConfigError("a class whose errors cost nothing left no trace in weighted probabilities")
    return _scaled(p, 1.0 / costs)


def _scaled(p: Array, factor: Array) -> Array:
    if not (np.isfinite(factor).all() and (factor >= 0).all()) or factor.shape[-1] != p.shape[-1]:
        raise ConfigError(f"costs: expected {p.shape[-1]} finite numbers from 0 on, got {factor.tolist()}")
    scaled = np.asarray(p, np.float64) * factor
    return np.asarray(scaled / scaled.sum(axis=-1, keepdims=True))
