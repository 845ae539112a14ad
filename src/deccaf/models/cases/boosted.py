"""Boosted trees for the truth: LightGBM on the features, K classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.cases.log import CaseLog
from deccaf.models.contributions import tree_contributions
from deccaf.models.linear.encoding import TreeEncoder
from deccaf.models.protocols import CasePart
from deccaf.models.trees import boosting
from deccaf.models.trees.boosted_part import BoostedPart

Array = NDArray[np.float64]

_SLOW = {"learning_rate": 0.02, "bagging_fraction": 0.6, "bagging_freq": 1, "feature_fraction": 0.3}
_STRONG = {"min_child_samples": 100, "reg_lambda": 20.0, "cat_smooth": 50.0}
QUICK: tuple[Mapping[str, Any], ...] = (
    {**_SLOW, **_STRONG, "n_estimators": 2000, "num_leaves": 16, "extra_trees": True},
    {**_SLOW, **_STRONG, "n_estimators": 2000, "num_leaves": 8},
    {**_SLOW, "n_estimators": 1000, "num_leaves": 4, "min_child_samples": 10, "reg_lambda": 5.0},
)
"""Settings of the quick budget, the best of which is taken on held-out cases."""


class BoostedCases(BoostedPart, CasePart):
    """P(label | features) by gradient boosting; held-out cases choose settings and number of rounds."""

    quick = QUICK

    def fit(self, rows: CaseLog, validation: CaseLog | None = None) -> BoostedCases:
        """Learn; without `validation` by the first of the candidates."""
        self.classes_ = rows.classes
        self.encoder_ = TreeEncoder().fit(rows.features)
        self._train(rows, validation, self.encoder_.categorical)
        return self

    def log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K) log-probabilities."""
        return boosting.log_chances(self.booster_, self.encoder_.transform(features), self.classes_)

    def contributions(self, case: pd.DataFrame, k: int) -> Array:
        """SHAP values."""
        row = self.encoder_.transform(case)
        return tree_contributions(self.booster_, row, k, self.classes_, len(case.columns))

    def _matrix_of(self, rows: CaseLog) -> Array:
        return self.encoder_.transform(rows.features)
