"""P(truth | case), calibrated, unweighted: one model for every cost structure.

A Bayesian logistic model and boosted trees, blended by their log-loss on held-out time, corrected (sigmoid,
isotonic or not at all) where that helps on held-out time, then fitted again on everything. The paper's
cost-weighted classifier is in `paper_classifier`; `reweighted` and `unweighted` convert between the two kinds
of probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.errors import ConfigError, did_you_mean
from deccaf.models.blend import blend, held_out_chances, held_out_losses, mix
from deccaf.models.cases.calibrate import Calibrator
from deccaf.models.cases.parts import QUICK, BoostedCases, Labelled, LogisticCases
from deccaf.models.decisions.log import aged, codes, column, known_rows, weights_of
from deccaf.models.holdout import holdouts

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = ("logistic", "boosted")


class CaseClassifier:
    """P(label | features) for K classes.

    Parameters
    ----------
    classes
        K.
    parts
        Which parts to blend, out of `PARTS`.
    half_life
        Age at which a case counts half: a number, or a length of time where times are dates.
    validation_share
        About how many cases are held out to blend and calibrate; see `holdouts`.
    candidates
        LightGBM settings that the boosted part chooses from.

    Attributes
    ----------
    weights_ : the weight of every part in the blend
    calibrator_ : the correction that held-out cases chose
    held_out_ : log-loss of each part and of the blend on the held-out cases
    """

    def __init__(
        self,
        classes: int = 2,
        *,
        parts: Sequence[str] = PARTS,
        half_life: Any = None,
        validation_share: float = 0.25,
        candidates: Sequence[Mapping[str, Any]] = QUICK,
        seed: int = 0,
    ) -> None:
        self.classes = classes
        self.parts = parts
        self.half_life = half_life
        self.validation_share = validation_share
        self.candidates = candidates
        self.seed = seed

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
        self._check()
        rows = len(features)
        labels, weights = codes(label, rows, self.classes, "label"), weights_of(weight, rows)
        times, groups = column(time, rows, "time"), column(group, rows, "group")
        useful = known_rows(labels, weights)
        weights = aged(weights, times, self.half_life)[useful]
        data = (features[useful], labels[useful], weights)
        masks = holdouts(
            len(weights),
            time=None if times is None else times[useful],
            group=None if groups is None else groups[useful],
            share=self.validation_share,
            seed=self.seed,
        )
        trials = [self._trial(data, mask) for mask in masks]
        self._blend(data, masks, trials)
        used = [name for name, share in self.weights_.items() if share > 0]
        self.parts_ = {name: self._again(name, [trial[name] for trial in trials]).fit(data) for name in used}
        if masks:
            latest = _take(data, np.any(masks, axis=0))
            self.calibrator_.recentre(self._log_blend(latest[0]), *latest[1:])
        return self

    def predict(self, features: pd.DataFrame) -> Array:
        """p[i, y] = P(y | case i)."""
        return np.asarray(np.exp(self.calibrator_.transform(self._log_blend(features))))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, for a file."""
        return {
            "classes": self.classes,
            "weights": self.weights_,
            "held_out": self.held_out_,
            "calibrator": self.calibrator_.to_dict(),
            "parts": {name: part.to_dict() for name, part in self.parts_.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CaseClassifier:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]), parts=list(data["weights"]))
        model.weights_, model.held_out_ = dict(data["weights"]), dict(data["held_out"])
        model.calibrator_ = Calibrator.from_dict(data["calibrator"])
        kinds: dict[str, Any] = {"logistic": LogisticCases, "boosted": BoostedCases}
        model.parts_ = {name: kinds[name].from_dict(item) for name, item in data["parts"].items()}
        return model

    def _check(self) -> None:
        unknown = [name for name in self.parts if name not in PARTS]
        if unknown or not self.parts:
            raise ConfigError(
                f"parts: expected some of {', '.join(PARTS)}, got {list(self.parts)}"
                + (did_you_mean(unknown[0], PARTS) if unknown else "")
            )
        if self.classes < 2:
            raise ConfigError(f"classes: at least two are needed, got {self.classes}")

    def _trial(self, data: Labelled, mask: NDArray[np.bool_]) -> dict[str, LogisticCases | BoostedCases]:
        return {name: self._part(name).fit(_take(data, ~mask), _take(data, mask)) for name in self.parts}

    def _part(self, name: str) -> LogisticCases | BoostedCases:
        if name == "boosted":
            return BoostedCases(self.classes, self.candidates, self.seed)
        return LogisticCases(self.classes)

    def _again(
        self, name: str, fitted: Sequence[LogisticCases | BoostedCases]
    ) -> LogisticCases | BoostedCases:
        """An unfitted part with the settings that the trials chose."""
        chosen = [part.params_ for part in fitted if isinstance(part, BoostedCases)]
        if not chosen:
            return self._part(name)
        rounds = int(np.mean([params["n_estimators"] for params in chosen]).round())
        return BoostedCases(self.classes, [{**chosen[0], "n_estimators": rounds}], self.seed)

    def _blend(
        self,
        data: Labelled,
        masks: Sequence[NDArray[np.bool_]],
        trials: Sequence[Mapping[str, LogisticCases | BoostedCases]],
    ) -> None:
        """Weigh and calibrate the parts on what they did not see."""
        if not masks:  # too little to hold anything out: the simplest part, as it is
            self.weights_ = {name: float(name == self.parts[0]) for name in self.parts}
            self.held_out_, self.calibrator_ = {}, Calibrator.identity(self.classes)
            return
        held = [_take(data, mask) for mask in masks]
        log_p = held_out_chances(self.parts, trials, held, lambda part, rows: part.log_chances(rows[0]))
        label, weight = (np.concatenate([rows[k] for rows in held]) for k in (1, 2))
        self.weights_, blended = blend(self.parts, log_p, label, weight, drift=True)
        self.held_out_ = held_out_losses(self.parts, log_p, blended, label, weight)
        self.calibrator_ = Calibrator(seed=self.seed).fit(blended, label, weight)

    def _log_blend(self, features: pd.DataFrame) -> Array:
        tables = [part.log_chances(features) for part in self.parts_.values()]
        return mix(tables, np.array([self.weights_[name] for name in self.parts_]))


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


def _take(data: Labelled, rows: NDArray[np.bool_]) -> Labelled:
    return data[0][rows], data[1][rows], data[2][rows]
