"""People who change: what each way to keep up costs, in a world small enough to run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from deccaf.benchmark import drifting
from deccaf.benchmark.drifting import WAYS, Desk, changed, drift_table, summary
from deccaf.benchmark.profile import MonthsTable
from deccaf.benchmark.scene import Setting, simulated_team
from deccaf.data.config import PartsTable
from deccaf.data.costs import Costs
from deccaf.errors import ConfigError

PARTS = PartsTable(case_parts=("logistic",), decision_parts=("rates",))


@pytest.fixture(scope="module")
def setting() -> Setting:
    found = drifting.alerts_setting(60_000, None, {"size": 3}, lambda _: None)
    return replace(found, model=PARTS)


def test_people_change_when_and_as_they_are_said_to(setting: Setting) -> None:
    team, months = simulated_team(setting, 0.057), MonthsTable()
    cases, costs = setting.scene().test, Costs.binary(0.057)

    def cost(kind: str, month: float) -> np.ndarray:
        return changed(team, kind, month, months).expected_cost(cases, costs).to_numpy()

    plain = team.expected_cost(cases, costs).to_numpy()
    for kind in ("steady", "tired"):
        np.testing.assert_array_equal(cost(kind, 3), plain)
    assert (cost("sudden", 7.2) == plain).all()
    assert cost("sudden", 7.3)[0] > plain[0]
    assert cost("sudden", 7.3)[1] == plain[1]
    assert cost("learning", 3)[0] > cost("learning", 6)[0] > cost("learning", 8)[0] == pytest.approx(plain[0])
    rates = changed(team, "lenient", 6, months).rates(cases) - team.rates(cases)
    assert rates["fpr"].iloc[0] < 0 < rates["fnr"].iloc[0]
    assert (rates.iloc[1:] == 0).all(axis=None)


def test_chances_of_given_pairs_are_those_of_the_table(setting: Setting) -> None:
    team, cases = simulated_team(setting, 0.057), setting.scene().test
    row, expert = np.array([5, 2, 5]), np.array([0, 1, 2])
    table = team.error_probabilities(cases).to_numpy()
    np.testing.assert_array_equal(team.pair_errors(cases, row, expert), table[row, expert])
    tired = replace(team, fatigue=np.full(3, 3.0))
    assert (tired.pair_errors(cases, row, expert, handled=[0, 50, 100])[1:] > table[row, expert][1:]).all()


def test_what_keeping_up_saves(setting: Setting) -> None:
    """Somebody who suddenly errs far more often costs; where nobody changes the watch changes nothing."""
    desk = Desk(cases=60, each=15)
    with threadpool_limits(1):
        table = drift_table(setting, 0.057, [0], ["steady", "sudden"], desk)
    assert list(table) == ["kind", "seed", *WAYS, "alerts"]
    cost = table.set_index("kind")
    assert cost.loc["steady", "alerts"] == 0
    assert cost.loc["steady", "watched"] == cost.loc["steady", "as fitted"]
    assert cost.loc["sudden", "as fitted"] > cost.loc["steady", "as fitted"]
    assert cost.loc["sudden", "known"] < cost.loc["sudden", "as fitted"]
    shown = summary(table)
    assert shown["kind"].tolist() == ["steady", "sudden"]
    assert "(" in shown["watched"].iloc[0]
    with pytest.raises(ConfigError, match="did you mean 'sudden'"):
        drift_table(setting, 0.057, [0], ["suden"], desk)


def test_whom_the_watch_finds_changed_gets_no_more_cases() -> None:
    """Ann is always wrong all of a sudden; bob is right as ever."""
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"x": rng.normal(size=600)})
    truth, expert = rng.integers(0, 2, 600), np.repeat(["ann", "bob"], 300)
    said = np.where(rng.random(600) < 0.1, 1 - truth, truth)
    model = drifting.DecisionModel(2, parts=("rates",)).fit(features, truth, pd.Series(expert), said)
    watched, daily = (
        drifting._Way(name, model, {"ann": 0.3, "bob": 0.3}) for name in ("watched", "day by day")
    )
    rows, who = rng.integers(0, 600, 30), np.array(["ann", "bob"] * 15, object)
    wrong = np.where(who == "ann", 1 - truth[rows], truth[rows])
    day = drifting._Answers(features.iloc[rows], truth[rows], who, wrong)
    q = model.predict(day.features, ["ann", "bob"])[np.arange(30), (who == "bob").astype(int)]
    for way in (watched, daily):
        way.evening(day, q)
    assert watched.away == {"ann"}
    assert watched.model is model
    assert not daily.away
    right = [way.model.predict(features[:1], ["ann"])[0, 0, 0, 0] for way in (watched, daily)]
    assert right[1] < right[0]
