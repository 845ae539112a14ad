"""How sure the expected loss of an expert is: from the posterior of how the expert errs, given each truth.

The loss is `review + sum_y p_y P(error | y) c_y`, where c_y is the mean cost of that expert's errors when the
truth is y. With every P(error | y) at the end of its interval the loss is at the end of its own, which
therefore holds at least as often. The chances of the truths are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.methods import Learned

Array = NDArray[np.float64]

LEVEL = 0.9
"""Chance that an interval holds the expected loss."""


def can_tell(learned: Learned) -> bool:
    """Whether the method knows how sure it is of people."""
    return hasattr(learned.decisions, "interval")


def loss_intervals(
    learned: Learned,
    features: pd.DataFrame,
    experts: Sequence[str | None],
    p: Array,
    costs: Array,
    review: Callable[[Sequence[str]], Array],
    level: float = LEVEL,
) -> tuple[Array, Array]:
    """(low, high) of the expected loss of each case with its expert; NaN for None (the machine).

    `costs` are (cases or 1, K, K); `review` says what it costs to ask people.
    """
    low, high = np.full(len(features), np.nan), np.full(len(features), np.nan)
    names = np.array(experts, dtype=object)
    for name in dict.fromkeys(name for name in experts if name is not None):
        rows = np.flatnonzero(names == name)
        stakes = _stakes(learned, features.iloc[rows], name, costs if len(costs) == 1 else costs[rows])
        ends = learned.decisions.interval(features.iloc[rows], [name], level=level)  # type: ignore[union-attr]
        paid = float(review([name])[0])
        for out, errors in zip((low, high), ends, strict=True):
            out[rows] = paid + (p[rows] * errors[:, 0] * stakes).sum(axis=1)
    return low, high


def _stakes(learned: Learned, features: pd.DataFrame, expert: str, costs: Array) -> Array:
    """(cases or 1, K): what an error of this expert costs in the mean, by truth."""
    classes = costs.shape[2]
    if classes == 2:
        return np.asarray(costs.sum(axis=2))
    q = learned.decisions.predict(features, [expert])[:, 0]  # type: ignore[union-attr]
    wrong = q * (1.0 - np.eye(classes))
    return np.asarray((wrong * costs).sum(axis=2) / np.maximum(wrong.sum(axis=2), 1e-12))
