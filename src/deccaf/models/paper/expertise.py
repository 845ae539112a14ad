"""P(correct | case, expert): the paper's human expertise model (HEM) and the one-vs-all baseline.

Both are LightGBM classifiers of correctness, trained on the cost-weighted log-loss (the paper's eq. 15), so
their probabilities are those of the reweighted distribution, where an error on a case counts c_i. The HEM is
one model with the expert as a categorical feature; one-vs-all is one model per expert, on its own decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.models.contributions import contribution_table, tree_contributions
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.linear.encoding import TreeEncoder
from deccaf.models.trees import boosting
from deccaf.models.trees.expert_scorer import ExpertScorer
from deccaf.models.trees.forest import Boosted

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_DART = {"boosting_type": "dart", "num_leaves": 100, "reg_alpha": 0.01, "reg_lambda": 0.01}
QUICK: tuple[Mapping[str, Any], ...] = (
    {**_DART, "n_estimators": 150, "max_depth": 2, "learning_rate": 0.1, "min_child_samples": 40},
    {**_DART, "n_estimators": 100, "max_depth": 2, "learning_rate": 0.05, "min_child_samples": 20},
    {**_DART, "n_estimators": 100, "max_depth": 2, "learning_rate": 0.3, "min_child_samples": 50},
    {**_DART, "n_estimators": 200, "max_depth": 3, "learning_rate": 0.15, "min_child_samples": 50},
    {**_DART, "n_estimators": 150, "max_depth": 5, "learning_rate": 0.1, "min_child_samples": 100},
)
"""Settings of the quick budget: on the alerts, deeper trees were worse throughout the space."""


class _Expertise:
    """What both models share: the log, the choice of settings, prediction by name."""

    def __init__(
        self, classes: int = 2, *, candidates: Sequence[Mapping[str, Any]] = QUICK, seed: int = 0
    ) -> None:
        self.classes = classes
        self.candidates = candidates
        self.seed = seed

    def fit(
        self,
        features: pd.DataFrame,
        truth: ArrayLike,
        expert: Sequence[str] | pd.Series,
        decision: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        validation: Mask | None = None,
        refit: bool = False,
    ) -> Any:
        """Learn from one row per decision, with case weights c_i.

        Rows of `validation` choose between the settings and are not learned from, unless `refit`; without
        them the first settings are taken.
        """
        held = np.zeros(len(features), bool) if validation is None else np.asarray(validation, bool)
        log = DecisionLog.of(
            features, truth, expert, decision, classes=self.classes, weight=weight, group=pd.Series(held)
        )
        held = np.asarray(log.group, bool)
        self.experts_ = log.experts
        self.encoder_ = TreeEncoder().fit(log.features)
        matrix = self.encoder_.transform(log.features, extra=1)
        matrix[:, -1] = log.expert
        self._learn(matrix, (log.truth == log.decision).astype(np.int64), log, held, refit)
        return self

    def _learn(
        self, matrix: Array, correct: NDArray[np.int64], log: DecisionLog, held: Mask, refit: bool
    ) -> None:
        raise NotImplementedError

    def _choose(
        self,
        matrix: Array,
        correct: NDArray[np.int64],
        weight: Array,
        held: Mask,
        refit: bool,
        categorical: Sequence[int],
    ) -> tuple[Boosted, dict[str, Any], list[float]]:
        """The booster with the least weighted log-loss on the held-out rows, its settings, and all losses."""

        def train(params: Mapping[str, Any], rows: Mask) -> Boosted:
            return boosting.train(
                matrix[rows],
                correct[rows],
                classes=2,
                params=params,
                categorical=categorical,
                weight=weight[rows],
                seed=self.seed,
            )

        if not held.any() or held.all():
            return train(self.candidates[0], np.ones(len(held), bool)), dict(self.candidates[0]), []
        trials = []
        for params in self.candidates:
            booster = train(params, ~held)
            log_p = boosting.log_chances(booster, matrix[held], 2)
            trials.append((boosting.weighted_log_loss(log_p, correct[held], weight[held]), booster))
        place = int(np.argmin([loss for loss, _ in trials]))
        chosen, losses = dict(self.candidates[place]), [loss for loss, _ in trials]
        return (train(chosen, np.ones(len(held), bool)) if refit else trials[place][1]), chosen, losses

    def _by_name(self, known: Array, experts: Sequence[str] | None) -> Array:
        """Columns for the names asked for; anyone never seen is the mean of those known."""
        if experts is None:
            return known
        found = pd.Index(self.experts_, dtype=object).get_indexer(pd.Index(list(experts), dtype=object))
        average = known.mean(axis=1)
        return np.column_stack([known[:, j] if j >= 0 else average for j in found])


class HumanExpertiseModel(_Expertise):
    """The paper's HEM: one model for all experts, the expert a categorical feature.

    Attributes
    ----------
    booster_, params_ : the trees, whose last column is the expert, and the settings that were taken
    losses_ : weighted validation log-loss of every candidate; empty without validation rows
    experts_ : names, sorted
    """

    def predict(self, features: pd.DataFrame, experts: Sequence[str] | None = None) -> Array:
        """(cases, experts): P~(correct)."""
        matrix = self.encoder_.transform(features)
        scorer = ExpertScorer(self.booster_, matrix.shape[1], np.arange(len(self.experts_)))
        known = np.exp(boosting.log_from_raw(scorer.raw(matrix), 2)[..., 1])
        return self._by_name(known, experts)

    def contributions(self, case: pd.DataFrame, expert: str) -> pd.DataFrame:
        """What moved the log-odds that the expert is right; one row per feature."""
        row, width = self.encoder_.transform(case, extra=1), len(case.columns)
        row[:, -1] = self.experts_.index(expert) if expert in self.experts_ else np.nan
        return contribution_table(case, [("trees", tree_contributions(self.booster_, row, 1, 2, width))])

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "classes": self.classes,
            "experts": list(self.experts_),
            "encoder": self.encoder_.to_dict(),
            "params": self.params_,
            "booster": self.booster_.model_to_string(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HumanExpertiseModel:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]), candidates=[data["params"]])
        model.experts_, model.params_ = tuple(data["experts"]), dict(data["params"])
        model.encoder_ = TreeEncoder.from_dict(data["encoder"])
        model.booster_ = boosting.from_text(data["booster"])
        return model

    def _learn(
        self, matrix: Array, correct: NDArray[np.int64], log: DecisionLog, held: Mask, refit: bool
    ) -> None:
        categorical = [*self.encoder_.categorical, matrix.shape[1] - 1]
        self.booster_, self.params_, self.losses_ = self._choose(
            matrix, correct, log.weight, held, refit, categorical
        )


class OneVsAll(_Expertise):
    """One model of correctness per expert, learned from that expert's decisions alone.

    Attributes
    ----------
    boosters_, params_ : one per expert, in the order of `experts_`
    losses_ : for each expert the weighted validation log-loss of every candidate
    """

    def predict(self, features: pd.DataFrame, experts: Sequence[str] | None = None) -> Array:
        """(cases, experts): P~(correct)."""
        matrix = self.encoder_.transform(features)
        known = np.column_stack(
            [np.exp(boosting.log_chances(booster, matrix, 2)[:, 1]) for booster in self.boosters_]
        )
        return self._by_name(known, experts)

    def contributions(self, case: pd.DataFrame, expert: str) -> pd.DataFrame:
        """What moved the log-odds that the expert is right; for one never seen, on average of all."""
        row, width = self.encoder_.transform(case), len(case.columns)
        known = zip(self.experts_, self.boosters_, strict=True)
        boosters = [booster for name, booster in known if name == expert] or self.boosters_
        moved = np.mean([tree_contributions(booster, row, 1, 2, width) for booster in boosters], axis=0)
        return contribution_table(case, [("trees", moved)])

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "classes": self.classes,
            "experts": list(self.experts_),
            "encoder": self.encoder_.to_dict(),
            "params": self.params_,
            "boosters": [booster.model_to_string() for booster in self.boosters_],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OneVsAll:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]))
        model.experts_, model.params_ = tuple(data["experts"]), [dict(item) for item in data["params"]]
        model.encoder_ = TreeEncoder.from_dict(data["encoder"])
        model.boosters_ = [boosting.from_text(text) for text in data["boosters"]]
        return model

    def _learn(
        self, matrix: Array, correct: NDArray[np.int64], log: DecisionLog, held: Mask, refit: bool
    ) -> None:
        self.boosters_: list[Boosted] = []
        self.params_: list[dict[str, Any]] = []
        self.losses_: list[list[float]] = []
        for j in range(len(self.experts_)):
            mine = log.expert == j
            booster, params, losses = self._choose(
                matrix[mine, :-1],
                correct[mine],
                log.weight[mine],
                held[mine],
                refit,
                self.encoder_.categorical,
            )
            self.boosters_.append(booster)
            self.params_.append(params)
            self.losses_.append(losses)
