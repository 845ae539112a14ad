"""The API as its users meet it, on both databases."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf.service.web import admission
from deccaf.service.web.api import cases as cases_api
from deccaf.service.web.app import PUBLIC
from deccaf.service.web.middleware import shape
from deccaf.service.web.questions import harmless
from pages_world import Person
from service_world import World, history, model_file, shift_body, small_model, world


@pytest.fixture
def desk(database_url: str) -> Iterator[World]:
    with world(database_url, housekeeping=False) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    """The same on SQLite only, for what does not depend on the database."""
    with world(f"sqlite:///{tmp_path}/deccaf.db", housekeeping=False) as found:
        yield found


def test_a_case_is_routed_on_arrival(desk: World) -> None:
    found = desk.machine.post("/v1/cases", json=desk.case("a", machine=0.5, ann=0.1, bob=0.2))
    assert found.status_code == 201
    assert found.json() == {
        "case_id": "a",
        "status": "assigned",
        "maker": "ann",
        "decision": None,
        "expected_loss": 0.1,
        "price": 0.0,
        "propensity": 1.0,
        "model": None,
        "shift": desk.shift,
    }
    by_machine = desk.machine.post("/v1/cases", json=desk.case("b", machine=0.0, ann=0.1, bob=0.2)).json()
    assert (by_machine["maker"], by_machine["status"], by_machine["decision"]) == ("machine", "decided", 0)
    shown = desk.lead.get("/v1/cases/a").json()
    assert shown["assignment"]["reason"]["losses"] == {"machine": 0.5, "ann": 0.1, "bob": 0.2}
    assert [event["kind"] for event in shown["history"]] == ["assigned"]
    desk.assert_sound()


def test_a_case_comes_in_once(desk: World) -> None:
    body = desk.case("a", machine=0.5, ann=0.1)
    assert desk.machine.post("/v1/cases", json=body).status_code == 201
    again = desk.machine.post("/v1/cases", json=body)
    assert (again.status_code, again.json()["type"]) == (409, "urn:deccaf:problem:known-case")
    assert again.headers["content-type"] == "application/problem+json"


def test_a_request_sent_again_with_its_key_is_done_once(desk: World) -> None:
    header = {"Idempotency-Key": "k1"}
    answers = [
        desk.machine.post("/v1/cases", json=desk.case("a", machine=0.5, ann=0.1), headers=header)
        for _ in range(3)
    ]
    assert {answer.text for answer in answers} == {answers[0].text}
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true", "true"]
    other = desk.machine.post("/v1/cases", json=desk.case("b", machine=0.5), headers=header)
    assert (other.status_code, other.json()["type"]) == (422, "urn:deccaf:problem:key-reused")
    team = [
        desk.lead.post("/v1/teams", json={"name": "x"}, headers={"Idempotency-Key": "t"}) for _ in range(3)
    ]
    assert {answer.status_code for answer in team} == {201}
    assert len(desk.lead.get("/v1/teams").json()["items"]) == 2
    assert desk.roster()["ann"]["used"] == 1


def test_full_people_are_passed_over_and_then_cases_wait(desk: World) -> None:
    makers = []
    for k in range(6):
        found = desk.machine.post("/v1/cases", json={"case_id": f"c{k}", "losses": {"ann": 0.1, "bob": 0.2}})
        makers.append((found.status_code, found.json().get("maker")))
    assert makers == [(201, "ann")] * 2 + [(201, "bob")] * 2 + [(202, None)] * 2
    assert [case["case_id"] for case in desk.lead.get("/v1/cases?status=waiting").json()["items"]] == [
        "c4",
        "c5",
    ]
    desk.assert_sound()


def test_a_reviewer_works_through_their_queue(desk: World) -> None:
    for case in ("a", "b"):
        desk.machine.post("/v1/cases", json={**desk.case(case, ann=0.1, bob=0.3), "features": {"amount": 5}})
    assert desk.ann.get("/v1/queue").json()["waiting"] == 2
    first = desk.ann.post("/v1/queue/next", json={}).json()
    assert (first["case_id"], first["features"]) == ("a", {"amount": 5})
    assert "assignment" not in first, "a reviewer is not told what others would have cost"
    done = desk.ann.post("/v1/cases/a/decision", json={"decision": 1, "seconds": 30})
    assert done.json() == {"case_id": "a", "status": "decided", "maker": "ann", "decision": 1}
    assert desk.ann.post("/v1/cases/a/decision", json={"decision": 0}).status_code == 409
    assert (
        desk.ann.post("/v1/cases/b/hand-back", json={"reason": "knows them"}).json()["status"] == "assigned"
    )
    assert desk.ann.get("/v1/cases/b").status_code == 404, "it is bob's now"
    assert desk.ann.post("/v1/queue/next", json={}).status_code == 204
    assert desk.ann.post("/v1/queue/next", json={"expert": "bob"}).status_code == 403
    assert desk.lead.post("/v1/queue/next", json={"expert": "bob"}).json()["case_id"] == "b"
    assert desk.lead.post("/v1/cases/b/decision", json={"decision": 0, "expert": "bob"}).status_code == 200
    labelled = desk.machine.post(
        "/v1/labels", json={"labels": [{"case_id": "a", "label": 1}, {"case_id": "b", "label": 1}]}
    )
    assert labelled.json() == {"accepted": 2}
    items = {row["maker"]: row["all_cases"] for row in desk.lead.get("/v1/reports/experts").json()["items"]}
    assert (items["ann"]["wrong"], items["bob"]["wrong"]) == (0, 1)
    desk.assert_sound()


def test_claims_expire(database_url: str) -> None:
    with world(database_url, claim_seconds=0.01) as desk:
        desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1, bob=0.3))
        assert desk.ann.post("/v1/queue/next", json={}).status_code == 200
        deadline = time.monotonic() + 15
        while desk.roster()["bob"]["used"] == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert desk.roster()["bob"]["used"] == 1
        kinds = [event["kind"] for event in desk.lead.get("/v1/cases/a").json()["history"]]
        assert kinds == ["assigned", "claimed", "expired", "assigned"]


def test_a_roster_changes_at_noon(desk: World) -> None:
    put = lambda maker, **body: desk.lead.put(f"/v1/shifts/{desk.shift}/roster/{maker}", json=body)  # noqa: E731
    for k in range(2):
        desk.machine.post("/v1/cases", json=desk.case(f"c{k}", ann=0.1, bob=0.3, cat=0.2))
    assert put("ann", capacity=1).json()["type"] == "urn:deccaf:problem:capacity-below-used"
    assert put("cat", capacity=5).status_code == 200, "cat comes in"
    changed = put("ann", capacity=1, release=True).json()
    assert changed["released"] == 1
    used = {maker: place["used"] for maker, place in desk.roster().items()}
    assert used == {"machine": 0, "ann": 1, "bob": 1, "cat": 0}, "cat was not there when the case was scored"
    away = put("ann", absent=True, release=True).json()
    assert away["released"] == 1
    assert desk.roster()["ann"] == {
        "maker": "ann",
        "capacity": 1,
        "lower": 0,
        "used": 0,
        "answered": 0,
        "absent": True,
        "active": True,
        "price": 0.0,
        "machine": False,
        "held_up": False,
    }
    assert desk.machine.post("/v1/cases", json=desk.case("d", ann=0.0, cat=0.4)).json()["maker"] == "cat"
    assert put("zed", capacity=1).status_code == 404
    assert put("ann", capacity=3, lower=4).status_code == 422
    desk.assert_sound()


def test_many_cases_are_planned_together(desk: World) -> None:
    rng = np.random.default_rng(0)
    loss = rng.random((40, 3)).round(3)
    cases = [
        desk.case(f"c{k}", machine=row[0], ann=row[1], bob=row[2]) for k, row in enumerate(loss.tolist())
    ]
    assert desk.machine.post("/v1/cases/bulk", json={"cases": cases}).json() == {"accepted": 40}
    assert desk.machine.post("/v1/cases/bulk", json={"cases": cases[:1]}).status_code == 409
    draft = desk.lead.post("/v1/plans", json={}).json()
    assert (draft["state"], draft["cases"]) == ("draft", 40)
    assert draft["cost"] < draft["random_cost"]
    rows = desk.lead.get(f"/v1/plans/{draft['id']}/rows?limit=1000").json()["items"]
    assert sum(row["expected_loss"] for row in rows) == pytest.approx(draft["cost"])
    more = desk.lead.post(f"/v1/plans/{draft['id']}/what-if", json={"changes": {"ann": "+10"}}).json()
    assert more["change"] < 0, "ten more cases of ann's time save something"
    assert (
        desk.lead.post(f"/v1/plans/{draft['id']}/what-if", json={"changes": {"zed": "+1"}}).status_code == 404
    )
    assert desk.roster()["ann"]["used"] == 0, "nothing is written before the commit"
    done = desk.lead.post(f"/v1/plans/{draft['id']}/commit")
    assert done.json()["state"] == "committed"
    used = {maker: place["used"] for maker, place in desk.roster().items()}
    assert (used["ann"], used["bob"], used["machine"]) == (2, 2, 36)
    assert desk.lead.post(f"/v1/plans/{draft['id']}/commit").status_code == 409
    case = desk.lead.get("/v1/cases/c0").json()
    assert case["assignment"]["reason"]["plan"] == draft["id"]
    assert case["history"][-1]["data"] == {"method": "plan", "plan": draft["id"]}
    assert desk.lead.post("/v1/plans", json={}).json()["type"] == "urn:deccaf:problem:nothing-waits"
    desk.assert_sound()


def test_a_plan_gives_some_cases_by_lot_and_keeps_the_chance(desk: World) -> None:
    desk.lead.patch(f"/v1/shifts/{desk.shift}", json={"random_share": 0.3})
    desk.lead.put(f"/v1/shifts/{desk.shift}/roster/ann", json={"capacity": 30})
    cases = [desk.case(f"c{k}", machine=0.1 + k / 1000, ann=0.9, bob=0.9) for k in range(100)]
    del cases[0]["losses"]["bob"]  # not open to everybody: never drawn
    assert desk.machine.post("/v1/cases/bulk", json={"cases": cases}).json() == {"accepted": 100}
    draft = desk.lead.post("/v1/plans", json={}).json()
    assert draft["by_lot"] in (29, 30)  # 0.3 * 99, up or down
    assert draft["notes"][-1] == f"given out by lot, as the shift asks: {draft['by_lot']} of 100 cases"
    nobody = desk.lead.post(f"/v1/plans/{draft['id']}/what-if", json={"changes": {"ann": "0", "bob": "1"}})
    assert nobody.json()["plan"]["makers"][1]["cases"] == 0, "lots of those who left go back to the plan"
    assert desk.lead.post(f"/v1/plans/{draft['id']}/commit").status_code == 200
    reasons = [desk.lead.get(f"/v1/cases/c{k}").json()["assignment"] for k in range(100)]
    by_lot = [row for row in reasons if row["reason"]["method"] == "lot"]
    assert len(by_lot) == draft["by_lot"]
    assert {row["maker"] for row in by_lot} == {"machine", "ann", "bob"}
    drawn = draft["by_lot"]
    chance = {"bob": 2 / drawn, "ann": (drawn / 2 - 1) / drawn, "machine": (drawn / 2 - 1) / drawn}
    shares = []  # how likely each case was to be drawn, from the chance on record
    for row in reasons[1:]:
        on_record, mine = row["reason"]["propensity"], chance[row["maker"]]
        planned = row["maker"] == "machine"  # to whom the plan gives everything
        shares.append((1 - on_record) / (1 - mine) if planned else on_record / mine)
    assert sum(shares) == pytest.approx(0.3 * 99)
    assert min(shares) >= 0.1 * 0.3
    assert (np.diff(shares) > -1e-9).all(), "the less it costs, the likelier"
    assert reasons[0]["reason"]["propensity"] == 1.0
    assert reasons[0]["reason"]["method"] == "plan"
    desk.assert_sound()


def test_a_plan_that_the_day_overtook_is_refused_whole(desk: World) -> None:
    cases = [desk.case(f"c{k}", ann=0.1, machine=0.9) for k in range(2)]
    desk.machine.post("/v1/cases/bulk", json={"cases": cases})
    first, second = (desk.lead.post("/v1/plans", json={}).json()["id"] for _ in range(2))
    desk.machine.post("/v1/cases", json=desk.case("stream", ann=0.0))
    refused = desk.lead.post(f"/v1/plans/{first}/commit")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:deccaf:problem:plan-stale")
    assert refused.json()["changed"] == [{"maker": "ann", "why": "has room for 1 of 2 case(s)"}]
    assert desk.lead.get(f"/v1/plans/{first}").json()["state"] == "draft", "the commit left no trace"
    assert desk.lead.post(f"/v1/plans/{second}/discard").json()["state"] == "discarded"
    desk.lead.put(f"/v1/shifts/{desk.shift}/roster/ann", json={"capacity": 9})
    assert desk.lead.post(f"/v1/plans/{first}/commit").status_code == 200
    desk.assert_sound()


def test_two_plans_for_the_same_cases_cannot_both_be_committed(desk: World) -> None:
    desk.machine.post("/v1/cases/bulk", json={"cases": [desk.case("c", machine=0.1)]})
    ids = [desk.lead.post("/v1/plans", json={}).json()["id"] for _ in range(2)]
    answers = [desk.lead.post(f"/v1/plans/{plan}/commit") for plan in ids]
    assert [answer.status_code for answer in answers] == [200, 409]
    desk.assert_sound()


def test_files_come_in_with_errors_by_row(desk: World) -> None:
    text = "case_id,amount,channel\na1,5,web\na1,6,web\n,7,web\nbad/../id,8,web\na2,9,phone\n"
    send = lambda query="": desk.machine.post(  # noqa: E731
        f"/v1/imports{query}", content=text, headers={"Content-Type": "text/csv"}
    )
    looked = send("?dry_run=true").json()
    assert (looked["accepted"], looked["rejected"]) == (2, 3)
    assert [(e["row"], e["message"][:12]) for e in looked["errors"]] == [
        (2, "stands twice"),
        (3, "is empty"),
        (4, "may hold let"),
    ]
    refused = send()
    assert (refused.status_code, refused.json()["rejected"]) == (422, 3)
    entered = send("?skip_bad=true&filename=today.csv")
    assert (entered.status_code, entered.json()["accepted"]) == (201, 2)
    assert desk.lead.get("/v1/cases/a2").json()["features"] == {"amount": 9, "channel": "phone"}
    again = send("?dry_run=true").json()
    assert [(e["row"], e["case_id"]) for e in again["errors"] if "ledger" in e["message"]] == [
        (1, "a1"),
        (5, "a2"),
    ]
    assert desk.lead.get("/v1/imports").json()["items"][0]["filename"] == "today.csv"


def test_parquet_files_come_in_whole(small: World, tmp_path: Path) -> None:
    frame = pd.DataFrame({"case_id": range(2500), "amount": np.linspace(0, 1, 2500), "text": ["=1+1"] * 2500})
    frame.to_parquet(tmp_path / "cases.parquet")
    found = small.lead.post(
        "/v1/imports",
        content=(tmp_path / "cases.parquet").read_bytes(),
        headers={"Content-Type": "application/vnd.apache.parquet", "Idempotency-Key": "f"},
    )
    assert (found.status_code, found.json()["accepted"]) == (201, 2500)
    assert (
        small.lead.post("/v1/imports", content=b"x", headers={"Content-Type": "image/png"}).status_code == 415
    )


def test_models_are_uploaded_activated_and_rolled_back(desk: World, tmp_path: Path) -> None:
    ids = []
    for seed in (0, 1):
        made = desk.lead.post(f"/v1/models?name=m{seed}", content=model_file(tmp_path, seed))
        assert made.status_code == 201, made.text
        ids.append(made.json()["id"])
    assert desk.lead.post("/v1/models", content=model_file(tmp_path, 0)).status_code == 409
    assert desk.lead.post("/v1/models", content=b"PK\x03\x04 no model").status_code == 422
    assert desk.lead.post("/v1/models/roll-back").status_code == 409
    for model in ids:
        assert desk.lead.post(f"/v1/models/{model}/activate").json() == {"active": model}
    case = {"case_id": "a", "features": {"amount": 1.5, "channel": "web"}}
    found = desk.machine.post("/v1/cases", json=case).json()
    assert found["model"] == ids[1]
    frame = pd.DataFrame([{"amount": 1.5, "channel": "web"}])
    expected = small_model(1).expected_loss(frame).iloc[0]
    reason = desk.lead.get("/v1/cases/a").json()["assignment"]["reason"]
    assert reason["losses"] == pytest.approx({m: expected[m] for m in ("machine", "ann", "bob")}, rel=1e-6)
    assert found["maker"] == expected[["machine", "ann", "bob"]].idxmin()
    assert desk.lead.post("/v1/models/roll-back").json() == {"active": ids[0]}
    assert desk.lead.post("/v1/models/roll-back").status_code == 409
    bad = desk.machine.post(
        "/v1/cases", json={"case_id": "b", "features": {"amount": "much", "channel": "web"}}
    )
    assert (bad.status_code, bad.json()["detail"]) == (422, "column 'amount': 'much' is no number")
    missing = desk.machine.post(
        "/v1/cases", json={"case_id": "b", "features": {"amuont": 1, "channel": "web"}}
    )
    assert "did you mean 'amuont'" in missing.json()["detail"]
    assert desk.machine.post("/v1/labels", json={"labels": [{"case_id": "a", "label": 7}]}).status_code == 422
    desk.assert_sound()


def test_cases_of_a_model_are_planned(small: World, tmp_path: Path) -> None:
    model = small.lead.post("/v1/models", content=model_file(tmp_path)).json()["id"]
    small.lead.post(f"/v1/models/{model}/activate")
    frame = history(300, 5)[["case_id", "amount", "channel"]]
    found = small.lead.post(
        "/v1/imports", content=frame.to_csv(index=False), headers={"Content-Type": "text/csv"}
    )
    assert found.json()["accepted"] == 300
    draft = small.lead.post("/v1/plans", json={}).json()
    own = small_model().assign(frame, {"ann": 2, "bob": 2}).summary
    assert draft["cost"] == pytest.approx(own.cost)
    assert small.lead.post(f"/v1/plans/{draft['id']}/commit").status_code == 200
    small.assert_sound()


def test_prices_are_renewed_as_the_day_goes_on(small: World) -> None:
    rng = np.random.default_rng(1)
    small.lead.patch(f"/v1/shifts/{small.shift}", json={"expected_cases": 400})
    small.lead.put(f"/v1/shifts/{small.shift}/roster/ann", json={"capacity": 60})
    for k, row in enumerate(rng.random((40, 2)).round(3).tolist()):
        small.machine.post("/v1/cases", json=small.case(f"c{k}", machine=row[0], ann=row[1] * 0.5))
    priced = small.lead.post(f"/v1/shifts/{small.shift}/reprice").json()
    prices = {place["maker"]: place["price"] for place in priced["roster"]}
    assert priced["renewed"]
    assert prices["machine"] == 0
    assert prices["ann"] > 0.1, "360 cases are to come and ann has 40 units left or fewer: they have a price"


def test_random_assignments_are_logged_with_their_chance(small: World) -> None:
    small.lead.patch(f"/v1/shifts/{small.shift}", json={"random_share": 0.5})
    for maker in ("ann", "bob"):
        small.lead.put(f"/v1/shifts/{small.shift}/roster/{maker}", json={"capacity": 500})
    seen = [
        small.machine.post("/v1/cases", json=small.case(f"c{k}", machine=0.9, ann=0.1, bob=0.5)).json()
        for k in range(120)
    ]
    chances = {answer["maker"]: answer["propensity"] for answer in seen}
    assert chances == pytest.approx({"ann": 0.5 + 0.5 / 3, "bob": 0.5 / 3, "machine": 0.5 / 3})
    share = np.mean([answer["maker"] == "ann" for answer in seen])
    assert 0.5 < share < 0.83


def test_lists_come_in_pages(small: World) -> None:
    small.machine.post(
        "/v1/cases/bulk", json={"cases": [small.case(f"c{k}", machine=0.1) for k in range(25)]}
    )
    seen, after = [], 0
    while after is not None:
        part = small.lead.get(f"/v1/cases?limit=10&after={after}").json()
        seen += [case["case_id"] for case in part["items"]]
        after = part["next"]
    assert seen == [f"c{k}" for k in range(25)]


def test_every_route_wants_a_key_unless_it_is_on_the_public_list(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LONGEST_WAIT", 0.0)  # whoever keeps trying is answered slowly
    schema = small.nobody.get("/openapi.json").json()
    asked = 0
    for path, methods in schema["paths"].items():
        for method in methods:
            url = path.replace("{case_id}", "a").replace("{maker}", "ann").replace("{name}", "ann")
            for name in ("shift_id", "plan_id", "model_id", "job_id", "import_id", "key_id"):
                url = url.replace("{" + name + "}", "1")
            answer = small.nobody.request(method, url, json={})
            wrong = small.nobody.request(method, url, json={}, headers={"Authorization": "Bearer deccaf_x"})
            if path in PUBLIC:
                assert answer.status_code == 200
            else:
                assert (answer.status_code, wrong.status_code) == (401, 401), path
                asked += 1
    assert asked > 40
    docs = small.nobody.get("/docs")
    assert docs.status_code == 200
    assert set(re.findall(r'(?:src|href)="([^#"][^"]*)"', docs.text)) == {
        "/static/deccaf.css",
        "/static/deccaf.svg",
        "/static/htmx.min.js",
        "/static/deccaf.js",
        "/",
        "/openapi.json",
    }
    for methods in schema["paths"].values():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in docs.text
    named = set(re.findall(r'href="#([A-Z][^"]*)"', docs.text))
    assert named <= set(re.findall(r'id="([^"]+)"', docs.text))


def test_roles_are_kept(small: World) -> None:
    assert small.ann.get("/v1/cases").status_code == 403
    assert small.machine.get("/v1/shifts").status_code == 403
    assert small.machine.post("/v1/queue/next", json={}).status_code == 403
    assert small.machine.get("/metrics").status_code == 200
    assert small.lead.get("/v1/current-shift").json()["id"] == small.shift
    assert [place["maker"] for place in small.ann.get("/v1/current-shift").json()["roster"]] == ["ann"]
    keys = small.lead.get("/v1/keys").json()["items"]
    assert all("secret" not in key and "hash" not in key for key in keys)
    reviewer = next(key["id"] for key in keys if key["role"] == "reviewer")
    assert small.lead.delete(f"/v1/keys/{reviewer}").status_code == 200
    assert small.ann.get("/v1/queue").status_code == 401
    lead = next(key["id"] for key in keys if key["role"] == "lead")
    assert small.lead.delete(f"/v1/keys/{lead}").status_code == 409, "nobody locks themselves out"


def test_keys_expire(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=60)
    body = {"name": "guest", "role": "lead", "expires_at": soon.isoformat()}
    made = small.lead.post("/v1/keys", json=body).json()
    assert datetime.fromisoformat(made["expires_at"]) == pytest.approx(soon, abs=timedelta(seconds=1))
    guest = Person(small, made["secret"])
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert (
        guest.get("/people").status_code == small.nobody.get("/v1/keys", headers=headers).status_code == 200
    )
    late = {**body, "expires_at": "2020-01-01T00:00:00Z"}
    assert small.lead.post("/v1/keys", json=late).json()["type"].endswith("expired-already")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 120)
    small.service.keys.forget()
    refused = small.nobody.get("/v1/keys", headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (401, "urn:deccaf:problem:expired-key")
    assert guest.get("/people").status_code == 401
    assert small.lead.get("/v1/keys").status_code == 200


def test_settings_are_checked(small: World) -> None:
    good = {"costs": {"false_positive": 0.057, "false_negative": 1.0}, "columns": {"categorical": ["branch"]}}
    assert small.lead.put("/v1/settings", json=good).json() == {"learning": good}
    assert small.lead.get("/v1/settings").json() == {"learning": good}
    assert (
        small.lead.put(
            "/v1/settings", json={"costs": {"false_positive": -1, "false_negative": 1}}
        ).status_code
        == 422
    )


def test_exports_cannot_run_in_a_spreadsheet(small: World) -> None:
    for case in ("-1+1", "@x", "+1", "=cmd"):
        body = {**small.case(case, machine=0.0), "machine_decision": "=1+1"}
        assert small.machine.post("/v1/cases", json=body).status_code == 201
    text = small.lead.get("/v1/reports/assignments.csv").text
    lines = text.split("\r\n")[1:-1]
    assert [line.split(",")[0] for line in lines] == ["'-1+1", "'@x", "'+1", "'=cmd"]
    assert all(",'=1+1," in line for line in lines)
    assert harmless("plain") == "plain"
    assert harmless(-1.5) == -1.5


def test_requests_have_ids_and_errors_are_problems(small: World) -> None:
    told = small.lead.get("/v1/teams", headers={"X-Request-ID": "my-id"})
    assert told.headers["x-request-id"] == "my-id"
    assert (
        len(small.lead.get("/v1/teams", headers={"X-Request-ID": "no spaces"}).headers["x-request-id"]) == 32
    )
    for answer, status in (
        (small.lead.get("/nowhere"), 404),
        (small.lead.get("/v1/cases/unknown"), 404),
        (small.lead.delete("/v1/teams"), 405),
        (small.lead.post("/v1/teams", content=b"{", headers={"Content-Type": "application/json"}), 400),
        (small.lead.post("/v1/teams", json={"name": "x", "more": 1}), 422),
        (small.lead.post("/v1/teams", json={"name": "desk"}), 409),
    ):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_bodies_have_limits(small: World) -> None:
    deep = "[" * 10_000 + "]" * 10_000
    for path in ("/v1/cases", "/v1/labels", "/v1/settings", "/v1/cases/bulk"):
        method = "PUT" if path == "/v1/settings" else "POST"
        assert small.lead.request(method, path, content=deep).status_code == 400
        large = small.lead.request(method, path, content=b'{"a": "' + b"x" * (9 << 20) + b'"}')
        assert (large.status_code, large.json()["type"]) == (413, "urn:deccaf:problem:too-large")
    wide = {"case_id": "a", "features": {f"c{k}": 1 for k in range(5000)}}
    assert small.lead.post("/v1/cases", json=wide).status_code == 422
    packed = small.lead.post("/v1/cases", content=b"x", headers={"Content-Encoding": "gzip"})
    assert packed.status_code == 415


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": [1, 2]}', False),
        (b"[" * 33, True),
        (b"[" * 32, False),
        (json.dumps({"text": "[" * 500}).encode(), False),
        (b'{"a\\"[": ' + b"[" * 32, True),
        (b'"' + b"[" * 100, False),
        (b"[]" * 100, False),
    ],
)
def test_depth_is_counted_outside_strings(body: bytes, expected: bool) -> None:
    assert (shape(body)[0] > 32) is expected


def test_health_and_metrics(desk: World) -> None:
    assert desk.nobody.get("/healthz").json()["status"] == "ok"
    assert desk.nobody.get("/readyz").json() == {"status": "ready"}
    desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1))
    text = desk.machine.get("/metrics").text
    assert 'deccaf_used{maker="ann"} 1.0' in text
    assert 'deccaf_requests_total{method="POST",route="/v1/cases",status="201"} 1.0' in text
    assert 'deccaf_cases{status="assigned"} 1.0' in text


def test_shift_reports_add_up(desk: World) -> None:
    for k in range(3):
        desk.machine.post("/v1/cases", json=desk.case(f"c{k}", machine=0.4, ann=0.1 * (k + 1), bob=0.5))
    report = desk.lead.get("/v1/reports/shift").json()
    assert (report["assigned"], report["decided"], report["waiting"]) == (3, 1, 0)
    assert report["expected_cost"] == pytest.approx(0.1 + 0.2 + 0.4)
    assert report["machine_cost"] == pytest.approx(1.2)
    assert desk.lead.post("/v1/shifts", json=shift_body({"ann": 1})).status_code == 409


def test_a_large_request_of_cases_is_a_file_on_both_databases(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases_api, "TOGETHER", 2)
    send = lambda *names: desk.machine.post(  # noqa: E731
        "/v1/cases/bulk", json={"cases": [desk.case(name, bob=0.1) for name in names]}
    )
    assert (send("s0", "s1").status_code, desk.lead.get("/v1/imports").json()["items"]) == (201, [])
    assert (send("l0", "l1", "l2").status_code, send("l3", "l1", "l4").status_code) == (201, 409)
    entered = desk.lead.get("/v1/imports").json()["items"]
    assert [(one["filename"], one["accepted"]) for one in entered] == [("cases/bulk", 3)]
    waiting = desk.lead.get("/v1/cases", params={"status": "waiting"}).json()["items"]
    assert {case["case_id"] for case in waiting} == {"s0", "s1", "l0", "l1", "l2"}
    desk.assert_sound()
