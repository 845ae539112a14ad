"""Tests that look every minute and still keep their promise: has somebody, or something, changed?

Every labelled decision is right or wrong, and the model says with what chance it should be wrong. What
happened is compared with alternatives ("odds four times as high", "tosses a coin") by the ratio of the two
chances, an exact binomial likelihood ratio. As long as the chance of the event is at most what the null
allows, such a ratio has mean 1 or less, whatever came before: its products are *e-values*. So that a change
is seen whenever it comes, products from every day on are added up (Shiryaev and Roberts):

    R(day) = (R(day before) + 1) x product of the day's ratios

R grows by at most 1 a day on average while nothing has changed, so R reaches c within T days with a chance of
at most T / c, however often one looks (Shin, Ramdas and Rinaldo 2023). `threshold` turns that round.

The null allows more than the model's chance: odds `TOLERATED` times as high are not worth an alert, and
somebody about whom little is known may be off by as much as people differ (`margin_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Array = NDArray[np.float64]

WITHIN_DAYS, CHANCE = 30, 0.05
"""A false alert within so many days has at most this chance: at most one in 600 days on average."""
FALSE_DAYS = WITHIN_DAYS / CHANCE
TOLERATED = 1.25
"""Odds so many times as high as expected are not worth an alert."""
TIMES = (2.0, 4.0, 12.0)
"""Alternatives: the odds are so many times what the null allows."""
PEOPLE_DIFFER = 0.6
"""Standard deviation of people's log-odds of errors around their team's."""
SURE = 1.64
"""Standard deviations that a little-known person may be off."""
LEAST = 0.01
"""No event is taken to be rarer than this for a person, and a tenth of it for a class."""
FORGIVEN = 10.0
"""No more evidence than so many times what an alert needs is held against anybody."""
REMEMBERED = 60
"""Days that are looked back on."""


@dataclass(frozen=True)
class Tally:
    """One day of one person, or of one class: how many, how many events, and the evidence."""

    count: int
    seen: int
    expected: float
    evidence: tuple[float, ...]
    """Log of the product of the ratios, one for each alternative."""

    def __add__(self, other: Tally) -> Tally:
        both = zip(self.evidence, other.evidence, strict=True)
        return Tally(
            self.count + other.count,
            self.seen + other.seen,
            self.expected + other.expected,
            tuple(a + b for a, b in both),
        )


@dataclass(frozen=True)
class Change:
    """What the days say: the evidence that something changed, since when, and what was seen since."""

    evidence: float
    """R, whose growth is at most 1 a day while nothing has changed."""
    needed: float
    tally: Tally
    """Of all days since the evidence is strongest."""
    days: int
    """How many these are, of those with something to count."""

    @property
    def is_odd(self) -> bool:
        """Whether the evidence suffices for an alert."""
        return self.evidence >= self.needed


def margin_of(decisions: float) -> float:
    """Log-odds by which somebody may be off of whom the model learned from so many decisions."""
    known = 1.0 / PEOPLE_DIFFER**2 + 0.15 * decisions  # a decision with 20 % errors tells p (1 - p) = 0.16
    return math.log(TOLERATED) + SURE / math.sqrt(known)


def errors(wrong: Array, expected: Array, margin: float) -> Tally:
    """A day's decisions of one person: which were wrong, and with what chance each should be."""
    null = expit(logit(np.clip(expected, LEAST, 1 - LEAST)) + margin)
    ratios = [expit(logit(null) + math.log(times)) for times in TIMES]
    ratios.append(np.maximum(0.5, null))  # a coin
    return _tally(wrong, expected, [_log_ratio(wrong, other, null) for other in ratios])


def level(happened: Array, expected: Array) -> Tally:
    """A day's labels: which are of a class, with what chance each should be; more and fewer both count."""
    floor = LEAST / 10
    chance, margin = logit(np.clip(expected, floor, 1 - floor)), math.log(TOLERATED)
    found = []
    for sign in (1.0, -1.0):
        null = expit(chance + sign * margin)
        found += [_log_ratio(happened, expit(logit(null) + sign * math.log(t)), null) for t in TIMES[:2]]
    return _tally(happened, expected, found)


def change(days: Sequence[Tally], needed: float) -> Change:
    """The evidence of the latest days that have something to count; `needed` is that of an alert.

    It is kept to `FORGIVEN` times that, so that good days end an alert however long the bad time was.
    """
    latest = list(days[-REMEMBERED:])
    if not latest:
        return Change(0.0, needed, Tally(0, 0, 0.0, ()), 0)
    logs = np.array([day.evidence for day in latest])
    total = np.zeros(logs.shape[1])
    for one in logs:
        total = (total + 1.0) * np.exp(np.clip(one, -600.0, 600.0))
        total = np.minimum(total, FORGIVEN * needed)
    from_day = np.cumsum(logs[::-1], axis=0)[::-1].max(axis=1)
    since = int(from_day.argmax())
    tally = latest[since]
    for day in latest[since + 1 :]:
        tally = tally + day
    return Change(float(total.mean()), needed, tally, len(latest) - since)


def threshold(watched: int, false_days: float = FALSE_DAYS) -> float:
    """The evidence for an alert where so many people (or classes) are watched: the promise is for all."""
    return false_days * max(watched, 1)


def _log_ratio(happened: Array, other: Array, null: Array) -> float:
    return float(np.where(happened == 1, np.log(other / null), np.log1p(-other) - np.log1p(-null)).sum())


def _tally(happened: Array, expected: Array, evidence: Sequence[float]) -> Tally:
    return Tally(len(happened), int(happened.sum()), float(expected.sum()), tuple(evidence))
