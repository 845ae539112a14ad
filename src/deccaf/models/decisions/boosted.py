"""Boosted trees for decisions: LightGBM on (features, truth, expert), K classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.decisions.log import DecisionLog
from deccaf.models.linear.encoding import TreeEncoder
from deccaf.models.trees import boosting
from deccaf.models.trees.expert_scorer import ExpertScorer

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

QUICK: tuple[Mapping[str, Any], ...] = (
    {
        "n_estimators": 1500,
        "learning_rate": 0.06,
        "num_leaves": 8,
        "min_child_samples": 20,
        "reg_lambda": 5.0,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "min_data_per_group": 10,
        "cat_l2": 1.0,
        "cat_smooth": 5.0,
    },
)
"""Settings of the quick budget, the best of which is taken on held-out decisions."""


class BoostedDecisions:
    """P(decision | features, truth, expert) by gradient boosting; truth and expert are categories.

    Parameters
    ----------
    candidates
        LightGBM settings. With validation decisions the best is taken, and its number of rounds.

    Attributes
    ----------
    booster_, encoder_ : the trees, and how features become their columns; truth and expert come last
    params_ : the settings that were taken
    """

    def __init__(self, candidates: Sequence[Mapping[str, Any]] = QUICK, seed: int = 0) -> None:
        self.candidates = candidates
        self.seed = seed

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> BoostedDecisions:
        """Learn from one row per decision; `validation` chooses the settings and the number of rounds."""
        self.classes_, self.experts_ = log.classes, len(log.experts)
        self.encoder_ = TreeEncoder().fit(log.features)
        matrix = self._matrix(log.features, log.truth, log.expert)
        if validation is None:
            self.params_ = dict(self.candidates[0])
            self.booster_ = self._train(matrix, log, self.params_)
            return self
        held_out = self._matrix(validation.features, validation.truth, validation.expert)
        best = np.inf
        for params in self.candidates:
            booster = self._train(matrix, log, params, (held_out, validation.decision, validation.weight))
            log_p = boosting.log_chances(booster, held_out, self.classes_)
            loss = boosting.weighted_log_loss(log_p, validation.decision, validation.weight)
            if loss < best:
                best, self.booster_ = loss, booster
                self.params_ = {**params, "n_estimators": boosting.rounds_of(booster)}
        return self

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K): log-chance of each decision for rows of case, truth and expert."""
        out = boosting.log_chances(self.booster_, self._matrix(features, truth, expert), self.classes_)
        unseen = expert >= self.experts_
        if unseen.any():
            part = self.log_table(features[unseen], np.array([self.experts_]))
            out[unseen] = part[np.arange(len(part)), 0, truth[unseen]]
        return out

    def log_table(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K decisions): log-chances for all pairs."""
        seen = np.unique(expert)
        if (expert >= self.experts_).any():  # an expert never seen: the team's average
            seen = np.arange(self.experts_)
        known = self._known(features, seen)
        if np.array_equal(seen, expert):
            return known
        out = np.empty((len(features), len(expert), self.classes_, self.classes_))
        for place, j in enumerate(expert):
            if j < self.experts_:
                out[:, place] = known[:, np.searchsorted(seen, j)]
            else:
                out[:, place] = np.log(np.exp(known).mean(axis=1))
        return out

    def _known(self, features: pd.DataFrame, experts: Ints) -> Array:
        """(cases, experts, K, K) log-chances of experts that were seen, all at once."""
        matrix, k = self.encoder_.transform(features), self.classes_
        raw = self._scorer(experts, matrix.shape[1]).raw(matrix)
        raw = raw.reshape(len(matrix), len(experts), k, *raw.shape[2:])
        return boosting.log_from_raw(raw, k)

    def _scorer(self, experts: Ints, truth: int) -> ExpertScorer:
        """The trees prepared for these experts; kept, as a service asks about the same ones all day."""
        kept: tuple[Any, bytes, ExpertScorer] | None = getattr(self, "_kept", None)
        if kept is None or kept[0] is not self.booster_ or kept[1] != experts.tobytes():
            pairs = np.array([(y, j) for j in experts for y in range(self.classes_)], np.float64)
            scorer = ExpertScorer(self.booster_, (truth, truth + 1), pairs)
            kept = self._kept = (self.booster_, experts.tobytes(), scorer)
        return kept[2]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and LightGBM's text, for a file."""
        return {
            "classes": self.classes_,
            "experts": self.experts_,
            "encoder": self.encoder_.to_dict(),
            "params": self.params_,
            "booster": self.booster_.model_to_string(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BoostedDecisions:
        """Rebuild what `to_dict` gave."""
        model = cls((data["params"],))
        model.classes_, model.experts_ = int(data["classes"]), int(data["experts"])
        model.encoder_ = TreeEncoder.from_dict(data["encoder"])
        model.params_ = dict(data["params"])
        model.booster_ = boosting.from_text(data["booster"])
        return model

    def _matrix(self, features: pd.DataFrame, truth: Ints | int, expert: Ints | int) -> Array:
        matrix = self.encoder_.transform(features, extra=2)
        matrix[:, -2], matrix[:, -1] = truth, expert
        return matrix

    def _train(
        self,
        matrix: Array,
        log: DecisionLog,
        params: Mapping[str, Any],
        validation: tuple[Array, Ints, Array] | None = None,
    ) -> Any:
        last = matrix.shape[1]
        return boosting.train(
            matrix,
            log.decision,
            classes=self.classes_,
            params=params,
            categorical=[*self.encoder_.categorical, last - 2, last - 1],
            weight=log.weight,
            validation=validation,
            seed=self.seed,
        )
