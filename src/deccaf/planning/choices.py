"""What a plan decided, by position: small, so that its table can be made part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem
from deccaf.planning.scored import Scored

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

REASONS = ("best", "room", "constraint")
CELLS = 4_000_000
"""Losses that are looked at together."""
_SAME = 1e-9
"""Losses that differ by less than this share of the larger are the same."""


@dataclass(frozen=True, eq=False)
class Choices:
    """One entry per case."""

    maker: NDArray[np.int32]
    second: NDArray[np.int32]
    """Who would get the case if the maker could not; -1: nobody."""
    margin: Array
    """By how much that one is dearer, prices included."""
    own: Array
    """The expected loss."""
    other: Array
    """The expected loss with the second; NaN: there is none."""
    machine: Array
    """The expected loss with the machine."""
    why: NDArray[np.int8]
    """Positions in `REASONS`."""
    batch: NDArray[np.int32]
    """The number of the case's batch."""

    @classmethod
    def empty(cls, cases: int) -> Choices:
        """To be filled batch by batch."""
        maker, second, batch = (np.empty(cases, np.int32) for _ in range(3))
        margin, own, other, machine = (np.empty(cases) for _ in range(4))
        return cls(maker, second, margin, own, other, machine, np.empty(cases, np.int8), batch)

    def fill(
        self,
        scored: Scored,
        problem: AssignmentProblem,
        solved: Assignment,
        load: Ints,
        where: Ints,
        number: int,
    ) -> None:
        """The choices of a batch, whose cases are `where`; one pass over its losses."""
        rows = max(1, CELLS // max(problem.shape[1], 1))
        same = scored.by_cost
        self.batch[where] = number
        for start in range(0, problem.shape[0], rows):
            part = slice(start, start + rows)
            here, objective = where[part], np.asarray(problem.loss[part])
            allowed = None if problem.eligible is None else problem.eligible[part]
            maker = solved.maker[part]
            second, margin = _runners_up(objective, allowed, problem.upper, solved.prices, maker)
            self.why[here] = _why(objective, allowed, load >= problem.upper, maker)
            loss = objective if same else scored.loss[here]
            each = np.arange(len(here))
            self.maker[here], self.second[here], self.margin[here] = maker, second, margin
            self.own[here], self.machine[here] = loss[each, maker], loss[:, 0]
            self.other[here] = np.where(second < 0, np.nan, loss[each, second])


def _runners_up(
    loss: Array, allowed: Any, upper: Ints, prices: Array, own: NDArray[np.int32]
) -> tuple[Ints, Array]:
    """The maker who would get each case if the chosen one could not (-1: nobody), and by how much it is
    dearer, prices included."""
    total = loss + prices
    total[:, upper == 0] = np.inf
    if allowed is not None:
        total[~allowed] = np.inf
    here = np.arange(len(total))
    chosen = total[here, own].copy()
    total[here, own] = np.inf
    best = total.argmin(axis=1)
    reach = total[here, best] - chosen
    return np.where(np.isfinite(reach), best, -1), reach


def _why(loss: Array, allowed: Any, full: NDArray[np.bool_], maker: NDArray[np.int32]) -> NDArray[np.int8]:
    """Why each case went to its maker (`deccaf.planning.plan.Why`)."""
    chosen, finite = loss[np.arange(len(loss)), maker], np.isfinite(loss)
    may = finite if allowed is None else finite & allowed
    least = chosen - _SAME * np.maximum(np.abs(chosen), _SAME)
    cheaper = finite & (loss < least[:, None])
    somebody, free = (cheaper & may), (cheaper & may & ~full)
    barred = free.any(axis=1) | (cheaper.any(axis=1) & ~somebody.any(axis=1))
    return np.where(barred, 2, np.where(somebody.any(axis=1), 1, 0)).astype(np.int8)


def plan_table(scored: Scored, choices: Choices, prices: Array, rows: slice) -> pd.DataFrame:
    """The columns of a plan file, of some cases; `prices` are batches x makers."""
    maker, second = choices.maker[rows], choices.second[rows]
    frame = pd.DataFrame(
        {
            "case_id": scored.ids[rows],
            "maker": _texts(scored.makers, maker),
            "expected_loss": choices.own[rows],
            "runner_up": _texts(scored.makers, second),
            "runner_up_loss": choices.other[rows],
            "price": prices[choices.batch[rows], maker],
            "decision": _decisions(scored, rows, maker == 0),
            "why": _texts(REASONS, choices.why[rows]),
        },
    )
    if scored.p is not None:
        for k, name in enumerate(scored.classes):
            frame[f"p_{name}"] = scored.p[rows][:, k]
    return frame


def _decisions(scored: Scored, rows: slice, machine: NDArray[np.bool_]) -> Any:
    """What the machine decides, where it does."""
    says = scored.says[rows]
    if all(isinstance(name, int) for name in scored.classes):
        return pd.arrays.IntegerArray(np.array(scored.classes, np.int64)[says], ~machine)
    return _texts([str(name) for name in scored.classes], np.where(machine, says % len(scored.classes), -1))


def _texts(names: Sequence[str], places: NDArray[Any]) -> Any:
    """A column of names by their places; missing below 0."""
    return pd.array(list(names), dtype="str").take(places.astype(np.intp), allow_fill=True)
