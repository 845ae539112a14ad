"""Plans say what they were made with, what is off about their cases, and why; through the command line."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from rich.console import Console
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV, cross_validate

from deccaf import Capacity, ConfigError, Costs, DataError, DeCCaF, DriftError, make_cost_scorer
from deccaf.cli.common import steps
from deccaf.data.config import Config
from deccaf.data.history import History
from deccaf.data.schema import Columns, Schema
from deccaf.evaluate.drift import Comparison, profile
from deccaf.planning.intervals import LEVEL
from models_world import make_world

CONFIG = """
[columns]
time = "day"
[costs]
false_positive = {fp}
false_negative = {fn}
{more}
"""
LIGHT = {"case_parts": ("logistic",), "decision_parts": ("rates", "pooled")}
CASES = 60


def frames(n: int = 600) -> tuple[pd.DataFrame, pd.DataFrame]:
    world = make_world(n, 3)
    cases = world.features.astype({"kind": "str"}).assign(
        case_id=[f"c{k}" for k in range(n)],
        label=world.truth,
        day=np.arange(n) // 25,
        money=1.0 + world.truth,
    )
    cases["size"] = np.exp(3 + np.random.default_rng(1).normal(size=n))
    cases["late"] = np.where(np.arange(n) % 3, 0.0, cases["size"] * 7)
    said = {"case_id": cases["case_id"], "expert_id": world.expert, "decision": world.decision}
    return cases, pd.DataFrame({**said, "seconds": 90.0})


def config(path: Path, fp: float | str = 0.3, fn: float | str = 1.0, more: str = "") -> Path:
    path.write_text(CONFIG.format(fp=fp, fn=fn, more=more))
    return path


def learned(folder: Path, method: str = "deccaf") -> Path:
    cases, log = frames()
    settings = Config.read(config(folder / f"{method}.toml"))
    past = History.from_frames(cases.iloc[:-CASES].drop(columns="money"), log.iloc[:-CASES], settings)
    model = DeCCaF.from_config(settings).set_params(method=method, **LIGHT).fit_history(past)
    model.save(folder / f"{method}.deccaf")
    return folder / f"{method}.deccaf"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {method: learned(folder, method) for method in ("deccaf", "paper")}


@pytest.fixture
def day(models: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """A model, a day's cases and a roster; each test spoils one."""
    cases, _ = frames()
    cases.iloc[-CASES:].drop(columns="label").to_parquet(tmp_path / "today.parquet")
    (tmp_path / "roster.csv").write_text("expert_id,upper\ne0,9\ne1,8\n")
    return {
        "model": models["deccaf"],
        "cases": tmp_path / "today.parquet",
        "capacity": tmp_path / "roster.csv",
    }


def given(day: dict[str, Path], *more: object) -> list[object]:
    return [*[part for name, path in day.items() for part in (f"--{name}", path)], *more]


def planned(day: dict[str, Path], run, *more: object) -> tuple[pd.DataFrame, dict]:
    out = day["cases"].parent / "plan.parquet"
    code, said, err = run("assign", *given(day, "--out", out, "--json", *more))
    assert code == 0, err
    return pd.read_parquet(out), json.loads(said)


# --- costs that are given when planning -------------------------------------------------------------------


def test_costs_of_the_configuration_are_used_and_said(day: dict[str, Path], run, tmp_path: Path) -> None:
    own, said = planned(day, run)
    assert said["costs"]["matrix"] == [[0.0, 0.3], [1.0, 0.0]]
    same, _ = planned(day, run, "--config", config(tmp_path / "same.toml"))
    pd.testing.assert_frame_equal(own, same)
    plans = {}
    for fp, fn in ((1.0, 5.0), (5.0, 1.0)):
        file = config(tmp_path / "other.toml", fp, fn, "review_cost = { e0 = 0.02 }")
        plans[fp], said = planned(day, run, "--config", file)
        assert said["costs"]["matrix"] == [[0.0, fp], [fn, 0.0]]
        assert said["costs"]["review_cost"] == {"e0": 0.02}
        model = DeCCaF.load(day["model"]).with_costs(Costs.binary(fp, fn), {"e0": 0.02})
        expected = model.assign(pd.read_parquet(day["cases"]), Capacity.read(day["capacity"])).frame
        pd.testing.assert_frame_equal(plans[fp], expected, check_dtype=False)
    assert not plans[1.0]["maker"].equals(plans[5.0]["maker"])
    code, out, _ = run("assign", *given(day, "--out", tmp_path / "p.csv", "--config", file))
    assert (code, "costs: false positive 5, false negative 1; a review by e0 0.02" in out) == (0, True)


def test_costs_per_case_may_come_with_the_plan(day: dict[str, Path], run, tmp_path: Path) -> None:
    plan, said = planned(day, run, "--config", config(tmp_path / "money.toml", fn='"money"'))
    assert said["costs"]["matrix"][1][0] == "money"
    again, _ = planned(day, run)
    assert plan["expected_loss"].sum() > again["expected_loss"].sum()


@pytest.mark.parametrize(
    ("method", "more", "words"),
    [
        ("paper", "", "a model of method 'paper' is trained for its costs"),
        ("deccaf", 'classes = ["no", "yes"]', "but the model knows"),
        ("deccaf", "review_cost = { e00 = 1.0 }", "did you mean 'e0'"),
    ],
)
def test_costs_that_a_model_cannot_use(
    models: dict[str, Path], day: dict[str, Path], run, tmp_path: Path, method: str, more: str, words: str
) -> None:
    file = config(tmp_path / "other.toml", 0.9, more=more)
    day["model"] = models[method]
    for command in (["assign", "--out", tmp_path / "p.csv"], ["explain", "--case", "c550"]):
        code, _, err = run(*command, *given(day, "--config", file))
        assert (code, words in err) == (2, True), err
    assert not (tmp_path / "p.csv").exists()
    same = config(tmp_path / "same.toml")  # the costs that it was trained for
    assert run("assign", *given(day, "--config", same, "--out", tmp_path / "p.csv"))[0] == 0


def test_explain_and_stream_take_the_costs_too(day: dict[str, Path], run, tmp_path: Path) -> None:
    file = config(tmp_path / "other.toml", 5.0)
    plan, _ = planned(day, run, "--config", file)
    case = plan.loc[plan["why"] == "room", "case_id"].iloc[0]
    code, out, _ = run("explain", *given(day, "--config", file, "--case", case, "--json"))
    found, row = json.loads(out), plan.set_index("case_id").loc[case]
    assert code == 0
    assert (found["maker"], found["runner_up"], found["why"]) == (row["maker"], row["runner_up"], "room")
    assert found["costs"]["matrix"][0][1] == 5.0
    frame = pd.read_parquet(day["cases"]).iloc[:1].drop(columns=["day", "money"])
    line = frame.to_json(orient="records", lines=True)
    stream = ["stream", "--model", day["model"], "--capacity", day["capacity"]]
    code, out, err = run(*stream, "--config", file, stdin=line)
    assert (code, "costs: false positive 5" in err) == (0, True)
    model = DeCCaF.load(day["model"]).with_costs(Costs.binary(5.0, 1.0))
    answer = json.loads(out)
    assert answer["expected_loss"] == pytest.approx(model.expected_loss(frame)[answer["maker"]].iloc[0])
    assert run("stream", "--capacity", day["capacity"], "--config", file, stdin="")[0] == 2
    odd = pd.read_parquet(day["cases"]).iloc[:8].drop(columns=["day", "money"]).assign(kind="new")
    code, _, err = run(*stream, stdin=odd.to_json(orient="records", lines=True))
    assert (code, "unlike those that the model learned from: kind: 8 of 8" in err) == (0, True)


def test_roles_that_differ_from_the_models_are_said(day: dict[str, Path], run, tmp_path: Path) -> None:
    file = config(tmp_path / "other.toml")
    file.write_text(file.read_text().replace('"day"', '"month"'))
    code, _, err = run("assign", *given(day, "--config", file, "--out", tmp_path / "p.csv"))
    assert (code, "[columns] differs from what the model was fitted with" in err) == (0, True)


# --- what if ----------------------------------------------------------------------------------------------


def test_scenarios_are_one_table(day: dict[str, Path], run) -> None:
    asked = ["e0=+5,e1=0", "costs.false_positive=0.9", "zoe=4", "e2=4,costs.review_cost=0.05"]
    more = [part for text in asked for part in ("--what-if", text)]
    code, out, err = run("assign", *given(day, *more))
    assert code == 0, err
    for words in ("4 scenarios", "as it is", "zoe=4", "never seen, taken as the team's average: zoe"):
        assert words in out
    assert out.endswith("nothing was written\n")
    code, out, _ = run("assign", *given(day, *more, "--json"))
    found = json.loads(out)
    room, costs, new, both = found["scenarios"]
    assert room["kept"] == found["now"]["cost"]
    assert [m["capacity"] for m in room["then"]["makers"]] == [None, 14, 0]
    assert costs["then"]["costs"]["matrix"][0][1] == 0.9
    assert found["now"]["costs"]["matrix"][0][1] == 0.3
    assert [m["maker"] for m in found["now"]["makers"]] == ["machine", "e0", "e1"]
    assert [m["maker"] for m in new["then"]["makers"]] == ["machine", "e0", "e1", "zoe"]
    assert both["then"]["costs"]["review_cost"] == 0.05
    assert any(m["maker"] == "e2" and m["capacity"] == 4 for m in both["then"]["makers"])
    assert not any("e2" in note for note in both["then"]["notes"])
    for answer in found["scenarios"]:
        assert answer["saves"] == pytest.approx(answer["kept"] - answer["cost"])
    assert min(costs["saves"], new["saves"]) > -1e-9  # planning for it is never dearer than keeping the plan
    # a plan that is kept costs by the new costs what its makers lose by them
    model, cases = DeCCaF.load(day["model"]), pd.read_parquet(day["cases"])
    makers = model.assign(cases, {"e0": 9, "e1": 8}).frame["maker"]
    loss = model.with_costs(Costs.binary(0.9, 1.0)).expected_loss(cases)
    assert costs["kept"] == pytest.approx(sum(loss[m].iloc[k] for k, m in enumerate(makers)))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("costs.false_positive=dear", 2, "expected a number"),
        ("costs.false_positiv=1", 2, "did you mean 'false_positive'"),
        ("costs.review_cost=-1", 2, "review_cost"),
        ("costs.false_positive=-1", 2, "finite and not negative"),
        ("e0=+1,e0=+2", 2, "changed twice"),
        ("e0=", 2, "write it as"),
        ("e00=-2", 3, "'e00' is not on the roster; did you mean"),
        ("e0=lots", 3, "expected a number of cases"),
        ("machine=3", 4, "60 cases, capacity 20"),
    ],
)
def test_what_ifs_that_make_no_sense(day: dict[str, Path], run, text: str, code: int, words: str) -> None:
    found, out, err = run("assign", *given(day, "--what-if", text))
    assert (found, words in err, out) == (code, True, ""), err


# --- cases unlike those that were learned from ------------------------------------------------------------

SPOILED = {
    "a thousand times too large": ({"size": lambda c: 1000 * c["size"]}, "size", "scale"),
    "a thousand times too small": ({"size": lambda c: c["size"] / 1000}, "size", "scale"),
    "too large on both sides of 0": ({"x": lambda c: 1000 * c["x"]}, "x", "scale"),
    "too large where it is not 0": ({"late": lambda c: 1000 * c["late"]}, "late", "scale"),
    "empty in every row": ({"noise": np.nan}, "noise", "empty"),
    "0 in every row": ({"noise": 0.0}, "noise", "zero"),
    "a category never seen": ({"kind": "new"}, "kind", "unseen"),
    "a new category in a tenth": (
        {"kind": lambda c: np.where(np.arange(len(c)) % 10, c["kind"], "new")},
        "kind",
        "unseen",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_cases_unlike_those_learned_from(day: dict[str, Path], run, tmp_path: Path, name: str) -> None:
    columns, column, kind = SPOILED[name]
    pd.read_parquet(day["cases"]).assign(**columns).to_parquet(day["cases"])
    _, said = planned(day, run)
    assert [(one["column"], one["kind"]) for one in said["warnings"]] == [(column, kind)]
    assert said["warnings"][0]["of"] == CASES
    code, out, _ = run("assign", *given(day, "--out", tmp_path / "p.csv"))
    assert (code, f"warning: {column}: " in out, "do not trust" in out) == (0, True, True)
    (tmp_path / "p.csv").unlink()
    strict = ["--out", tmp_path / "p.csv"], ["--dry-run"], ["--what-if", "e0=+1"]
    for more in strict:
        code, out, err = run("assign", *given(day, *more, "--strict"))
        assert (code, out, "unlike those that the model learned from" in err) == (7, "", True)
        assert column in err
    assert not (tmp_path / "p.csv").exists()
    model = DeCCaF.load(day["model"])
    with pytest.raises(DriftError, match=column):
        model.assign(pd.read_parquet(day["cases"]), {"e0": 3}, strict=True)


def test_ordinary_days_raise_no_alarm(day: dict[str, Path], run) -> None:
    _, said = planned(day, run, "--strict")
    assert said["warnings"] == []


def test_no_false_alarm_on_small_batches_and_weekends() -> None:
    """Columns with long tails, zeros, gaps, rare and many levels; batches of 10 to 100 from the same world,
    and from another mix of it."""
    rng = np.random.default_rng(0)
    levels = np.array([f"l{k}" for k in range(400)])

    def world(n: int, weekend: bool) -> pd.DataFrame:
        kind = rng.choice(["web", "branch", "phone"], n, p=[0.95, 0.04, 0.01] if weekend else [0.5, 0.4, 0.1])
        return pd.DataFrame(
            {
                "cauchy": rng.standard_cauchy(n),
                "money": np.exp(rng.normal(7 + weekend, 2, n)),
                "counts": rng.poisson(0.2 + 0.5 * weekend, n).astype(float),
                "gappy": np.where(rng.random(n) < (0.6 if weekend else 0.3), np.nan, rng.normal(size=n)),
                "kind": kind,
                "branch": levels[np.minimum(rng.geometric(0.02, n), 399)],
            }
        )

    for history in (300, 5_000):
        old = world(history, False).astype({"kind": "category", "branch": "category"})
        profiles = {name: profile(old[name]) for name in old}
        schema = Schema.infer(old, Columns(), ())
        for weekend in (False, True):
            for _ in range(150):
                raw = world(int(rng.integers(10, 101)), weekend)
                cast = schema.cast(raw)
                comparison = Comparison(profiles)
                comparison.add(raw, cast)
                assert comparison.found() == []


def test_chunks_are_compared_together() -> None:
    old = pd.DataFrame({"x": np.random.default_rng(0).normal(50, 5, 1000)})
    comparison = Comparison({"x": profile(old["x"])})
    for part in np.split(np.full(12, 40_000.0), 4):
        comparison.add(pd.DataFrame({"x": part}), pd.DataFrame({"x": part}))
    (found,) = comparison.found()
    assert (found.kind, found.cases, found.of) == ("scale", 12, 12)
    assert "here 40,000 to 40,000" in found.said


def test_a_single_case_in_another_unit_is_seen() -> None:
    old = pd.DataFrame({"x": np.random.default_rng(0).normal(50, 5, 1000)})
    for value, kinds in ((50_000.0, ["scale"]), (75.0, []), (np.nan, [])):
        comparison, one = Comparison({"x": profile(old["x"])}), pd.DataFrame({"x": [value]})
        comparison.add(one, one)
        assert [found.kind for found in comparison.found()] == kinds


def test_a_model_file_from_before_profiles_says_so(day: dict[str, Path], run, tmp_path: Path) -> None:
    model = DeCCaF.load(day["model"])
    model.training_ = {k: v for k, v in model.training_.items() if k not in {"profile", "people"}}
    model.save(tmp_path / "old.deccaf")
    day["model"] = tmp_path / "old.deccaf"
    _, said = planned(day, run)
    assert any("was not fully checked; fit again" in note for note in said["notes"])
    code, out, _ = run("show", tmp_path / "old.deccaf")
    assert (code, "not known: error rates" in out) == (0, True)
    code, _, err = run("show", tmp_path / "old.deccaf", "--out", tmp_path / "p.png")
    assert (code, "nothing to draw" in err, (tmp_path / "p.png").exists()) == (3, True, False)


# --- what a plan carries ----------------------------------------------------------------------------------


def test_a_plan_says_chances_intervals_and_why(day: dict[str, Path], run) -> None:
    plan, _ = planned(day, run)
    model, cases = DeCCaF.load(day["model"]), pd.read_parquet(day["cases"])
    np.testing.assert_allclose(plan[["p_0", "p_1"]], model.predict_proba(cases))
    by_people = plan["maker"] != "machine"
    assert plan.loc[~by_people, ["loss_low", "loss_high"]].isna().all(axis=None)
    people = plan[by_people]
    assert (people["loss_low"] < people["expected_loss"]).all()
    assert (people["expected_loss"] < people["loss_high"]).all()
    loss = model.expected_loss(cases, ["e0", "e1"]).to_numpy()
    names = ["machine", "e0", "e1"]
    chosen = np.array([loss[k, names.index(maker)] for k, maker in enumerate(plan["maker"])])
    assert ((plan["why"] == "best") == (chosen <= loss.min(axis=1))).all()
    assert set(plan["why"]) == {"best", "room"}
    without, _ = planned(day, run, "--no-intervals")
    assert list(without.columns) == [c for c in plan.columns if not c.startswith("loss_")]


@pytest.mark.parametrize("classes", [2, 3])
def test_intervals_hold_what_the_formula_gives(classes: int) -> None:
    world = make_world(500, 3, classes)
    costs = Costs.from_matrix((1 - np.eye(classes)).tolist(), list(range(classes)))
    model = DeCCaF(costs, review_cost={"e1": 0.5}, **LIGHT).fit(
        world.features, world.truth, expert=world.expert, decision=world.decision
    )
    X = world.features.iloc[:40]
    frame = model.assign(X, Capacity.of({"e0": 9, "e1": 9}, {"e1": 9})).frame
    rows = np.flatnonzero(frame["maker"] == "e1")
    low, high = model.learned_.decisions.interval(X.iloc[rows], ["e1"], level=LEVEL)
    p = model.predict_proba(X.iloc[rows])  # every error costs 1
    np.testing.assert_allclose(frame["loss_low"].iloc[rows], 0.5 + (p * low[:, 0]).sum(axis=1))
    np.testing.assert_allclose(frame["loss_high"].iloc[rows], 0.5 + (p * high[:, 0]).sum(axis=1))


CONSTRAINTS = "[constraints.random]\nshare = 0.2\n[constraints.reviewers]\ncount = 1\nup_to = 2\n"


def test_why_names_lots_and_constraints(day: dict[str, Path], run, tmp_path: Path) -> None:
    file = config(tmp_path / "rules.toml", more=CONSTRAINTS)
    plan, _ = planned(day, run, "--config", file)
    assert (plan["why"] == "lot").equals(plan["random"])
    case = plan.loc[plan["why"] == "lot", "case_id"].iloc[0]
    code, out, _ = run("explain", *given(day, "--config", file, "--case", case, "--json"))
    assert (code, "drawn by lot" in json.loads(out)["reason"]) == (0, True)
    # a minimum load, and people who may not get a case: both are constraints
    model, cases = DeCCaF.load(day["model"]), pd.read_parquet(day["cases"])
    forced = model.with_costs(Costs.binary(0.3, 1.0), 5.0).assign(cases, Capacity.of({"e0": 9}, {"e0": 4}))
    assert (forced.frame["why"] == np.where(forced.frame["maker"] == "e0", "constraint", "best")).all()
    told = model.with_costs(Costs.binary(0.3, 1.0), 5.0).explain(
        cases, forced, case=forced.frame.loc[forced.frame["maker"] == "e0", "case_id"].iloc[0]
    )
    assert "has a minimum load to reach" in told.reason
    barred = pd.DataFrame({"e0": False}, index=cases["case_id"])
    plan_without = model.assign(cases, Capacity.of({"e0": 60}).only(barred)).frame
    loss = model.expected_loss(cases, ["e0"])
    cheaper = (loss["e0"] < loss["machine"]).to_numpy()
    assert (plan_without["why"] == np.where(cheaper, "constraint", "best")).all()


@pytest.mark.parametrize("method", ["deccaf", "paper"])
def test_explain_says_what_the_plan_says(models: dict[str, Path], day: dict[str, Path], method: str) -> None:
    model, cases = DeCCaF.load(models[method]), pd.read_parquet(day["cases"])
    plan = model.assign(cases, {"e0": 9, "e1": 8, "e2": 0})
    for row in plan.frame.itertuples():
        found = model.explain(cases, plan, case=row.case_id)
        assert (found.chosen, found.runner_up, found.why) == (row.maker, row.runner_up, row.why)
        assert (row.runner_up in found.reason) == (row.why == "best") or row.why == "room"
        numbers = [float(text) for text in re.findall(r"\d+\.\d{4}", found.reason)]
        assert numbers[0] <= numbers[1] + 1e-4  # the least is less than what it is compared with
        if row.why == "room":
            assert "e2" in found.reason or numbers[2] > 0
            assert numbers[-1] <= numbers[-2] + 1e-4  # with the price the chosen one is cheapest


def test_limits_and_the_gap_are_printed_as_they_are(day: dict[str, Path], run, tmp_path: Path) -> None:
    day["capacity"].write_text("expert_id,upper\ne0,500\ne1,8\nmachine,100\n")
    _, said = planned(day, run)
    assert {m["maker"]: m["capacity"] for m in said["makers"]} == {"machine": 100, "e0": 500, "e1": 8}
    code, out, _ = run("assign", *given(day, "--out", tmp_path / "p.csv"))
    assert (code, "no limit" in out) == (0, False)
    assert re.search(r"proved: no plan within the limits is better by more than [\d.e-]+ \([\d.e-]+ %\)", out)


def test_plan_files_and_tables_name_the_same_columns(day: dict[str, Path], run) -> None:
    plan, _ = planned(day, run)
    cases = pd.read_parquet(day["cases"])
    model = DeCCaF.load(day["model"])
    for X in (cases, cases.set_index("case_id"), day["cases"]):
        table = model.assign(X, Capacity.read(day["capacity"])).table
        assert set(table.columns) == {*plan.columns, "case"}
        assert list(table["case"]) == list(table["case_id"]) == list(plan["case_id"])
        joined = table.merge(plan, on="case_id", suffixes=("", "_file"))
        assert (joined["maker"] == joined["maker_file"]).all()


# --- what was learned -------------------------------------------------------------------------------------


def test_show_tells_how_people_decide(day: dict[str, Path], run, tmp_path: Path) -> None:
    code, out, _ = run("show", day["model"])
    assert code == 0
    for words in ("method", "false positive 0.3", "day" not in out and "0 to 21", "e1", "the team", "40"):
        assert words in out
    code, out, _ = run("show", day["model"], "--json")
    found = json.loads(out)
    assert found == json.loads(json.dumps(DeCCaF.load(day["model"]).people().to_dict()))
    cases, log = (frame.iloc[:-CASES] for frame in frames())
    wrong = log["decision"].to_numpy() != cases["label"].to_numpy()
    mine = (log["expert_id"] == "e1").to_numpy()
    shown = next(row for row in found["people"] if row["expert"] == "e1")
    assert shown["decisions"] == mine.sum()
    assert shown["error_rate"] == pytest.approx(wrong[mine].mean())
    zero = mine & (cases["label"] == 0).to_numpy()
    assert shown["error_rate_0"] == pytest.approx(wrong[zero].mean())
    assert shown["low_0"] < shown["error_rate_0"] < shown["high_0"]
    over = log["decision"][mine].mean() - cases["label"][mine].mean()
    assert shown["leaning"] == (1 if over > 0 else 0)
    assert shown["leaning_by"] == pytest.approx(abs(over))
    assert shown["pace"] == pytest.approx(40)
    assert found["team"]["decisions"] == len(log)
    assert found["time"] == [0, 21]
    assert {one["name"] for one in found["features"]} >= {"x", "kind"}


def test_show_draws(day: dict[str, Path], run, tmp_path: Path) -> None:
    assert run("show", day["model"], "--out", tmp_path / "people.png")[0] == 0
    assert (tmp_path / "people.png").read_bytes()[:4] == b"\x89PNG"
    assert run("show", day["model"], "--out", tmp_path / "people.html")[0] == 0
    assert "How people decide" in (tmp_path / "people.html").read_text()
    assert run("show", day["model"], "--out", tmp_path / "people.pdf")[0] == 2
    assert run("show", tmp_path / "none.deccaf")[0] == 6


def test_people_are_strong_and_weak_where_they_really_are() -> None:
    """Ann is right about everything but `night` cases, where she guesses; Bob and Cid err on a tenth."""
    rng = np.random.default_rng(0)
    n = 3000
    X = pd.DataFrame({"shift": rng.choice(["day", "night"], n), "noise": rng.normal(size=n)})
    truth, who = rng.integers(2, size=n), rng.choice(["ann", "bob", "cid"], n)
    chance = np.where(who == "ann", np.where(X["shift"] == "night", 0.5, 0.0), 0.1)
    said = np.where(rng.random(n) < chance, 1 - truth, truth)
    X["shift"] = X["shift"].astype("category")
    model = DeCCaF(Costs.binary(0.5), case_parts=("logistic",), decision_parts=("rates",))
    people = model.fit(X, truth, expert=who, decision=said).people()
    ann = people.parts[people.parts["expert"] == "ann"].set_index("kind")
    assert ann.loc[["weak"], "part"].iloc[0] == "is night"
    assert "is day" in set(ann.loc[["strong"], "part"])
    assert "shift is night" in people.told("ann")["weak"]
    strong = people.parts[(people.parts["expert"] != "ann") & (people.parts["kind"] == "strong")]
    assert set(strong["part"]) <= {"is night"} | set(strong.loc[strong["feature"] == "noise", "part"])
    assert len(json.dumps(model.training_["people"])) < 4_000


def test_a_model_without_decisions_shows_the_machine_alone(run, tmp_path: Path) -> None:
    world = make_world(200, 2)
    model = DeCCaF(Costs.binary(0.5), case_parts=("logistic",)).fit(world.features, world.truth)
    model.save(tmp_path / "m.deccaf")
    code, out, _ = run("show", tmp_path / "m.deccaf")
    assert (code, "How people decide" in out, "200 cases" in out) == (0, False, True)
    code, _, err = run("show", tmp_path / "m.deccaf", "--out", tmp_path / "p.html")
    assert (code, "nothing to draw" in err) == (3, True)


# --- scikit-learn -----------------------------------------------------------------------------------------


def test_a_scorer_by_cost_for_searches_and_cross_validation() -> None:
    world = make_world(400, 3)
    costs = Costs.binary(0.2, 3.0)
    scorer = make_cost_scorer(costs)
    with sklearn.config_context(enable_metadata_routing=True):
        model = DeCCaF(Costs.binary(1.0), case_parts=("logistic",), decision_parts=("rates",))
        model.set_fit_request(expert=True, decision=True)
        extra = {"expert": world.expert, "decision": world.decision}
        grid = {"costs": [Costs.binary(3.0, 0.2), costs]}
        search = GridSearchCV(model, grid, scoring=scorer, cv=3)
        search.fit(world.features, world.truth, **extra)
        scores = cross_validate(
            model,
            world.features,
            world.truth,
            cv=3,
            scoring={"cost": scorer, "right": "accuracy"},
            params=extra,
        )
    assert search.best_params_["costs"].to_dict() == costs.to_dict()
    assert (scores["test_cost"] < 0).all()
    # by hand: two false positives and one false negative among five cases
    said = DummyClassifier(strategy="constant", constant=1).fit(np.zeros((2, 1)), [0, 1])
    assert scorer(said, np.zeros((5, 1)), [0, 0, 1, 1, 1]) == pytest.approx(-2 * 0.2 / 5)
    assert scorer(said, np.zeros((2, 1)), [0, 1], sample_weight=[3, 1]) == pytest.approx(-0.75 * 0.2)
    by_case = make_cost_scorer(Costs.binary("amount", 1.0))
    X = pd.DataFrame({"amount": [5.0, 7.0]})
    assert by_case(said, X, [0, 1]) == pytest.approx(-2.5)
    assert by_case(said, X, pd.Series([0, None])) == pytest.approx(-5.0)
    with pytest.raises(DataError, match="outside"):
        scorer(said, np.zeros((1, 1)), [7])
    with pytest.raises(ConfigError, match=r"expected deccaf\.Costs"):
        make_cost_scorer({"false_positive": 1})  # type: ignore[arg-type]


# --- progress ---------------------------------------------------------------------------------------------


def test_progress_has_a_stage_and_the_time_left_on_a_terminal() -> None:
    terminal = io.StringIO()
    with steps(3, (1.0, 8.0, 1.0), Console(file=terminal, force_terminal=True, width=100)) as step:
        step("Reading")
        step("Scoring cases", 500, 1000)
    shown = terminal.getvalue()
    assert "Scoring cases" in shown
    assert "50%" in shown
    assert "left" in shown
    quiet = io.StringIO()
    with steps(1, console=Console(file=quiet)) as step:
        step("Reading")
    assert quiet.getvalue() == ""


def test_every_stage_of_fit_and_assign_is_told(day: dict[str, Path], run, tmp_path: Path) -> None:
    heard: list[tuple[str, float, float]] = []

    def step(stage: str, /, done: float = 0, of: float = 0) -> None:
        heard.append((stage, done, of))

    cases, log = frames(200)
    settings = Config.read(config(tmp_path / "c.toml"))
    model = DeCCaF.from_config(settings).set_params(**LIGHT)
    model.fit_history(History.from_frames(cases.drop(columns="money"), log, settings), step=step)
    assert [stage for stage, _, _ in heard] == [
        "Learning how likely each truth is",
        "Learning how people decide",
    ]
    heard.clear()
    model.assign(day["cases"], {"e0": 4}, step=step)
    assert list(dict.fromkeys(stage for stage, _, _ in heard)) == ["Scoring cases", "Planning", "Intervals"]
    assert ("Scoring cases", CASES, CASES) in heard
    _, _, err = run("assign", *given(day, "--out", tmp_path / "p.csv"))
    assert err == f"Plan: {tmp_path / 'p.csv'}\n"  # nothing moves off a terminal
