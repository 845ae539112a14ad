"""How sure the expected loss of an expert is: from the posterior of how the expert errs, given each truth.

The loss is `review + sum_y p_y P(error | y) c_y`, where c_y is the mean cost of that expert's errors when the
truth is y. With every P(error | y) at the end of its interval the loss is at the end of its own, which
therefore holds at least as often. The chances of the truths are taken as they are.

The cost of a whole plan has an interval of its own: the level of the truths, how frequent each is, may be off
for all cases together (`deccaf.models.cases.level`), and that does not average out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE, machine_losses
from deccaf.data.log_odds import deviations, softmax
from deccaf.models.methods import Learned
from deccaf.planning.intake import Chunk
from deccaf.planning.plan import Plan
from deccaf.progress import Step
from deccaf.threads import one_thread

Array = NDArray[np.float64]

LEVEL = 0.9
"""Chance that an interval holds the expected loss."""


def can_tell(learned: Learned) -> bool:
    """Whether the method knows how sure it is of people."""
    return hasattr(learned.decisions, "interval_rows")


def with_intervals(
    plan: Plan,
    chunks: Iterable[Chunk],
    learned: Learned,
    classes: Sequence[Any],
    costs_of: Callable[[Chunk], Array],
    review_costs: Callable[[Sequence[str], pd.DataFrame], Array],
    step: Step,
) -> Plan:
    """The plan with the ends of each loss, NaN for the machine's, and of its whole cost.

    `chunks` are the plan's cases once more; only the makers that were chosen are asked.
    """
    low, high = np.full(len(plan), np.nan), np.full(len(plan), np.nan)
    spread, ends, start = learned.level_spread(), np.zeros(1), 0
    for chunk in chunks:
        rows = slice(start, start + len(chunk))
        step("Intervals", start, len(plan))
        mine = _Chosen.of(plan.part(rows), learned, classes)
        costs = costs_of(chunk)
        with one_thread():
            low[rows], high[rows], by_truth = _loss_intervals(
                learned, chunk, mine, costs, review_costs(mine.makers, chunk.columns)
            )
        start = rows.stop
        if spread is not None:
            by_truth[mine.machine] = _said_by_machine(mine.p, costs)[mine.machine]
            ends = ends + plan_ends(mine.p, by_truth, mine.loss, spread)
    if spread is not None:
        plan = plan.summed(replace(plan.summary, cost_interval=(float(np.min(ends)), float(np.max(ends)))))
    return plan.extended(loss_low=low, loss_high=high)


class _Chosen(NamedTuple):
    """Some cases of a plan: who decides them, and what is believed of them."""

    makers: list[str]
    place: NDArray[np.int64]
    """Of the maker of each case in `makers`; -1 where nothing can be said of the maker."""
    machine: NDArray[np.bool_]
    p: Array
    loss: Array

    @classmethod
    def of(cls, part: pd.DataFrame, learned: Learned, classes: Sequence[Any]) -> _Chosen:
        codes, found = pd.factorize(part["maker"])
        makers = [str(name) for name in found]
        told = np.array([name != MACHINE and not learned.knows_more(name) for name in makers], np.bool_)[
            codes
        ]
        if "reviewer_2" in part:
            told &= part["reviewer_2"].isna().to_numpy()
        machine = np.array([name == MACHINE for name in makers], np.bool_)[codes]
        p = part[[f"p_{name}" for name in classes]].to_numpy(np.float64)
        return cls(makers, np.where(told, codes, -1), machine, p, part["expected_loss"].to_numpy(np.float64))


def _loss_intervals(
    learned: Learned, chunk: Chunk, mine: _Chosen, costs: Array, review: Array, level: float = LEVEL
) -> tuple[Array, Array, Array]:
    """(low, high) of the expected loss of each case with its maker; NaN where nothing can be said.

    And (cases, K): what the maker is expected to cost by truth, the review included.

    `costs` are (cases or 1, K, K); `review` is what asking each maker costs, (makers,) or (cases, makers).
    """
    low, high = np.full(len(chunk), np.nan), np.full(len(chunk), np.nan)
    by_truth = np.full(mine.p.shape, np.nan)
    rows = np.flatnonzero(mine.place >= 0)
    if not len(rows):
        return low, high, by_truth
    place = mine.place[rows]
    names = np.array(mine.makers, dtype=object)[place]
    least, most, q = learned.decisions.interval_rows(chunk.features.iloc[rows], names, level=level)  # type: ignore[union-attr]
    costs = costs if len(costs) == 1 else costs[rows]
    paid = review[rows, place] if review.ndim == 2 else review[place]
    stakes = mine.p[rows] * _mean_costs(q, costs)
    by_truth[rows] = (q * costs).sum(axis=2) + paid[:, None]
    low[rows] = paid + (stakes * least).sum(axis=1)
    high[rows] = paid + (stakes * most).sum(axis=1)
    return low, high, by_truth


def _said_by_machine(p: Array, costs: Array) -> Array:
    """(cases, K): what the machine's decision costs by truth."""
    said = machine_losses(p, costs).argmin(axis=1)
    each = np.broadcast_to(costs, (len(p), *costs.shape[1:]))
    return np.asarray(each[np.arange(len(p)), :, said])


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
