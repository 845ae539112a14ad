"""One road through the service: refit, backtest, plan and what-if are those of the library and the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deccaf import Costs, DeCCaF, History
from deccaf.data.config import Config
from deccaf.service.imports import past_import, past_records
from deccaf.service.jobs import process, records
from deccaf.service.jobs.backtest import run_backtest
from deccaf.service.jobs.learning import Lesson, read_lesson
from deccaf.service.ledger import versions
from deccaf.service.store import database
from deccaf.service.store.keys import Actor
from pages_world import Person, new_key
from service_world import World, history, model_file, shift_body, small_model, world
from test_one_road import tables

ROSTER = {"e0": 9, "e1": 11, "e2": 10}
SETTINGS: dict[str, Any] = {
    "columns": {"group": ["branch"], "ignore": ["leak"]},
    "costs": {"false_positive": 0.3, "false_negative": "amount", "review_cost": {"e0": 0.01}},
}
PARTS = {"case_parts": ["logistic"], "decision_parts": ["rates", "pooled"]}  # the others take long to fit
TOML = """
[columns]
group = ["branch"]
ignore = ["leak"]
[costs]
false_positive = 0.3
false_negative = "amount"
review_cost = {{ e0 = 0.01 }}
[model]
seed = 7
budget = "{budget}"
case_parts = ["logistic"]
decision_parts = ["rates", "pooled"]
"""


def past(rows: int = 340) -> pd.DataFrame:
    """Cases with their decisions, as a history file has them."""
    cases, log = tables(rows)
    return cases.drop(columns="day").merge(log, on="case_id")


@contextmanager
def with_history(url: str, budget: str = "quick") -> Iterator[World]:
    """A service that has a history, and knows how to learn from it."""
    settings = {**SETTINGS, "model": {"seed": 7, "budget": budget, **PARTS}}
    with world(url, housekeeping=False) as desk:
        assert desk.lead.put("/v1/settings", json=settings).status_code == 200
        checked = past_import.check_past(past())
        with database.writing(desk.service.engine) as connection:
            past_records.enter_past(connection, checked, "past.parquet", Actor(1), time.time())
        yield desk


def export(lesson: Lesson, folder: Path) -> list[object]:
    """The ledger's history as files, and the options that name them."""
    (folder / "deccaf.toml").write_text(TOML.format(budget=lesson.config.model.budget))
    lesson.cases.to_parquet(folder / "cases.parquet")
    lesson.decisions.to_parquet(folder / "decisions.parquet")
    files = {"cases": "cases.parquet", "decisions": "decisions.parquet", "config": "deccaf.toml"}
    return [part for name, file in files.items() for part in (f"--{name}", folder / file)]


def test_a_refit_is_deccaf_fit_on_the_exported_history(database_url: str, tmp_path: Path, run) -> None:
    budget = "standard" if "sqlite" in database_url else "quick"
    with with_history(database_url, budget) as desk:
        lesson = desk.service.read(read_lesson)
        with database.writing(desk.service.engine) as connection:
            job = records.enqueue(connection, "refit", {"name": "r", "activate": True}, 1, time.time())
            assert records.take(connection, "me", time.time()) == job
        process.run(database_url, job, "me")
        found = desk.lead.get(f"/v1/jobs/{job}").json()
        assert found["state"] == "done", found
        _, content = desk.service.read(lambda c: versions.read_content(c, found["result"]["model"]))
        assert run("fit", *export(lesson, tmp_path), "--out", tmp_path / "m.deccaf")[0] == 0
        assert (tmp_path / "m.deccaf").read_bytes() == content
        model = DeCCaF.load(tmp_path / "m.deccaf")
        assert "leak" not in model.schema_.names
        assert "branch" not in model.schema_.names
        assert (model.seed, model.budget, model.review_cost) == (7, budget, {"e0": 0.01})
        # without settings a refit learns like the model in force
        with database.writing(desk.service.engine) as connection:
            connection.exec_driver_sql("DELETE FROM settings")
        again = desk.service.read(read_lesson).config
        assert again.costs.build().to_dict() == lesson.config.costs.build().to_dict()
        assert (again.columns, again.model) == (lesson.config.columns, lesson.config.model)
        assert again.costs.review_cost == {"e0": 0.01}


def test_a_backtest_is_the_one_of_the_command_line(tmp_path: Path, run) -> None:
    with with_history(f"sqlite:///{tmp_path}/d.db") as desk:
        lesson = desk.service.read(read_lesson)
    result, page = run_backtest(lesson)
    code, out, _ = run("backtest", *export(lesson, tmp_path), "--json")
    assert code == 0
    assert json.loads(out) == result
    assert result["verdict"]["sentences"][0].startswith("deccaf: ")
    assert "<html" in page


def test_a_history_from_the_ledger_has_times_seconds_and_propensities(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 6, "bob": 6}, housekeeping=False) as desk:
        desk.lead.put("/v1/settings", json={"costs": {"false_positive": 0.3, "false_negative": 1.0}})
        for k in range(4):
            case = {**desk.case(f"c{k}", machine=9, ann=1), "features": {"x": float(k)}}
            assert desk.lead.post("/v1/cases", json=case).status_code == 201
            body = {"decision": k % 2, "seconds": 5.0 + k, "expert": "ann"}
            assert desk.lead.post(f"/v1/cases/c{k}/decision", json=body).status_code == 200
        desk.lead.post(
            "/v1/labels", json={"labels": [{"case_id": f"c{k}", "label": k // 2} for k in range(4)]}
        )
        history = desk.service.read(read_lesson).history()
    assert isinstance(history, History)
    assert history.log.seconds.tolist() == [5.0, 6.0, 7.0, 8.0]
    assert history.log.propensity.tolist() == [1.0] * 4
    assert history.time is not None
    assert (history.log.time.to_numpy() >= history.time.to_numpy()).all()


@pytest.fixture(scope="module", params=["deccaf", "paper", "ova"])
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Config.model_validate(
        {
            "columns": {"ignore": ["leak", "day"], "group": ["branch"]},
            "costs": {"false_positive": 0.3, "false_negative": "amount", "review_cost": {"e0": 0.01}},
            "model": {"method": request.param},
        }
    )
    cases, log = tables()
    model = DeCCaF.from_config(config).fit_history(History.from_frames(cases[:340], log[:340], config))
    path = tmp_path_factory.mktemp("model") / "m.deccaf"
    model.save(path)
    return path


def today() -> pd.DataFrame:
    return tables()[0].iloc[340:].drop(columns=["label"]).reset_index(drop=True)


@contextmanager
def with_model(url: str, model: Path) -> Iterator[World]:
    """A service with the model in force, the roster at work, and today's cases waiting."""
    with world(url, {}, housekeeping=False) as desk:
        for name in ROSTER:
            desk.lead.post("/v1/experts", json={"name": name, "team": "desk"})
        made = desk.lead.post("/v1/models", content=model.read_bytes())
        assert desk.lead.post(f"/v1/models/{made.json()['id']}/activate").status_code == 200
        assert desk.lead.post("/v1/shifts", json=shift_body(ROSTER, "planned")).status_code == 201
        rows = json.loads(today().to_json(orient="records", double_precision=15))
        many = [{"case_id": row.pop("case_id"), "features": row} for row in rows]
        assert desk.lead.post("/v1/cases/bulk", json={"cases": many}).status_code == 201
        yield desk


def makers(desk: World, plan: int) -> dict[str, str]:
    rows = desk.lead.get(f"/v1/plans/{plan}/rows?limit=1000").json()["items"]
    return {row["case_id"]: row["maker"] for row in rows}


def test_every_way_to_plan_gives_the_same_plan(fitted: Path, tmp_path: Path, run) -> None:
    model = DeCCaF.load(fitted)
    plan = model.assign(today(), ROSTER)
    mine = dict(zip(plan.frame["case_id"], plan.frame["maker"], strict=True))
    today().to_parquet(tmp_path / "today.parquet")
    pd.DataFrame({"expert_id": list(ROSTER), "upper": list(ROSTER.values())}).to_parquet(
        tmp_path / "roster.parquet"
    )
    files = [
        "--model",
        fitted,
        "--cases",
        tmp_path / "today.parquet",
        "--capacity",
        tmp_path / "roster.parquet",
    ]
    assert run("assign", *files, "--out", tmp_path / "plan.parquet")[0] == 0
    command = pd.read_parquet(tmp_path / "plan.parquet")
    assert dict(zip(command["case_id"], command["maker"], strict=True)) == mine
    with with_model(f"sqlite:///{tmp_path}/d.db", fitted) as desk:
        made = desk.lead.post("/v1/plans", json={}).json()
        assert makers(desk, made["id"]) == mine
        for name in ("cost", "machine_cost", "random_cost", "close_calls"):
            assert made[name] == pytest.approx(plan.summary.to_dict()[name], rel=1e-9), name
        lead = Person(desk, new_key(desk, "lead"))
        where = lead.post("/plans").headers["location"]
        assert makers(desk, int(where.rpartition("/")[2])) == mine
        # what if is asked in one place, too
        asked = model.what_if(today(), ROSTER, {"e0": "+5", "e2": "3"})
        body = {"changes": {"e0": "+5", "e2": "3"}}
        found = desk.lead.post(f"/v1/plans/{made['id']}/what-if", json=body).json()
        assert found["cost"] == pytest.approx(asked.then.summary.cost, rel=1e-9)
        assert found["change"] == pytest.approx(-asked.saves, rel=1e-6, abs=1e-9)
        code, out, _ = run("assign", *files, "--what-if", "e0=+5,e2=3", "--json")
        assert code == 0
        assert found["change"] == pytest.approx(-json.loads(out)["scenarios"][0]["saves"], rel=1e-6, abs=1e-9)
        assert lead.post(f"{where}/commit").headers["location"] == "/"
        desk.assert_sound()


def test_a_case_that_cannot_wait_is_routed_by_what_the_method_minimises(fitted: Path, tmp_path: Path) -> None:
    model = DeCCaF.load(fitted)
    scored = model.scored(today(), list(ROSTER))
    with with_model(f"sqlite:///{tmp_path}/d.db", fitted) as desk:
        rows = json.loads(today().to_json(orient="records", double_precision=15))
        for k, row in enumerate(rows[:5]):  # at the start of the day all prices are 0
            del row["case_id"]
            found = desk.lead.post("/v1/cases", json={"case_id": f"now{k}", "features": row}).json()
            assert found["maker"] == scored.makers[int(scored.objective[k].argmin())]
            j = scored.makers.index(found["maker"])
            assert found["expected_loss"] == pytest.approx(scored.loss[k, j], rel=1e-6)
            reason = desk.lead.get(f"/v1/cases/now{k}").json()["assignment"]["reason"]
            assert ("objective" in reason) == (model.method != "deccaf")
            aims = reason.get("objective", reason["losses"])
            assert aims == pytest.approx(dict(zip(scored.makers, scored.objective[k], strict=True)), rel=1e-5)
            lead = Person(desk, new_key(desk, "lead"))
            assert "has the least " in lead.get(f"/cases/now{k}").text


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "minutes": {"minutes": {"capacity": {"e0": 30, "e1": 40, "e2": 35}, "minutes": 6}},
    "deferral band": {"band": [{"group": "branch", "within": 0.02}]},
    "fnr band": {"band": [{"group": "branch", "within": 0.2, "measure": "fnr"}]},
    "balance": {"balance": {"within": 0.2}},
    "random": {"random": {"share": 0.2, "seed": 3}},
    "one reviewer": {"reviewers": {"count": 1}},
}


# with the other methods one constraint is enough to see that their own objective counts
@pytest.mark.parametrize(
    ("fitted", "name"),
    [*[("deccaf", name) for name in CONSTRAINTS], ("paper", "minutes"), ("ova", "minutes")],
    indirect=["fitted"],
)
def test_the_service_plans_under_constraints_as_the_library_does(
    fitted: Path, tmp_path: Path, name: str
) -> None:
    table, model = CONSTRAINTS[name], DeCCaF.load(fitted)
    plan = model.assign(today(), ROSTER, constraints=table)
    with with_model(f"sqlite:///{tmp_path}/d.db", fitted) as desk:
        made = desk.lead.post("/v1/plans", json={"constraints": table})
        assert made.status_code == 201, made.text
        found = made.json()
        assert makers(desk, found["id"]) == dict(zip(plan.frame["case_id"], plan.frame["maker"], strict=True))
        prices = plan.constraints.drop(columns="batch")
        assert [row["constraint"] for row in found["constraints"]] == prices["constraint"].tolist()
        np.testing.assert_allclose([row["price"] for row in found["constraints"]], prices["price"], atol=1e-9)
        lead = Person(desk, new_key(desk, "lead"))
        page = lead.get(f"/plans/{found['id']}").text
        assert "The constraints cost" in page
        assert found["constraints"][0]["constraint"] in page
        asked = model.what_if(today(), ROSTER, {"e1": "+3"}, constraints=table)
        body = {"changes": {"e1": "+3"}}
        answer = desk.lead.post(f"/v1/plans/{found['id']}/what-if", json=body).json()
        assert answer["cost"] == pytest.approx(asked.then.summary.cost, rel=1e-9)
        assert desk.lead.post(f"/v1/plans/{found['id']}/commit").status_code == 200
        used = {seat["maker"]: seat["used"] for seat in desk.lead.get("/v1/shifts/2").json()["roster"]}
        assert {m: n for m, n in used.items() if n} == plan.frame["maker"].value_counts().to_dict()
        desk.assert_sound()


def test_random_cases_by_constraint_keep_their_chances(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 20, "bob": 20}, housekeeping=False) as desk:
        cases = [desk.case(f"r{k:02}", machine=0.1, ann=0.5, bob=0.6) for k in range(20)]
        desk.lead.post("/v1/cases/bulk", json={"cases": cases})
        made = desk.lead.post("/v1/plans", json={"constraints": {"random": {"share": 0.5}}}).json()
        assert made["by_lot"] == 10
        assert "given out by lot, as the constraints ask: 10 of 20 cases" in made["notes"]
        assert desk.lead.post(f"/v1/plans/{made['id']}/commit").status_code == 200
        found = [desk.lead.get(f"/v1/cases/r{k:02}").json()["assignment"] for k in range(20)]
        drawn = [a for a in found if a["reason"]["method"] == "lot"]
        assert sorted({a["maker"] for a in drawn}) == ["ann", "bob"]
        # half of the cases are drawn, and half of these go to each: 0.25; the others stay with the machine
        assert {a["reason"]["propensity"] for a in drawn} == {0.25}
        assert {a["reason"]["propensity"] for a in found if a["maker"] == "machine"} == {0.5}


def test_constraints_that_the_service_cannot_keep_are_refused(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 20, "bob": 20}, housekeeping=False) as desk:
        desk.lead.post("/v1/cases/bulk", json={"cases": [desk.case("a", machine=1, ann=0.5, bob=0.6)]})

        def refused(table: dict[str, Any]) -> tuple[int, str]:
            answer = desk.lead.post("/v1/plans", json={"constraints": table})
            return answer.status_code, answer.json()["detail"]

        for table in ({"count": 2}, {"count": "risk"}, {"up_to": 2}):
            status, detail = refused({"reviewers": table})
            assert status == 422
            assert "one person decides a case" in detail
        status, detail = refused({"band": [{"group": "branch", "within": 0.1}]})
        assert status == 422
        assert "column 'branch': missing" in detail
        status, detail = refused({"band": [{"group": "case", "within": 0.1, "measure": "fpr"}]})
        assert status == 422
        status, detail = refused({"minute": {}})
        assert status == 422
        assert "constraints.minute" in detail
        status, detail = refused({"minutes": {"capacity": {"nobody": 5}, "minutes": 5}})
        assert status == 422


def test_the_sliders_solve_what_the_planner_plans(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 6, "bob": 6}, housekeeping=False) as desk:
        rng = np.random.default_rng(0)
        losses = rng.random((30, 3)).round(3)
        many = [
            desk.case(f"s{k:02}", machine=1 + row[0], ann=row[1], bob=row[2]) for k, row in enumerate(losses)
        ]
        desk.lead.post("/v1/cases/bulk", json={"cases": many})
        made = desk.lead.post("/v1/plans", json={}).json()
        desk.lead.post(f"/v1/plans/{made['id']}/commit")
        day, _ = desk.service.read(lambda c: desk.service.days.day(c, desk.shift))
        assert day.cost(day.capacity) == pytest.approx(made["cost"], rel=1e-6)
        assert day.cost({**day.capacity, "ann": 9}) < made["cost"]


def test_a_plan_takes_costs_and_says_where_cases_are_unlike(tmp_path: Path) -> None:
    new = history(40, seed=3)[["case_id", "amount", "channel"]]
    dear = {"false_positive": 5.0, "false_negative": 1.0, "review_cost": {"ann": 0.1}}
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 5, "bob": 5}, housekeeping=False) as desk:
        made = desk.lead.post("/v1/models", content=model_file(tmp_path)).json()["id"]
        desk.lead.post(f"/v1/models/{made}/activate")
        rows = new.to_dict("records")
        many = [{"case_id": row.pop("case_id"), "features": row} for row in rows]
        assert desk.lead.post("/v1/cases/bulk", json={"cases": many}).status_code == 201
        usual = desk.lead.post("/v1/plans", json={"strict": True}).json()
        assert usual["warnings"] == []
        assert usual["costs"] == small_model().terms.to_dict()
        other = desk.lead.post("/v1/plans", json={"costs": dear}).json()
        model = small_model().with_costs(Costs.binary(5.0, 1.0), {"ann": 0.1})
        expected = model.assign(new, {"ann": 5, "bob": 5}, intervals=False).summary
        assert other["costs"] == expected.terms.to_dict()
        assert other["cost"] == pytest.approx(expected.cost)
        for costs in ({**dear, "classes": ["no", "yes"]}, {**dear, "review_cost": {"anne": 1.0}}):
            assert desk.lead.post("/v1/plans", json={"costs": costs}).status_code == 422
        odd = [{"case_id": f"x{k}", "features": {**row, "amount": 1e4}} for k, row in enumerate(rows)]
        assert desk.lead.post("/v1/cases/bulk", json={"cases": odd}).status_code == 201
        chosen = {"case_ids": [case["case_id"] for case in odd]}
        refused = desk.lead.post("/v1/plans", json={**chosen, "strict": True})
        assert refused.status_code == 422
        assert "unlike those that the model learned from" in refused.json()["detail"]
        told = desk.lead.post("/v1/plans", json=chosen).json()
        assert [one["kind"] for one in told["warnings"]] == ["scale"]
        page = Person(desk, new_key(desk, "lead")).get(f"/plans/{told['id']}").text
        assert "is it in another unit?" in page
