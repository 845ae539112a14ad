"""Rates and costs by group: selection, false positives and negatives as fairlearn has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score

from deccaf.errors import DataError

Array = NDArray[np.float64]

BINARY = ("share decided positive", "false-positive rate", "false-negative rate")


def by_group(
    truth: ArrayLike,
    decision: ArrayLike,
    cost: ArrayLike,
    group: ArrayLike,
    weight: ArrayLike | None = None,
    classes: int = 2,
) -> pd.DataFrame:
    """One row per group: `cases`, `cost per 100`, and the rates of `BINARY`, or `accuracy` for K classes.

    `truth` and `decision` hold positions of classes.
    """
    y, m, c = np.asarray(truth), np.asarray(decision), np.asarray(cost, np.float64)
    member = pd.Series(np.asarray(group), dtype=object).fillna("missing").astype(str).to_numpy()
    w = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    if not y.size or len({part.shape for part in (y, m, c, member, w)}) != 1:
        raise DataError(f"groups: lengths differ, or there are no cases: {y.size}, {m.size}, {c.size}")
    names = np.unique(member)
    rows = {}
    for name in names:
        here = member == name
        total = w[here].sum()
        rows[name] = {
            "cases": int(here.sum()),
            "cost per 100": 100 * float((w * c)[here].sum() / total) if total else np.nan,
        }
    table = pd.DataFrame(rows).T.astype({"cases": "int64"}).rename_axis("group")
    return table.join(_rates(y, m, member, w, classes))


def _rates(
    truth: NDArray[Any], decision: NDArray[Any], group: NDArray[Any], weight: Array, classes: int
) -> pd.DataFrame:
    # imported here because few reports have groups, and it takes a while
    from fairlearn.metrics import (  # type: ignore[import-untyped]
        MetricFrame,
        false_negative_rate,
        false_positive_rate,
        selection_rate,
    )

    functions = (selection_rate, false_positive_rate, false_negative_rate)
    metrics: dict[str, Any] = {"accuracy": accuracy_score}
    if classes == 2:
        metrics = dict(zip(BINARY, functions, strict=True))
    weights = {name: {"sample_weight": weight} for name in metrics}
    frame = MetricFrame(
        metrics=metrics, y_true=truth, y_pred=decision, sensitive_features=group, sample_params=weights
    )
    return pd.DataFrame(frame.by_group).rename_axis("group")
