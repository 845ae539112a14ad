"""The description of a team, and how features are encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import QuantileTransformer

from deccaf import Cases, ConfigError, DataError
from deccaf.simulate.teams.build import build_team, fitting_cases, protected_groups, reference_cost
from deccaf.simulate.teams.config import TeamConfig
from deccaf.simulate.teams.features import TeamFeatures

EXPERIMENTS = Path(__file__).parents[1] / "experiments" / "teams"
COSTS = "[costs]\nfalse_positive = 0.057\nfalse_negative = 1.0\n"


def read(folder: Path, text: str) -> TeamConfig:
    (folder / "team.toml").write_text(text)
    return TeamConfig.read(folder / "team.toml")


def test_the_papers_file_says_what_the_defaults_are(tmp_path: Path) -> None:
    paper, bare = TeamConfig.read(EXPERIMENTS / "paper.toml"), read(tmp_path, COSTS)
    (described,), (default,) = paper.group, bare.group
    assert described.weights["customer_age"].mean == -1.0
    assert described.model_copy(update={"weights": {}, "cost": None}) == default
    assert (described.cost.cap, described.cost.unit) == (0.7, "classifier")


def test_groups_inherit_what_they_do_not_say() -> None:
    config = TeamConfig.read(EXPERIMENTS / "mixed.toml")
    standard, fair, independent, beginners = config.group
    assert [g.experts for g in config.group] == [6, 3, 3, 3]
    assert fair.weights["customer_age"].mean == 0.0
    assert fair.cost == standard.cost
    assert independent.weights == standard.weights
    assert independent.score_weight.mean == 0.0
    # Another kind of target replaces the baseline's, it does not join it.
    assert (beginners.cost, beginners.fpr.mean, beginners.fatigue.mean) == (None, 0.55, -0.2)
    assert beginners.fpr_bounds == (0.05, 0.9)


def test_a_chain_of_groups_merges_table_by_table(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        COSTS
        + """
        [[group]]
        name = "a"
        weights = { x = { mean = 1.0, deviation = 0.5 } }
        [[group]]
        name = "b"
        inherits = "a"
        weights = { y = { mean = 2.0 } }
        [[group]]
        name = "c"
        inherits = "b"
        weights = { x = { mean = 3.0 } }
        """,
    )
    c = config.group[2].weights
    assert (c["x"].mean, c["x"].deviation, c["y"].mean) == (3.0, 0.5, 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[group]]\nexprts = 3", r"\[group\] 0.exprts: unknown key.*did you mean 'experts'"),
        ("[[group]]\ncost = { means = 1.0 }", "means: unknown key; known are mean.*did you mean 'mean'"),
        ("[fit]\ntme = 6", r"\[fit\] tme: unknown key.*did you mean 'time'"),
        ("[[group]]\ninherits = 'standart'\nname = 'x'", "no group is called"),
        ("[[group]]\nname='x'\ninherits = 'y'\n[[group]]\nname='y'\ninherits='x'", "inherits from itself"),
        ("[[group]]\nname='x'\n[[group]]\nname='x'", "two groups have the name 'x'"),
        ("[[group]]\nfpr = { mean = 0.1 }", "fpr and fnr go together"),
        ("[[group]]\ncost = {}\nerror_rate = { mean = 0.1 }", "give one performance"),
        ("[[group]]\nbounds = [0.5, 0.2]", "bounds must rise"),
        ("[[group]]\nsharpness = { mean = 1.0, deviation = -1.0 }", "deviation"),
        ("[[group]]\ncost = { floor = 0.9 }", "floor 0.9 lies above cap 0.7"),
        ("[[group]]\nexperts = 0", "experts"),
        ("[features]\nscore_scale = 'log'", "score_scale.*'log'"),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, COSTS + text)


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "case_id": range(400),
            "x": rng.normal(size=400).round(1),
            "flag": rng.integers(0, 2, 400),
            "channel": rng.choice(["web", "branch", "phone"], 400, p=[0.5, 0.3, 0.2]),
            "age": rng.integers(20, 90, 400),
            "model_score": rng.random(400),
            "label": rng.integers(0, 2, 400),
            "time": np.repeat([1, 2], 200),
        }
    )


def test_numbers_become_quantiles_as_scikit_learn_has_them() -> None:
    cases = Cases.from_frame(frame())
    seen = pd.DataFrame(TeamFeatures.fit(cases).transform(cases), columns=cases.schema.names)
    numbers = ["x", "flag", "age", "model_score"]
    theirs = QuantileTransformer(n_quantiles=400).fit_transform(cases.features[numbers]) - 0.5
    assert np.abs(seen[numbers].to_numpy() - theirs).max() < 0.01
    assert seen["flag"].unique().tolist() in ([-0.5, 0.5], [0.5, -0.5])
    assert seen["x"].corr(cases.features["x"].reset_index(drop=True), method="spearman") == pytest.approx(1.0)


def test_categories_are_ordered_by_prevalence_by_hand() -> None:
    cases = Cases.from_frame(
        pd.DataFrame(
            {
                "case_id": range(6),
                "channel": ["web", "web", "web", "branch", "branch", "phone"],
                "label": [0, 0, 1, 1, 1, 0],
            }
        )
    )
    # Prevalence: phone 0, web 1/3, branch 1 -> ranks 0, 1, 2 of 3; mean rank (3 * 1 + 2 * 2) / 6 / 3 = 7/18.
    seen = TeamFeatures.fit(cases, score=None).transform(cases)[:, 0]
    assert seen == pytest.approx([1 / 3 - 7 / 18] * 3 + [2 / 3 - 7 / 18] * 2 + [-7 / 18])
    assert seen.mean() == pytest.approx(0.0)


def test_missing_and_unseen_values_move_nobody() -> None:
    fit = Cases.from_frame(frame())
    new = (
        frame()
        .iloc[:3]
        .assign(x=[np.nan, 99.0, -99.0], channel=[None, "fax", "web"], model_score=[np.nan, 2.0, -1.0])
    )
    features = TeamFeatures.fit(fit)
    columns = features.names
    seen = pd.DataFrame(features.transform(Cases.from_frame(new)), columns=columns)
    assert seen["x"].tolist() == [0.0, 0.5, -0.5]
    assert seen["channel"].tolist()[:2] == [0.0, 0.0]
    assert seen["channel"][2] != 0.0
    with pytest.raises(DataError, match="'x': missing"):
        features.transform(Cases.from_frame(new.drop(columns="x")))
    with pytest.raises(DataError, match="'flag'.*fitted on numbers"):
        features.transform(Cases.from_frame(new.assign(flag=["yes", "no", "no"])))


def test_a_raw_score_and_a_binary_age() -> None:
    cases = Cases.from_frame(frame())
    features = TeamFeatures.fit(cases, score_scale="raw", thresholds={"age": 50}, binary=["age"])
    seen = pd.DataFrame(features.transform(cases), columns=features.names)
    assert (seen["model_score"].to_numpy() == cases.features["model_score"].to_numpy()).all()
    assert (seen["age"].to_numpy() == np.where(cases.features["age"] >= 50, 0.5, -0.5)).all()
    assert TeamFeatures.from_dict(features.to_dict()) == features
    with pytest.raises(ConfigError, match="did you mean 'model_score'"):
        TeamFeatures.fit(cases, score="modelscore")
    with pytest.raises(ConfigError, match="have a threshold"):
        TeamFeatures.fit(cases, binary=["age"])
    with pytest.raises(DataError, match="not what a team writes"):
        TeamFeatures.from_dict({"score": None})


def test_a_team_from_a_file(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        COSTS
        + """
        [features]
        score = "model_score"
        protected = ["age", "channel"]
        thresholds = { age = 50 }
        [fit]
        time = 2
        [[group]]
        experts = 4
        """,
    )
    cases = Cases.from_frame(frame())
    team = build_team(config, cases, 3)
    fit = fitting_cases(config, cases)
    assert (len(team), len(fit)) == (4, 200)
    assert np.abs(team.rates(fit)["fnr"] - team.targets[:, 1, 0]).max() < 1e-10
    assert reference_cost(config, fit, config.costs.build()) <= 0.057 * (fit.label == 0).mean() + 1e-12
    groups = protected_groups(config.features, cases)
    assert set(groups["age"]) == {"below 50", "50 and above"}
    assert set(groups["channel"]) == {"web", "branch", "phone"}
    with pytest.raises(DataError, match="no case has it; times go from 1 to 2"):
        fitting_cases(read(tmp_path, COSTS + "[fit]\ntime = 9"), cases)
    dated = frame().assign(time=pd.to_datetime(["2024-05-01", "2024-06-15"]).repeat(200))
    june = fitting_cases(read(tmp_path, COSTS + "[fit]\ntime = '2024-06'"), Cases.from_frame(dated))
    assert (len(june), june.time.min()) == (200, pd.Timestamp("2024-06-15"))
    with pytest.raises(ConfigError, match="relative to the classifier"):
        build_team(read(tmp_path, COSTS), cases, 0)
