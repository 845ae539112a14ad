"""Which features moved an estimate: exact for linear models, SHAP values (LightGBM's own) for trees.

All contributions are differences of log-odds against the average: of a truth or a decision against the first
class, or of being right. Every part tells its own; the parts of a blend are weighted as the blend weighs
them, and stretched as its calibration does where that is a sigmoid, so that a row's contributions and its
base add up to the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Class
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.models.trees.forest import Boosted

Array = NDArray[np.float64]
COLUMNS = ("logistic", "trees", "total")
_FAMILIES = ("logistic", "trees", "other")


def linear_contributions(encoder: LinearEncoder, case: pd.DataFrame, slopes: Array) -> Array:
    """For each feature the sum of column x slope over its columns; exact, as columns are centred."""
    products = encoder.transform(case)[0] * slopes[: len(encoder.groups_)]
    parts = np.split(products, np.cumsum(encoder.widths)[:-1])
    moved = {part.name: float(values.sum()) for part, values in zip(encoder.parts_, parts, strict=True)}
    return np.array([moved.get(str(name), 0.0) for name in case.columns])


def tree_contributions(booster: Boosted, row: Array, k: int, classes: int, features: int) -> Array:
    """SHAP values of the first features of one row: of class k against class 0."""
    values: Array = np.asarray(booster.predict(row, pred_contrib=True), np.float64)[0]
    if classes > 2:
        by_class = values.reshape(classes, -1)
        values = np.asarray(by_class[k] - by_class[0])
    return values[:features]


def contribution_table(case: pd.DataFrame, moved: Iterable[tuple[str, Array]]) -> pd.DataFrame:
    """One row per feature: what the families of models added (see `Part.family`), and all in `total`."""
    names = [str(name) for name in case.columns]
    sums = {family: np.zeros(len(names)) for family in _FAMILIES}
    for family, values in moved:
        sums[family if family in sums else "other"] += values
    logistic, trees, other = sums.values()
    table = np.column_stack([logistic, trees, logistic + trees + other])
    return pd.DataFrame(table, index=pd.Index(names, name="feature"), columns=list(COLUMNS))


def in_long_form(tables: Iterable[tuple[Class | None, Class, pd.DataFrame]]) -> pd.DataFrame:
    """Tables by (truth, what became likelier) as one: `truth`, `says`, `feature`, and the contributions."""
    return pd.concat(
        [
            table.reset_index().assign(truth=truth, says=says)[["truth", "says", "feature", *COLUMNS]]
            for truth, says, table in tables
        ],
        ignore_index=True,
    )
