"""Rates and costs by group: selection, false positives and negatives as fairlearn has them."""

from __future__ import annotations

from importlib.util import find_spec

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

    `truth` and `decision` hold positions of classes. The rates need the package fairlearn; without it the
    table has costs only (`rates_known` says which).
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
    rates = _rates(y, m, member, w, classes)
    return table if rates is None else table.join(rates)


def rates_known() -> bool:
    """Whether fairlearn is installed."""
    return find_spec("fairlearn") is not None


def _rates(
    truth: NDArray[np.int64],
    decision: NDArray[np.int64],
    group: NDArray[np.str_],
    weight: Array,
    classes: int,
) -> pd.DataFrame | None:
    if not rates_known():
        return None
    from fairlearn.metrics import MetricFrame, false_negative_rate, false_positive_rate, selection_rate

    if classes == 2:
        metrics = dict(zip(BINARY, (selection_rate, false_positive_rate, false_negative_rate), strict=True))
    else:
        metrics = {"accuracy": accuracy_score}
    weights = {name: {"sample_weight": weight} for name in metrics}
    frame = MetricFrame(
        metrics=metrics, y_true=truth, y_pred=decision, sensitive_features=group, sample_params=weights
    )
    return pd.DataFrame(frame.by_group).rename_axis("group")
