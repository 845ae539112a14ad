"""Synthetic experts: the formula, the targets, the streams, the files."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import kstest

from deccaf import Cases, Columns, ConfigError, Costs, DataError, expected_loss
from deccaf.data.files import read_frame, write_frame
from deccaf.simulate.history import random_history
from deccaf.simulate.teams.build import paper_group, threshold_cost
from deccaf.simulate.teams.config import CostTarget, Group, Normal, Slab
from deccaf.simulate.teams.features import TeamFeatures
from deccaf.simulate.teams.files import load_team, save_team
from deccaf.simulate.teams.solver import solve_shift
from deccaf.simulate.teams.targets import Stakes, sample_rates
from deccaf.simulate.teams.team import SyntheticTeam

COSTS = Costs.binary(false_positive=0.2)
THREE = Costs.from_matrix([[0, 1, 2], [3, 0, 1], [5, 2, 0]], ["low", "mid", "high"])
RATES = Group(fpr=Normal(mean=0.3, deviation=0.1), fnr=Normal(mean=0.2, deviation=0.05))


def make_cases(n: int = 1000, classes: int = 2, seed: int = 0) -> Cases:
    rng = np.random.default_rng(seed)
    label = rng.choice(classes, n, p=[0.7, 0.3] if classes == 2 else [0.5, 0.3, 0.2])
    frame = pd.DataFrame(
        {
            "case_id": [f"c{k}" for k in range(n)],
            "amount": rng.lognormal(size=n) * (1 + label),
            "flag": rng.integers(0, 2, n),
            "channel": rng.choice(["web", "branch", "phone"], n),
            "age": rng.integers(18, 90, n),
            "model_score": rng.beta(1 + label, 3),
            "label": label if classes == 2 else np.array(THREE.classes, object)[label],
        }
    )
    return Cases.from_frame(frame, costs=COSTS if classes == 2 else THREE)


@pytest.fixture(scope="module")
def cases() -> Cases:
    return make_cases()


@pytest.fixture(scope="module")
def team(cases: Cases) -> SyntheticTeam:
    return SyntheticTeam.sample([RATES], cases, COSTS, 7)


# One expert, by hand: weights (0.6, -0.8) have length 1. Case 1 has a = 0.5, M = 0.25, so
# s = 0.3 - 0.2 = 0.1 and P(fp) = sigmoid(-1 - 2 * 0.1), P(fn) = sigmoid(0.5 + 2 * 0.1).
BY_HAND = pd.DataFrame(
    {
        "expert_id": ["ann"],
        "sharpness": [2.0],
        "fp_logit": [-1.0],
        "fn_logit": [0.5],
        "score_weight": [-0.8],
        "weight:a": [0.6],
    }
)
TWO_CASES = Cases.from_frame(
    pd.DataFrame({"case_id": [1, 2], "a": [0.5, -0.5], "model_score": [0.25, 1.0], "label": [0, 1]})
)


def test_the_formula_by_hand() -> None:
    ann = SyntheticTeam.from_parameters(BY_HAND)
    q = ann.decision_probabilities(TWO_CASES)
    assert q.shape == (2, 1, 2, 2)
    assert q[0, 0, 0, 1] == pytest.approx(1 / (1 + np.exp(1.2)), abs=1e-15)
    assert q[0, 0, 1, 0] == pytest.approx(1 / (1 + np.exp(-0.7)), abs=1e-15)
    # Case 2: s = -0.3 - 0.8 = -1.1.
    assert q[1, 0, 0, 1] == pytest.approx(1 / (1 + np.exp(1.0 - 2.2)), abs=1e-15)
    assert q[1, 0, 1, 0] == pytest.approx(1 / (1 + np.exp(-0.5 + 2.2)), abs=1e-15)
    errors = ann.error_probabilities(TWO_CASES)["ann"]
    assert errors.tolist() == pytest.approx([q[0, 0, 0, 1], q[1, 0, 1, 0]], abs=1e-15)


def test_doubling_the_weights_changes_nothing_but_sharpness_does() -> None:
    doubled = BY_HAND.assign(**{"score_weight": [-1.6], "weight:a": [1.2]})
    same = SyntheticTeam.from_parameters(doubled).error_probabilities(TWO_CASES)
    assert same["ann"].tolist() == pytest.approx(
        SyntheticTeam.from_parameters(BY_HAND).error_probabilities(TWO_CASES)["ann"].tolist()
    )
    blunt = SyntheticTeam.from_parameters(BY_HAND.assign(sharpness=[0.0])).error_probabilities(TWO_CASES)
    assert blunt["ann"].tolist() == pytest.approx([expit(-1.0), expit(0.5)])


def test_errors_are_monotone_in_the_logits_and_in_the_signal(cases: Cases, team: SyntheticTeam) -> None:
    table = team.parameters()
    before = team.error_probabilities(cases, truth=0)
    higher = SyntheticTeam.from_parameters(table.assign(fp_logit=table["fp_logit"] + 0.5), team.features)
    assert (higher.error_probabilities(cases, truth=0) > before).to_numpy().all()
    signal = team.features.transform(cases) @ team.directions[0, 0]
    order = np.argsort(signal)
    assert (np.diff(before.to_numpy()[order, 0]) <= 0).all()
    assert (np.diff(team.error_probabilities(cases, truth=1).to_numpy()[order, 0]) >= 0).all()


def test_targets_are_met_in_expectation_and_by_decisions(cases: Cases, team: SyntheticTeam) -> None:
    rates = team.rates(cases)
    assert np.abs(rates["fpr"] - team.targets[:, 0, 1]).max() < 1e-10
    assert np.abs(rates["fnr"] - team.targets[:, 1, 0]).max() < 1e-10
    wrong = team.decide(cases, 3).to_numpy() != cases.label[:, None]
    errors = team.error_probabilities(cases).to_numpy()
    spread = np.sqrt((errors * (1 - errors)).sum(axis=0))
    assert (np.abs(wrong.sum(axis=0) - errors.sum(axis=0)) < 4 * spread).all()


def test_the_probabilities_are_those_of_the_decisions(cases: Cases, team: SyntheticTeam) -> None:
    wrong = np.mean(
        [said.to_numpy() != cases.label[:, None] for said in team.judgements(cases, 1, 200)], axis=0
    )
    assert np.abs(wrong - team.error_probabilities(cases).to_numpy()).mean() < 0.03


def test_the_layout_is_that_of_expected_loss(cases: Cases, team: SyntheticTeam) -> None:
    q = team.decision_probabilities(cases)
    assert q.sum(axis=3) == pytest.approx(1.0)
    sure = np.eye(2)[cases.label]  # a classifier that knows the truth
    loss = expected_loss(sure, q, COSTS.array())[:, 1:]
    assert loss.mean(axis=0) == pytest.approx(team.expected_cost(cases, COSTS).to_numpy())


def test_target_costs_are_met_and_capped(cases: Cases) -> None:
    group = Group(experts=30, cost=CostTarget(mean=0.5, deviation=0.3, unit="rejecting", cap=0.7, floor=0.1))
    team = SyntheticTeam.sample([group], cases, COSTS, 0)
    rejecting = Stakes.of(cases, COSTS).rejecting
    share = team.expected_cost(cases, COSTS) / rejecting
    assert rejecting == pytest.approx(0.2 * (cases.label == 0).mean())
    assert share.max() == pytest.approx(0.7)  # some draws were above
    assert 0.1 - 1e-9 <= share.min() < 0.4


def test_the_false_negative_rate_is_uniform_among_what_is_possible() -> None:
    stakes = Stakes(np.array([[0.0, 0.05], [0.13, 0.0]]))
    group = Group(cost=CostTarget(mean=0.035, deviation=0.0, unit="absolute"))
    rng = np.random.default_rng(0)
    rates = np.stack([sample_rates(group, stakes, rng) for _ in range(2000)])
    assert 0.05 * rates[:, 0, 1] + 0.13 * rates[:, 1, 0] == pytest.approx(0.035)
    # FPR = (0.035 - 0.13 FNR) / 0.05 lies in (0, 1) for FNR in (0, 0.035 / 0.13).
    assert kstest(rates[:, 1, 0] / (0.035 / 0.13), "uniform").pvalue > 0.01


def test_rates_of_a_cost_with_three_classes_fill_their_polytope() -> None:
    stakes = Stakes(np.array([[0, 0.5, 1.0], [0.9, 0, 0.3], [1.0, 0.4, 0]]))
    group = Group(cost=CostTarget(mean=0.3, deviation=0.0, unit="absolute", cap=5.0), bounds=(0.05, 0.6))
    rng = np.random.default_rng(1)
    rates = np.stack([sample_rates(group, stakes, rng) for _ in range(60)])
    assert (rates * stakes.at_stake).sum(axis=(1, 2)) == pytest.approx(0.3)
    assert (rates >= 0).all()
    assert rates.sum(axis=2).min() >= 0.05 - 1e-9
    assert rates.sum(axis=2).max() <= 0.6 + 1e-9
    assert rates[:, 0, 1].std() > 0.02


def test_three_classes_meet_their_targets() -> None:
    cases = make_cases(800, classes=3)
    group = Group(experts=4, error_rate=Normal(mean=0.3, deviation=0.1), sharpness=Normal(mean=2.0))
    team = SyntheticTeam.sample([group], cases, THREE, 5)
    q = team.decision_probabilities(cases)
    assert q.shape == (800, 4, 3, 3)
    assert q.sum(axis=3) == pytest.approx(1.0)
    for y in range(3):
        met = q[cases.label == y][:, :, y, :].mean(axis=0)
        wrong = [m for m in range(3) if m != y]
        assert met[:, wrong] == pytest.approx(team.targets[:, y, wrong], abs=1e-9)
    again = SyntheticTeam.from_parameters(team.parameters(), team.features, classes=THREE.classes)
    assert again.decide(cases, 1).equals(team.decide(cases, 1))
    assert set(np.unique(team.decide(cases, 1))) == {0, 1, 2}


def test_identical_seeds_give_identical_output_in_another_process() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_team import *\n"
        "cases = make_cases(300); team = SyntheticTeam.sample([RATES], cases, COSTS, 11)\n"
        "print(hashlib.sha256(team.decide(cases, 5).to_numpy().tobytes()).hexdigest(),"
        " repr(float(team.intercepts.sum())))"
    )
    run = [sys.executable, "-c", code, str(Path(__file__).parent)]
    told = subprocess.run(run, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}).stdout
    cases = make_cases(300)
    team = SyntheticTeam.sample([RATES], cases, COSTS, 11)
    mine = hashlib.sha256(team.decide(cases, 5).to_numpy().tobytes()).hexdigest()
    assert told.split() == [mine, repr(float(team.intercepts.sum()))]


def test_an_expert_does_not_depend_on_the_team(cases: Cases, team: SyntheticTeam) -> None:
    larger = SyntheticTeam.sample(
        [RATES, RATES.model_copy(update={"name": "late", "experts": 3})], cases, COSTS, 7
    )
    assert larger.parameters().iloc[: len(team)].equals(team.parameters())
    assert larger.decide(cases, 2)[list(team.experts)].equals(team.decide(cases, 2))
    two = team.take(["standard_5", "standard_2"])
    assert two.decide(cases, 2).equals(team.decide(cases, 2)[["standard_5", "standard_2"]])
    with pytest.raises(ConfigError, match=r"did you mean 'standard_1'"):
        team.take(["standrd_1"])


def test_a_generator_is_advanced_and_a_number_is_not(cases: Cases, team: SyntheticTeam) -> None:
    rng = np.random.default_rng(0)
    assert not team.decide(cases, rng).equals(team.decide(cases, rng))
    assert team.decide(cases, 1).equals(team.decide(cases, 1))


def test_repeated_judgements_differ_and_start_with_the_decision(cases: Cases, team: SyntheticTeam) -> None:
    first, second = team.judgements(cases, 4, 2)
    assert first.equals(team.decide(cases, 4))
    assert 0 < (first != second).to_numpy().mean() < 0.5


def test_pairs_are_cells_of_the_whole_table(cases: Cases, team: SyntheticTeam) -> None:
    rng = np.random.default_rng(0)
    row, expert = rng.integers(0, len(cases), 500), rng.integers(0, len(team), 500)
    assert (team.decide_pairs(cases, row, expert, 9) == team.decide(cases, 9).to_numpy()[row, expert]).all()


def test_fatigue_is_off_unless_asked_for(cases: Cases, team: SyntheticTeam) -> None:
    long_day = np.arange(len(cases))
    assert team.decide(cases, 1, handled=long_day).equals(team.decide(cases, 1))
    tired = SyntheticTeam.from_parameters(team.parameters().assign(fatigue=0.3), team.features)
    wrong = [
        (tired.decide(cases, 1, handled=handled).to_numpy() != cases.label[:, None]).mean()
        for handled in (np.zeros(len(cases)), np.full(len(cases), 500.0))
    ]
    assert wrong[1] > wrong[0] + 0.1
    learning = SyntheticTeam.from_parameters(team.parameters().assign(fatigue=-0.3), team.features)
    later = learning.decide(cases, 1, handled=np.full((len(cases), len(team)), 500.0))
    assert (later.to_numpy() != cases.label[:, None]).mean() < wrong[0] - 0.1


@pytest.mark.parametrize("name", ["parameters.parquet", "parameters.csv"])
def test_parameters_survive_a_file(tmp_path: Path, cases: Cases, team: SyntheticTeam, name: str) -> None:
    write_frame(team.parameters(), tmp_path / name)
    again = SyntheticTeam.from_parameters(read_frame(tmp_path / name), team.features)
    assert again.parameters().equals(team.parameters())
    assert again.decide(cases, 0).equals(team.decide(cases, 0))


def test_a_saved_team_decides_identically(tmp_path: Path, cases: Cases, team: SyntheticTeam) -> None:
    save_team(team, tmp_path)
    again = load_team(tmp_path)
    assert again.features == team.features
    assert again.decide(cases, 0).equals(team.decide(cases, 0))
    assert again.error_probabilities(cases).equals(team.error_probabilities(cases))
    (tmp_path / "team.json").write_text('{"format": 99}')
    with pytest.raises(DataError, match="not a team of format 1"):
        load_team(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        load_team(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sharpness": [np.nan]}, "'sharpness'.*finite.*'ann'"),
        ({"fp_logit": ["high"]}, "'fp_logit'.*'high'"),
        ({"expert_id": ["machine"]}, "name of the machine"),
    ],
)
def test_a_wrong_table_of_parameters(change: dict[str, list[object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        SyntheticTeam.from_parameters(BY_HAND.assign(**change))


def test_a_table_without_logits_or_weights() -> None:
    with pytest.raises(DataError, match="'fn_logit': missing"):
        SyntheticTeam.from_parameters(BY_HAND.drop(columns="fn_logit"))
    with pytest.raises(DataError, match="no weight"):
        SyntheticTeam.from_parameters(BY_HAND.drop(columns=["weight:a", "score_weight"]))
    with pytest.raises(DataError, match="stands twice"):
        SyntheticTeam.from_parameters(pd.concat([BY_HAND, BY_HAND]))


def test_the_same_people_in_another_scenario(cases: Cases, team: SyntheticTeam) -> None:
    other = Costs.binary(false_positive=1.0)
    groups = [Group(cost=CostTarget(mean=0.5, unit="rejecting"))]
    moved = team.retarget(groups, cases, other, 1)
    assert (moved.weights == team.weights).all()
    assert (moved.sharpness == team.sharpness).all()
    assert not np.allclose(moved.targets, team.targets)
    assert np.abs(moved.rates(cases)["fpr"] - moved.targets[:, 0, 1]).max() < 1e-10
    raw = TeamFeatures.fit(cases, score_scale="raw")
    kept = SyntheticTeam.sample([RATES], cases, COSTS, 7, features=raw).retarget(groups, cases, other, 1)
    assert kept.features == raw
    with pytest.raises(ConfigError, match="no description of group 'standard'"):
        team.retarget([Group(name="others")], cases, COSTS, 1, classifier_cost=0.1)


def test_weights_follow_their_description(cases: Cases) -> None:
    group = Group(
        experts=400,
        slab=Slab(share=0.25, mean=1.0, deviation=0.5),
        weights={"age": Normal(mean=-1.0, deviation=0.1)},
        error_rate=Normal(mean=0.3),
    )
    table = SyntheticTeam.sample([group], cases, COSTS, 0).parameters()
    assert (table["weight:amount"] != 0).mean() == pytest.approx(0.25, abs=0.07)
    assert table["weight:amount"][table["weight:amount"] != 0].mean() == pytest.approx(1.0, abs=0.2)
    assert table["weight:age"].mean() == pytest.approx(-1.0, abs=0.03)
    assert table["weight:age"].std() == pytest.approx(0.1, abs=0.02)
    assert table["score_weight"].mean() == pytest.approx(-2.0, abs=0.1)
    assert table["sharpness"].std() == pytest.approx(0.2, abs=0.04)
    nothing = Group(slab=Slab(share=0.0), score_weight=Normal(mean=0.0), error_rate=Normal(mean=0.2))
    constant = SyntheticTeam.sample([nothing], cases, COSTS, 0).error_probabilities(cases)
    assert constant.to_numpy() == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (Group(cost=CostTarget(mean=5.0, unit="absolute", cap=99.0)), "target cost of .* cannot be met"),
        (
            Group(cost=CostTarget(mean=0.6, deviation=0.0, unit="rejecting"), bounds=(0.0, 0.05)),
            r"cost 1?.* to .*; change cost or bounds",
        ),
        (Group(), "relative to the classifier"),
        (Group(fpr=Normal(mean=1.2), fnr=Normal(mean=0.1)), "1.2 lies outside its bounds"),
        (RATES.model_copy(update={"weights": {"agee": Normal(mean=1.0)}}), "did you mean 'age'"),
    ],
)
def test_what_cannot_be_met_is_said(cases: Cases, group: Group, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SyntheticTeam.sample([group], cases, COSTS, 0)


def test_degenerate_fitting_cases() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "case_id": range(60),
            "constant": 3.0,
            "empty": np.nan,
            "one_category": "web",
            "x": rng.normal(size=60),
            "label": [0, 0, 1] * 20,
        }
    )
    cases = Cases.from_frame(frame)
    team = SyntheticTeam.sample([RATES], cases, COSTS, 0)
    seen = team.features.transform(cases)
    assert (seen[:, :3] == 0).all()
    assert np.abs(team.rates(cases)["fpr"] - team.targets[:, 0, 1]).max() < 1e-10
    for label in (0, 1):
        with pytest.raises(DataError, match=f"none of the .* fitting cases is of class {1 - label}"):
            SyntheticTeam.sample([RATES], cases.take(cases.label == label), COSTS, 0)
    with pytest.raises(DataError, match="no label column"):
        SyntheticTeam.sample([RATES], Cases.from_frame(frame.drop(columns="label")), COSTS, 0)
    with pytest.raises(ConfigError, match="classes .0, 1., the costs .'low', 'mid', 'high'."):
        SyntheticTeam.sample([RATES], cases, THREE, 0)
    with pytest.raises(DataError, match="1 of 60 cases have no label"):
        team.decide(Cases.from_frame(frame.assign(label=[np.nan, *frame["label"][1:]])), 0)


@pytest.mark.parametrize("sharpness", [0.0, 4.0, 1000.0])
@pytest.mark.parametrize("target", [1e-6, 0.3, 1 - 1e-6])
def test_the_root_is_found_for_soft_and_for_sure_experts(sharpness: float, target: float) -> None:
    z = sharpness * np.random.default_rng(0).normal(size=(3, 400))
    b = solve_shift(z, np.full(3, target))
    assert expit(b[:, None] + z).mean(axis=1) == pytest.approx(target, abs=1e-10)


def test_a_threshold_on_the_score_by_hand() -> None:
    frame = pd.DataFrame({"model_score": [0.1, 0.2, 0.2, 0.9], "x": 0.0, "label": [0, 1, 0, 1]})
    cases = Cases.from_frame(frame.rename_axis("case_id"))
    # Reject from 0.2 on: one false positive, no false negative.
    assert threshold_cost(cases, Costs.binary(0.5)) == pytest.approx(0.5 / 4)
    # Reject from 0.9 on: one false negative.
    assert threshold_cost(cases, Costs.binary(3.0)) == pytest.approx(1.0 / 4)


def test_the_papers_team_on_the_real_alerts(shared_data: Path) -> None:
    alerts = Cases.read(
        shared_data / "baf_alerts_months_3_to_6.parquet", columns=Columns(label="fraud_bool", time="month")
    )
    fit, costs = alerts.between(6, 7), Costs.binary(0.057)
    team = SyntheticTeam.sample([paper_group()], fit, costs, 0, classifier_cost=threshold_cost(fit, costs))
    rates = team.rates(fit)
    assert np.abs(rates["fpr"] - team.targets[:, 0, 1]).max() < 1e-10
    assert np.abs(rates["fnr"] - team.targets[:, 1, 0]).max() < 1e-10
    cost = 100 * team.expected_cost(fit, costs)
    assert cost.max() <= 0.7 * 100 * 0.057 * (fit.label == 0).mean() + 1e-9
    assert (team.directions[:, 0, team.features.names.index("model_score")] < 0).all()


def test_machines_share_a_difficulty_and_decide_every_case(cases: Cases) -> None:
    """Own chances stay as they are, errors go together, scores and decisions agree, and a file keeps it all."""
    table = {"experts": 1, "kind": "machine", "shared": 0.9, "error_rate": {"mean": 0.2}}
    groups = [Group(name="analyst", experts=2, error_rate=Normal(mean=0.2))]
    groups += [Group.model_validate({"name": name, **table}) for name in ("clf", "llm")]
    team = SyntheticTeam.sample(groups, cases, Costs.binary(1.0, 1.0), 4)
    assert team.experts == ("analyst_1", "analyst_2", "clf", "llm")
    assert team.machines == ("clf", "llm")
    label, chance = cases.label, team.error_probabilities(cases).to_numpy()
    wrong = np.mean([said.to_numpy() != label[:, None] for said in team.judgements(cases, 5, 40)], axis=0)
    assert np.abs(wrong.mean(axis=0) - chance.mean(axis=0)).max() < 0.01
    one = team.decide(cases, 5).to_numpy() != label[:, None]
    both = (one[:, :, None] & one[:, None, :]).mean(axis=0)
    alone = (chance[:, :, None] * chance[:, None, :]).mean(axis=0)
    assert both[2, 3] > 1.6 * alone[2, 3]
    assert both[0, 1] < 1.3 * alone[0, 1]
    scores = team.scores(cases, 5)
    assert list(scores) == ["score_clf", "score_llm"]
    assert ((scores.to_numpy() > 0) == team.decide(cases, 5)[["clf", "llm"]].to_numpy()).all()
    log = random_history(team, cases, 5)
    assert log["expert_id"].value_counts().loc[["clf", "llm"]].tolist() == [len(cases)] * 2
    assert log.groupby("case_id").size().eq(3).all()
    again = SyntheticTeam.from_parameters(team.parameters(), team.features)
    pd.testing.assert_frame_equal(again.decide(cases, 5), team.decide(cases, 5))
