"""Evaluation from logs: by hand, by simulation with a known truth, and what is said about bad logs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deccaf.errors import ConfigError, DataError
from deccaf.evaluate.fairness import COST, by_group
from deccaf.evaluate.hidden_reasons import lower_costs, strength_that_undoes, upper_costs
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


def test_groups_have_their_costs_and_rates_with_counts_and_intervals() -> None:
    """Group a: one false positive of two; group b: one false negative of two, which costs 1."""
    decided = np.eye(2)[[0, 1, 1, 0]]
    table = by_group([0, 0, 1, 1], decided, [0.0, 0.1, 0.0, 1.0], ["a", "a", "b", "b"])
    wide = table.pivot(index="group", columns="measure", values="value")
    assert wide[COST].tolist() == [pytest.approx(5), pytest.approx(50)]
    assert wide["share decided positive"].tolist() == [0.5, 0.5]
    assert wide["false-positive rate"]["a"] == 0.5
    assert wide["false-negative rate"]["b"] == 0.5
    counts = table.pivot(index="group", columns="measure", values="cases")
    assert counts.loc["a", [COST, "false-positive rate", "false-negative rate"]].tolist() == [2, 2, 0]
    assert np.isnan(wide.loc["a", "false-negative rate"])  # no positive case says anything about it
    known = table.dropna()
    assert ((known["low"] <= known["value"]) & (known["value"] <= known["high"])).all()
    assert (known["low"] >= 0).all()
    three = by_group([0, 1, 2], np.eye(3)[[0, 1, 1]], [0.0, 0.0, 1.0], ["a", "a", "a"])
    assert three.set_index("measure")["value"]["accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="lengths differ"):
        by_group([0], np.eye(2), [0.0], ["a"])


def test_weights_are_bounded_by_the_stated_rule() -> None:
    """Two thousand cases that agree with weight 2, and one with weight 1000: the cap is a multiple of 2."""
    rng = np.random.default_rng(0)
    chance, propensity = np.ones(2001), np.append(np.full(2000, 0.5), 0.001)
    cost = (rng.random(2001) < 0.1).astype(float)
    agreed = np.append(rng.random(2000) < 0.5, True)
    free = logged(chance * agreed, propensity, cost, 0 * cost, 0 * cost + 0.1, 0 * cost + 0.1)
    found = free.bounded()
    assert found.cap in (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    assert found.weight.sum() == pytest.approx(2001)  # they stand for all cases that go to people
    assert found.effective_cases() > 500 > free.effective_cases()
    assert found.bias_bound >= found.likely_bias > 0
    assert found.overlaps()
    same = logged(chance[:-1] * agreed[:-1], propensity[:-1], *[0 * cost[:-1] + 0.1] * 4)
    assert same.bounded().cap == np.inf  # nothing stands out


def test_intervals_hold_the_truth_where_weights_are_capped() -> None:
    """A sharp rule, recorded: the cap moves the estimate, and the interval knows how far it is likely to."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=1_000_000)
    truth = 2 * (1 / (1 + np.exp(2 + np.abs(x)))).mean()
    plain = wide = 0
    for _ in range(100):
        both = simulated(rng, 1.6).bounded()
        terms = both.doubly_robust()
        for bias in (0.0, both.likely_bias):
            found = mean_with_interval(terms, event=both.event(), bias=bias)
            held = found.low <= truth <= found.high
            plain, wide = (plain + held, wide) if not bias else (plain, wide + held)
    assert wide >= 92
    assert wide >= plain
    by_hand = mean_with_interval([1.0, 2.0, 3.0, 4.0], bias=0.5)
    reach = mean_with_interval([1.0, 2.0, 3.0, 4.0]).high - 2.5
    assert by_hand.high - 2.5 == pytest.approx(np.hypot(reach, 0.5))


def test_a_plan_that_history_never_tried_is_noticed() -> None:
    """Half of the cases go to people who never got such cases."""
    n = 400
    agreed = np.arange(n) % 4 == 0
    both = logged(agreed, np.full(n, 0.5), *[np.full(n, 0.1)] * 4, asked=np.ones(n))
    assert not both.overlaps()
    assert both.reached() == 0.5
    assert both.bounded().weight.sum() == pytest.approx(n / 2)  # not scaled up to what it says nothing about


def test_savings_have_the_same_allowance_for_rare_events() -> None:
    terms = np.zeros(500)
    terms[:3] = -9.0
    found, plain = mean_with_interval(terms, event_below=9.0), mean_with_interval(terms)
    mirrored = mean_with_interval(-terms, event=9.0)
    assert (found.low, found.high) == (pytest.approx(-mirrored.high), pytest.approx(-mirrored.low))
    assert found.low < plain.low
    assert mean_with_interval(-terms).per_100(least=0.0).low >= 0.0


def turnover(rng: np.random.Generator, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Six people, of whom the last three come in the middle, when the first two leave; gives who, and chances."""
    early, late = np.array([1, 1, 1, 0, 0, 0]) / 3, np.array([0, 0, 1, 1, 1, 1]) / 4
    chance = np.where(np.arange(n)[:, None] < n // 2, early, late)
    return (chance.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), chance


def test_propensities_are_estimated_among_those_present() -> None:
    rng = np.random.default_rng(3)
    who, chance = turnover(rng)
    features = pd.DataFrame({"x": rng.normal(size=len(who))})
    found = estimate_propensities(features, who, 6, time=np.arange(len(who)))
    assert found.random
    assert np.abs(found.chance - chance).mean() < 0.02
    assert found.present is not None
    assert found.present[0].tolist() == [True, True, True, False, False, False]
    assert "people came and went: of 6 between" in found.notes()[0]
    blind = estimate_propensities(features, who, 6)
    assert np.abs(blind.chance - chance).mean() > 0.1
    # a team that stays is not split up into windows by chance
    steady = rng.integers(6, size=3000)
    assert estimate_propensities(features, steady, 6, time=np.arange(3000)).present is None


def test_a_rule_by_features_is_found_among_those_present() -> None:
    rng = np.random.default_rng(4)
    _, chance = turnover(rng)
    x = rng.normal(size=len(chance))
    pull = chance * np.exp(np.outer(x, [1, -1, 0, 1, -1, 0]))
    chance = pull / pull.sum(axis=1, keepdims=True)
    who = (chance.cumsum(axis=1) < rng.random((len(x), 1))).sum(axis=1)
    found = estimate_propensities(pd.DataFrame({"x": x}), who, 6, time=np.arange(len(x)))
    assert not found.random
    assert np.abs(found.chance - chance).mean() < 0.04


def test_one_person_alone_is_no_rule() -> None:
    found = estimate_propensities(pd.DataFrame({"x": np.arange(50.0)}), np.zeros(50, np.int64), 1)
    assert found.random
    assert found.notes() == []
    assert (found.chance == 1).all()


def test_hidden_reasons_by_hand() -> None:
    """A rare error counts at most s times and at least 1/s times; one that is likely, at most surely."""
    costs = np.array([[0.0, 1.0], [0.0, 1.0]])
    said = np.array([[0.9, 0.1], [0.3, 0.7]])
    up, down = upper_costs(costs, said, 2.0), lower_costs(costs, said, 2.0)
    assert (up[0] == [0, 2]).all()
    assert (down[0] == [0, 0.5]).all()
    assert (said * up).sum(axis=1) == pytest.approx([0.2, 0.85])
    assert (said * down).sum(axis=1)[1] == pytest.approx(0.4)  # right at least 0.3 / 2 ... at most 2 x 0.3
    np.testing.assert_allclose(upper_costs(costs, said, 1.0), costs)
    assert strength_that_undoes(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, -1.0])) == 2.5
    assert strength_that_undoes(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == np.inf
    with pytest.raises(ConfigError, match="strength"):
        upper_costs(costs, said, 0.5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(1.0, 5.0))
def test_hidden_reasons_bound_every_reason_of_that_strength(seed: int, strength: float) -> None:
    """Draw who gets a case by a reason within the strength: the true mean lies between the bounds."""
    rng = np.random.default_rng(seed)
    costs, said = rng.random((1, 3)), rng.dirichlet(np.ones(3), 1)
    shift = np.exp(rng.uniform(-np.log(strength), np.log(strength), 3))
    # among the logged, decision m is seen with said[m]; for all cases it would be said[m] * weight[m]
    weight = shift / (said[0] @ shift)
    if weight.max() > strength or weight.min() < 1 / strength:
        return
    true = float((said[0] * weight) @ costs[0])
    low, high = (float(said[0] @ f(costs, said, strength)[0]) for f in (lower_costs, upper_costs))
    assert low - 1e-9 <= true <= high + 1e-9
