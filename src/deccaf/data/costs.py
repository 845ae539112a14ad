"""What errors cost, and what it is expected to cost to let a maker decide.

A *maker* (decision maker) is one column of the loss: an expert, or the machine. `c[i, y, m]` is the cost
of deciding m for case i when the truth is y, zero where they agree. Binary is K = 2, not a special case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.log_odds import expit
from deccaf.errors import ConfigError, DataError, show

MACHINE = "machine"
"""The name of the maker that is not a person."""

Array = NDArray[np.float64]
Class = int | str
Cost = float | str
"""A number, or the name of the column that holds the number for each case."""


@dataclass(frozen=True, eq=False)
class Costs:
    """The cost of each kind of error: the same for all cases, or read from columns of the cases.

    Build it with `binary` or `from_matrix`. Nothing is retrained when the costs change.
    """

    classes: tuple[Class, ...]
    cells: tuple[tuple[Cost, ...], ...]
    """`cells[y][m]`: cost of deciding `classes[m]` when the truth is `classes[y]`."""
    scale: str | None = None
    """Column whose value multiplies all of a case's costs (an amount at risk)."""
    unit: str = ""
    """What costs are counted in: a currency, minutes, "missed frauds"; words, nothing more."""

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise ConfigError(f"costs: at least two different classes are needed, got {list(self.classes)}")
        if any(isinstance(name, bool) or not isinstance(name, int | str) for name in self.classes):
            raise ConfigError(f"costs: classes must be whole numbers or names, got {list(self.classes)}")
        if len(self.cells) != len(self.classes) or any(len(row) != len(self.classes) for row in self.cells):
            raise ConfigError(
                f"costs: {len(self.classes)} classes need a {len(self.classes)} x "
                f"{len(self.classes)} matrix, got rows of {[len(row) for row in self.cells]}"
            )
        for y, row in enumerate(self.cells):
            for m, cost in enumerate(row):
                self._check_cell(y, m, cost)
        if not self.columns and not np.any(self._numbers()):
            raise ConfigError("costs: every error costs 0, so no decision is better than another")

    @classmethod
    def binary(
        cls,
        false_positive: Cost,
        false_negative: Cost = 1.0,
        *,
        classes: tuple[Class, Class] = (0, 1),
        scale: str | None = None,
        unit: str = "",
    ) -> Costs:
        """Two classes, the second one positive; the paper's lambda is false_positive / false_negative."""
        return cls(classes, ((0.0, false_positive), (false_negative, 0.0)), scale, unit)

    @classmethod
    def from_matrix(
        cls,
        matrix: Sequence[Sequence[Cost]] | Array,
        classes: Sequence[Class],
        *,
        scale: str | None = None,
        unit: str = "",
    ) -> Costs:
        """K classes: `matrix[y][m]` is the cost of deciding m when the truth is y."""
        rows = matrix.tolist() if isinstance(matrix, np.ndarray) else matrix
        return cls(tuple(classes), tuple(tuple(row) for row in rows), scale, unit)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Costs:
        """Rebuild what `to_dict` gave."""
        return cls.from_matrix(
            data["matrix"], data["classes"], scale=data["scale"], unit=data.get("unit", "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and names, for a file."""
        return {
            "classes": list(self.classes),
            "matrix": [list(row) for row in self.cells],
            "scale": self.scale,
            **({"unit": self.unit} if self.unit else {}),
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the cases that hold costs, each once."""
        named = [cost for row in self.cells for cost in row if isinstance(cost, str)]
        return tuple(dict.fromkeys([*named, *([self.scale] if self.scale else [])]))

    def array(self, amounts: pd.DataFrame | None = None) -> Array:
        """c[i, y, m] as a (cases, K, K) array, or (1, K, K) where costs are the same for all cases."""
        if not self.columns:
            return self._numbers()[None]
        if amounts is None:
            raise ConfigError(f"costs are per case: give the columns {list(self.columns)}")
        self.check_amounts(amounts)
        costs = np.repeat(self._numbers()[None], len(amounts), axis=0)
        for y, row in enumerate(self.cells):
            for m, cost in enumerate(row):
                if isinstance(cost, str):
                    costs[:, y, m] = amounts[cost]
        if self.scale:
            costs *= amounts[self.scale].to_numpy(np.float64)[:, None, None]
        return costs

    def check_amounts(self, amounts: pd.DataFrame) -> None:
        """Every cost column is there and holds finite numbers that are not negative."""
        for name in self.columns:
            if name not in amounts:
                raise DataError(f"column {name!r}: missing; [costs] asks for it")
            if not pd.api.types.is_numeric_dtype(amounts[name].dtype):
                raise DataError(f"column {name!r}: holds {amounts[name].dtype}, but costs must be numbers")
            values = amounts[name].to_numpy(np.float64, na_value=np.nan)
            bad = ~(np.isfinite(values) & (values >= 0))
            if bad.any():
                first = int(bad.argmax())
                raise DataError(
                    f"column {name!r}: {bad.sum()} cost(s) missing, infinite or negative, "
                    f"first: {values[first]} in case {show(amounts.index[first])}"
                )

    def case_weights(self, label: NDArray[np.integer], amounts: pd.DataFrame | None = None) -> Array:
        """c_i of the paper's reweighted losses (eq. 14 and 15): what it costs to err on case i.

        `label` holds positions in `classes`. With two classes it is the one error that the truth allows;
        with more it is the mean cost of the wrong decisions.
        """
        costs = self.array(amounts)
        of_truth = costs[np.arange(len(label)) if len(costs) > 1 else 0, label]
        weights: Array = of_truth.sum(axis=1) / (len(self.classes) - 1)
        return weights

    def _numbers(self) -> Array:
        numbers = [[0.0 if isinstance(cost, str) else float(cost) for cost in row] for row in self.cells]
        return np.array(numbers, np.float64)

    def _check_cell(self, y: int, m: int, cost: Cost) -> None:
        where = f"cost of deciding {self.classes[m]!r} when the truth is {self.classes[y]!r}"
        if isinstance(cost, str):
            if y == m:
                raise ConfigError(f"costs: the {where} must be 0, not column {cost!r}")
            return
        if isinstance(cost, bool) or not isinstance(cost, int | float | np.number):
            raise ConfigError(f"costs: the {where} must be a number or a column name, got {cost!r}")
        if not np.isfinite(cost) or cost < 0:
            raise ConfigError(f"costs: the {where} must be finite and not negative, got {cost}")
        if y == m and cost != 0:
            raise ConfigError(f"costs: the {where} is a right decision and must cost 0, got {cost}")


def machine_losses(p: ArrayLike, costs: Array) -> Array:
    """Expected cost of each automatic decision: out[i, k] = sum_y p[i, y] c[i, y, k]."""
    p = np.asarray(p, np.float64)
    if len(costs) == 1:
        return np.asarray(p @ costs[0])
    return np.asarray(np.einsum("iy,iyk->ik", p, costs))


def expert_losses(p: ArrayLike, q: ArrayLike, costs: Array, review_cost: ArrayLike = 0.0) -> Array:
    """Expected cost of each expert: review_cost[j] + sum_y p[i, y] sum_m q[i, j, y, m] c[i, y, m].

    `q[i, j, y, m]` is the chance that expert j says m on case i when the truth is y.
    """
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    at_stake = p[:, :, None] * costs
    cases, experts, classes = q.shape[:3]
    losses = np.einsum(
        "ijk,ik->ij", q.reshape(cases, experts, classes**2), at_stake.reshape(cases, classes**2)
    )
    return np.asarray(losses + np.asarray(review_cost, np.float64))


def two_class_losses(p: Array, odds: Array, costs: Array, out: Array) -> None:
    """`expert_losses` of two classes without reviews, from the log-odds that experts say 1.

    `odds[i, y, j]` are those of expert j on case i when the truth is y, and are used up. In place, as plans
    of millions of cases spend their time here: sum over y of p[i, y] c[i, y, not y] P(error | y).
    """
    at_stake = p * np.stack([costs[:, 0, 1], costs[:, 1, 0]], axis=1)
    np.negative(odds[:, 1], out=odds[:, 1])
    expit(odds, out=odds)
    odds *= at_stake[:, :, None]
    np.add(odds[:, 0], odds[:, 1], out=out)


def expected_loss(p: ArrayLike, q: ArrayLike, costs: Array, review_cost: ArrayLike = 0.0) -> Array:
    """Expected cost of every maker, cases x (1 + experts): the machine's best decision, then each expert."""
    machine = machine_losses(p, costs).min(axis=1, keepdims=True)
    return np.hstack([machine, expert_losses(p, q, costs, review_cost)])
