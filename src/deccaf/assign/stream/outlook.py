"""Prices from what may still come: how many cases, and which, given the forecast and what came today.

The price of a unit is its mean worth over draws of the rest of the day: of equally likely numbers of cases
(`Forecast.outlook`), and of cases from the hours to come, weighed by how today's differ (`difficulty`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deccaf.assign.exact.scan import Bools, Floats, Ints
from deccaf.assign.stream.bid_prices import bid_prices
from deccaf.assign.stream.difficulty import summaries, tilt
from deccaf.assign.stream.forecast import Forecast

SAMPLE = 500  # cases that stand for the rest of the day, or
SAMPLE_PER_MAKER = 20  # so many for each maker
MOST_DRAWS = 8  # of the rest of the day, where few cases are left
FEWEST_TODAY = 10  # cases before today is told from other days
ALIKE = 20.0  # people are alike beforehand, as if so many cases had said so;
MOST_ALIKE = 100  # from so many of today's cases on these speak for themselves
MOST_TODAY = 2_000  # of today's cases that are looked at, and of past ones beside them


@dataclass(frozen=True, eq=False)
class Today:
    """What has come today: losses of the latest cases, where in the day they came, how many in all."""

    rows: Floats
    at: Floats
    seen: int
    now: float | None
    """The share of the day that is over, where there is a clock."""
    place: float
    """Where in the pattern of the day the next case stands: by the clock, or by the order of arrival."""

    @classmethod
    def by_clock(cls, rows: Floats, at: Floats, seen: int, now: float) -> Today:
        """A day with a clock."""
        return cls(rows, at, seen, now, now)


def mean_prices(
    forecast: Forecast, today: Today, room: Ints, owed: Ints, limited: Bools, before: Floats, seed: list[int]
) -> Floats:
    """What a unit of everybody's time is worth on average; `before` where nothing can be said."""
    rng = np.random.default_rng(seed)
    outlook = forecast.outlook(today.seen, today.now)
    pool, chance = _to_come(forecast, today, float(outlook.mean()), limited)
    if not len(pool) or outlook.mean() < 1 or not room.any():
        return before
    size = max(SAMPLE, SAMPLE_PER_MAKER * len(room))
    # where few are left it matters which they are: then more draws are looked at
    draws = np.resize(outlook, max(len(outlook), min(int(size / max(outlook.mean(), 1.0)), MOST_DRAWS)))
    found = []
    for left in draws:
        count = size if len(draws) == 1 else int(min(max(round(float(left)), 1), size))
        rows = _drawn(pool, chance, count, rng)
        found.append(bid_prices(rows, room, owed, float(left), before))
    return np.asarray(np.mean(found, axis=0))


def _to_come(forecast: Forecast, today: Today, left: float, limited: Bools) -> tuple[Floats, Floats | None]:
    """Rows that stand for the rest of the day, and their chances where these differ.

    With a pattern of the day, the morning says little about the evening: then today's cases weigh the
    forecast's. Without one, they stand beside them.
    """
    first = forecast.first_after(today.place)
    past, recent = forecast.loss[first:], today.rows[-MOST_TODAY:]
    if not len(recent):
        return past, None
    if not len(past):
        return _with_alike(recent, limited)
    chance = np.ones(len(past))
    if len(recent) >= FEWEST_TODAY:
        chance = _tilted(forecast, today, first, limited)
    chance /= chance.sum()
    if len(forecast.at):
        return past, chance
    share = today.seen / (2 * (today.seen + left))
    mine = np.full(len(recent), share / len(recent))
    return np.concatenate([past, recent]), np.concatenate([(1 - share) * chance, mine])


def _with_alike(rows: Floats, limited: Bools) -> tuple[Floats, Floats | None]:
    """Today's first cases, and the same cases with people in each other's place.

    A few cases say little of who is better than whom: until there are more, people are taken to be alike
    as far as `ALIKE` cases would say so.
    """
    people = np.flatnonzero(limited)
    if len(people) < 2 or len(rows) >= MOST_ALIKE or not np.isfinite(rows).all():
        return rows, None
    turned = []
    for turn in range(1, len(people)):
        other = rows.copy()
        other[:, people] = rows[:, np.roll(people, turn)]
        turned.append(other)
    share = ALIKE / (ALIKE + len(rows)) * (len(people) - 1) / len(people)
    chance = np.repeat([(1 - share), share / len(turned)], [len(rows), len(rows) * len(turned)]) / len(rows)
    return np.concatenate([rows, *turned]), chance


def _tilted(forecast: Forecast, today: Today, first: int, limited: Bools) -> Floats:
    """Weights of the forecast's rows from `first` on, by how today's cases differ from past ones."""
    over = max(int(np.searchsorted(forecast.at, today.place, side="right")), FEWEST_TODAY)
    before = np.arange(over if len(forecast.at) else len(forecast.loss))[:: over // MOST_TODAY + 1]
    rest = np.arange(first, len(forecast.loss))
    if len(forecast.at):
        before_at, rest_at = forecast.at[before], forecast.at[rest]
    else:
        before_at = np.linspace(0, today.place, len(before))
        rest_at = np.full(len(rest), (1 + today.place) / 2)
    recent = summaries(today.rows[-MOST_TODAY:], limited)
    return tilt(
        summaries(forecast.loss[before], limited),
        before_at,
        recent,
        today.at[-MOST_TODAY:],
        summaries(forecast.loss[rest], limited),
        rest_at,
    )


def _drawn(pool: Floats, chance: Floats | None, count: int, rng: np.random.Generator) -> Floats:
    """So many rows; each at most once where chances are alike and there are enough."""
    if chance is None and count <= len(pool):
        return np.asarray(pool[np.sort(rng.choice(len(pool), count, replace=False))])
    even = np.ones(len(pool)) if chance is None else chance
    order = rng.permutation(len(pool))  # then as evenly as chance allows
    ends = np.cumsum(even[order])
    at = (np.arange(count) + rng.random()) / count * ends[-1]
    return np.asarray(pool[order[np.minimum(np.searchsorted(ends, at, side="right"), len(pool) - 1)]])
