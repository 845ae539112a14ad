"""Days of a review desk: when cases come, what each costs whoever decides it, how long it takes, who leaves.

Five kinds of day. What policies may know (`believed` losses, usual minutes) is kept apart from what is so
(`loss`, `hours`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KINDS = ("steady", "peaks", "absences", "mixed urgency", "overload")
PEOPLE = 8
LENGTH = 8.0
"""Hours of a day."""
_COST = 0.25
"""A false alarm, in missed cases."""


@dataclass(frozen=True, eq=False)
class Day:
    """One day; cases in order of arrival, makers are the machine and then the people."""

    arrival: Floats
    kind: NDArray[np.int64]
    """0: urgent, 1: usual, 2: can wait."""
    loss: Floats
    """(cases, makers): the true expected cost of errors."""
    believed: Floats
    """The same, as models estimate it."""
    hours: Floats
    """(cases, makers): how long it will take; the machine no time."""
    usual: Floats
    """(cases, makers): how long is expected."""
    rate: Floats
    due: Floats
    late: Floats
    late_rate: Floats
    leaves: Floats
    """(makers,): when each goes home."""


@dataclass(frozen=True)
class _Kind:
    cases: float = 560.0
    peaks: tuple[tuple[float, float, float], ...] = ()
    """Middle, width, share of the cases."""
    mix: tuple[float, float, float] = (0.15, 0.45, 0.40)
    absent: int = 0


_KINDS = {
    "steady": _Kind(),
    "peaks": _Kind(peaks=((2.0, 0.5, 0.3), (5.5, 0.5, 0.3))),
    "absences": _Kind(absent=2),
    "mixed urgency": _Kind(mix=(0.35, 0.05, 0.60)),
    "overload": _Kind(cases=800.0),
}


class Desk:
    """A team whose people differ, and the days that it has."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self.speed = np.exp(rng.normal(0.0, 0.25, PEOPLE))
        self.base = rng.normal(0.0, 0.35, PEOPLE)
        self.strong = rng.normal(0.0, 0.8, (PEOPLE, 4))
        """By area of cases: how much more seldom somebody errs there, as log-odds."""

    def day(self, kind: str, seed: int) -> Day:
        """A day of this kind."""
        what, rng = _KINDS[kind], np.random.default_rng([seed, 2, KINDS.index(kind)])
        count = int(rng.poisson(what.cases * np.exp(rng.normal(0.0, 0.08))))
        arrival = np.sort(self._arrivals(what, count, rng))
        urgent = rng.choice(3, count, p=what.mix)
        area, difficulty = rng.integers(0, 4, count), rng.normal(0.0, 1.0, count)
        chance, amount = rng.beta(0.8, 1.6, count), np.exp(rng.normal(0.0, 0.6, count))
        machine = amount * np.minimum(chance, _COST * (1.0 - chance))
        stake = amount * (chance + _COST * (1.0 - chance))
        odds = -2.2 + 0.7 * difficulty[:, None] + self.base - self.strong[:, area].T
        people = stake[:, None] / (1.0 + np.exp(-odds))
        noisy = stake[:, None] / (1.0 + np.exp(-(odds + rng.normal(0.0, 0.35, odds.shape))))
        length = 0.1 * np.exp(0.25 * difficulty + rng.normal(0.0, 0.3, count))
        usual = length[:, None] * self.speed
        took = usual * np.exp(rng.normal(-0.06, 0.35, usual.shape))
        rate, due, late, late_rate = _urgency(urgent, arrival, amount, rng)
        leaves = np.full(PEOPLE + 1, LENGTH)
        gone = 1 + rng.choice(PEOPLE, what.absent, replace=False)
        leaves[gone] = rng.uniform(1.0, 4.0, what.absent)
        none = np.zeros((count, 1))
        return Day(
            arrival,
            urgent,
            np.column_stack([machine, people]),
            np.column_stack([machine * np.exp(rng.normal(0.0, 0.1, count)), noisy]),
            np.hstack([none, took]),
            np.hstack([none, usual]),
            rate,
            due,
            late,
            late_rate,
            leaves,
        )

    def _arrivals(self, what: _Kind, count: int, rng: np.random.Generator) -> Floats:
        """Through the first seven and a half hours, some of them in peaks."""
        at = rng.uniform(0.0, LENGTH - 0.5, count)
        share, start = rng.random(count), 0.0
        for middle, width, part in what.peaks:
            here = (share >= start) & (share < start + part)
            at[here] = rng.normal(middle + rng.normal(0.0, 0.2), width, int(here.sum()))
            start += part
        return np.asarray(np.clip(at, 0.0, LENGTH - 0.5))


def _urgency(
    kind: NDArray[np.int64], arrival: Floats, amount: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats, Floats]:
    """What waiting costs: urgent cases lose at once and at a set time, usual ones by the hour, some never."""
    each = rng.uniform(0.5, 1.5, len(kind))
    rate = np.array([0.15, 0.03, 0.0])[kind] * amount * each
    room = np.where(kind == 0, rng.uniform(0.4, 1.2, len(kind)), rng.uniform(1.5, 4.0, len(kind)))
    due = np.where(kind == 2, LENGTH, arrival + room)
    late = np.array([0.20, 0.05, 0.02])[kind] * amount
    late_rate = np.array([0.10, 0.05, 0.0])[kind] * amount
    return rate, due, late, late_rate
