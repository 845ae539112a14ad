"""Tables and pictures of a team, and the command that writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from deccaf import Cases, DataError, Decisions
from deccaf.benchmark.sections.team import study_team, team_report
from deccaf.cli.simulate_team import team as command
from deccaf.evaluate.agreement import (
    agreement_table,
    complementarity,
    error_by_group,
    kappa_between,
    outcome_shares,
    outcome_table,
)
from deccaf.simulate.teams.config import Group, Normal, TeamConfig
from deccaf.simulate.teams.files import load_team
from deccaf.simulate.teams.team import SyntheticTeam
from test_team import COSTS, RATES, THREE, make_cases

TRUTH = [0, 0, 1, 1]
SAID = pd.DataFrame({"ann": [0, 1, 1, 0], "bob": [0, 0, 0, 1]})


def test_outcomes_by_hand() -> None:
    assert outcome_shares(TRUTH, SAID["ann"]).to_dict() == {"fp": 0.25, "fn": 0.25, "tp": 0.25, "tn": 0.25}
    table = outcome_table(TRUTH, SAID)
    assert table.loc["bob"].tolist() == [0.0, 0.25, 0.25, 0.5]
    three = outcome_shares([0, 1, 2, 2], [0, 2, 2, 0], ("a", "b", "c"))
    assert three[["a>a", "b>c", "c>c", "c>a"]].tolist() == [0.25] * 4
    assert three.sum() == 1.0
    with pytest.raises(DataError, match="a truth for every decision"):
        outcome_shares([0, 1], [0])


def test_complementarity_by_hand() -> None:
    # ann is right on cases 1 and 3, bob on 1, 2 and 4.
    table = complementarity(TRUTH, SAID)
    assert table.to_numpy().tolist() == [[0.0, 0.25], [0.5, 0.0]]


@pytest.mark.parametrize("classes", [2, 3])
def test_kappa_is_scikit_learns(classes: int) -> None:
    rng = np.random.default_rng(classes)
    a = pd.DataFrame(rng.integers(0, classes, (300, 3)), columns=list("abc"))
    b = a.where(pd.DataFrame(rng.random((300, 3)) < 0.6, columns=list("abc")), classes - 1)
    table = kappa_between(a, b, classes)
    for row in "abc":
        for column in "abc":
            assert table.at[row, column] == pytest.approx(cohen_kappa_score(a[row], b[column]))
    own = agreement_table(a, b, classes)
    assert own.at["b", "b"] == pytest.approx(cohen_kappa_score(a["b"], b["b"]))
    assert own.at["a", "b"] == pytest.approx(cohen_kappa_score(a["a"], a["b"]))
    constant = pd.DataFrame({"a": [0, 0, 0]})
    assert np.isnan(kappa_between(constant).iloc[0, 0])


def test_errors_by_group_by_hand() -> None:
    errors = pd.DataFrame({"ann": [0.1, 0.3, 0.5, 0.7]})
    table = error_by_group(TRUTH, errors, ["old", "young", "old", "old"])
    assert table[["truth", "group", "cases"]].to_numpy().tolist() == [
        [0, "old", 1],
        [0, "young", 1],
        [1, "old", 2],
    ]
    assert table["error_rate"].tolist() == pytest.approx([0.1, 0.3, 0.6])


@pytest.fixture(scope="module")
def cases() -> Cases:
    return make_cases(400)


def test_a_study_and_its_page(tmp_path: Path, cases: Cases) -> None:
    team = SyntheticTeam.sample(
        [RATES, RATES.model_copy(update={"name": "others", "experts": 6})], cases, COSTS, 0
    )
    old = pd.DataFrame({"age": np.where(cases.features["age"] >= 50, "old", "young")}, index=cases.ids)
    study = study_team(team, cases, COSTS, 0, groups=old, classifier_cost=0.1)
    assert study.decisions.equals(team.decide(cases, 0))
    assert study.fitted["fpr"].to_numpy() == pytest.approx(team.targets[:, 0, 1])
    assert len(study.by_group["age"]) == 2 * 2 * 15
    page = team_report(study, "footer").write(tmp_path)
    assert "15 synthetic experts" in page.read_text()
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {
        "team-weights.png",
        "team-rates.png",
        "team-complementarity.png",
        "team-agreement.png",
        "team-errors-by-age.png",
    }


def test_a_study_of_one_expert_and_of_three_classes(cases: Cases) -> None:
    alone = SyntheticTeam.sample([RATES.model_copy(update={"experts": 1})], cases, COSTS, 0)
    assert "1 synthetic experts" in team_report(study_team(alone, cases, COSTS, 0), "").html()
    many = make_cases(300, classes=3)
    team = SyntheticTeam.sample([Group(experts=2, error_rate=Normal(mean=0.3))], many, THREE, 0)
    study = study_team(team, many, THREE, 0)
    assert list(study.outcomes.columns)[:2] == ["low>low", "low>mid"]
    assert "Rate low&gt;mid" in team_report(study, "").html()


def test_the_command_writes_everything(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "case_id": range(300),
            "x": rng.normal(size=300),
            "model_score": rng.random(300),
            "label": rng.integers(0, 2, 300),
        }
    )
    frame.to_parquet(tmp_path / "cases.parquet")
    (tmp_path / "team.toml").write_text(
        "[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n"
        "[features]\nscore = 'model_score'\n[[group]]\nexperts = 3\n"
    )
    out = tmp_path / "out"
    command(tmp_path / "cases.parquet", tmp_path / "team.toml", out, per_case=2, seed=1, as_json=True)
    cases = Cases.read(out / "cases.parquet")
    log = Decisions.read(out / "decisions.parquet", cases=cases)
    assert len(log) == 600
    team = load_team(out)
    everything = pd.read_parquet(out / "all_decisions.parquet").set_index("case_id")
    assert (team.decide(cases, 1).to_numpy() == everything.to_numpy()).all()
    chances = pd.read_parquet(out / "probabilities.parquet")
    assert list(chances.columns) == ["case_id", "expert_id", "error_if_0", "error_if_1"]
    first = chances[chances["expert_id"] == "standard_2"].set_index("case_id")["error_if_1"]
    assert first.to_numpy() == pytest.approx(
        team.error_probabilities(cases, truth=1)["standard_2"].to_numpy()
    )
    assert (out / "report.html").is_file()
    assert not list(out.glob(".*"))


def test_the_documented_example_runs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "teams.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    assert len(names["log"]) == 2000
    assert names["q"].shape == (2000, 5, 2, 2)
    assert names["five"].upper.sum(axis=1).item() == 2000
    assert names["days"].batches == ("1", "2", "3", "4")


def test_the_documented_file_is_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "teams.md").read_text()
    (tmp_path / "team.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    assert [group.experts for group in TeamConfig.read(tmp_path / "team.toml").group] == [9, 3]
