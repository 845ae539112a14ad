"""Own data goes in right, or says why not: parts of columns, too little data, leaks, selective labels, init."""

from __future__ import annotations

import json
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Cases, ConfigError, Costs, DataError, DeCCaF, DeccafWarning, Decisions, History
from deccaf.data.config import Config, LabelsTable
from deccaf.data.learnable import LEAST_CASES, learnable
from deccaf.data.profile import guess_parts, recognise
from deccaf.data.schema import Columns
from deccaf.evaluate.audit import audit
from deccaf.evaluate.leaks import find_leaks
from deccaf.evaluate.selective import missing_labels_by_decision
from deccaf.simulate import (
    SyntheticTeam,
    build_alert_sets,
    generate_applications,
    paper_group,
    random_history,
    threshold_cost,
)

PRICES = "[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n"
N = 240


def desk(rows: int = N, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cases with two features that tell a little, and one decision each by three people."""
    rng = np.random.default_rng(seed)
    amount = rng.normal(size=rows).round(4)
    fraud = (amount + rng.normal(size=rows) > 0.5).astype(int)
    cases = pd.DataFrame(
        {
            "case_id": [f"c{k}" for k in range(rows)],
            "amount": amount,
            "channel": rng.choice(["web", "phone", "branch"], rows),
            "month": np.arange(rows) * 6 // rows,
            "fraud": fraud,
        }
    )
    log = pd.DataFrame(
        {
            "case_id": cases["case_id"],
            "expert_id": rng.choice(["ann", "bob", "cid"], rows),
            "decision": (amount + rng.normal(size=rows) > 0.3).astype(int),
        }
    )
    return cases, log


def history(cases: pd.DataFrame, log: pd.DataFrame | None, **columns: object) -> History:
    config = Config.model_validate(
        {"columns": {"label": "fraud", **columns}, "costs": {"false_positive": 0.5, "false_negative": 1.0}}
    )
    return History.from_frames(cases, log, config)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    cases, log = desk()
    paths = {
        "cases": tmp_path / "cases.csv",
        "decisions": tmp_path / "log.csv",
        "config": tmp_path / "deccaf.toml",
    }
    cases.to_csv(paths["cases"], index=False)
    log.to_csv(paths["decisions"], index=False)
    return paths


QUICK = '[model]\ncase_parts = ["logistic"]\ndecision_parts = ["rates"]\n'


def options(files: dict[str, Path]) -> list[object]:
    return [part for name, path in files.items() for part in (f"--{name}", path)]


ROLES = [
    ('features = ["amount", "fraud"]', 2, "column 'fraud' is the label, so it cannot be a feature"),
    ('features = ["amount", "case_id"]', 2, "column 'case_id' is the case, so it cannot be a feature"),
    ('features = ["amont"]', 3, "[columns] features: the cases have no column 'amont'; did you mean 'amount'?"),
    ('features = ["amount"]\nignore = ["month"]', 2, "features and ignore together"),
    ('time = "mnth"', 3, "[columns] time: the cases have no column 'mnth'; did you mean 'month'?"),
    ('time = "time"', 3, "[columns] time: the cases have no column 'time'"),
    ('label = "frad"', 3, "[columns] label: the cases have no column 'frad'; did you mean 'fraud'?"),
    ('label = "fraud"\ngroup = ["chanel"]', 3, "[columns] group: the cases have no column 'chanel'; did you"),
    ('ignore = ["chanel"]', 3, "[columns] ignore: the cases have no column 'chanel'; did you mean 'channel'?"),
    ('categorical = ["mnth"]', 3, "[columns] categorical: the cases have no column 'mnth'; did you mean"),
    ('case = "cas_id"', 3, "[columns] case: the cases have no column 'cas_id'; did you mean 'case_id'?"),
    ('time = "fraud"', 2, "column 'fraud' has two parts"),
]  # fmt: skip
COSTS = [
    ("false_positive = 0.5", 2, "[costs]: false_negative missing: give false_positive and false_negative"),
    ("false_negative = 0.5", 2, "[costs]: false_positive missing"),
    ("review_cost = -1", 2, "[costs] review_cost"),
    ("review_cost = nan", 2, "must be a number from 0 on, got nan"),
    ("review_cost = { ann = -0.5 }", 2, "of 'ann' must be a number from 0 on"),
    ("review_cost = { anne = 0.5 }", 2, "[costs] review_cost: 'anne' is none of the 3 people of the log"),
]
LABELS = [
    ('[labels]\nselective = "maybe"', 2, "[labels] selective"),
    ("[labels]\nselective = [2]", 2, "[labels] selective: 2 is none of the classes [0, 1]"),
    ("[labels]\nselectve = [1]", 2, "did you mean 'selective'?"),
]


NAMED = '[columns]\nlabel = "fraud"\n'
CONFIGS = [
    *[
        (PRICES + ("[columns]\n" if text.startswith("label") else NAMED) + text, *rest)
        for text, *rest in ROLES
    ],
    *[(f"{NAMED}{'[costs]' if text[0] == 'f' else PRICES}\n{text}", *rest) for text, *rest in COSTS],
    *[(f"{NAMED}{PRICES}{text}", *rest) for text, *rest in LABELS],
]


@pytest.mark.parametrize("command", ["check", "fit", "backtest"])
@pytest.mark.parametrize(("text", "code", "message"), CONFIGS)
def test_a_wrong_part_is_an_error_everywhere(
    run, files: dict[str, Path], command: str, text: str, code: int, message: str
) -> None:
    files["config"].write_text(text)
    folder = files["cases"].parent
    before = sorted(folder.iterdir())
    extra = [] if command == "check" else ["--out", folder / ("m.deccaf" if command == "fit" else "report")]
    got, out, err = run(command, *options(files), *extra)
    assert got == code, err
    assert message in " ".join(err.split())
    assert out == ""
    assert sorted(folder.iterdir()) == before


def test_decisions_given_as_cases(run, files: dict[str, Path]) -> None:
    files["config"].write_text(PRICES)
    code, _, err = run("check", "--cases", files["decisions"], "--config", files["config"])
    assert code == 3
    assert "these are the columns of a decision log" in " ".join(err.split())


def test_a_default_name_may_be_absent_and_new_cases_need_no_label(run, files: dict[str, Path]) -> None:
    cases = pd.read_csv(files["cases"]).drop(columns=["fraud", "month"])
    cases.to_csv(files["cases"], index=False)
    files["config"].write_text(f'{PRICES}[columns]\nlabel = "fraud"\n')
    roster = files["cases"].with_name("roster.csv")
    roster.write_text("expert_id,upper\nann,50\n")
    asked = ("--cases", files["cases"], "--config", files["config"])
    assert run("check", *asked)[0] == 3
    assert run("check", *asked, "--capacity", roster)[0] == 0
    assert Cases.from_frame(cases).label is None


def test_what_the_log_says_is_no_feature() -> None:
    cases, log = desk()
    joined = cases.merge(log, on="case_id")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = history(joined, log)
    assert [str(one.message).partition(" and is")[0] for one in said] == [
        f"column '{name}' is left out: it belongs to the decisions" for name in ("expert_id", "decision")
    ]
    assert found.schema.names == ["amount", "channel", "month"]
    with warnings.catch_warnings(action="ignore", category=DeccafWarning):
        model = DeCCaF(Costs.binary(0.5), case_parts=["logistic"]).fit(
            joined.drop(columns="fraud"), joined["fraud"]
        )
    assert "expert_id" not in model.schema_.names


def test_a_loaded_model_remembers_only_the_parts_that_were_written(tmp_path: Path) -> None:
    cases, _ = desk()
    model = DeCCaF(Costs.binary(0.5), columns=Columns(label="fraud"), case_parts=["logistic"])
    model.fit(cases, cases["fraud"]).save(tmp_path / "m.deccaf")
    again = DeCCaF.load(tmp_path / "m.deccaf")
    assert again.columns == model.columns
    assert again.fit(cases, cases["fraud"]).schema_ == model.schema_


# what can be learned


@pytest.mark.parametrize(
    ("rows", "label", "message"),
    [
        (3, [0, 1, 0], "one class only, 0, has 2 labelled cases or more"),
        (6, [0, 1, 0, 1, 1, 0], f"6 labelled cases .* at least {LEAST_CASES} are needed"),
        (40, [0] * 40, "one class only, 0"),
        (40, [0] * 20 + [None] * 20, "one class only, 0, .*20 without a label"),
        (40, [None] * 40, "no class has 2 labelled cases"),
    ],
)
def test_too_little_is_refused_with_counts(run, files, rows: int, label: list[object], message: str) -> None:
    cases, log = desk(rows)
    cases["fraud"] = pd.array(label, dtype="Int64")
    with pytest.raises(DataError, match=message):
        DeCCaF(Costs.binary(0.5)).fit_history(history(cases, log))
    cases.to_csv(files["cases"], index=False)
    log.to_csv(files["decisions"], index=False)
    files["config"].write_text(f'{PRICES}[columns]\nlabel = "fraud"\n')
    out = files["cases"].with_name("m.deccaf")
    assert run("fit", *options(files), "--out", out)[0] == 3
    assert not out.exists()
    code, _, err = run("check", *options(files))
    assert code == 0
    assert "fit would refuse this" in err


def test_few_decisions_are_refused() -> None:
    cases, log = desk()
    with pytest.raises(DataError, match="4 decisions, at least 10"):
        DeCCaF(Costs.binary(0.5)).fit_history(history(cases, log[:4]))


def test_what_cannot_be_learned_is_counted() -> None:
    cases, log = desk()
    log.loc[log["expert_id"] == "ann", "decision"] = 0
    again = log[log["expert_id"] == "bob"][:7].assign(decision=lambda x: 1 - x["decision"])
    new = pd.DataFrame({"case_id": ["c0", "c1"], "expert_id": "dot", "decision": [0, 1]})
    found = learnable(history(cases, pd.concat([log, again, new])))
    assert found.contradictions == 7
    assert found.people.loc["ann", "always"] == 0
    assert found.people.loc["dot", "decisions"] == 2
    assert found.people.loc["bob", ["on 0", "on 1"]].sum() == found.people.loc["bob", "decisions"]
    assert found.refusal() is None
    said = " | ".join(found.notes())
    assert "1 of 4 people have fewer than 30 decisions (the least: 'dot' with 2)" in said
    assert "1 of 4 people always say the same: ann (" in said
    assert "7 time(s) the same person decided a case again" in said
    everyone = learnable(history(cases, log.assign(decision=1)))
    assert any("all 240 decisions are 1" in note for note in everyone.notes())


# leaks


def leaky(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, str]]:
    """A desk with one leak of every kind, and which is which."""
    cases, log = desk(600, seed)
    rng = np.random.default_rng(seed)
    truth, said = cases["fraud"], log["decision"]
    order = np.argsort(np.argsort(truth.to_numpy(), kind="stable"))
    cases["verdict"] = np.where(truth == 1, "fraud", "fine")
    cases["recovered"] = np.where(truth == 1, 12.5, np.nan)
    cases["almost"] = np.where(rng.random(600) < 0.03, 1 - truth, truth)
    cases["outcome_code"] = said + 7
    cases["row"] = order
    cases["number"] = cases["case_id"].str[1:].astype(int) + 10
    cases["handled_by"] = log["expert_id"]
    cases["seniority"] = log["expert_id"].map({"ann": 1, "bob": 2, "cid": 1})
    kinds = {"verdict": "label", "recovered": "label", "almost": "label", "outcome_code": "decision"}
    kinds |= {"row": "numbering", "number": "numbering", "handled_by": "expert id"}
    return cases, log, kinds | {"seniority": "one per expert"}


def test_every_kind_of_leak_is_found_and_nothing_else() -> None:
    cases, log, kinds = leaky()
    found = find_leaks(history(cases, log))
    assert {leak.column: leak.kind for leak in found.found} == kinds
    assert set(found.certain) == set(kinds) - {"almost", "seniority"}
    aucs = {one.column: one.label for one in found.alone}
    assert aucs["almost"] > 0.95
    assert 0.5 < aucs["amount"] < 0.9


@pytest.mark.parametrize("seed", range(5))
def test_a_desk_without_leaks_has_none(seed: int) -> None:
    assert find_leaks(history(*desk(600, seed))).found == ()
    assert find_leaks(history(*desk(12, seed))).found == ()


def test_the_number_of_readings_is_a_leak() -> None:
    cases, log = desk(300)
    rng = np.random.default_rng(1)
    more = log.sample(200, random_state=2).assign(expert_id=lambda x: rng.choice(["eve", "flo"], len(x)))
    log = pd.concat([log, more])
    cases["readings"] = log["case_id"].value_counts().reindex(cases["case_id"]).to_numpy()
    assert [leak.kind for leak in find_leaks(history(cases, log)).found] == ["reviews"]


def test_certain_leaks_are_left_out_unless_they_are_named() -> None:
    cases, log, _ = leaky()
    without = audit(history(cases, log), Columns(label="fraud"))
    assert without.history.schema.names == ["amount", "channel", "month", "almost", "seniority"]
    named = Columns(label="fraud", features=("amount", "verdict"))
    kept = audit(history(cases, log, features=["amount", "verdict"]), named)
    assert kept.history.schema.names == ["amount", "verdict"]
    assert any("kept because [columns] features names it" in fault for fault in kept.faults)
    with pytest.warns(DeccafWarning, match="'verdict' is left out as a leak: it is the label in other words"):
        model = DeCCaF(Costs.binary(0.5), case_parts=["logistic"]).fit(
            cases[["amount", "verdict"]], cases["fraud"]
        )
    assert model.schema_.names == ["amount"]


def test_the_commands_say_the_leaks(run, files: dict[str, Path]) -> None:
    cases, log, kinds = leaky()
    cases.to_csv(files["cases"], index=False)
    log.to_csv(files["decisions"], index=False)
    files["config"].write_text(f'{PRICES}[columns]\nlabel = "fraud"\n{QUICK}')
    code, out, _ = run("check", *options(files), "--json")
    assert code == 0
    found = json.loads(out)
    parts = {one["column"]: (one["part"], one["note"]) for one in found["columns"]}
    assert parts["verdict"][0] == "-"
    assert parts["verdict"][1].startswith("leak: it is the label")
    assert parts["almost"][0] == "feature"
    assert {leak["column"] for leak in found["leaks"]} == set(kinds)
    code, _, err = run("fit", *options(files), "--out", files["cases"].with_name("m.deccaf"))
    assert code == 0
    model = DeCCaF.load(files["cases"].with_name("m.deccaf"))
    assert model.schema_.names == ["amount", "channel", "month", "almost", "seniority"]
    for name in kinds:
        assert f"column '{name}'" in err
    assert "random" in model.training_["held_out"]


def test_no_false_alarm_on_real_data(shared_data: Path) -> None:
    alerts = pd.read_parquet(shared_data / "baf_alerts_months_3_to_6.parquet")
    config = Config.model_validate(
        {
            "columns": {"label": "fraud_bool", "time": "month"},
            "costs": {"false_positive": 0.057, "false_negative": 1.0},
        }
    )
    assert audit(History.from_frames(alerts, None, config), config.columns).faults == ()
    folder = shared_data / "viper_mammography"
    women = config.model_copy(update={"columns": Columns(group=("group",))})
    viper = History.from_frames(
        pd.read_parquet(folder / "cases.parquet"), pd.read_parquet(folder / "decisions.parquet"), women
    )
    assert audit(viper, women.columns).faults == ()


# selective labels


def hidden(after: int, share: float = 1.0) -> History:
    """A desk whose labels are missing after one decision."""
    cases, log = desk(600)
    rng = np.random.default_rng(5)
    lost = (log["decision"] == after).to_numpy() & (rng.random(600) < share)
    cases["fraud"] = cases["fraud"].astype("Int64").mask(lost)
    return history(cases, log)


def test_labels_missing_after_a_decision_are_named() -> None:
    found = missing_labels_by_decision(hidden(1, 0.97))
    worst, best = found.shares
    assert (worst.decision, best.decision, best.missing) == (1, 0, 0)
    assert worst.low < worst.share < worst.high <= 1
    assert found.selective
    assert found.chance < 1e-12
    assert found.hidden == (1,)
    (said,) = found.notes(LabelsTable(), (0, 1))
    assert "labels are missing because of the decision" in said
    assert '[labels] selective = "positive"' in said
    (as_told,) = found.notes(LabelsTable(selective="positive"), (0, 1))
    assert as_told.endswith("as [labels] selective says")
    other = missing_labels_by_decision(hidden(0)).notes(LabelsTable(selective=[1]), (0, 1))
    assert "selective = [0]" in other[0]


def test_labels_that_are_only_late_are_no_pattern() -> None:
    cases, log = desk(600)
    cases["fraud"] = cases["fraud"].astype("Int64").mask(np.arange(600) > 450)
    found = missing_labels_by_decision(history(cases, log))
    assert not found.selective
    assert found.notes(LabelsTable(), (0, 1)) == []
    assert "about as often after every decision" in found.notes(LabelsTable(selective=[1]), (0, 1))[0]
    assert missing_labels_by_decision(history(cases, None)).shares == ()


def test_selective_labels_are_said_by_every_command(run, files: dict[str, Path]) -> None:
    made = hidden(1, 0.95)
    cases, log = desk(600)
    cases["fraud"] = pd.Series(made.label).astype("Int64").mask(made.label < 0)
    cases.to_csv(files["cases"], index=False)
    log.to_csv(files["decisions"], index=False)
    files["config"].write_text(f'{PRICES}[columns]\nlabel = "fraud"\n{QUICK}')
    _, out, _ = run("check", *options(files), "--json")
    assert any("selective labels" in note for note in json.loads(out)["notes"])
    for command in ("fit", "backtest"):
        extra = (
            ["--out", files["cases"].with_name("m.deccaf")] if command == "fit" else ["--policies", "deccaf"]
        )
        code, out, err = run(command, *options(files), *extra)
        assert code == 0, err
        assert "labels are missing because of the decision" in " ".join((out + err).split())


def test_classes_of_selective_labels() -> None:
    assert LabelsTable(selective="positive").classes_of(("no", "yes")) == ("yes",)
    assert LabelsTable(selective=["c", "a"]).classes_of(("a", "b", "c")) == ("a", "c")
    with pytest.raises(ConfigError, match="of 3 classes, name those"):
        LabelsTable(selective="positive").classes_of(("a", "b", "c"))


# init


def clinic(folder: Path, dates: str) -> dict[str, Path]:
    """A CSV as a clinic has it: padded ids, dates, yes/no labels, a patient's number, a column of afterwards."""
    rng, rows = np.random.default_rng(3), 400
    density = rng.normal(size=rows).round(3)
    cancer = density + rng.normal(size=rows) > 0.8
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 150, rows)), unit="D")
    cases = pd.DataFrame(
        {
            "case_id": [f"{k:06d}" for k in range(rows)],
            "patient_number": rng.integers(100_000, 100_200, rows),
            "density": density,
            "reason": rng.choice(["screening", "referral"], rows),
            "opened": days.strftime(dates),
            "cancer": np.where(cancer, "yes", "no"),
            "treatment": np.where(cancer, "surgery", ""),
        }
    )
    cases.loc[rng.random(rows) < 0.1, "density"] = np.nan
    who = rng.choice(["007", "008", "011"], rows)
    said = np.where(density + rng.normal(size=rows) > 0.6, "yes", "no")
    log = pd.DataFrame({"case_id": cases["case_id"], "expert_id": who, "decision": said})
    roster = pd.DataFrame({"expert_id": ["007", "008", "011"], "upper": 20})
    paths = {name: folder / f"{name}.csv" for name in ("cases", "log", "roster", "today")}
    for name, table in (("cases", cases), ("log", log), ("roster", roster)):
        table.to_csv(paths[name], index=False)
    cases[-60:].drop(columns=["cancer", "treatment"]).to_csv(paths["today"], index=False)
    return paths


@pytest.mark.parametrize("dates", ["%Y-%m-%d", "%d/%m/%Y"])
def test_from_a_file_to_a_plan_without_writing_toml(run, tmp_path: Path, dates: str) -> None:
    paths, config = clinic(tmp_path, dates), tmp_path / "deccaf.toml"
    code, out, err = run("init", paths["log"], paths["cases"], paths["roster"], "--out", config)
    assert code == 0, err
    assert "log.csv: decisions" in err
    assert "roster.csv: roster" in err
    assert "treatment" in out
    text = config.read_text()
    made = tomllib.loads(text)
    assert made["columns"] == {
        "case": "case_id",
        "label": "cancer",
        "time": "opened",
        "group": ["patient_number"],
        "features": ["density", "reason"],
    }
    assert made["costs"]["classes"] == ["no", "yes"]
    assert '# "treatment",   # category; ' in text
    assert "missing; e.g." in text
    asked = ("--cases", paths["cases"], "--decisions", paths["log"], "--config", config)
    code, out, err = run("check", *asked, "--json")
    assert code == 0
    assert any("examples that deccaf init wrote" in note for note in json.loads(out)["notes"])
    config.write_text(
        text.replace("example = true\n", "").replace("false_negative = 5.0", "false_negative = 8.0")
    )
    code, out, err = run("check", *asked, "--json")
    assert json.loads(out)["notes"] == []
    assert run("fit", *asked, "--out", tmp_path / "m.deccaf")[0] == 0
    today = ("--cases", paths["today"], "--capacity", paths["roster"])
    code, _, err = run("assign", "--model", tmp_path / "m.deccaf", *today, "--out", tmp_path / "plan.csv")
    assert code == 0, err
    assert len(pd.read_csv(tmp_path / "plan.csv")) == 60


def test_init_never_overwrites(run, files: dict[str, Path]) -> None:
    files["config"].write_text("mine")
    asked = ("init", files["cases"], files["decisions"], "--out", files["config"])
    code, _, err = run(*asked)
    assert code == 2
    assert "--force" in err
    assert files["config"].read_text() == "mine"
    assert run(*asked, "--force")[0] == 0
    assert Config.read(files["config"]).columns.label == "fraud"


def test_init_with_two_files_of_a_kind(run, files: dict[str, Path]) -> None:
    code, _, err = run("init", files["cases"], files["cases"], "--out", files["config"])
    assert code == 2
    assert "looks like cases, and so does" in " ".join(err.split())
    assert run("init", files["decisions"], "--out", files["config"])[0] == 3
    assert not files["config"].exists()


def test_init_writes_what_it_can_and_says_what_is_not_right(run, files: dict[str, Path]) -> None:
    cases = pd.read_csv(files["cases"])
    cases.loc[5, "fraud"] = 2
    cases.to_csv(files["cases"], index=False)
    log = pd.read_csv(files["decisions"]).assign(case_id="nobody")
    log.to_csv(files["decisions"], index=False)
    code, _, err = run("init", files["cases"], files["decisions"], "--out", files["config"])
    assert code == 3
    assert "was written, but needs a hand" in err
    assert "# NOT YET RIGHT" in files["config"].read_text()
    assert Config.read(files["config"]).costs.build().classes == (0, 1, 2)


def test_files_are_told_by_their_columns() -> None:
    cases, log = desk(30)
    assert recognise(cases) == "cases"
    assert recognise(log) == "decisions"
    assert recognise(pd.DataFrame({"expert_id": ["ann"], "upper": [3]})) == "roster"
    assert recognise(cases.merge(log, on="case_id")) == "cases"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"applicationNo": [f"A{k}" for k in range(120)]}, {"case": "applicationNo"}),
        ({"fraud_bool": [0, 1] * 60, "month": [1, 2, 3] * 40}, {"label": "fraud_bool", "time": "month"}),
        ({"paid": ["Y", "N"] * 60}, {"label": "paid", "classes": ("N", "Y")}),
        ({"user_id": list(range(60)) * 2}, {"group": ("user_id",)}),
        ({"ref": range(120), "x": [0.5] * 120}, {"case": "ref"}),
        ({"is_default": [True, False, False] * 40}, {"label": "is_default", "classes": (0, 1)}),
    ],
)
def test_guesses(columns: dict[str, list[object]], expected: dict[str, object]) -> None:
    decided = ["Y", "N"] if "paid" in columns else [0, 1]
    guess = guess_parts(pd.DataFrame(columns), decided)
    assert {name: getattr(guess, name) for name in expected} == expected


def test_the_embedded_world_has_no_leaks() -> None:
    alerts = build_alert_sets(generate_applications(120_000, seed=1), (0.05,)).sets[0.05]
    roles, costs = Columns(label="fraud_bool", time="month"), Costs.binary(0.057)
    cases = Cases.from_frame(alerts, columns=roles, costs=costs)
    team = SyntheticTeam.sample(
        [paper_group()], cases, costs, 0, classifier_cost=threshold_cost(cases, costs)
    )
    log = Decisions.from_frame(random_history(team, cases, 1), cases=cases)
    assert audit(History.of(cases, log), roles).faults == ()
