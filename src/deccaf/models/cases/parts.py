"""The parts that a case classifier blends: a Bayesian logistic model and boosted trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_softmax

from deccaf.models.linear.encoding import LinearEncoder, TreeEncoder
from deccaf.models.linear.pooled import Posterior, fit_posterior, telling_features
from deccaf.models.trees import boosting

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Labelled = tuple[pd.DataFrame, Ints, Array]
"""Features, labels and weights."""

_COEFFICIENTS = 1_000
"""Of the logistic model, at most: with more features it sees those that say most."""
_SLOW = {"learning_rate": 0.02, "bagging_fraction": 0.6, "bagging_freq": 1, "feature_fraction": 0.3}
_STRONG = {"min_child_samples": 100, "reg_lambda": 20.0, "cat_smooth": 50.0}
QUICK: tuple[Mapping[str, Any], ...] = (
    {**_SLOW, **_STRONG, "n_estimators": 2000, "num_leaves": 16, "extra_trees": True},
    {**_SLOW, **_STRONG, "n_estimators": 2000, "num_leaves": 8},
    {**_SLOW, "n_estimators": 1000, "num_leaves": 4, "min_child_samples": 10, "reg_lambda": 5.0},
)
"""Settings of the quick budget, the best of which is taken on held-out cases."""


class LogisticCases:
    """P(label | features) by a Bayesian logistic model whose shrinkage, per feature, the evidence sets."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def fit(self, data: Labelled, validation: Labelled | None = None) -> LogisticCases:
        """Learn; `validation` is not needed."""
        del validation
        features, label, weight = data
        self.encoder_ = LinearEncoder().fit(features)
        room = _COEFFICIENTS // (self.classes - 1) - 1
        if len(self.encoder_.groups_) > room:
            matrix, same = self.encoder_.transform(features), np.zeros_like(label)
            kept = telling_features(matrix, self.encoder_.widths, label, same, weight, room)
            self.encoder_ = self.encoder_.only(kept)
        groups = np.append(self.encoder_.groups_, len(self.encoder_.groups_))
        nobody = np.full(len(label), -1)
        design = self._design(features)
        self.posterior_ = fit_posterior(design, nobody, label, 0, self.classes, groups, weight)
        return self

    def log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K) log-probabilities."""
        eta = np.zeros((len(features), self.classes))
        eta[:, 1:] = self._design(features) @ self.posterior_.weights[-1]
        return np.asarray(log_softmax(eta, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, for a file."""
        return {
            "classes": self.classes,
            "encoder": self.encoder_.to_dict(),
            "posterior": self.posterior_.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LogisticCases:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]))
        model.encoder_ = LinearEncoder.from_dict(data["encoder"])
        model.posterior_ = Posterior.from_dict(data["posterior"])
        return model

    def _design(self, features: pd.DataFrame) -> Array:
        return np.hstack([self.encoder_.transform(features), np.ones((len(features), 1))])


class BoostedCases:
    """P(label | features) by gradient boosting; held-out cases choose settings and number of rounds."""

    def __init__(self, classes: int, candidates: Sequence[Mapping[str, Any]] = QUICK, seed: int = 0) -> None:
        self.classes = classes
        self.candidates = candidates
        self.seed = seed

    def fit(self, data: Labelled, validation: Labelled | None = None) -> BoostedCases:
        """Learn; without `validation` by the first of the candidates."""
        self.encoder_ = TreeEncoder().fit(data[0])
        matrix = self.encoder_.transform(data[0])
        if validation is None:
            self.params_ = dict(self.candidates[0])
            self.booster_ = self._train(matrix, data, self.params_)
            return self
        held_out = self.encoder_.transform(validation[0])
        best = np.inf
        for params in self.candidates:
            booster = self._train(matrix, data, params, (held_out, *validation[1:]))
            log_p = boosting.log_chances(booster, held_out, self.classes)
            loss = boosting.weighted_log_loss(log_p, *validation[1:])
            if loss < best:
                best, self.booster_ = loss, booster
                self.params_ = {**params, "n_estimators": boosting.rounds_of(booster)}
        return self

    def log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K) log-probabilities."""
        return boosting.log_chances(self.booster_, self.encoder_.transform(features), self.classes)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and LightGBM's text, for a file."""
        return {
            "classes": self.classes,
            "encoder": self.encoder_.to_dict(),
            "params": self.params_,
            "booster": self.booster_.model_to_string(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BoostedCases:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]), [data["params"]])
        model.encoder_ = TreeEncoder.from_dict(data["encoder"])
        model.params_ = dict(data["params"])
        model.booster_ = boosting.from_text(data["booster"])
        return model

    def _train(
        self,
        matrix: Array,
        data: Labelled,
        params: Mapping[str, Any],
        validation: tuple[Array, Ints, Array] | None = None,
    ) -> Any:
        return boosting.train(
            matrix,
            data[1],
            classes=self.classes,
            params=params,
            categorical=self.encoder_.categorical,
            weight=data[2],
            validation=validation,
            seed=self.seed,
        )
