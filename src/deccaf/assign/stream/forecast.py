"""What the rest of a day will bring: cases like those of past days, and how many of them.

How many is never sure. The day's number is `arrivals` times a factor that is 1 on average (of a gamma
distribution, on some days a wide one), and the share of it that has come by now is that of past days, give or
take (a beta distribution): both are corrected by how many have come (`Forecast.outlook`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, gammaincinv, gammaln

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.errors import ConfigError, DataError

FEWEST = 50  # rows that stand for the rest of the day, however late it is
FIRM = 64.0  # a day's number of cases is right to an eighth, or as nearly as past days were alike,
UNUSUAL = 6.0  # on seven days of ten, and to two fifths on the others
USUAL = np.array([0.7, 0.3])[:, None]
FIRM_DAYS = 4.0  # past days that the eighth counts for, where their numbers are known
FIRM_CLOCK = 1_000.0  # how alike days are in when their cases come, where the clock was kept,
LOOSE_CLOCK = (32.0, 4.0, 1.0)  # where only the order of arrival was: from all hours alike to any rush,
EVEN_CLOCK = 32.0  # and where nothing was, and all hours are taken to be alike
OUTLOOKS = 5  # equally likely numbers of cases still to come
_GRID = (np.arange(15) + 0.5) / 15
_FINE_GRID = (np.arange(99) + 0.5) / 99  # where the share may be anything
_SPREAD = (np.arange(7) + 0.5) / 7


@dataclass(frozen=True, eq=False)
class Forecast:
    """Losses of past cases, when in the day each came (0 to 1), and how many cases a day has.

    Build it with `of` or `of_days`. A loss of infinity says that the maker may not get the case. `exact`
    means that the number of arrivals is known, not guessed: then lower limits can be promised. `clock` says
    that `at` is the time of the clock, not the place in the order of arrival.
    """

    loss: Floats
    at: Floats
    arrivals: float
    exact: bool = False
    clock: bool = True
    firm: float = FIRM
    """How nearly alike days are in their number of cases: 1 / (relative deviation)^2."""

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
            return cls(rows, np.empty(0), count, exact, clock=False)
        when = np.asarray(at, np.float64)
        if when.shape != (len(rows),) or not ((when >= 0) & (when <= 1)).all():
            raise DataError(f"at: expected a share of the day from 0 to 1 for each of {len(rows)} cases")
        order = np.argsort(when, kind="stable")
        return cls(rows[order], when[order], count, exact)

    @classmethod
    def of_days(cls, days: Sequence[ArrayLike], at: Sequence[ArrayLike] | None = None) -> Forecast:
        """Past days, each a loss matrix in order of arrival: their mix, their pattern, their mean length.

        `at` holds for each day the times of its cases by the clock, as shares of the day. Without it the
        pattern is one of the order of arrival, and the clock says little about how many are still to come.
        """
        tables = [checked_rows(day) for day in days]
        if not tables:
            raise DataError("forecast: no past days")
        if at is not None and [len(times) for times in map(np.atleast_1d, at)] != [len(d) for d in tables]:
            raise DataError(f"at: expected the times of the cases of each of {len(tables)} days")
        order = [(np.arange(len(day)) + 0.5) / max(len(day), 1) for day in tables]
        times = np.concatenate(order if at is None else [np.asarray(day, np.float64) for day in at])
        numbers = np.array([len(day) for day in tables], np.float64)
        found = cls.of(np.concatenate(tables), float(numbers.mean()), times)
        return replace(found, clock=at is not None, firm=_firmness(numbers))

    def remaining(self, seen: int, now: float | None) -> float:
        """Cases still to come; `now` is the share of the day that is over, where there is a clock."""
        return float(self.outlook(seen, now).mean())

    def outlook(self, seen: int, now: float | None) -> Floats:
        """Numbers of cases still to come that are equally likely, given how many have come by now."""
        if self.exact:
            return np.array([max(self.arrivals - seen, 0.0)])
        if now is None:
            return np.array([max(self.arrivals - seen, sqrt(self.arrivals), 1.0)])
        if now >= 1.0:
            return np.ones(1)  # late arrivals
        over = min(max(self._over(now), 1e-3), 1.0 - 1e-3)
        if not self.arrivals:  # nothing was known before: as many a minute as so far
            so_far = np.asarray(gammaincinv(seen + 1.0, _SPREAD), dtype=np.float64)
            return np.maximum(so_far * (1.0 - over) / over, 1.0)
        firm, grid = np.array(self._clocks())[:, None], _GRID if self.clock else _FINE_GRID
        come = np.clip(betaincinv(firm * over, firm * (1.0 - over), grid), 1e-6, 1.0 - 1e-6).ravel()
        due, number = self.arrivals * come, np.array([self.firm, UNUSUAL])[:, None]
        # how likely the number that came is for each share and kind of day, the day's factor integrated out
        log = gammaln(number + seen) - gammaln(number) + np.log(USUAL)
        log = log + number * np.log(number / (number + due))
        log = log + seen * np.log(due / (number + due))
        chance = np.exp(log - log.max())
        factor = gammaincinv(number + seen, _SPREAD[:, None, None]) / (number + due)
        left = (self.arrivals - due) * factor
        return np.maximum(_quantiles(left, np.broadcast_to(chance, left.shape)), 1.0)

    def first_after(self, place: float) -> int:
        """The first of the rows that stand for the rest of the day, from a place in its pattern on."""
        first = int(np.searchsorted(self.at, place, side="right")) if len(self.at) else 0
        return max(min(first, len(self.loss) - FEWEST), 0)

    def rest_of_day(self, seen: int, now: float | None, size: int, rng: np.random.Generator) -> Floats:
        """At most `size` rows, drawn from those that came later in the day than it is now."""
        place = now if now is not None and self.clock else seen / max(self.arrivals, 1.0)
        rows: Ints = np.arange(self.first_after(place), len(self.loss))
        if len(rows) > size:
            rows = np.sort(rng.choice(rows, size, replace=False))
        drawn: Floats = self.loss[rows]
        return drawn

    def _clocks(self) -> tuple[float, ...]:
        """How firmly the share that has come by now is known; equally likely."""
        if not len(self.at):
            return (EVEN_CLOCK,)
        return (min(FIRM_CLOCK, max(float(len(self.at)), 8.0)),) if self.clock else LOOSE_CLOCK

    def _over(self, now: float) -> float:
        """The share of a day's cases that has come by now on past days."""
        if not len(self.at) or not self.clock:
            return now
        return float(np.searchsorted(self.at, now, side="right")) / len(self.at)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for a file."""
        return {
            "loss": plain_rows(self.loss),
            "at": self.at.tolist(),
            "arrivals": self.arrivals,
            "exact": self.exact,
            "clock": self.clock,
            "firm": self.firm,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], makers: int) -> Forecast:
        """Rebuild what `to_dict` gave."""
        rows = rows_from_plain(data["loss"], makers)
        at = np.asarray(data["at"], np.float64)
        clock, firm = bool(data.get("clock", True)), float(data.get("firm", FIRM))
        return cls(rows, at, float(data["arrivals"]), bool(data["exact"]), clock, firm)


def _firmness(numbers: Floats) -> float:
    """How nearly alike days are, from the cases of each: what exceeds chance, beside an eighth beforehand."""
    mean = float(numbers.mean())
    if len(numbers) < 2 or mean <= 0:
        return FIRM
    excess = float(((numbers - mean) ** 2).sum()) / mean**2 - (len(numbers) - 1) / mean
    return (FIRM_DAYS + len(numbers) - 1) / max(FIRM_DAYS / FIRM + excess, FIRM_DAYS / FIRM / 4)


def _quantiles(values: Floats, chance: Floats) -> Floats:
    """Equally likely values of a distribution on points with chances."""
    order = np.argsort(values, axis=None)
    reached = np.cumsum(chance.ravel()[order])
    at = (np.arange(OUTLOOKS) + 0.5) / OUTLOOKS * reached[-1]
    return np.asarray(values.ravel()[order][np.searchsorted(reached, at)])


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
