"""Rates and costs by group, with counts and intervals.

What is decided about a case may be known (0 or 1 for each class) or estimated from a log; either way it comes
as terms whose mean is the share of the cases in which that class is decided. The rates are fairlearn's: of
all cases the share decided positive, of the negative ones the share decided positive (false-positive rate),
of the positive ones the share decided negative (false-negative rate).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.errors import DataError
from deccaf.evaluate.off_policy import mean_with_interval

Array = NDArray[np.float64]

BINARY = ("share decided positive", "false-positive rate", "false-negative rate")
COST = "cost per 100"
ACCURACY = "accuracy"


def by_group(
    truth: ArrayLike,
    decided: ArrayLike,
    cost: ArrayLike,
    group: ArrayLike,
    *,
    member: ArrayLike | None = None,
    confidence: float = 0.95,
    event: float = 0.0,
    cost_event: float = 0.0,
) -> pd.DataFrame:
    """A row per group and measure: `group`, `measure`, `cases` that it is a mean of, `value`, `low`, `high`.

    `decided` is (cases, K), `truth` holds positions of classes, `member` what belongs together (a patient).
    Measures are `COST` and those of `BINARY`, or with more than two classes `ACCURACY`. A rate that no case
    of the group says anything about is missing.
    """
    y, said, price = np.asarray(truth, np.int64), np.asarray(decided, np.float64), np.asarray(cost, float)
    name = pd.Series(np.asarray(group), dtype=object).fillna("missing").astype(str).to_numpy()
    if not y.size or said.ndim != 2 or len({len(y), len(said), len(price), len(name)}) != 1:
        raise DataError(f"groups: lengths differ, or there are no cases: {y.size}, {len(said)}, {price.size}")
    everyone = np.ones(len(y), bool)
    measures: dict[str, tuple[Array, NDArray[np.bool_], float, float, float]] = {
        COST: (price, everyone, cost_event, 100.0, np.inf)
    }
    if said.shape[1] == 2:
        terms = (said[:, 1], said[:, 1], said[:, 0])
        for label, values, who in zip(BINARY, terms, (everyone, y == 0, y == 1), strict=True):
            measures[label] = (values, who, event, 1.0, 1.0)
    else:
        measures[ACCURACY] = (said[np.arange(len(y)), y], everyone, event, 1.0, 1.0)
    rows = []
    for here in np.unique(name):
        for label, (values, who, size, factor, most) in measures.items():
            mine = who & (name == here)
            row = {"group": here, "measure": label, "cases": int(mine.sum())}
            if mine.any():
                units = None if member is None else np.asarray(member)[mine]
                found = mean_with_interval(values[mine], units, confidence, size, size if most == 1 else 0.0)
                ends = np.clip(factor * np.array([found.value, found.low, found.high]), 0.0, most)
                row |= dict(zip(("value", "low", "high"), ends.tolist(), strict=True))
            rows.append(row)
    return pd.DataFrame(rows, columns=["group", "measure", "cases", "value", "low", "high"])
