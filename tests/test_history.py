"""Histories: who decided, with which chance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deccaf import Cases, ConfigError, DataError, Decisions
from deccaf.simulate.history import handled_before, history, random_history, skilled_propensity
from deccaf.simulate.teams.config import Group, Normal
from deccaf.simulate.teams.team import SyntheticTeam
from test_team import COSTS, RATES, THREE, make_cases


@pytest.fixture(scope="module")
def cases() -> Cases:
    return make_cases(2000)


@pytest.fixture(scope="module")
def team(cases: Cases) -> SyntheticTeam:
    return SyntheticTeam.sample([RATES], cases, COSTS, 7)


def test_one_random_expert_per_case(cases: Cases, team: SyntheticTeam) -> None:
    log = random_history(team, cases, 1)
    assert list(log.columns) == ["case_id", "expert_id", "decision", "propensity"]
    checked = Decisions.from_frame(log, cases=cases, roster=team.experts)
    assert len(checked) == len(cases)
    assert checked.propensity.to_numpy() == pytest.approx(1 / 9)
    assert log["expert_id"].value_counts().between(150, 300).all()  # 222 expected, standard deviation 14
    assert log.equals(random_history(team, cases, 1))
    assert not log["expert_id"].equals(random_history(team, cases, 2)["expert_id"])


def test_histories_show_cells_of_one_table_of_decisions(cases: Cases, team: SyntheticTeam) -> None:
    everything = team.decide(cases, 5)
    for seed in (1, 2):
        log = random_history(team, cases, seed, per_case=2, decision_seed=5)
        cells = [
            everything.at[case, expert] for case, expert in zip(log["case_id"], log["expert_id"], strict=True)
        ]
        assert log["decision"].tolist() == cells


def test_several_different_experts_per_case(cases: Cases, team: SyntheticTeam) -> None:
    log = random_history(team, cases, 0, per_case=3)
    assert not log.duplicated(["case_id", "expert_id"]).any()
    assert (log.groupby("case_id").size() == 3).all()
    assert log["propensity"].to_numpy() == pytest.approx(3 / 9)
    pairs = log.merge(log, on="case_id").query("expert_id_x < expert_id_y")
    shared = pairs.groupby(["expert_id_x", "expert_id_y"]).size()
    assert len(shared) == 36  # every pair of experts meets, 167 times expected
    assert shared.between(110, 230).all()
    with pytest.raises(ConfigError, match="between 1 and the 9 experts"):
        random_history(team, cases, 0, per_case=10)


@pytest.mark.parametrize("per_case", [1, 2, 4])
def test_written_propensities_are_the_real_chances(team: SyntheticTeam, per_case: int) -> None:
    cases = make_cases(20_000, seed=3)
    weights = np.array([1, 1, 1, 2, 2, 3, 4, 6, 20.0])
    table = pd.DataFrame(np.tile(weights, (len(cases), 1)), index=cases.ids, columns=list(team.experts))
    log = history(team, cases, table, 0, per_case=per_case)
    assert len(log) == per_case * len(cases)
    written = log.groupby("expert_id")["propensity"].first().reindex(team.experts).to_numpy()
    seen = log["expert_id"].value_counts().reindex(team.experts).to_numpy() / len(cases)
    assert written.sum() == pytest.approx(per_case)
    assert written.max() <= 1.0
    assert seen == pytest.approx(written, abs=0.015)


def test_an_expert_with_no_chance_gets_nothing(cases: Cases, team: SyntheticTeam) -> None:
    table = pd.DataFrame(1.0, index=cases.ids, columns=list(team.experts))
    table["standard_3"] = 0.0
    log = history(team, cases, table.sample(frac=1, random_state=0), 0, per_case=8)
    assert "standard_3" not in set(log["expert_id"])
    assert (log["propensity"] == 1.0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="standard_1"), "no column for 1 expert"),
        (lambda t: t.iloc[1:], "no row for 1 case.*'c0'"),
        (lambda t: t * 0, "all 0, first: case 'c0'"),
        (lambda t: -t, "negative"),
    ],
)
def test_a_wrong_propensity_table(cases: Cases, team: SyntheticTeam, change: object, message: str) -> None:
    table = pd.DataFrame(1.0, index=cases.ids, columns=list(team.experts))
    with pytest.raises(DataError, match=message):
        history(team, cases, change(table), 0)  # type: ignore[operator]


def test_better_experts_get_harder_cases(team: SyntheticTeam) -> None:
    cases = make_cases(20_000, seed=4)
    table = skilled_propensity(team, cases, strength=0.7)
    assert table.sum(axis=1).to_numpy() == pytest.approx(1.0)
    log = history(team, cases, table, 0)
    errors = team.error_probabilities(cases)
    difficulty, skill = errors.mean(axis=1), -errors.mean()
    got = difficulty.loc[log["case_id"]].to_numpy()
    best, worst = skill.idxmax(), skill.idxmin()
    assert got[log["expert_id"] == best].mean() > got[log["expert_id"] == worst].mean() + 0.05
    # Confounded: the best expert looks worse than it is; its propensities set that right.
    mine = log[log["expert_id"] == best]
    wrong = (mine["decision"].to_numpy() != cases.label[cases.ids.get_indexer(mine["case_id"])]).astype(float)
    weight = 1 / mine["propensity"].to_numpy()
    truly = errors[best].mean()
    assert wrong.mean() > truly + 0.05
    assert (wrong * weight).sum() / weight.sum() == pytest.approx(truly, abs=0.025)
    even = skilled_propensity(team, cases, strength=0.0)
    assert even.to_numpy() == pytest.approx(1 / 9)
    with pytest.raises(DataError, match="2 values for 20000 cases"):
        skilled_propensity(team, cases, difficulty=[1, 2])


def test_fatigue_counts_what_an_expert_really_had(cases: Cases, team: SyntheticTeam) -> None:
    assert handled_before(np.array([0, 1, 0, 0, 1])).tolist() == [0, 0, 1, 2, 1]
    assert handled_before(np.array([0, 1, 0, 0, 1]), ["a", "a", "a", "b", "b"]).tolist() == [0, 0, 1, 0, 0]
    tired = SyntheticTeam.from_parameters(team.parameters().assign(fatigue=2.0), team.features)
    log = random_history(tired, cases, 0)
    wrong = log["decision"].to_numpy() != cases.label
    assert wrong[-500:].mean() > wrong[:500].mean() + 0.2


def test_named_classes_are_written_by_name() -> None:
    cases = make_cases(200, classes=3)
    team = SyntheticTeam.sample([Group(experts=2, error_rate=Normal(mean=0.3))], cases, THREE, 0)
    log = random_history(team, cases, 0)
    assert set(log["decision"]) == {"low", "mid", "high"}
    Decisions.from_frame(log, classes=THREE.classes, cases=cases)
