"""What people's decisions go by: a linear picture of every person, from decisions on the same cases.

For each person a logistic regression of the decision on the truth and on all features, each on a scale from
-0.5 to 0.5: numbers by their rank, categories in the order of how often everybody together decides positive.
A coefficient is how much the log-odds of a positive decision move from the lowest to the highest value. It
describes; it does not say why. Published sets of decisions come with pictures of this kind (OpenL2D).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_RIDGE = 1.0


def dependence(features: pd.DataFrame, truth: Ints, said: Ints, experts: Sequence[str]) -> pd.DataFrame:
    """(experts x features): coefficients; `said` is (cases, experts), and every class but the first counts
    as positive."""
    from sklearn.linear_model import LogisticRegression

    positive = said > 0
    scaled = pd.DataFrame({name: _scaled(features[name], positive) for name in features})
    matrix = np.column_stack([scaled.to_numpy(np.float64), truth > 0])
    rows = {}
    for j, name in enumerate(experts):
        decided = positive[:, j]
        if decided.all() or not decided.any():
            rows[name] = np.zeros(scaled.shape[1])
            continue
        fitted = LogisticRegression(C=1.0 / _RIDGE, max_iter=500).fit(matrix, decided)
        rows[name] = fitted.coef_[0, :-1]
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(scaled))


def group_of(expert: str) -> str:
    """The group that a name tells: what stands before `#` (OpenL2D) or before a number at the end."""
    head, mark, _ = expert.rpartition("#")
    if mark:
        return head
    return expert.rstrip("0123456789").rstrip("_- ") or expert


def _scaled(values: pd.Series, positive: NDArray[np.bool_]) -> Array:
    if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype):
        return np.asarray((values.rank(pct=True) - 0.5).fillna(0.0), np.float64)
    level = values.astype("str").where(values.notna(), "missing")
    share = pd.Series(positive.mean(axis=1)).groupby(level.to_numpy()).mean().sort_values(kind="stable")
    place = pd.Series(np.linspace(-0.5, 0.5, len(share)) if len(share) > 1 else [0.0], share.index)
    return np.asarray(level.map(place), np.float64)
