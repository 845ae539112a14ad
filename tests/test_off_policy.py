"""Evaluation from logs: by hand, by simulation with a known truth, and what is said about bad logs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deccaf.errors import ConfigError, DataError
from deccaf.evaluate.fairness import by_group
from deccaf.evaluate.off_policy import Logged, logged, mean_with_interval
from deccaf.evaluate.propensity import estimate_propensities, given_propensities_notes


def test_estimates_by_hand() -> None:
    """Four cases, two experts with propensity 1/2. The new policy: machine, ann, ann, bob.

    The log: bob, ann, bob, bob; costs 1, 1, 0, 4. The machine errs for 3 on the first case.
    """
    both = logged(
        chance=[0, 1, 0, 1],
        propensity=[0.5] * 4,
        cost=[1, 1, 0, 4],
        machine_cost=[3, 0, 0, 0],
        predicted=[1, 2, 1, 3],
        predicted_new=[0, 2, 1.5, 3],
    )
    assert both.inverse_propensity().tolist() == [3, 2, 0, 8]
    assert both.doubly_robust().tolist() == [3, 2 + 2 * (1 - 2), 1.5, 3 + 2 * (4 - 3)]
    assert both.effective_cases() == 2


def test_intervals_by_hand() -> None:
    found = mean_with_interval([1.0, 2.0, 3.0, 4.0])
    error = np.std([1, 2, 3, 4], ddof=1) / 2
    assert (found.value, found.error) == (2.5, pytest.approx(error))
    assert found.high - found.value == pytest.approx(1.959964 * error, rel=1e-6)
    twice = mean_with_interval([1.0, 2.0, 3.0, 4.0] * 2, group=[0, 1, 2, 3] * 2)
    assert twice.error == pytest.approx(error)  # the same four again are not more evidence
    assert found.per_100().value == 250


def simulated(rng: np.random.Generator, strength: float, n: int = 1500) -> Logged:
    """A one-decision log of three experts of known skill; gives what the estimates need."""
    x = rng.normal(size=n)
    wrong = 1 / (1 + np.exp(2 - np.outer(x, [1.0, 0.0, -1.0])))
    lean = np.exp(strength * np.outer(x, [1.0, 0.0, -1.0]))
    propensity = lean / lean.sum(axis=1, keepdims=True)
    who = (propensity.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    cost = (rng.random(n) < wrong[np.arange(n), who]) * rng.exponential(2, n)
    target = np.where(x > 0, 2, 0)  # the better one of the two that differ
    here = np.arange(n)
    crude = np.full((n, 3), 0.3)  # a wrong model of costs: the estimate must not need it
    return logged(
        target == who, propensity[here, who], cost, np.zeros(n), crude[here, who], crude[here, target]
    )


@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_intervals_cover_the_true_cost(strength: float) -> None:
    """95 % intervals, 200 repetitions: 90 to 99 % must hold the truth, for random and other histories."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=2_000_000)
    truth = 2 * (1 / (1 + np.exp(2 + np.abs(x)))).mean()
    hits = np.zeros(2)
    for _ in range(200):
        both = simulated(rng, strength)
        for k, terms in enumerate((both.inverse_propensity(), both.doubly_robust())):
            found = mean_with_interval(terms, event=both.event())
            hits[k] += found.low <= truth <= found.high
    assert ((hits >= 180) & (hits <= 198)).all(), hits


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 1.0))
def test_the_policy_of_the_log_is_estimated_by_its_own_costs(seed: int, rate: float) -> None:
    """Where the new policy draws as the old one did, every weight is 1."""
    rng = np.random.default_rng(seed)
    propensity = np.full(20, rate)
    cost = rng.random(20)
    both = logged(propensity, propensity, cost, np.zeros(20), cost, rng.random(20))
    np.testing.assert_allclose(both.inverse_propensity(), cost)


def test_propensities_of_random_history_are_shares() -> None:
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"x": rng.normal(size=800), "kind": pd.Categorical(rng.choice(["a", "b"], 800))})
    expert = rng.choice(3, 800, p=[0.5, 0.3, 0.2])
    found = estimate_propensities(features, expert, 3)
    assert found.random
    assert found.notes() == []
    np.testing.assert_allclose(found.chance[0], np.bincount(expert) / 800, atol=0.01)


def test_a_history_that_was_not_random_is_noticed_with_numbers() -> None:
    rng = np.random.default_rng(1)
    x = np.where(rng.random(800) < 0.05, np.nan, 2 * rng.normal(size=800))
    lean = np.exp(np.outer(np.nan_to_num(x), [2.0, 0.0, -2.0]))
    chance = lean / lean.sum(axis=1, keepdims=True)
    expert = (chance.cumsum(axis=1) < rng.random((800, 1))).sum(axis=1)
    found = estimate_propensities(pd.DataFrame({"x": x}), expert, 3)
    assert not found.random
    words = " ".join(found.notes())
    assert "history was not random" in words
    assert "little overlap" in words
    assert np.abs(found.chance - chance).mean() < 0.08
    assert given_propensities_notes([0.2, 0.2]) == []
    assert "0.010 to 0.500" in given_propensities_notes([0.01, 0.5])[0]


def test_wrong_parts_are_named() -> None:
    with pytest.raises(DataError, match="propensity"):
        logged([1], [0], [1], [0], [0], [0])
    with pytest.raises(DataError, match="lengths differ"):
        logged([1, 0], [0.5], [1], [0], [0], [0])
    with pytest.raises(DataError, match="chances"):
        logged([2], [0.5], [1], [0], [0], [0])
    with pytest.raises(DataError, match="missing"):
        logged([1], [0.5], [np.nan], [0], [0], [0])
    with pytest.raises(ConfigError, match="interval"):
        mean_with_interval([])
    with pytest.raises(DataError, match="too few"):
        estimate_propensities(pd.DataFrame({"x": [1.0]}), np.array([0]), 1)


def test_groups_have_their_costs_and_rates() -> None:
    """Group a: one false positive of two; group b: one false negative of two, which costs 1."""
    table = by_group([0, 0, 1, 1], [0, 1, 1, 0], [0.0, 0.1, 0.0, 1.0], ["a", "a", "b", "b"])
    assert table["cost per 100"].tolist() == [pytest.approx(5), pytest.approx(50)]
    assert table["cases"].tolist() == [2, 2]
    assert table["false-positive rate"].tolist() == [0.5, 0.0]
    assert table["false-negative rate"].tolist() == [0.0, 0.5]
    three = by_group([0, 1, 2], [0, 1, 1], [0.0, 0.0, 1.0], ["a", "a", "a"], classes=3)
    assert three["accuracy"].tolist() == [pytest.approx(2 / 3)]
    with pytest.raises(DataError, match="lengths differ"):
        by_group([0], [0, 1], [0.0], ["a"])
