"""Decisions scored by what they cost, for scikit-learn's searches and cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from deccaf.data.costs import Costs
from deccaf.data.frames import as_pandas
from deccaf.data.values import class_codes
from deccaf.errors import ConfigError, DataError


class CostScorer:
    """Minus the mean cost of what an estimator predicts, so that greater is better.

    A scorer as scikit-learn calls it: `scorer(estimator, X, y)`. Amounts per case are columns of X; cases
    whose truth is not known yet are left out.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Minus the mean cost on some cases."""
        truth, said = self._codes(y, "y"), self._codes(estimator.predict(X), "prediction")
        amounts = as_pandas(X)[list(self.costs.columns)] if self.costs.columns else None
        costs = self.costs.array(amounts)
        paid = costs[np.arange(len(truth)) if len(costs) > 1 else 0, truth, said]
        weight = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        known = truth >= 0
        if not weight[known].any():
            raise DataError(f"y: none of {len(truth)} cases has a truth and a weight to score by")
        return -float(np.average(paid[known], weights=weight[known]))

    def __repr__(self) -> str:
        return f"make_cost_scorer({self.costs!r})"

    def _codes(self, values: ArrayLike, name: str) -> Any:
        series = pd.Series(np.asarray(values), name=name)
        return class_codes(series, self.costs.classes, series.index)


def make_cost_scorer(costs: Costs) -> CostScorer:
    """A scorer for `GridSearchCV(scoring=...)` and `cross_validate`: minus the mean cost of the decisions.

    `costs` say what errors cost here; an estimator decides by its own.
    """
    if not isinstance(costs, Costs):
        raise ConfigError(f"costs: expected deccaf.Costs, got {type(costs).__name__}")
    return CostScorer(costs)
