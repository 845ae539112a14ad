"""What it costs to ask a maker: a number, a column of the cases, or both.

A *review cost* is given as

- one number, or one column's name, for everybody but the machine;
- a table by name: for each a number, a column's name, or `{fixed = 0.001, column = "tokens", rate = 2e-6}`,
which
  is `fixed + rate * column`. Anyone whom it does not name costs what `"*"` says, or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.errors import ConfigError, DataError, show

Array = NDArray[np.float64]
PriceLike = float | str | Mapping[str, Any]
ReviewCost = float | str | Mapping[str, PriceLike]
EVERYONE = "*"
"""The name in a table of review costs that stands for whoever it does not name."""
_KEYS = ("fixed", "column", "rate")


@dataclass(frozen=True)
class Price:
    """What asking costs on a case: `fixed + rate * column`."""

    fixed: float = 0.0
    column: str | None = None
    rate: float = 1.0

    @classmethod
    def of(cls, given: Any, whose: str = "") -> Price:
        """A number, a column's name, or a table of `fixed`, `column` and `rate`."""
        name = f"review_cost{f' of {whose!r}' if whose else ''}"
        if isinstance(given, str):
            given = {"column": given}
        if not isinstance(given, Mapping):
            given = {"fixed": given}
        stray = [key for key in given if key not in _KEYS]
        if stray:
            raise ConfigError(f"{name}: unknown key {stray[0]!r}; known are {', '.join(_KEYS)}")
        numbers = [given.get("fixed", 0.0), given.get("rate", 1.0)]
        wrong = [number for number in numbers if not _is_amount(number)]
        if wrong:
            raise ConfigError(f"{name} must be a number from 0 on, got {wrong[0]!r}")
        column = given.get("column")
        if "rate" in given and column is None:
            raise ConfigError(f"{name}: rate is for each unit of a column; name the column")
        if column is not None and (not isinstance(column, str) or not column):
            raise ConfigError(f"{name}: column must be the name of a column of the cases, got {column!r}")
        return cls(float(numbers[0]), column, float(numbers[1]))

    def plain(self) -> float | str | dict[str, float | str]:
        """The shortest form of the same, for a file."""
        if self.column is None:
            return self.fixed
        if not self.fixed and self.rate == 1.0:
            return self.column
        return {"fixed": self.fixed, "column": self.column, "rate": self.rate}

    def words(self) -> str:
        """For people."""
        if self.column is None:
            return f"{self.fixed:g}"
        times = f"column {self.column!r}" if self.rate == 1.0 else f"{self.rate:g} x column {self.column!r}"
        return f"{self.fixed:g} + {times}" if self.fixed else times


def prices(review_cost: ReviewCost) -> dict[str, Price]:
    """By name, with `EVERYONE` for anyone else."""
    if isinstance(review_cost, Mapping):
        return {str(name): Price.of(given, str(name)) for name, given in review_cost.items()}
    return {EVERYONE: Price.of(review_cost)}


def plain_review(review_cost: ReviewCost) -> Any:
    """The same as plain numbers, names and tables, for a file."""
    if isinstance(review_cost, Mapping):
        return {name: price.plain() for name, price in prices(review_cost).items()}
    return Price.of(review_cost).plain()


def named_in(review_cost: ReviewCost) -> list[str]:
    """Everybody whom a table of review costs names."""
    return [name for name in review_cost if name != EVERYONE] if isinstance(review_cost, Mapping) else []


def review_columns(review_cost: ReviewCost) -> tuple[str, ...]:
    """The columns of the cases that it names, each once."""
    named = [price.column for price in prices(review_cost).values() if price.column is not None]
    return tuple(dict.fromkeys(named))


def review_costs(
    review_cost: ReviewCost, experts: Sequence[str], columns: pd.DataFrame | None = None
) -> Array:
    """What it costs to ask each of these: (experts,), or (cases, experts) where columns of the cases count.

    `columns` are those of the cases.
    """
    known = prices(review_cost)
    other = known.get(EVERYONE, Price())
    mine = [known.get(name, other) for name in experts]
    fixed = np.array([price.fixed for price in mine], np.float64)
    used = tuple(dict.fromkeys(price.column for price in mine if price.column is not None))
    if not used:
        return fixed
    if columns is None:
        raise ConfigError(f"review costs are per case: give the column {used[0]!r} of the cases")
    amounts = {name: amounts_of(columns, name) for name in used}
    zero = np.zeros(len(columns))
    each = [zero if price.column is None else price.rate * amounts[price.column] for price in mine]
    return np.asarray(fixed + np.column_stack(each))


def amounts_of(columns: pd.DataFrame, name: str) -> Array:
    """A column that review costs name: numbers from 0 on, one per case."""
    if name not in columns:
        raise DataError(f"column {name!r}: missing; a review cost asks for it")
    values = pd.to_numeric(columns[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        first = int(bad.argmax())
        raise DataError(
            f"column {name!r}: {bad.sum()} value(s) are no numbers from 0 on, which a review cost needs, "
            f"first: {show(columns[name].iloc[first])} in case {show(columns.index[first])}"
        )
    return values


def with_prices(review_cost: ReviewCost, machines: Mapping[str, PriceLike | None]) -> ReviewCost:
    """Review costs with the prices of machines: one number (or column) for everybody is for people only.

    A machine that `review_cost` names keeps that.
    """
    if not machines:
        return review_cost
    table: dict[str, PriceLike] = {}
    table |= review_cost if isinstance(review_cost, Mapping) else {EVERYONE: review_cost}
    for name, price in machines.items():
        if name not in table:
            table[name] = 0.0 if price is None else price
    return table


def _is_amount(number: Any) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float | np.number):
        return False
    return math.isfinite(float(number)) and float(number) >= 0
