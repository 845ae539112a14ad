"""A plan with side constraints as a programme of columns and rows.

A *column* is one way to handle one case: the makers who get it (one, or several reviewers) and what that
costs. Every case takes exactly one of its columns. A *row* is one limit on a sum over all columns: a maker's
load, its minutes, a group's rate. Constraints only add rows, or say which columns a case has.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deccaf.assign.exact.scan import Floats, Ints

BROKEN = 1e-6  # of a row's largest entry: less is rounding
Matrix = Any  # scipy's sparse arrays: their stubs know no shapes


@dataclass(frozen=True, eq=False)
class Columns:
    """Ways to handle the cases, case by case; `members` are makers, padded with -1."""

    case: Ints
    members: NDArray[np.int32]
    cost: Floats
    cases: int

    def __len__(self) -> int:
        return len(self.case)

    @cached_property
    def first(self) -> Ints:
        """Position of each case's first column."""
        return np.searchsorted(self.case, np.arange(self.cases))

    def pairs(self) -> tuple[Ints, Ints, Ints]:
        """(column, case, maker) of everyone in every column."""
        column, slot = np.nonzero(self.members >= 0)
        return column, self.case[column], self.members[column, slot].astype(np.int64)

    def sizes(self) -> Ints:
        """How many makers each column has."""
        return np.asarray((self.members >= 0).sum(axis=1), np.int64)

    def take(self, keep: NDArray[Any]) -> Columns:
        """Some of the columns."""
        return Columns(self.case[keep], self.members[keep], self.cost[keep], self.cases)


@dataclass(frozen=True, eq=False)
class Block:
    """The rows of one constraint: lower <= matrix x + level t <= upper, with one free level t or none."""

    name: str
    matrix: Matrix
    lower: Floats
    upper: Floats
    parts: list[str]
    level: Floats | None = None
    level_bounds: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Programme:
    """Columns and the rows of all constraints, each row scaled so that its largest entry is 1."""

    columns: Columns
    matrix: Matrix
    lower: Floats
    upper: Floats
    levels: Matrix
    level_bounds: Floats
    scale: Floats
    parts: list[tuple[str, str]] = field(repr=False)

    @classmethod
    def of(cls, columns: Columns, blocks: list[Block]) -> Programme:
        """Put the blocks under each other; rows that nothing can break are left out."""
        free = [block for block in blocks if block.level is not None]
        matrix = scipy.sparse.csr_array(scipy.sparse.vstack([block.matrix for block in blocks]))
        level_rows = [
            np.outer(block.level, [block is other for other in free])
            if block.level is not None
            else np.zeros((len(block.lower), len(free)))
            for block in blocks
        ]
        levels = np.vstack(level_rows)
        lower = np.concatenate([block.lower for block in blocks])
        upper = np.concatenate([block.upper for block in blocks])
        parts = [(block.name, part) for block in blocks for part in block.parts]
        keep = np.isfinite(lower) | np.isfinite(upper)
        size = (
            np.asarray(abs(matrix).max(axis=1).todense()).ravel() if matrix.shape[1] else np.ones(len(keep))
        )
        scale = np.where(size > 0, size, 1.0)[keep]
        matrix = scipy.sparse.csr_array(scipy.sparse.diags_array(1 / scale) @ matrix[keep])
        return cls(
            columns,
            matrix,
            lower[keep] / scale,
            upper[keep] / scale,
            levels[keep] / scale[:, None],
            np.array([block.level_bounds for block in free]).reshape(-1, 2),
            scale,
            [part for part, kept in zip(parts, keep, strict=True) if kept],
        )

    def phase_one(self) -> Programme:
        """The same with nothing to pay: what is left is the violation of the rows."""
        return replace(self, columns=replace(self.columns, cost=np.zeros(len(self.columns))))

    def sampled(self, cases: Ints) -> Programme:
        """Some cases that stand for all: their entries count for more."""
        inside = np.zeros(self.columns.cases, np.int64) - 1
        inside[cases] = np.arange(len(cases))
        keep = np.flatnonzero(inside[self.columns.case] >= 0)
        some = self.columns.take(keep)
        order = np.argsort(inside[some.case], kind="stable")
        columns = Columns(inside[some.case][order], some.members[order], some.cost[order], len(cases))
        return replace(
            self, columns=columns, matrix=self.matrix[:, keep[order]] * (self.columns.cases / len(cases))
        )

    def reduced(self, prices: Floats) -> Floats:
        """Cost of every column less what the rows pay for it."""
        reduced: Floats = self.columns.cost - self.matrix.T @ prices
        return reduced

    def least(self, reduced: Floats) -> Floats:
        """The cheapest column of every case."""
        return np.minimum.reduceat(reduced, self.columns.first) if len(reduced) else np.zeros(0)

    @property
    def dearest(self) -> float:
        """What no plan can cost more than: a bound above it proves that there is no plan."""
        if not len(self.columns):
            return 0.0
        most = float(np.maximum.reduceat(self.columns.cost, self.columns.first).sum())
        return most + BROKEN * (1.0 + abs(most))

    def bound(self, prices: Floats) -> float:
        """What no plan can cost less than (Lagrange); `prices` have the signs that `signed` gives."""
        limits = np.where(prices > 0, self.lower, self.upper)
        earned = float(prices[prices != 0] @ limits[prices != 0])
        pull = -(self.levels.T @ prices)
        free = np.where(pull > 0, pull * self.level_bounds[:, 0], pull * self.level_bounds[:, 1])
        return float(self.least(self.reduced(prices)).sum()) + earned + float(free.sum())

    def smooth(self, prices: Floats, heat: float) -> tuple[float, Floats]:
        """The part of the bound that choices make, and its slope; choices blur over differences of `heat`."""
        columns, first = self.columns, self.columns.first
        reduced = self.reduced(prices)
        least = self.least(reduced)
        weight = np.exp((least[columns.case] - reduced) / heat)
        total = np.add.reduceat(weight, first)
        value = float(least.sum()) - heat * float(np.log(total).sum())
        slope = -(self.matrix @ (weight / total[columns.case]))
        pull = -(self.levels.T @ prices)
        low, high = self.level_bounds.T
        blur = heat * np.sqrt(columns.cases)
        tilt = np.clip(pull * (high - low) / blur, -50, 50)
        at = low + (high - low) / (1 + np.exp(tilt))
        value += float((pull * at).sum())
        return value, slope - self.levels @ at

    def signed(self, prices: Floats) -> Floats:
        """A row without a lower limit cannot earn for being high, nor one without an upper for being low."""
        prices = np.where(np.isfinite(self.lower), prices, np.minimum(prices, 0.0))
        signed: Floats = np.where(np.isfinite(self.upper), prices, np.maximum(prices, 0.0))
        return signed

    def values(self, chosen: Ints) -> Floats:
        """Each row's sum over the chosen columns."""
        values: Floats = np.asarray(self.matrix[:, chosen].sum(axis=1)).ravel()
        return values

    def best_levels(self, values: Floats) -> Floats:
        """Free levels that the rows of a plan allow best: in the middle of what they ask for."""
        found = np.zeros(self.levels.shape[1])
        for k in range(self.levels.shape[1]):
            rows = np.flatnonzero(self.levels[:, k])
            size = -self.levels[rows, k]  # value - size t within lower and upper
            most = ((values[rows] - self.lower[rows]) / size).min()
            least = ((values[rows] - self.upper[rows]) / size).max()
            found[k] = np.clip((most + least) / 2, *self.level_bounds[k])
        return found

    def violation(self, values: Floats) -> float:
        """By how much the worst row is broken, in units of its largest entry."""
        total = values + self.levels @ self.best_levels(values)
        over = np.maximum(total - self.upper, self.lower - total)
        return float(over.max(initial=0.0))
