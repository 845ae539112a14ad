"""Boosted trees for decisions: LightGBM on (features, truth, expert), K classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.contributions import tree_contributions
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.linear.encoding import TreeEncoder
from deccaf.models.protocols import DecisionPart
from deccaf.models.trees import boosting
from deccaf.models.trees.boosted_part import BoostedPart
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


class _Kept(NamedTuple):
    """Trees prepared for some experts."""

    booster: Any
    experts: Ints
    single: bool
    scorer: ExpertScorer

    def serves(self, booster: Any, experts: Ints, single: bool) -> bool:
        return self.booster is booster and self.single == single and np.array_equal(self.experts, experts)


class BoostedDecisions(BoostedPart, DecisionPart):
    """P(decision | features, truth, expert) by gradient boosting; truth and expert are the last two columns.

    An expert never seen is the mean of those known.
    """

    quick = QUICK
    fewest_rows = 300
    """A shorter log cannot tell whether trees help: the luck of 100 held-out decisions is larger."""

    def fit(self, rows: DecisionLog, validation: DecisionLog | None = None) -> BoostedDecisions:
        """Learn; `validation` chooses the settings and the number of rounds."""
        self.classes_, self.experts_ = rows.classes, len(rows.experts)
        self.encoder_ = TreeEncoder().fit(rows.features)
        width = len(self.encoder_.levels_)
        self._train(rows, validation, [*self.encoder_.categorical, width, width + 1])
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

    def log_odds(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, truths, experts): log-odds of the decision 1, where there are two classes."""
        if (expert >= self.experts_).any():
            return super().log_odds(features, expert)
        seen, place = np.unique(expert, return_inverse=True)
        matrix = self.encoder_.transform(features)
        raw = self._scorer(seen, matrix.shape[1], single=True).raw(matrix)
        odds = boosting.floored(raw).reshape(len(matrix), 2, len(seen))
        return odds if np.array_equal(seen, expert) else odds[:, :, place]

    def log_odds_rows(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(rows, truths): the same for rows of case and expert, by a lookup for each."""
        if (expert >= self.experts_).any() or not boosting.pays_to_prepare(self.booster_, len(features)):
            return super().log_odds_rows(features, expert)
        matrix = self.encoder_.transform(features)
        kept: _Kept | None = getattr(self, "_kept_for_rows", None)
        if kept is None or kept.booster is not self.booster_:
            kept = self._kept_for_rows = self._prepared(np.arange(self.experts_), matrix.shape[1])
        place = np.stack([expert, self.experts_ + expert], axis=1)
        return boosting.floored(kept.scorer.raw_rows(matrix, place))

    def _known(self, features: pd.DataFrame, experts: Ints) -> Array:
        """(cases, experts, K, K) log-chances of experts that were seen, all at once."""
        matrix, k = self.encoder_.transform(features), self.classes_
        raw = self._scorer(experts, matrix.shape[1]).raw(matrix)
        raw = np.swapaxes(raw.reshape(len(matrix), k, len(experts), *raw.shape[2:]), 1, 2)
        return boosting.log_from_raw(raw, k)

    def _scorer(self, experts: Ints, truth: int, single: bool = False) -> ExpertScorer:
        """The trees prepared for these experts; kept, as a service asks about the same ones all day."""
        kept: _Kept | None = getattr(self, "_kept", None)
        if kept is None or not kept.serves(self.booster_, experts, single):
            kept = self._kept = self._prepared(experts, truth, single)
        return kept.scorer

    def _prepared(self, experts: Ints, truth: int, single: bool = False) -> _Kept:
        pairs = np.array([(y, j) for y in range(self.classes_) for j in experts], np.float64)
        scorer = ExpertScorer(self.booster_, (truth, truth + 1), pairs, single=single)
        return _Kept(self.booster_, experts, single, scorer)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_kept")}

    def contributions(self, case: pd.DataFrame, expert: int, truth: int, k: int) -> Array:
        """SHAP values."""
        row = self._matrix(case, truth, expert if expert < self.experts_ else np.nan)
        return tree_contributions(self.booster_, row, k, self.classes_, len(case.columns))

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {**super().to_dict(), "experts": self.experts_}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BoostedDecisions:
        """Rebuild what `to_dict` gave."""
        model = super().from_dict(data)
        model.experts_ = int(data["experts"])
        return model

    def _matrix_of(self, rows: DecisionLog) -> Array:
        return self._matrix(rows.features, rows.truth, rows.expert)

    def _matrix(self, features: pd.DataFrame, truth: Ints | int, expert: Ints | float) -> Array:
        matrix = self.encoder_.transform(features, extra=2)
        matrix[:, -2], matrix[:, -1] = truth, expert
        return matrix
