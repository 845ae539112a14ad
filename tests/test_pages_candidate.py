"""Plans that would be a loss say so; a candidate is seen beside the model in force before it is activated."""

from __future__ import annotations

from pathlib import Path

import pytest

from deccaf.service.web.pages import words
from deccaf.service.web.pages.learning.lesson import read_form
from pages_world import Person, new_key
from service_world import EXPERTS, World, history, model_file, world


def furnish(desk: World, folder: Path, cases: int = 60) -> None:
    for seed in (0, 1):
        made = desk.lead.post(f"/v1/models?name=model-{seed}", content=model_file(folder, seed))
        assert made.status_code == 201, made.text
    desk.lead.post("/v1/models/1/activate")
    rows = history(cases, seed=7)[["case_id", "amount", "channel"]].to_dict("records")
    body = [{"case_id": row.pop("case_id"), "features": row} for row in rows]
    assert desk.lead.post("/v1/cases/bulk", json={"cases": body}).status_code == 201


def test_what_the_lot_costs_is_shown_before_it_is_drawn(database_url: str, tmp_path: Path) -> None:
    with world(database_url, dict.fromkeys(EXPERTS, 9), housekeeping=False) as desk:
        furnish(desk, tmp_path)
        desk.lead.patch(f"/v1/shifts/{desk.shift}", json={"random_share": 0.4})
        lead = Person(desk, new_key(desk, "lead"))
        where = lead.post("/plans").headers["location"]
        page = lead.get(where).text
        assert "By lot: 40.0 % of the cases would cost about" in page
        assert "Nothing is drawn yet" in page
        assert "Commit without the lot" in page
        assert "A loss." not in page
        drawn = lead.get(lead.post("/plans", {"lot": "draw"}).headers["location"]).text
        assert "24 cases by lot: this plan costs" in drawn
        assert "Plan without the lot" in drawn
        found = desk.lead.post("/v1/plans", json={}).json()
        assert (found["by_lot"], found["lot"]["drawn"]) == (24, True)
        assert 0 < found["lot"]["cost"] < found["lot"]["even"]
        assert found["cost"] > found["plain_cost"]
        without = desk.lead.post("/v1/plans", json={"lot": False}).json()
        assert (without["by_lot"], without["lot"]["drawn"]) == (0, False)
        assert without["cost"] == pytest.approx(found["plain_cost"])
        if found["cost"] > found["machine_cost"] * 1.01:
            assert "more than the machine alone" in drawn


def test_a_plan_that_is_a_loss_is_red_and_today_is_not_quiet(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 5, "bob": 5}, housekeeping=False) as desk:
        cases = [desk.case(f"c{k}", machine=1.0, ann=2.0, bob=3.0) for k in range(6)]
        assert desk.lead.post("/v1/cases/bulk", json={"cases": cases}).status_code == 201
        desk.lead.put(f"/v1/shifts/{desk.shift}/roster/bob", json={"capacity": 5, "lower": 2})
        lead = Person(desk, new_key(desk, "lead"))
        where = lead.post("/plans").headers["location"]
        page = lead.get(where).text
        assert '<p class="alert bad" role="alert"><strong>A loss.</strong>' in page
        assert "This plan costs 67 % more than the machine alone (6.00 units)" in page
        assert "-67" not in page
        assert lead.post(f"{where}/commit").headers["location"] == "/"
        today = lead.get("/").text
        assert "What was given out today costs 67 % more than the machine alone" in today
        assert "All quiet" not in today


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"cost": 10.0, "machine_cost": 12.0, "plain_cost": 10.0}, []),
        ({"cost": 10.01, "machine_cost": 10.0, "plain_cost": 10.0}, []),
        ({"cost": 239.0, "machine_cost": 186.0, "plain_cost": 239.0}, ["28 % more than the machine alone"]),
        (
            {"cost": 11.0, "machine_cost": 20.0, "plain_cost": 10.0, "by_lot": 3},
            ["10 % more than the same plan without its cases by lot"],
        ),
        (
            {"cost": 11.0, "machine_cost": 20.0, "plain_cost": 10.0, "constraints": [{}]},
            ["10 % more than the same plan without its constraints"],
        ),
    ],
)
def test_warnings_of_plans(summary: dict[str, object], said: list[str]) -> None:
    found = words.plan_warnings(summary)
    assert len(found) == len(said)
    assert all(words in text for words, text in zip(said, found, strict=True))


def test_a_candidate_beside_the_model_in_force(database_url: str, tmp_path: Path) -> None:
    with world(database_url, dict.fromkeys(EXPERTS, 9), housekeeping=False) as desk:
        furnish(desk, tmp_path)
        plan = desk.lead.post("/v1/plans", json={}).json()["id"]
        desk.lead.post(f"/v1/plans/{plan}/commit")
        desk.service.models.refresh()
        lead = Person(desk, new_key(desk, "lead"))
        assert "Compare, then activate" in lead.get("/models").text
        form = desk.service.read(lambda c: read_form(desk.service, c))
        assert (form.pair, form.is_matrix, form.review_cost) == (("0.2", "1"), False, "0"), "those in force"
        page = lead.get("/models/2").text
        assert "Version 2: model-1, beside version 1 in force" in page
        assert "Activate version 2" in page
        found = desk.lead.get("/v1/models/2/comparison").json()["moves"]
        open_ = desk.lead.get("/v1/cases?status=assigned&limit=1000").json()["items"]
        assert found["cases"] == len(open_)
        assert found["moved"] == sum(n for _, _, n in found["pairs"])
        before, after = (sum(load[k] for load in found["loads"]) for k in (1, 2))
        assert before == after == found["cases"]
        part = lead.get("/models/2/compared").text
        assert f"of {len(open_)} would go to somebody else" in part
        assert "No labelled case yet" in part
        assert lead.post("/models/2/notes", {"text": "<b>why</b>"}).headers["location"] == "/models/2#notes"
        assert "&lt;b&gt;why&lt;/b&gt;" in lead.get("/models/2").text
        assert desk.lead.get("/v1/models/2/notes").json()["items"][0]["text"] == "<b>why</b>"
        assert lead.get("/models/2/file").content == model_file(tmp_path, 1)
        assert desk.lead.get("/v1/models/2/file").content == model_file(tmp_path, 1)
        lead.post("/models/2/activate")
        assert "Version 2: model-1 is in force" in lead.get("/models/2").text
        assert "Go back to version 1" in lead.get("/models/1").text
        lead.post("/models/go-back")
        assert desk.lead.get("/v1/models").json()["active"] == 1
        for path in ("/models/9", "/models/9/compared", "/models/9/file"):
            assert lead.get(path).status_code == 404
        labels = [{"case_id": case["case_id"], "label": 0} for case in open_]
        desk.lead.post("/v1/labels", json={"labels": labels})
        assert "may have learned from" in lead.get("/models/1/compared").text
