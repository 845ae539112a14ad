"""`DeCCaF.assign` and `deccaf assign` under constraints, and `deccaf stream`, with their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deccaf import ConfigError, DataError, DeCCaF
from deccaf.data.config import Config, ConstraintsTable
from models_world import make_world

CONSTRAINTS = """
[costs]
false_positive = 0.3
false_negative = 1.0

[constraints.minutes]
minutes = "work"
capacity = { e0 = 60, e1 = 45.5 }

[constraints.reviewers]
count = "opinions"
conflicts = [["e0", "e1"]]

[[constraints.band]]
group = "branch"
measure = "fpr"
within = 0.02

[[constraints.band]]
group = "kind"
within = 0.9

[[constraints.band]]
group = "work"
cut = [4.5]
within = 0.2

[constraints.balance]
within = 0.2

[constraints.random]
share = 0.1
"""


def people(n: int = 400) -> pd.DataFrame:
    world = make_world(n, 3)
    return world.features.astype({"kind": "str"}).assign(
        case_id=[f"c{k}" for k in range(n)],
        label=world.truth,
        expert=world.expert,
        said=world.decision,
        branch=np.where(np.arange(n) % 2, "north", "south"),
        work=2.0 + np.arange(n) % 5,
        opinions=np.where(np.arange(n) % 10, 1, 2),
    )


FEATURES_NOT = ["label", "expert", "said", "branch", "work", "opinions"]


@pytest.fixture(scope="module")
def model() -> DeCCaF:
    frame = people()
    X = frame.drop(columns=FEATURES_NOT)
    parts = {"case_parts": ["logistic"], "decision_parts": ["rates", "pooled"]}
    return DeCCaF(**parts).fit(X, frame["label"], expert=frame["expert"], decision=frame["said"])


@pytest.fixture(scope="module")
def files(model: DeCCaF, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rosters")
    model.save(folder / "model.deccaf")
    people(460).iloc[400:].drop(columns=["label", "expert", "said"]).to_csv(folder / "today.csv", index=False)
    (folder / "roster.csv").write_text("expert_id,upper\ne0,15\ne1,15\ne2,20\n")
    (folder / "constraints.toml").write_text(CONSTRAINTS)
    return folder


def assign(folder: Path, out: Path, *more: object) -> list[object]:
    return [
        "assign", "--model", folder / "model.deccaf", "--cases", folder / "today.csv",
        "--capacity", folder / "roster.csv", "--out", out, *more,
    ]  # fmt: skip


def test_a_plan_grants_the_constraints_of_the_configuration(files: Path, run, tmp_path: Path) -> None:
    out = tmp_path / "plan.csv"
    code, shown, _ = run(*assign(files, out, "--config", files / "constraints.toml", "--json"))
    assert code == 0
    plan, today = pd.read_csv(out), pd.read_csv(files / "today.csv")
    summary = json.loads(shown)
    names = [row["constraint"] for row in summary["constraints"]]
    assert names == [
        "handling minutes",
        "reviewers",
        "fpr by branch",
        "deferral by kind",
        "deferral by work",
        "balance",
        "random quota",
    ]
    assert all(row["price"] is not None for row in summary["constraints"])
    assert summary["cost"] == pytest.approx(plan["expected_loss"].sum())
    two = today["opinions"] == 2
    assert plan["reviewer_2"].notna().tolist() == two.tolist()
    assert not ({"machine"} & set(plan.loc[two, ["maker", "reviewer_2"]].to_numpy().ravel()))
    both = [set(row) for row in plan.loc[two, ["maker", "reviewer_2"]].to_numpy()]
    assert {"e0", "e1"} not in both
    for name, minutes in (("e0", 60), ("e1", 45.5)):
        mine = (plan[["maker", "reviewer_2"]] == name).any(axis=1)
        assert today.loc[mine, "work"].sum() <= minutes
        assert mine.sum() <= 15
    assert plan["random"].sum() == 6
    assert plan.loc[plan["random"], "propensity"].tolist() == pytest.approx([1 / 3] * 6)
    human = plan["maker"] != "machine"
    shares = human.groupby(today["work"] >= 4.5).mean()
    assert abs(shares.iloc[0] - shares.iloc[1]) <= 0.2 + 1e-6
    code, shown, err = run(*assign(files, out, "--config", files / "constraints.toml"))
    assert code == 0
    assert "What each constraint costs" in shown
    assert "Plan:" in err


def test_constraints_in_python(model: DeCCaF) -> None:
    today = people(460).iloc[400:].reset_index(drop=True)
    roster = {"e0": 15, "e1": 15, "e2": 20}
    free = model.assign(today, roster)
    assert free.constraints is None
    plan = model.assign(today, roster, constraints={"minutes": {"minutes": 3.0, "capacity": {"e2": 30}}})
    assert (plan.table["maker"] == "e2").sum() <= 10
    assert plan.constraints["price"].tolist() == pytest.approx([plan.summary.cost - free.summary.cost])
    assert plan.constraints["binds"].tolist() == ["e2"]
    batches = np.where(np.arange(60) < 30, "am", "pm")
    split = model.assign(today, roster, batch=batches, constraints={"random": {"share": 0.2}})
    assert split.constraints["batch"].tolist() == ["am", "pm"]
    assert split.table["random"].groupby(batches).sum().tolist() == [6, 6]
    again = model.assign(today, roster, constraints={"reviewers": {"up_to": 2}})
    assert again.summary.cost <= free.summary.cost + 1e-9


def test_the_log_tells_the_minutes(model: DeCCaF) -> None:
    today = people(460).iloc[400:]
    asked = {"minutes": {"capacity": {"e0": 30.0, "e1": 30.0, "e2": 30.0}}}
    with pytest.raises(ConfigError, match="the log had no seconds"):
        model.assign(today, {"e0": 60, "e1": 60, "e2": 60}, constraints=asked)
    model.pace_ = {"e0": 30.0, "e1": 10.0}  # cases an hour; e2 is taken as their middle, 4 minutes a case
    try:
        plan = model.assign(today, {"e0": 60, "e1": 60, "e2": 60}, constraints=asked)
    finally:
        model.pace_ = {}
    load = plan.table["maker"].value_counts()
    assert load.get("e0", 0) <= 15
    assert load.get("e1", 0) <= 5
    assert load.get("e2", 0) <= 7


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
    [
        (
            {"band": [{"group": "brunch", "within": 0.1}]},
            DataError,
            "'brunch': missing.*did you mean 'branch'",
        ),
        ({"band": [{"group": "branch", "within": 0.1, "cut": [3]}]}, DataError, "60 values are no numbers"),
        ({"random": {"share": 2}}, ConfigError, "constraints: random.share"),
        (
            {"minutes": {"capacity": {"e9": 1.0}, "minutes": 1.0}},
            ConfigError,
            "'e9' is not one of the makers",
        ),
        ({"quota": {}}, ConfigError, "constraints: quota"),
    ],
)
def test_wrong_constraints_are_named(model: DeCCaF, constraints, error, message) -> None:
    with pytest.raises(error, match=message):
        model.assign(people(460).iloc[400:], {"e0": 15}, constraints=constraints)


def test_opinions_need_a_model_of_decisions() -> None:
    frame = people()
    X = frame.drop(columns=FEATURES_NOT)
    alone = DeCCaF(case_parts=["logistic"]).fit(X, frame["label"])
    with pytest.raises(ConfigError, match="need method 'deccaf' and decisions"):
        alone.assign(X, {}, constraints={"reviewers": {"count": 1}})


def test_constraints_that_clash_end_with_code_4(files: Path, run, tmp_path: Path) -> None:
    tight = CONSTRAINTS.replace("e0 = 60, e1 = 45.5", "e0 = 1, e1 = 1, e2 = 1")
    (tmp_path / "tight.toml").write_text(tight)
    code, _, err = run(*assign(files, tmp_path / "plan.csv", "--config", tmp_path / "tight.toml"))
    assert code == 4
    assert "handling minutes and reviewers clash" in err
    assert not (tmp_path / "plan.csv").exists()


def test_dry_runs_and_what_ifs_plan_under_the_constraints(files: Path, run, tmp_path: Path) -> None:
    given = ("--config", files / "constraints.toml", "--json")
    code, out, _ = run(*assign(files, tmp_path / "plan.csv", *given))
    assert code == 0
    cost = json.loads(out)["cost"]
    code, _, _ = run(*assign(files, tmp_path / "p.csv", "--dry-run", *given))
    assert (code, (tmp_path / "p.csv").exists()) == (0, False)
    code, out, _ = run(*assign(files, tmp_path / "p.csv", "--what-if", "e0=+1", *given))
    assert (code, (tmp_path / "p.csv").exists()) == (0, False)
    assert json.loads(out)["now"]["cost"] == pytest.approx(cost)
    tight = CONSTRAINTS.replace("e0 = 60, e1 = 45.5", "e0 = 1, e1 = 1, e2 = 1")
    (tmp_path / "tight.toml").write_text(tight)
    code, _, err = run(*assign(files, tmp_path / "p.csv", "--dry-run", "--config", tmp_path / "tight.toml"))
    assert (code, "clash" in err) == (4, True)


def test_the_columns_that_constraints_name() -> None:
    table = ConstraintsTable.model_validate(
        {"minutes": {"capacity": {"a": 1.0}, "minutes": "work"}, "band": [{"group": "g", "within": 0.1}]}
    )
    assert table.columns == ("g", "work")


def test_the_configuration_in_the_documents_can_be_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs" / "rosters.md"
    (block,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)
    (tmp_path / "deccaf.toml").write_text(block)
    found = Config.read(tmp_path / "deccaf.toml").constraints
    assert found.columns == ("customer_age", "work", "opinions")
    assert found.reviewers.conflicts == [["ann", "bob"]]


def lines(*objects: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def test_a_stream_routes_what_it_can_and_answers_every_line(files: Path, run, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("expert_id,upper\nann,1\nbob,1\n")
    code, out, err = run(
        "stream", "--capacity", tmp_path / "roster.csv", "--arrivals", 3,
        stdin=lines(
            {"case_id": "a1", "loss": {"machine": 0.9, "ann": 0.1}, "due": 2},
            {"case_id": "a2", "loss": {"machine": 0.9, "ann": 0.1, "bob": 0.3}, "due": 1},
            {"hand_back": "a2"},
            {"case_id": "a3", "loss": {"machine": 0.2}},
            {"absent": "bob"},
            {"change": {"ann": 2}},
            {"case_id": "a4"},
            {"case_id": "a5", "loss": {"carl": 1}},
            {"case_id": "a6", "loss": {"machine": "x"}},
            {"case_id": "a1", "loss": {"machine": 0.9}},
            {"absent": "carl"},
            [1],
            {"colour": "red"},
        ) + "not JSON\n\n",
    )  # fmt: skip
    assert code == 3
    found = [json.loads(line) for line in out.splitlines()]
    assert len(found) == 14
    assert [row.get("maker") for row in found[:4]] == ["ann", "bob", "machine", "machine"]
    assert found[4:6] == [{"absent": "bob"}, {"change": {"ann": 2}}]
    assert all("error" in row for row in found[6:])
    assert found[7] == {"line": 8, "error": "loss: 'carl' is not on the roster"}
    assert "3 cases, expected cost" in err


def test_a_stream_counts_waiting_in_its_bids(run, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("expert_id,upper\nann,50\nbob,50\nmachine,50\n")
    loss = {"machine": 0.9, "ann": 0.1, "bob": 0.2}
    config = tmp_path / "waiting.toml"
    config.write_text("[costs]\nfalse_positive = 1.0\nfalse_negative = 1.0\n[waiting]\nminutes = 6\n")
    base = ["stream", "--capacity", tmp_path / "roster.csv", "--arrivals", 9]
    counted = [*base, "--config", config, "--hours", 8]

    def went(*objects: object, options: list[object] = counted) -> tuple[int, list[dict[str, Any]]]:
        code, out, _ = run(*options, stdin=lines(*objects))
        return code, [json.loads(line) for line in out.splitlines()]

    # an hour costs 3 and a case takes 0.1 h: a second case with ann waits, for 0.3 more than bob's errors
    many = [{"case_id": f"a{k}", "loss": loss, "at": 0.5, "waiting_cost": 3.0} for k in range(3)]
    code, found = went(*many)
    assert code == 0
    assert [row["maker"] for row in found[:2]] == ["ann", "bob"]
    assert found[0]["waiting_cost"] >= 0.3 - 1e-9
    late = {**many[1], "case_id": "late", "at": 0.6}  # 48 minutes later ann is free again
    assert went(many[0], late)[1][1]["maker"] == "ann"
    free = [{**one, "waiting_cost": 0.0, "due": 6.0} for one in many]
    plain = [{"case_id": one["case_id"], "loss": loss, "at": 0.5} for one in many]
    errors_alone = went(*plain, options=base)[1]
    counting = went(*free)[1]
    assert [row["maker"] for row in counting] == [row["maker"] for row in errors_alone] == ["ann"] * 3
    assert went(*free, options=base)[1] == errors_alone  # without a clock: nothing costs anything

    state = ["--state", tmp_path / "day.json"]
    whole = went(*many, {"hand_back": "a0"}, late)[1]
    assert whole[3]["maker"] != "ann"
    first = went(*many[:2], options=[*counted, *state])[1]
    assert first + went(many[2], {"hand_back": "a0"}, late, options=[*counted, *state])[1] == whole

    code, found = went(many[0], options=base)
    assert code == 3
    assert found[0]["error"].startswith("waiting_cost: waiting is counted on a clock")
    code, found = went({**many[0], "at": None}, {**many[0], "due": "2026-05-04"})
    assert [row["error"].split(":")[0] for row in found] == ["at", "due"]
    config.write_text(config.read_text() + "late = 2.0\n")
    code, _, err = run(*base, "--config", config)
    assert code == 2
    assert "waiting is counted on a clock" in err


def test_a_stream_goes_on_from_its_state(files: Path, run, tmp_path: Path) -> None:
    today = pd.read_csv(files / "today.csv").drop(columns=["branch", "work", "opinions"])
    past = people(400).drop(columns=FEATURES_NOT).assign(batch=np.repeat(["d1", "d2"], 200))
    past.to_csv(tmp_path / "past.csv", index=False)
    cases = [lines(row) for row in today.to_dict("records")]
    base = ["stream", "--model", files / "model.deccaf", "--capacity", files / "roster.csv"]
    base += ["--forecast", tmp_path / "past.csv", "--arrivals", 60, "--exact"]
    code, whole, err = run(*base, stdin="".join(cases))
    assert code == 0
    assert "above the best plan in hindsight" in err
    state = tmp_path / "day.json"
    parts = [run(*base, "--state", state, stdin="".join(some))[1] for some in (cases[:25], cases[25:])]
    assert "".join(parts) == whole
    found = pd.DataFrame([json.loads(line) for line in whole.splitlines()])
    load = found["maker"].value_counts()
    assert load.get("e0", 0) <= 15
    assert load.get("e2", 0) <= 20
    assert found.loc[found["maker"] == "machine", "decision"].notna().all()
    state.write_text("{")
    assert run(*base, "--state", state)[0] == 3


def test_a_stream_without_lines_says_so(files: Path, run) -> None:
    code, out, err = run("stream", "--capacity", files / "roster.csv")
    assert (code, out) == (0, "")
    assert "no cases" in err
    assert run("stream", "--capacity", files / "roster.csv", "--exact")[0] == 2
    code, _, err = run("stream", "--capacity", files / "roster.csv", "--forecast", files / "today.csv")
    assert code == 2
    assert "need --model" in err


def test_a_stream_is_one_day(files: Path, run, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("batch,expert_id,upper\nam,ann,1\npm,ann,1\n")
    code, _, err = run("stream", "--capacity", tmp_path / "roster.csv")
    assert code == 4
    assert "a stream is one day" in err
