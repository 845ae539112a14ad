"""P(correct | case, expert): the paper's human expertise model (HEM) and the one-vs-all baseline.

Both are LightGBM classifiers of correctness, trained on the cost-weighted log-loss (the paper's eq. 15), so
their probabilities are those of the reweighted distribution, where an error on a case counts c_i. The HEM is
one model with the expert as a categorical feature; one-vs-all is one model per expert, on its own decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.cluster import each
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


_Chosen = tuple[Boosted, dict[str, Any], list[float]]
"""The trees, their settings, and the validation loss of every candidate."""


class _Part:
    """One model of correctness: its rows, binned once for all settings that are tried."""

    def __init__(
        self,
        matrix: Array,
        correct: NDArray[np.int64],
        weight: Array,
        held: Mask,
        categorical: Sequence[int],
        seed: int,
    ) -> None:
        def rows(mask: Mask) -> boosting.TrainingRows:
            return boosting.TrainingRows(
                matrix[mask],
                correct[mask],
                classes=2,
                categorical=categorical,
                weight=weight[mask],
                seed=seed,
            )

        self.chooses = bool(held.any() and not held.all())
        self.all = partial(rows, np.ones(len(held), bool))
        self.train = rows(~held) if self.chooses else None
        self.held, self.held_weight = (matrix[held], correct[held]), weight[held]

    def tried(self, params: Mapping[str, Any]) -> tuple[Boosted, float]:
        """The trees, and their weighted log-loss on the held-out rows."""
        if self.train is None:
            return self.all().train(params), 0.0
        booster = self.train.train(params)
        log_p = boosting.log_chances(booster, self.held[0], 2)
        return booster, boosting.weighted_log_loss(log_p, self.held[1], self.held_weight)

    def choose(self, candidates: Sequence[Mapping[str, Any]], refit: bool) -> _Chosen:
        """The settings with the least loss on the held-out rows; the first where there are none."""
        if not self.chooses:
            return self.all().train(candidates[0]), dict(candidates[0]), []
        trials = [self.tried(params) for params in candidates]
        losses = [loss for _, loss in trials]
        place = int(np.argmin(losses))
        chosen = dict(candidates[place])
        return (self.all().train(chosen) if refit else trials[place][0]), chosen, losses


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
        parts = self._prepared(features, truth, expert, decision, weight, validation)
        self._keep([*each(_Part.choose, parts, self.candidates, refit)])
        return self

    def trial(
        self,
        features: pd.DataFrame,
        truth: ArrayLike,
        expert: Sequence[str] | pd.Series,
        decision: ArrayLike,
        weight: ArrayLike,
        *,
        validation: Mask,
    ) -> Callable[[Mapping[str, Any]], float]:
        """What a search minimises: the weighted validation log-loss of settings, of rows binned once."""
        parts = self._prepared(features, truth, expert, decision, weight, validation)
        stakes = [part.held_weight.sum() for part in parts]

        def loss(params: Mapping[str, Any]) -> float:
            return float(np.average([part.tried(params)[1] for part in parts], weights=stakes))

        return loss

    def _prepared(
        self,
        features: pd.DataFrame,
        truth: ArrayLike,
        expert: Sequence[str] | pd.Series,
        decision: ArrayLike,
        weight: ArrayLike | None,
        validation: Mask | None,
    ) -> list[_Part]:
        held = np.zeros(len(features), bool) if validation is None else np.asarray(validation, bool)
        log = DecisionLog.of(
            features, truth, expert, decision, classes=self.classes, weight=weight, group=pd.Series(held)
        )
        self.experts_ = log.experts
        self.encoder_ = TreeEncoder().fit(log.features)
        matrix = self.encoder_.transform(log.features, extra=1)
        matrix[:, -1] = log.expert
        correct = (log.truth == log.decision).astype(np.int64)
        return self._parts(matrix, correct, log.weight, np.asarray(log.group, bool))

    def _parts(self, matrix: Array, correct: NDArray[np.int64], weight: Array, held: Mask) -> list[_Part]:
        """The models to fit; the last column of the matrix is the expert."""
        raise NotImplementedError

    def _keep(self, chosen: list[_Chosen]) -> None:
        raise NotImplementedError

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

    def _parts(self, matrix: Array, correct: NDArray[np.int64], weight: Array, held: Mask) -> list[_Part]:
        categorical = [*self.encoder_.categorical, matrix.shape[1] - 1]
        return [_Part(matrix, correct, weight, held, categorical, self.seed)]

    def _keep(self, chosen: list[_Chosen]) -> None:
        ((self.booster_, self.params_, self.losses_),) = chosen


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

    def _parts(self, matrix: Array, correct: NDArray[np.int64], weight: Array, held: Mask) -> list[_Part]:
        parts = []
        for j in range(len(self.experts_)):
            mine = matrix[:, -1] == j
            parts.append(
                _Part(
                    matrix[mine, :-1],
                    correct[mine],
                    weight[mine],
                    held[mine],
                    self.encoder_.categorical,
                    self.seed,
                )
            )
        return parts

    def _keep(self, chosen: list[_Chosen]) -> None:
        self.boosters_: list[Boosted] = [booster for booster, _, _ in chosen]
        self.params_: list[dict[str, Any]] = [params for _, params, _ in chosen]
        self.losses_: list[list[float]] = [losses for _, _, losses in chosen]
