"""`deccaf fit`, `deccaf assign` and `deccaf explain` on files, good and bad, each with its exit code."""

from __future__ import annotations

import errno
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from deccaf import Capacity, DeCCaF
from deccaf.cli import app
from deccaf.data import cases as case_tables
from deccaf.data.files import read_frames
from models_world import make_world

CONFIG = """
[columns]
time = "day"
group = ["branch"]
[costs]
false_positive = 0.3
false_negative = "amount"
review_cost = { e0 = 0.01 }
"""


def history(n: int = 500) -> tuple[pd.DataFrame, pd.DataFrame]:
    world = make_world(n, 3)
    cases = world.features.astype({"kind": "str"}).assign(
        case_id=[f"c{k}" for k in range(n)],
        label=world.truth,
        day=pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(n) // 25, unit="D"),
        amount=np.where(np.arange(n) % 10, 1.0, 0.0),
        branch=np.where(np.arange(n) % 2, "north", "south"),
    )
    log = pd.DataFrame(
        {"case_id": cases["case_id"], "expert_id": world.expert, "decision": world.decision, "seconds": 120.0}
    )
    return cases, log


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a history and the model that `deccaf fit` made of it."""
    folder = tmp_path_factory.mktemp("fitted")
    cases, log = history()
    cases.to_parquet(folder / "cases.parquet")
    log.to_csv(folder / "log.csv", index=False)
    (folder / "deccaf.toml").write_text(CONFIG)
    app([str(part) for part in fit_arguments(folder)], standalone_mode=False)
    return folder


def fit_arguments(folder: Path, **changed: object) -> list[object]:
    given = {
        "cases": folder / "cases.parquet",
        "decisions": folder / "log.csv",
        "config": folder / "deccaf.toml",
        "out": folder / "model.deccaf",
        **changed,
    }
    return ["fit", *[part for name, value in given.items() for part in (f"--{name}", value)]]


@pytest.fixture
def today(fitted: Path, tmp_path: Path) -> dict[str, Path]:
    """Files of a day that can be planned; each test spoils one."""
    cases, _ = history(560)
    new = cases.iloc[500:].drop(columns=["label", "branch"]).assign(batch=["am", "pm"] * 30)
    new.to_parquet(tmp_path / "today.parquet")
    roster = "batch,expert_id,upper\n" + "".join(
        f"{batch},{name},{room}\n" for batch in ("am", "pm") for name, room in (("e0", 4), ("e1", 5))
    )
    (tmp_path / "roster.csv").write_text(roster)
    return {
        "model": fitted / "model.deccaf",
        "cases": tmp_path / "today.parquet",
        "capacity": tmp_path / "roster.csv",
        "out": tmp_path / "plan.parquet",
    }


def arguments(files: dict[str, Path], command: str = "assign") -> list[object]:
    return [command, *[part for name, path in files.items() for part in (f"--{name}", path)]]


def change_cases(today: dict[str, Path], **columns: object) -> None:
    pd.read_parquet(today["cases"]).assign(**columns).to_parquet(today["cases"])


def test_fit_says_what_it_learned_from(fitted: Path, run, tmp_path: Path) -> None:
    path = tmp_path / "model.deccaf"
    code, out, err = run(*fit_arguments(fitted, until="2024-01-16", out=path), "--json")
    assert code == 0
    found = {row["what"]: row["found"] for row in json.loads(out)}
    assert found["cases"].startswith("375,")
    assert "by 3 experts" in found["decisions"]
    assert "Model:" in err
    model = DeCCaF.load(path)
    assert model.columns_.time == "day"
    assert model.review_cost == {"e0": 0.01}


def test_assign_writes_a_plan_and_says_what_a_lead_wants(today: dict[str, Path], run) -> None:
    code, out, err = run(*arguments(today))
    assert code == 0, err
    plan = pd.read_parquet(today["out"])
    assert list(plan.columns) == [
        "case_id", "maker", "expected_loss", "runner_up", "runner_up_loss", "price", "decision",
        "why", "p_0", "p_1", "loss_low", "loss_high",
    ]  # fmt: skip
    assert len(plan) == 60
    assert plan["maker"].value_counts()["e0"] <= 8
    assert plan["decision"].notna().equals(plan["maker"] == "machine")
    for words in (
        "60 cases, expected cost",
        "the machine alone",
        "random cases",
        "close calls",
        "next hour",
        "e2",
    ):
        assert words in out
    assert [p.name for p in today["out"].parent.iterdir() if p.name.startswith(".")] == []


def test_assign_as_json(today: dict[str, Path], run) -> None:
    code, out, _ = run(*arguments(today), "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["cost"] <= summary["random_cost"]
    room = {maker["maker"]: maker["capacity"] for maker in summary["makers"]}
    assert room == {"machine": None, "e0": 8, "e1": 10}
    assert next(m for m in summary["makers"] if m["maker"] == "e1")["next_hour"] >= 0


def test_what_if_answers_without_writing(today: dict[str, Path], run) -> None:
    code, out, _ = run(*arguments(today), "--what-if", "e0=+10,e1=0", "--json")
    found = json.loads(out)
    (answer,) = found["scenarios"]
    assert code == 0
    assert not today["out"].exists()
    then = {maker["maker"]: maker["capacity"] for maker in answer["then"]["makers"]}
    assert (then["e0"], then["e1"]) == (28, 0)
    assert answer["saves"] == pytest.approx(found["now"]["cost"] - answer["then"]["cost"])
    code, out, _ = run(*arguments(today), "--what-if", "e0=+10")
    assert code == 0
    assert "nothing was written" in out
    assert run(*arguments(today), "--what-if", "eo=-10")[0] == 3
    assert run(*arguments(today), "--what-if", "e0=lots")[0] == 3
    assert run(*arguments(today), "--what-if", "e0")[0] == 2


def test_dry_run_only_checks(today: dict[str, Path], run) -> None:
    code, out, _ = run(*arguments(today), "--dry-run")
    assert code == 0
    assert "nothing" in out
    assert not today["out"].exists()
    del today["out"]
    code, _, err = run(*arguments(today))
    assert (code, "--out" in err) == (2, True)


def test_explain_tells_why(today: dict[str, Path], run) -> None:
    files = {name: path for name, path in today.items() if name != "out"}
    code, out, _ = run(*arguments(files, "explain"), "--case", "c503")
    assert code == 0
    assert "Case c503" in out
    assert "log-odds" in out
    code, out, _ = run(*arguments(files, "explain"), "--case", "c503", "--json")
    found = json.loads(out)
    assert found["maker"] in {"machine", "e0", "e1"}
    assert {row["maker"] for row in found["makers"]} == {"machine", "e0", "e1"}
    assert {"x", "kind"} <= {row["feature"] for row in found["features"]}
    code, _, err = run(*arguments(files, "explain"), "--case", "nobody")
    assert (code, "no case is called 'nobody'" in err) == (3, True)


def test_a_model_with_other_columns(today: dict[str, Path], run) -> None:
    pd.read_parquet(today["cases"]).rename(columns={"noise": "noisy"}).to_parquet(today["cases"])
    code, _, err = run(*arguments(today))
    assert (code, "column 'noise': missing" in err) == (3, True)
    assert not today["out"].exists()


def test_new_levels_and_missing_features_are_counted(today: dict[str, Path], run) -> None:
    change_cases(today, kind="never", noise=np.nan)
    code, out, _ = run(*arguments(today))
    assert code == 0
    assert "category levels never seen, taken as missing: kind 60" in out
    assert "noise 60" in out


def test_people_never_seen_and_people_away_are_named(today: dict[str, Path], run) -> None:
    today["capacity"].write_text("expert_id,upper\ne0,3\nzoe,5\n")
    code, out, _ = run(*arguments(today))
    assert code == 0
    assert "never seen, taken as the team's average: zoe" in out
    assert "not on the roster, gets nothing: e1, e2" in out


def test_zero_capacity_everywhere(today: dict[str, Path], run) -> None:
    today["capacity"].write_text("expert_id,upper\ne0,0\ne1,0\n")
    code, out, _ = run(*arguments(today))
    assert code == 0
    assert "the machine decides everything" in out
    assert (pd.read_parquet(today["out"])["maker"] == "machine").all()
    today["capacity"].write_text("expert_id,upper\ne0,0\nmachine,5\n")
    code, _, err = run(*arguments(today))
    assert (code, "30 cases, capacity 5" in err) == (4, True)


def test_a_batch_without_a_row(today: dict[str, Path], run) -> None:
    change_cases(today, batch=["am", "night"] * 30)
    code, _, err = run(*arguments(today))
    assert (code, "batch 'night' has no row" in err) == (4, True)


def test_time_going_backwards(today: dict[str, Path], fitted: Path, run, tmp_path: Path) -> None:
    change_cases(today, day=pd.to_datetime("2023-12-24"))
    code, out, _ = run(*arguments(today))
    assert code == 0
    assert "time runs backwards: 60 cases are from before 2024-01-20" in out
    change_cases(today, day=3)
    assert run(*arguments(today))[0] == 3
    _, log = history()
    log.assign(time="2023-01-01T00:00:00").to_csv(tmp_path / "log.csv", index=False)
    code, _, err = run(*fit_arguments(fitted, decisions=tmp_path / "log.csv", out=tmp_path / "m.deccaf"))
    assert (code, "500 decision(s) were made before their case came" in err) == (3, True)


def test_labels_in_the_future(fitted: Path, run, tmp_path: Path) -> None:
    cases, _ = history()
    ahead = pd.Timestamp.now() + pd.Timedelta(days=30)
    cases.loc[499, "day"] = ahead.floor("us")
    cases.to_parquet(tmp_path / "cases.parquet")
    code, _, err = run(*fit_arguments(fitted, cases=tmp_path / "cases.parquet", out=tmp_path / "m.deccaf"))
    assert (code, "1 labelled case(s) lie in the future" in err) == (3, True)


def test_amounts_of_zero_and_below(today: dict[str, Path], run) -> None:
    change_cases(today, amount=0.0)
    code, _, _ = run(*arguments(today))
    assert code == 0
    plan = pd.read_parquet(today["out"])
    assert (plan["maker"] == "machine").mean() > 0.6  # nothing is lost by saying yes
    change_cases(today, amount=-1.0)
    code, _, err = run(*arguments(today))
    assert (code, "cost(s) missing, infinite or negative" in err) == (3, True)


def test_a_place_that_cannot_be_written(today: dict[str, Path], run) -> None:
    (today["out"].parent / "file").write_text("")
    code, _, err = run(*arguments(today | {"out": today["out"].parent / "file" / "plan.parquet"}))
    assert (code, "cannot be written" in err) == (2, True)
    assert run(*arguments(today | {"out": today["out"].with_suffix(".xlsx")}))[0] == 2


def test_a_full_disk_leaves_no_partial_plan(
    today: dict[str, Path], run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(table: object, where: Path, **_: object) -> None:
        Path(where).write_bytes(b"PAR1 half of a plan")
        raise OSError(errno.ENOSPC, "No space left on device")

    today["out"].write_text("the plan of yesterday")
    monkeypatch.setattr(pyarrow.parquet, "write_table", half)
    code, _, err = run(*arguments(today))
    assert (code, "the disk is full; nothing was written" in err) == (1, True)
    assert today["out"].read_text() == "the plan of yesterday"
    assert [p for p in today["out"].parent.iterdir() if p.name.endswith(".tmp")] == []


def test_a_bad_model_file_and_a_wrong_key(today: dict[str, Path], fitted: Path, run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.deccaf"
    bad.write_bytes(today["model"].read_bytes()[:-100])
    code, _, err = run(*arguments(today | {"model": bad}))
    assert (code, "check sum" in err or "not a deccaf model" in err) == (6, True)
    (tmp_path / "key").write_text("a secret of some length\n")
    assert run(*fit_arguments(fitted, **{"key-file": tmp_path / "key", "out": bad}))[0] == 0
    assert run(*arguments(today | {"model": bad}), "--key-file", tmp_path / "key")[0] == 0
    code, _, err = run(*arguments(today), "--key-file", tmp_path / "key")
    assert (code, "is not signed" in err) == (6, True)
    (tmp_path / "key").write_text("short")
    assert run(*arguments(today), "--key-file", tmp_path / "key")[0] == 2


def test_chunks_of_a_file_give_the_same_plan(today: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model, capacity = DeCCaF.load(today["model"]), Capacity.read(today["capacity"])
    whole = model.assign(today["cases"], capacity)
    told = model.explain(today["cases"], whole, case="c517").reason
    monkeypatch.setattr(case_tables, "read_frames", partial(read_frames, rows=7))
    parts = model.assign(today["cases"], capacity)
    pd.testing.assert_frame_equal(parts.frame, whole.frame, rtol=1e-12)
    assert parts.summary.notes == whole.summary.notes
    assert model.explain(today["cases"], parts, case="c517").reason == told


def test_two_cases_of_one_name_in_different_chunks(today: dict[str, Path], run) -> None:
    frame = pd.read_parquet(today["cases"])
    pd.concat([frame, frame.iloc[:1]]).to_csv(today["cases"].with_suffix(".csv"), index=False)
    code, _, err = run(*arguments(today | {"cases": today["cases"].with_suffix(".csv")}))
    assert (code, "stand for more than one case, first: 'c500'" in err) == (3, True)


def test_fit_refuses_what_it_cannot_use(fitted: Path, run, tmp_path: Path) -> None:
    cases, log = history(100)
    cases.drop(columns="label").to_parquet(tmp_path / "cases.parquet")
    code, _, err = run(*fit_arguments(fitted, cases=tmp_path / "cases.parquet"))
    assert (code, "column 'label': missing" in err) == (3, True)
    assert run(*fit_arguments(fitted, out=tmp_path / "model.pkl"))[0] == 2
    code, _, err = run(*fit_arguments(fitted, until="2020-01-01", out=tmp_path / "m.deccaf"))
    assert (code, "no case is earlier" in err) == (3, True)
    assert run(*fit_arguments(fitted, until="soon", out=tmp_path / "m.deccaf"))[0] == 2
    log.assign(case_id="x").to_csv(tmp_path / "log.csv", index=False)
    assert run(*fit_arguments(fitted, decisions=tmp_path / "log.csv"))[0] == 3


def test_assign_says_in_which_order_and_what_will_be_late(
    today: dict[str, Path], run, tmp_path: Path
) -> None:
    start = pd.Timestamp("2024-02-01 08:00")
    due = start + pd.to_timedelta(np.arange(60) % 7 + 1, unit="min")
    change_cases(today, due=due, waiting_cost=np.where(np.arange(60) % 3, 0.5, np.nan))
    (tmp_path / "deccaf.toml").write_text(CONFIG + "[waiting]\ncost = 0.1\nlate = 0.05\n")
    files = today | {"config": tmp_path / "deccaf.toml"}
    code, out, err = run(*arguments(files), "--start", "2024-02-01T08:00")
    assert code == 0, err
    plan = pd.read_parquet(today["out"])
    people = plan[plan["maker"] != "machine"]
    assert people["order"].notna().all()
    assert plan.loc[plan["maker"] == "machine", "order"].isna().all()
    assert (people["finish"] > start).all()
    assert plan["late"].equals(plan["finish"] > due)
    for words in ("errors", "waiting", "will be late", "an hour more saves"):
        assert words in out
    found = json.loads(run(*arguments(files), "--start", "2024-02-01T08:00", "--json")[1])
    assert found["waiting"]["late"] == plan["late"].sum()
    change_cases(today, waiting_cost=[-1.0] + [0.0] * 59)
    code, _, err = run(*arguments(today))
    assert code == 3
    assert "column 'waiting_cost': 1 value(s) are no cost of an hour" in err
    assert "-1.0 in case 'c500'" in err
