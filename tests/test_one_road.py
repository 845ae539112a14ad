"""One road: the library, the command line and the backtest learn, plan and answer in the same way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Capacity, DeCCaF, History
from deccaf.backtest import policies
from deccaf.backtest.options import Options
from deccaf.backtest.run import backtest
from deccaf.data.config import Config
from models_world import make_world

CONFIG = """
[columns]
time = "day"
group = ["branch"]
ignore = ["leak"]
[costs]
false_positive = 0.3
false_negative = "amount"
review_cost = {{ e0 = 0.01 }}
[model]
method = "{method}"
seed = 7
"""


def tables(n: int = 400) -> tuple[pd.DataFrame, pd.DataFrame]:
    world = make_world(n, 3)
    cases = world.features.astype({"kind": "str"}).assign(
        case_id=[f"c{k}" for k in range(n)],
        label=world.truth,
        day=np.arange(n) // 25,
        amount=1.0 + np.arange(n) % 3,
        branch=np.where(np.arange(n) % 2, "north", "south"),
        leak=world.truth + 0.001 * np.arange(n),
    )
    log = pd.DataFrame({"case_id": cases["case_id"], "expert_id": world.expert, "decision": world.decision})
    return cases, log


@pytest.fixture(params=["deccaf", "paper", "ova"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Path]:
    cases, log = tables()
    files = {name: tmp_path / f"{name}.parquet" for name in ("cases", "decisions", "today", "capacity")}
    cases.iloc[:340].to_parquet(files["cases"])
    cases.iloc[340:].to_parquet(files["today"])
    log.iloc[:340].to_parquet(files["decisions"])
    roster = pd.DataFrame({"expert_id": ["e0", "e1", "e2"], "upper": [9, 11, 10]})
    roster.to_parquet(files["capacity"])
    files["config"], files["model"] = tmp_path / "deccaf.toml", tmp_path / "model.deccaf"
    files["config"].write_text(CONFIG.format(method=request.param))
    return files


def fitted_by_command(desk: dict[str, Path], run) -> DeCCaF:
    given = [part for name in ("cases", "decisions", "config") for part in (f"--{name}", desk[name])]
    assert run("fit", *given, "--out", desk["model"])[0] == 0
    return DeCCaF.load(desk["model"])


def same(one: DeCCaF, other: DeCCaF, cases: pd.DataFrame) -> None:
    assert one.schema_ == other.schema_
    assert "leak" not in one.schema_.names
    assert one.costs_.to_dict() == other.costs_.to_dict()
    settings = one.get_params(deep=False) | {"costs": None}
    assert settings == other.get_params(deep=False) | {"costs": None}
    np.testing.assert_array_equal(one.predict_proba(cases), other.predict_proba(cases))
    np.testing.assert_array_equal(one.expected_loss(cases), other.expected_loss(cases))


def test_every_way_to_learn_gives_the_same_model(
    desk: dict[str, Path], run, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.read(desk["config"])
    cases, log = pd.read_parquet(desk["cases"]), pd.read_parquet(desk["decisions"])
    today = pd.read_parquet(desk["today"])
    command = fitted_by_command(desk, run)
    library = DeCCaF.from_config(config).fit(cases, cases["label"], decisions=log)
    same(command, library, today)
    history = History.from_frames(cases, log, config)
    same(command, DeCCaF.from_config(config).fit_history(history), today)
    # what a backtest fits on its training part is what the library fits on the same cases
    models = []

    class Spy(DeCCaF):
        def fit_history(self, *given: object) -> DeCCaF:
            models.append((given[0], super().fit_history(*given)))
            return models[-1][1]

    monkeypatch.setattr(policies, "DeCCaF", Spy)
    backtest(history, config, Options(("machine", "random", "deccaf"), split="time", seed=7))
    learned_from, model = models[0]
    assert len(learned_from.cases) < len(cases)
    again = DeCCaF.from_config(config).set_params(method=model.method).fit_history(learned_from)
    np.testing.assert_array_equal(model.expected_loss(today), again.expected_loss(today))


def test_the_command_writes_the_file_that_the_library_saves(
    desk: dict[str, Path], run, tmp_path: Path
) -> None:
    fitted_by_command(desk, run)
    config = Config.read(desk["config"])
    model = DeCCaF.from_config(config).fit_history(History.read(desk["cases"], desk["decisions"], config))
    model.save(tmp_path / "again.deccaf")
    assert (tmp_path / "again.deccaf").read_bytes() == desk["model"].read_bytes()


def test_every_way_to_plan_gives_the_same_plan(desk: dict[str, Path], run, tmp_path: Path) -> None:
    model, capacity = fitted_by_command(desk, run), Capacity.read(desk["capacity"])
    today = pd.read_parquet(desk["today"])
    plan = model.assign(today, capacity)
    given = [part for name in ("model", "capacity") for part in (f"--{name}", desk[name])]
    code, out, _ = run("assign", *given, "--cases", desk["today"], "--out", tmp_path / "p.parquet", "--json")
    assert code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), plan.frame, check_dtype=False)
    assert json.loads(out)["random_cost"] == pytest.approx(plan.summary.random_cost)
    code, out, _ = run("assign", *given, "--cases", desk["today"], "--what-if", "e0=+5", "--json")
    assert code == 0
    asked = model.what_if(today, capacity, {"e0": "+5"})
    assert json.loads(out)["scenarios"][0]["saves"] == pytest.approx(asked.saves, abs=1e-12)
    case = str(today["case_id"].iloc[3])
    code, out, _ = run("explain", *given, "--cases", desk["today"], "--case", case, "--json")
    assert code == 0
    assert json.loads(out)["reason"] == model.explain(today, plan, case=case).reason


def test_random_sharing_keeps_everybodys_load(desk: dict[str, Path], run) -> None:
    model, today = fitted_by_command(desk, run), pd.read_parquet(desk["today"])
    plan = model.assign(today, {"e0": 9, "e1": 11, "e2": 10})
    loss = model.expected_loss(today)
    loads = plan.summary.makers["cases"]
    assert plan.summary.random_cost == pytest.approx(sum(loss[m].mean() * loads[m] for m in loads.index))
