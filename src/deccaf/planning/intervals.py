"""How sure the expected loss of an expert is: from the posterior of how the expert errs, given each truth.

The loss is `review + sum_y p_y P(error | y) c_y`, where c_y is the mean cost of that expert's errors when the
truth is y. With every P(error | y) at the end of its interval the loss is at the end of its own, which
therefore holds at least as often. The chances of the truths are taken as they are.

The cost of a whole plan has an interval of its own: the level of the truths, how frequent each is, may be off
for all cases together (`deccaf.models.cases.level`), and that does not average out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.log_odds import deviations, softmax
from deccaf.models.methods import Learned

Array = NDArray[np.float64]

LEVEL = 0.9
"""Chance that an interval holds the expected loss."""


def can_tell(learned: Learned) -> bool:
    """Whether the method knows how sure it is of people."""
    return hasattr(learned.decisions, "interval_rows")


def loss_intervals(
    learned: Learned,
    features: pd.DataFrame,
    experts: Sequence[str | None],
    p: Array,
    costs: Array,
    review: Array,
    level: float = LEVEL,
) -> tuple[Array, Array, Array]:
    """(low, high) of the expected loss of each case with its expert; NaN for None (the machine).

    And (cases, K): what the expert is expected to cost by truth, the review included.

    `costs` are (cases or 1, K, K); `review` is what asking costs, by case.
    """
    low, high = np.full(len(features), np.nan), np.full(len(features), np.nan)
    by_truth = np.full(p.shape, np.nan)
    rows = np.array([k for k, name in enumerate(experts) if name is not None], np.int64)
    if not len(rows):
        return low, high, by_truth
    names = [name for name in experts if name is not None]
    least, most, q = learned.decisions.interval_rows(features.iloc[rows], names, level=level)  # type: ignore[union-attr]
    mine, paid = costs if len(costs) == 1 else costs[rows], review[rows]
    stakes = p[rows] * _mean_costs(q, mine)
    by_truth[rows] = (q * mine).sum(axis=2) + paid[:, None]
    low[rows] = paid + (stakes * least).sum(axis=1)
    high[rows] = paid + (stakes * most).sum(axis=1)
    return low, high, by_truth


def plan_ends(p: Array, by_truth: Array, loss: Array, spread: Array, level: float = LEVEL) -> Array:
    """What cases cost together with the level of the truths at either end of its interval, and as it is.

    `by_truth` is (cases, K), NaN where it is not known, which then counts its `loss` at both ends; `spread`
    is (K,), the deviation of the log-odds of each truth. The least and the largest sum over all cases are
    the plan's interval: both ends may cost more than the middle.
    """
    logs, known = np.log(np.maximum(p, 1e-300)), np.isfinite(by_truth).all(axis=1)
    ends = []
    for reach in (-deviations((1 + level) / 2), deviations((1 + level) / 2)):
        for k in range(1, p.shape[1]):  # one truth at a time, and with two classes all there is
            moved = softmax(logs + reach * spread * (np.arange(p.shape[1]) == k), axis=1)
            ends.append(float(np.where(known, (moved * np.nan_to_num(by_truth)).sum(axis=1), loss).sum()))
    return np.array([*ends, float(loss.sum())])


def _mean_costs(q: Array, costs: Array) -> Array:
    """(cases, K): what an error costs in the mean, by truth; `q` is (cases, K truths, K decisions)."""
    wrong = q * (1.0 - np.eye(q.shape[1]))
    return np.asarray((wrong * costs).sum(axis=2) / np.maximum(wrong.sum(axis=2), 1e-12))
