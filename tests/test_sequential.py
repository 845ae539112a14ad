"""Tests that look every day: their promise by enumeration, what few labels add up to, and weekends."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from deccaf.evaluate import sequential
from deccaf.evaluate.drift import profile
from deccaf.evaluate.sequential import Tally, change, errors, level, margin_of, threshold
from deccaf.service.monitor import checks


def tallies(wrong: list[list[int]], expected: float, margin: float = 0.0) -> list[Tally]:
    return [errors(np.array(day, float), np.full(len(day), expected), margin) for day in wrong]


@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_evidence_grows_by_one_a_day_where_nothing_changed(margin: float) -> None:
    """All outcomes of three days with two decisions each, at the chance that the null allows at most."""
    chance = float(expit(logit(0.2) + margin))
    mean = 0.0
    for path in itertools.product([0, 1], repeat=6):
        days = np.array(path).reshape(3, 2).tolist()
        weight = np.prod([chance if one else 1 - chance for one in path])
        mean += weight * change(tallies(days, 0.2, margin), np.inf).evidence
    assert mean == pytest.approx(3.0)


def test_the_share_of_a_class_is_tested_both_ways() -> None:
    for sign in (1, -1):
        chance = float(expit(logit(0.1) + sign * np.log(sequential.TOLERATED)))
        ratios = [np.exp(level(np.array([float(x)]), np.array([0.1])).evidence) for x in (0, 1)]
        mean = (1 - chance) * ratios[0] + chance * ratios[1]
        assert (mean <= 1 + 1e-9).all()
    more, fewer = level(np.ones(20), np.full(20, 0.5)), level(np.zeros(20), np.full(20, 0.5))
    assert max(more.evidence) == pytest.approx(max(fewer.evidence))
    assert max(more.evidence) > 5


def test_somebody_always_wrong_is_seen_after_few_days_with_five_labels_a_day() -> None:
    needed = threshold(10)
    days = tallies([[0, 0, 1, 0, 0]] * 20 + [[1] * 5] * 3, 0.2, margin_of(100))
    assert not any(change(days[:k], needed).is_odd for k in range(1, 21))
    found = change(days, needed)
    assert found.is_odd
    assert (found.days, found.tally.count, found.tally.seen) == (3, 15, 15)
    good = tallies([[0] * 5] * 10, 0.2, margin_of(100))
    assert not change(days + good, needed).is_odd  # forgiven after good days


def test_little_known_people_have_the_benefit_of_the_doubt() -> None:
    assert margin_of(0) > margin_of(30) > margin_of(3000) > np.log(sequential.TOLERATED)
    bad = [[1, 0, 1, 0, 0]] * 8
    known, new = (change(tallies(bad, 0.15, margin_of(n)), threshold(10)) for n in (1000, 0))
    assert known.evidence > 10 * new.evidence


def test_fraud_from_one_to_three_per_cent_is_seen() -> None:
    rng = np.random.default_rng(5)
    p = np.full(200, 0.01)
    quiet = [level((rng.random(200) < 0.01).astype(float), p) for _ in range(30)]
    assert not any(change(quiet[:k], threshold(1)).is_odd for k in range(1, 31))
    risen = [level((rng.random(200) < 0.03).astype(float), p) for _ in range(12)]
    assert change(quiet + risen, threshold(1)).is_odd


def test_a_weekend_is_compared_with_weekends() -> None:
    rng = np.random.default_rng(6)

    def day(mean: float) -> pd.DataFrame:
        return pd.DataFrame({"x": rng.normal(mean, 1.0, 300)})

    known = profile(day(0.0)["x"])
    weekdays, weekend = [day(0.0), day(0.0)], day(1.0)

    def odd(frame: pd.DataFrame, weeks: list[pd.DataFrame], days: list[pd.DataFrame]) -> bool:
        return checks.unlike_its_weekday(lambda cases: cases["x"], known, frame, weeks, days)

    assert not odd(weekend, [day(1.0)], weekdays)  # as last weekend
    assert odd(weekend, [day(0.0)], weekdays)  # unlike the same weekday
    assert not odd(weekend, [], weekdays)  # the first weekend: nothing to compare it with
    assert odd(day(1.0), [], [day(1.0), day(1.0)])  # no weekend lasts three days
