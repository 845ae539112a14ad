"""The level of the truths over time: used where it helps on held-out time, off elsewhere, and in the interval."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deccaf import Costs, DeCCaF
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.cases.level import Level, fit_level, forecast, periods_of
from deccaf.models.cases.log import CaseLog
from deccaf.planning.intervals import plan_ends
from models_world import stored


def cases(levels: list[float], rows: int = 700, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, pd.Series]:
    """Months whose log-odds have these levels beside what two features say."""
    rng = np.random.default_rng(seed)
    month = np.repeat(np.arange(len(levels)), rows)
    features = pd.DataFrame({"a": rng.normal(size=len(month)), "b": rng.normal(size=len(month))})
    odds = np.array(levels)[month] + features["a"].to_numpy()
    return features, (rng.random(len(month)) < 1 / (1 + np.exp(-odds))).astype(int), pd.Series(month)


def fitted(levels: list[float], **more: int) -> tuple[CaseClassifier, pd.DataFrame]:
    features, label, month = cases(levels, **more)
    return CaseClassifier(parts=("logistic",)).fit(features, label, time=month), features


def test_a_level_that_rises_is_expected_to_rise_on() -> None:
    model, features = fitted([-2.0, -1.7, -1.4, -1.1])
    assert model.level_.errors.shape == (3, 2)
    assert (model.level_.errors[:, 1] > 0.1).all()
    assert model.level_.gain > 0
    assert 0.1 < model.level_.shift[1] <= model.level_.errors[:, 1].max()
    plain = CaseClassifier(parts=("logistic",)).fit(*cases([-2.0, -1.7, -1.4, -1.1])[:2])
    assert model.predict(features)[:, 1].mean() > plain.predict(features)[:, 1].mean() + 0.01
    again = CaseClassifier.from_dict(stored(model.to_dict()))
    np.testing.assert_array_equal(again.predict(features), model.predict(features))
    assert model.predict(features, 1.0)[:, 1].mean() > model.predict(features)[:, 1].mean()


@pytest.mark.parametrize(
    ("levels", "most"), [([-1.5] * 4, 0.05), ([-1.5], 0.0), ([-1.5, -1.2], 0.12), ([-1.5, -1.0, -1.5], 0.0)]
)
def test_it_is_small_where_little_speaks_for_it(levels: list[float], most: float) -> None:
    model, _ = fitted(levels)
    assert abs(model.level_.shift[1]) <= most
    assert 0.05 < model.level_.deviation[1] < 0.6  # but nobody knows what comes next


def test_what_calibration_adds_does_not_count_twice() -> None:
    features, label, month = cases([-2.0, -1.7, -1.4, -1.1])
    log = CaseLog(features, label, np.ones(len(label)), 2)
    whole = fit_level(log, month).shift[1]
    assert fit_level(log, month, np.array([0.0, 0.05])).shift[1] == pytest.approx(whole - 0.05)
    assert fit_level(log, month, np.array([0.0, 9.0])).shift[1] == 0.0
    assert fit_level(log, month, np.array([0.0, -9.0])).shift[1] == whole


def test_without_times_nothing_is_said() -> None:
    features, label, _ = cases([-1.0])
    assert CaseClassifier(parts=("logistic",)).fit(features, label).level_.to_dict() == Level.none(
        2
    ).to_dict() | {"errors": pytest.approx(np.zeros((0, 2)))}


def test_forecasts_shrink_and_doubt() -> None:
    noise = np.full(3, 0.01)
    mean, deviation, none = forecast(np.array([0.3, 0.3, 0.3]), noise)
    assert 0.15 < mean < 0.3
    assert none < 0.2
    still = forecast(np.array([0.02, -0.03, 0.01]), noise)
    assert abs(still[0]) < 0.01
    assert still[2] > 0.5
    wild = forecast(np.array([0.5, -0.5, 0.4]), noise)
    assert wild[1] > 2 * deviation
    assert forecast(np.zeros(0), np.zeros(0))[0] == 0.0


def test_periods() -> None:
    assert np.unique(periods_of(pd.Series(np.repeat([3, 4, 5], 200)))).tolist() == [0, 1, 2]
    many = periods_of(pd.Series(np.arange(5000)))
    assert np.bincount(many).tolist() == pytest.approx([5000 / 5] * 5, abs=2)
    months = periods_of(pd.Series(np.repeat(np.arange(10), 100)))  # the latest four, and what lay before
    assert np.bincount(months).tolist() == [600, 100, 100, 100, 100]
    assert periods_of(pd.Series(np.arange(40))).max() == 0


def test_the_interval_of_a_plans_cost_holds_the_level() -> None:
    features, label, month = cases([-2.0, -1.7, -1.4])
    said = np.where(np.random.default_rng(1).random(len(label)) < 0.8, label, 1 - label)
    model = DeCCaF(Costs.binary(0.3, 1.0), case_parts=("logistic",), decision_parts=("rates",))
    model.fit(features, label, expert=["ann"] * len(label), decision=said, time=month)
    plan = model.assign(features[:300], {"ann": 150})
    assert plan.summary.cost_interval is not None
    low, high = plan.summary.cost_interval
    assert low < plan.summary.cost < high
    assert "as the level of the truths may be off" in plan.summary.lines()[0]
    assert plan.summary.to_dict()["cost_interval"] == [low, high]
    timeless = DeCCaF(Costs.binary(0.3, 1.0), case_parts=("logistic",), decision_parts=("rates",))
    timeless.fit(features, label, expert=["ann"] * len(label), decision=said)
    assert timeless.assign(features[:300], {"ann": 150}).summary.cost_interval is None


def test_the_interval_of_a_plans_cost_holds_the_cost_where_both_ends_cost_more() -> None:
    p = np.array([[0.9, 0.1], [0.1, 0.9]])
    by_truth = np.array(
        [[0.0, 1.0], [1.0, 0.0]]
    )  # machines that are sure, one of each: a change costs either way
    loss = (p * by_truth).sum(axis=1)
    ends = plan_ends(p, by_truth, loss, np.array([0.0, 0.5]))
    assert min(ends) == loss.sum()
    assert sorted(ends)[1] > loss.sum()
