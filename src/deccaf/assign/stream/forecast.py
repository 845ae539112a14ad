"""What the rest of a day will bring: cases like those of past days, and how many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.errors import ConfigError, DataError

FEWEST = 50  # rows that stand for the rest of the day, however late it is
DAYS_OF_DOUBT = 0.25  # of a day's arrivals: how much a busy morning must show before the evening is doubted


@dataclass(frozen=True, eq=False)
class Forecast:
    """Losses of past cases, when in the day each came (0 to 1), and how many cases a day has.

    Build it with `of` or `of_days`. A loss of infinity says that the maker may not get the case. `exact`
    means that the number of arrivals is known, not guessed: then lower limits can be promised.
    """

    loss: Floats
    at: Floats
    arrivals: float
    exact: bool = False

    @classmethod
    def of(
        cls,
        loss: ArrayLike,
        arrivals: float | None = None,
        at: ArrayLike | None = None,
        exact: bool = False,
    ) -> Forecast:
        """One sample of cases; without `arrivals` a day has as many, without `at` all hours are alike."""
        rows = checked_rows(loss)
        count = float(len(rows) if arrivals is None else arrivals)
        if not (np.isfinite(count) and count >= 0) or (exact and count != round(count)):
            raise ConfigError(f"arrivals: expected a number of cases a day, got {arrivals}")
        if at is None:
            return cls(rows, np.empty(0), count, exact)
        when = np.asarray(at, np.float64)
        if when.shape != (len(rows),) or not ((when >= 0) & (when <= 1)).all():
            raise DataError(f"at: expected a share of the day from 0 to 1 for each of {len(rows)} cases")
        order = np.argsort(when, kind="stable")
        return cls(rows[order], when[order], count, exact)

    @classmethod
    def of_days(cls, days: Sequence[ArrayLike]) -> Forecast:
        """Past days, each a loss matrix in order of arrival: their mix, their pattern, their mean length."""
        tables = [checked_rows(day) for day in days]
        if not tables:
            raise DataError("forecast: no past days")
        at = np.concatenate([(np.arange(len(day)) + 0.5) / max(len(day), 1) for day in tables])
        return cls.of(np.concatenate(tables), float(np.mean([len(day) for day in tables])), at)

    def remaining(self, seen: int, now: float | None) -> float:
        """Cases still to come; `now` is the share of the day that is over, where there is a clock."""
        if self.exact:
            return max(self.arrivals - seen, 0.0)
        if now is None:
            return max(self.arrivals - seen, sqrt(self.arrivals), 1.0)
        over = self._over(now)
        doubt = DAYS_OF_DOUBT * self.arrivals
        busy = (seen + doubt) / (self.arrivals * over + doubt) if doubt else 1.0
        return max(self.arrivals * (1.0 - over) * busy, 1.0)

    def rest_of_day(self, seen: int, now: float | None, size: int, rng: np.random.Generator) -> Floats:
        """At most `size` rows, drawn from those that came later in the day than it is now."""
        first = 0
        if len(self.at):
            when = now if now is not None else min(seen / max(self.arrivals, 1.0), 1.0)
            first = int(np.searchsorted(self.at, when, side="right"))
        first = max(min(first, len(self.loss) - FEWEST), 0)
        rows: Ints = np.arange(first, len(self.loss))
        if len(rows) > size:
            rows = np.sort(rng.choice(rows, size, replace=False))
        drawn: Floats = self.loss[rows]
        return drawn

    def _over(self, now: float) -> float:
        if not len(self.at):
            return now
        return float(np.searchsorted(self.at, now, side="right")) / len(self.at)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for a file."""
        return {
            "loss": plain_rows(self.loss),
            "at": self.at.tolist(),
            "arrivals": self.arrivals,
            "exact": self.exact,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], makers: int) -> Forecast:
        """Rebuild what `to_dict` gave."""
        rows = rows_from_plain(data["loss"], makers)
        return cls(rows, np.asarray(data["at"], np.float64), float(data["arrivals"]), bool(data["exact"]))


def checked_rows(loss: ArrayLike) -> Floats:
    """Cases x makers, numbers or infinity, with somebody for every case."""
    rows = np.asarray(loss, np.float64)
    if rows.ndim != 2:
        raise DataError(f"loss: expected cases x makers, got {rows.ndim} dimensions")
    wrong = np.isnan(rows).any(axis=1) | (rows == -np.inf).any(axis=1) | ~np.isfinite(rows).any(axis=1)
    if len(rows) and wrong.any():
        raise DataError(f"loss: {wrong.sum()} cases have no usable loss, first: row {int(wrong.argmax())}")
    return rows


def plain_rows(rows: Floats) -> list[list[float | None]]:
    """Rows for JSON, which has no infinity."""
    return [[value if value < np.inf else None for value in row] for row in rows.tolist()]


def rows_from_plain(rows: list[list[float | None]], makers: int) -> Floats:
    """The rows that `plain_rows` gave."""
    values = [[np.inf if value is None else value for value in row] for row in rows]
    return np.asarray(values, np.float64).reshape(len(values), makers)
