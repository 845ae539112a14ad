"""A candidate beside today's practice: its shadow changes nothing, its share is exact, harm ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from deccaf import Costs
from deccaf.data.capacity import UNLIMITED
from deccaf.estimator import DeCCaF
from deccaf.service.decide.two_arms import shared
from deccaf.service.ledger import versions
from deccaf.service.reports.model_report import report_versions
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from ledger_histories import model_bytes
from ledger_histories import other_model as of_other_classes
from pages_world import Person, new_key
from service_world import World, history, model_file, world

CASES = 64


def new_model(here: World, name: str, content: bytes) -> int:
    made = here.lead.post(f"/v1/models?name={name}", content=content)
    assert made.status_code == 201, made.text
    return int(made.json()["id"])


def other_model(folder: Path) -> bytes:
    """One that takes cat for ann."""
    past = history(600)
    model = DeCCaF(Costs.binary(0.2, 1.0), case_parts=("logistic",), decision_parts=("rates", "pooled"))
    model.fit(
        past[["case_id", "amount", "channel"]],
        past["label"],
        expert=past["expert"].map({"ann": "cat", "bob": "bob", "cat": "ann"}),
        decision=past["decision"],
    )
    model.save(folder / "other.deccaf")
    return (folder / "other.deccaf").read_bytes()


def arrive(here: World, numbers: Sequence[int]) -> None:
    rng = np.random.default_rng(numbers[0])
    for number in numbers:
        features = {"amount": round(float(rng.normal()), 3), "channel": str(rng.choice(["web", "phone"]))}
        answer = here.machine.post("/v1/cases", json={"case_id": f"t{number}", "features": features})
        assert answer.status_code == 201, answer.text


def arms(here: World) -> list[Any]:
    c, a = t.trial_cases.c, t.assignments.c
    query = (
        sa.select(t.trial_cases, a.maker.label("got"), a.model_id, a.propensity.label("chance"))
        .join_from(t.trial_cases, t.assignments, sa.and_(a.case_id == c.case_id, t.IS_LIVE))
        .order_by(t.assignments.c.id)
    )
    return list(here.service.read(lambda connection: connection.execute(query).all()))


def decide(here: World, rows: Sequence[Any]) -> None:
    """Everybody says 0; the truth is 1 where the candidate had the case."""
    for row in rows:
        body = {"decision": 0, "expert": row.got}
        answer = here.lead.post(f"/v1/cases/{row.case_id}/decision", json=body)
        assert answer.status_code == 200, answer.text
    known = [{"case_id": row.case_id, "label": int(row.candidate)} for row in rows]
    assert here.lead.post("/v1/labels", json={"labels": known}).status_code in (200, 201)


def test_shadow_trial_harm_and_switch_on(database_url: str, tmp_path: Path) -> None:
    with world(database_url, {"ann": 200, "bob": 200, "cat": 200, "machine": 0}, housekeeping=False) as here:
        today = new_model(here, "today", model_file(tmp_path))
        candidate = new_model(here, "other", other_model(tmp_path))
        assert here.lead.post(f"/v1/models/{today}/activate").status_code == 200
        lead = Person(here, new_key(here, "lead"))
        body = {"model": candidate, "share": 0.5, "bound": 1.0}
        assert here.lead.post("/v1/trials", json=body | {"model": today}).status_code == 409
        assert here.lead.post("/v1/trials", json=body | {"share": 0.37}).status_code in (409, 422)
        assert here.ann.post("/v1/trials", json=body).status_code == 403
        made = here.lead.post("/v1/trials", json=body)
        assert made.status_code == 201, made.text
        trial = made.json()["id"]
        assert here.lead.post("/v1/trials", json=body).status_code == 409  # one at a time

        arrive(here, range(20))
        shadow = arms(here)
        assert {(row.model_id, row.candidate, row.propensity, row.chance) for row in shadow} == {
            (today, False, 1.0, 1.0)
        }
        assert all(row.got == row.maker for row in shadow)
        report = here.lead.get("/v1/trials").json()["trials"][0]
        assert (report["state"], report["cases"], report["in_candidate"]) == ("shadow", 20, 0)
        assert report["otherwise"] == sum(row.maker != row.expert for row in shadow) > 10
        assert report["look"] is None
        loads = {row["maker"]: (row["today"], row["candidate"]) for row in report["loads"]}
        assert sum(now for now, _ in loads.values()) == 20 == sum(then for _, then in loads.values())

        assert here.lead.post(f"/v1/trials/{trial}/begin").status_code == 200
        arrive(here, range(100, 100 + CASES))
        rows = [row for row in arms(here) if row.block >= 0]
        assert len(rows) == CASES
        for block, count in Counter((row.stratum, row.block) for row in rows).items():
            mine = [row.candidate for row in rows if (row.stratum, row.block) == block]
            assert count == 1 or sum(mine) == 1
        for row in rows:
            assert row.model_id == (candidate if row.candidate else today)
            assert row.got == (row.expert if row.candidate else row.maker)
            assert (row.propensity, row.chance) == (0.5, 1.0 if row.maker == row.expert else 0.5)
        assert {row.candidate for row in rows} == {True, False}
        here.assert_sound()

        decide(here, rows)
        report = here.lead.get("/v1/trials").json()["trials"][0]
        assert report["labelled"] == CASES
        assert report["look"]["verdict"] == "harm"
        groups = {one["value"]: one["look"] for one in report["groups"]}
        assert {one["column"] for one in report["groups"]} == {"channel"}
        assert sum(one["cases"] for one in groups.values()) == report["look"]["cases"]
        assert set(groups) == {"web", "phone"}
        assert all(one["low"] <= one["saving"] < 0 for one in groups.values())
        assert report["candidate_cost"]["value"] > report["today_cost"]["value"]
        assert report["supported"] == 1.0
        page = lead.get("/trial").text
        assert "50 % of the cases go by version" in page
        assert "the candidate does harm" in page
        assert "channel phone" in page
        here.service.stop_harm()
        report = here.lead.get("/v1/trials").json()["trials"][0]
        assert (report["state"], report["verdict"]) == ("ended", "harm")
        arrive(here, range(300, 306))
        assert len(arms(here)) == 20 + CASES  # all by today's practice again
        assert here.lead.post(f"/v1/trials/{trial}/begin").status_code == 409

        assert "No candidate runs beside" in lead.get("/trial").text
        assert lead.post("/trial", {"model": 99, "share": 0.1, "bound": 1}).status_code == 404
        assert lead.post("/trial", {"model": "1.5", "share": 0.1, "bound": 1}).status_code == 422
        assert lead.post("/trial", {"model": candidate, "share": "a tenth", "bound": 1}).status_code == 422
        lead.post("/trial", {"model": candidate, "share": "0,1", "bound": 1})
        again = here.lead.get("/v1/trials").json()["trials"][0]["id"]
        assert f"Version {candidate} is a shadow" in lead.get("/trial").text
        assert lead.post(f"/trial/{again}/nonsense").status_code == 422
        lead.post(f"/trial/{again}/switch-on")
        report = here.lead.get("/v1/trials").json()["trials"][0]
        assert (report["state"], report["verdict"]) == ("ended", "switched on")
        assert here.service.models.active is not None
        assert here.service.models.active.id == candidate
        assert here.lead.post("/v1/models/roll-back").json() == {"active": today}
        kinds = Counter(row["kind"] for row in here.lead.get("/v1/reports/trail?limit=1000").json()["items"])
        assert cost_in_force(here, candidate) > 0
        apart = new_model(here, "apart", model_bytes(of_other_classes(), tmp_path))
        here.lead.post(f"/v1/models/{apart}/activate")
        ended = here.lead.get("/v1/trials").json()["trials"][1]
        assert (ended["labelled"], ended["today_cost"]) == (0, None), "its costs price none of these labels"
        assert cost_in_force(here, candidate) is None
        assert kinds["shadow started"] == 2
        assert kinds["trial started"] == 1
        assert kinds["trial ended"] == 2
        here.assert_sound()


def cost_in_force(here: World, model: int) -> float | None:
    """What the labelled cases of a version cost, by the costs of the one in force."""
    active = here.service.models.active
    assert active is not None
    rows = here.service.read(lambda c: report_versions(c, active.system.costs_, [model]))
    return None if rows[0].done is None else rows[0].done.cost


def bulk(here: World, name: str, count: int) -> list[str]:
    """Cases that wait for a plan."""
    rows = history(count, seed=len(name) + count)[["amount", "channel"]].to_dict("records")
    cases = [{"case_id": f"{name}{k}", "features": row} for k, row in enumerate(rows)]
    assert here.lead.post("/v1/cases/bulk", json={"cases": cases}).status_code == 201
    return [case["case_id"] for case in cases]


def drafted(here: World, names: list[str], **more: Any) -> dict[str, Any]:
    made = here.lead.post("/v1/plans", json={"case_ids": names, **more})
    assert made.status_code == 201, made.text
    return made.json()


def committed(here: World, plan: int) -> tuple[int, str]:
    done = here.lead.post(f"/v1/plans/{plan}/commit")
    return done.status_code, done.text


def test_room_is_shared_between_the_arms():
    roster = pd.DataFrame({"maker": ["machine", "ann", "bob", "cat"], "upper": [UNLIMITED, 7, 0, 3]})
    roster["lower"] = [0, 3, 0, 1]
    drawn = [shared(roster, 0.25, np.random.default_rng(seed)) for seed in range(400)]
    for today, ours in drawn:
        assert (today["upper"] + ours["upper"])[1:].tolist() == [7, 0, 3]
        assert (today["lower"] + ours["lower"]).tolist() == [0, 3, 0, 1]
        assert 2 <= ours["upper"][1:].sum() <= 3  # a quarter of 10
        assert (ours["lower"] <= ours["upper"]).all()
    mean = np.mean([ours["upper"] for _, ours in drawn], axis=0)
    assert np.abs(mean[1:] - [1.75, 0.0, 0.75]).max() < 0.1


def test_plans_in_a_trial_and_constraints_as_the_candidate(tmp_path: Path) -> None:
    url, room = f"sqlite:///{tmp_path}/ledger.db", {"ann": 60, "bob": 60, "cat": 60, "machine": 0}
    with world(url, room, housekeeping=False) as here:
        today = new_model(here, "today", model_file(tmp_path))
        candidate = new_model(here, "other", other_model(tmp_path))
        assert here.lead.post(f"/v1/models/{today}/activate").status_code == 200
        body = {"model": candidate, "share": 0.5, "bound": 1.0}
        trial = here.lead.post("/v1/trials", json=body).json()["id"]
        first = drafted(here, bulk(here, "s", 20))
        assert committed(here, first["id"])[0] == 200
        shadow = arms(here)
        assert {(row.model_id, row.candidate, row.block, row.got == row.maker) for row in shadow} == {
            (today, False, -1, True)
        }
        assert any(row.maker != row.expert for row in shadow)

        assert here.lead.post(f"/v1/trials/{trial}/begin").status_code == 200
        one, two = bulk(here, "one", 40), bulk(here, "two", 10)
        plan, again, other = drafted(here, one), drafted(here, one), drafted(here, two)
        rows = [here.lead.get(f"/v1/plans/{p['id']}/rows").json()["items"] for p in (plan, again)]
        assert rows[0] == rows[1]  # drafting again draws nothing anew
        assert "of 40 cases go by the candidate" in plan["notes"][-1]
        asked = here.lead.post(f"/v1/plans/{plan['id']}/what-if", json={"changes": {"ann": "+1"}})
        assert (asked.status_code, asked.json()["type"]) == (409, "urn:deccaf:problem:in-a-trial")
        assert committed(here, plan["id"])[0] == 200
        code, text = committed(here, other["id"])
        assert (code, "another plan drew arms" in text) == (409, True)
        assert committed(here, drafted(here, two)["id"])[0] == 200
        planned = [row for row in arms(here) if row.block >= 0]
        assert len(planned) == 50
        for block, count in Counter((row.stratum, row.block) for row in planned).items():
            mine = [row.candidate for row in planned if (row.stratum, row.block) == block]
            assert count == 1 or sum(mine) == 1
        for row in planned:
            assert row.model_id == (candidate if row.candidate else today)
            assert row.got == (row.expert if row.candidate else row.maker)
            assert (row.propensity, row.chance) == (0.5, 1.0 if row.maker == row.expert else 0.5)
        here.assert_sound()
        decide(here, planned)
        report = here.lead.get("/v1/trials").json()["trials"][0]
        assert report["look"]["cases"] > 30
        assert report["look"]["saving"] < 0
        assert here.lead.post(f"/v1/trials/{trial}/end").status_code == 200

        assert here.lead.post("/v1/trials", json={"share": 0.5, "bound": 1.0}).status_code == 422
        refused = {"reviewers": {"count": 2}}
        body = {"constraints": refused, "share": 0.5, "bound": 1.0}
        assert here.lead.post("/v1/trials", json=body).status_code == 422
        lead = Person(here, new_key(here, "lead"))
        band = '[[band]]\ngroup = "channel"\nwithin = 0.0\n'
        wanted = {"model": "", "share": 0.5, "bound": 1, "constraints": band}
        assert lead.post("/trial", wanted | {"constraints": "[[band"}).status_code == 422
        assert lead.post("/trial", wanted).status_code == 303
        assert "Constraints on plans run as a shadow" in lead.get("/trial").text
        trial = here.lead.get("/v1/trials").json()["trials"][0]["id"]
        lead.post(f"/trial/{trial}/begin")
        known = len(arms(here))
        arrive(here, range(4))
        assert len(arms(here)) == known  # arrivals are in no arm: constraints are about plans
        plan = drafted(here, bulk(here, "three", 20))
        assert plan["constraints"]
        assert committed(here, plan["id"])[0] == 200
        assert len(arms(here)) == known + 20
        lead.post(f"/trial/{trial}/switch-on")
        assert here.lead.get("/v1/plans/constraints").json()["constraints"]["band"][0]["within"] == 0.0
        assert drafted(here, bulk(here, "four", 6))["constraints"]
        assert "Plans grant constraints" in lead.get("/trial").text
        assert lead.post("/trial/constraints/off").status_code == 303
        assert here.lead.get("/v1/plans/constraints").json() == {"constraints": None}
        here.assert_sound()


@pytest.mark.parametrize("path", ["/v1/trials/99/begin", "/v1/trials/99/end", "/v1/trials/99/switch-on"])
def test_there_is_no_such_trial(path: str, tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/ledger.db", housekeeping=False) as here:
        assert here.lead.post(path).status_code == 404


def test_a_candidate_stands_beside_the_model_in_force_at_that_moment(
    database_url: str, tmp_path: Path
) -> None:
    """Somebody else has just put a model in force that decides something else: this process finds out now."""
    with world(database_url, housekeeping=False) as here:
        first = new_model(here, "first", model_file(tmp_path))
        other = new_model(here, "other", model_bytes(of_other_classes(), tmp_path))
        here.lead.post(f"/v1/models/{other}/activate")
        here.service.models.version(other)
        with database.writing(here.service.engine) as connection:
            versions.put_in_force(connection, first, Actor(1), 1.0)
        assert here.service.models.active.id == other, "not known here yet"
        refused = here.lead.post("/v1/trials", json={"model": other, "share": 0.5, "bound": 1.0})
        assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (409, "other-classes")
        here.service.models.refresh()
        last = new_model(here, "last", model_file(tmp_path, 1))
        assert (
            here.lead.post("/v1/trials", json={"model": last, "share": 0.5, "bound": 1.0}).status_code == 201
        )
        assert here.service.trying.current is not None
        assert here.lead.get("/v1/trials").json()["aside"] is None
        here.lead.post(f"/v1/models/{other}/activate")
        here.service.trying.refresh()
        assert here.service.trying.current is None, "a candidate that decides something else stands apart"
        assert f"version {other}, in force, decides" in here.lead.get("/v1/trials").json()["aside"]
        assert "The candidate stands aside" in Person(here, new_key(here, "lead")).get("/trial").text
        here.lead.post(f"/v1/models/{last}/activate")
        here.service.trying.refresh()
        assert here.lead.get("/v1/trials").json()["aside"] == f"version {last}, its candidate, is in force"
