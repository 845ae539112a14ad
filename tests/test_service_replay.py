"""Every writing endpoint, sent three times at once under one key: done once, and the same answer to all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deccaf.service.store import database
from deccaf.service.store.settings import write_setting
from ledger_histories import model_bytes, other_model
from service_world import World, model_file, shift_body, world

READS = {("POST", "/v1/plans/{plan_id}/what-if"), ("POST", "/v1/reassignments/preview")}
"""Requests with a body that write nothing."""
CSV = {"Content-Type": "text/csv"}


@dataclass
class Call:
    """A request that can be granted as things stand."""

    route: tuple[str, str]
    path: str = ""
    body: Any = None
    content: bytes | str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, desk: World, key: str, more: str = "") -> Any:
        options: dict[str, Any] = (
            {"content": self.content} if self.content is not None else {"json": self.body}
        )
        method, path = self.route
        headers = {**self.headers, "Idempotency-Key": key}
        return desk.lead.request(method, (self.path or path) + more, headers=headers, **options)


@pytest.fixture
def desk(database_url: str) -> Iterator[World]:
    with world(database_url, {"ann": 9, "bob": 9}, housekeeping=False) as found:
        yield found


def case(name: str, **losses: float) -> dict[str, Any]:
    return {"case_id": name, "losses": losses, "machine_decision": 0}


def calls(desk: World, folder: Path) -> Iterator[Call]:
    """One of each kind, in an order in which all can be granted."""
    post: Callable[..., Any] = desk.lead.post
    shift = f"/v1/shifts/{desk.shift}"
    yield Call(("POST", "/v1/teams"), body={"name": "second"})
    yield Call(("POST", "/v1/experts"), body={"name": "dan", "team": "desk"})
    yield Call(("PATCH", "/v1/experts/{name}"), "/v1/experts/dan", {"active": False})
    yield Call(("POST", "/v1/keys"), body={"name": "k", "role": "machine"})
    spare = post("/v1/keys", json={"name": "spare", "role": "machine"}).json()["id"]
    yield Call(("DELETE", "/v1/keys/{key_id}"), f"/v1/keys/{spare}")
    yield Call(
        ("POST", "/v1/shifts"),
        body=shift_body(
            {"cat": 1}, "other", starts_at="2100-01-01T00:00:00Z", ends_at="2100-01-02T00:00:00Z"
        ),
    )
    yield Call(("PATCH", "/v1/shifts/{shift_id}"), shift, {"expected_cases": 40})
    yield Call(("PUT", "/v1/shifts/{shift_id}/roster/{maker}"), f"{shift}/roster/cat", {"capacity": 4})
    yield Call(("POST", "/v1/shifts/{shift_id}/reprice"), f"{shift}/reprice")
    yield Call(("POST", "/v1/cases"), body=case("a", ann=0.1))
    yield Call(("POST", "/v1/cases/bulk"), body={"cases": [case("b", machine=0.2), case("c", ann=0.2)]})
    yield Call(("POST", "/v1/imports"), content="case_id,amount,channel\nd,1.5,web\n", headers=CSV)
    past = "case_id,expert_id,decision,label,amount\np1,ann,1,1,2\np1,zoe,0,1,2\np2,ann,0,0,3\n"
    yield Call(("POST", "/v1/history"), content=past, headers=CSV)
    yield Call(("DELETE", "/v1/history/{entry_id}"), "/v1/history/1")
    told = {"url": "http://127.0.0.1:9/told", "events": ["case.labelled"]}
    yield Call(("POST", "/v1/webhooks"), body=told)
    yield Call(("POST", "/v1/labels"), body={"labels": [{"case_id": "a", "label": 1}]})
    again = "/v1/webhooks/deliveries/{delivery_id}/send-again"
    yield Call(("POST", again), again.replace("{delivery_id}", "1"))
    yield Call(("DELETE", "/v1/webhooks/{webhook_id}"), "/v1/webhooks/1")
    yield Call(("POST", "/v1/queue/next"), body={"expert": "ann"})
    decision = {"decision": 1, "expert": "ann"}
    yield Call(("POST", "/v1/cases/{case_id}/decision"), "/v1/cases/a/decision", decision)
    mine = {"expert": "ann"}
    yield Call(("POST", "/v1/cases/{case_id}/note"), "/v1/cases/a/note", {"text": "a note", **mine})
    for name in ("u", "ü/ 2"):
        post("/v1/cases", json=case(name, ann=0.1))
    yield Call(("POST", "/v1/cases/{case_id}/park"), "/v1/cases/%C3%BC%2F%202/park", {"reason": "?", **mine})
    yield Call(("POST", "/v1/cases/{case_id}/take-up"), "/v1/cases/%C3%BC%2F%202/take-up", mine)
    yield Call(("POST", "/v1/cases/{case_id}/extend"), "/v1/cases/%C3%BC%2F%202/extend", mine)
    post("/v1/cases/u/decision", json=decision)
    yield Call(("POST", "/v1/cases/{case_id}/undo"), "/v1/cases/u/undo", mine)
    post("/v1/cases", json=case("e", ann=0.1, bob=0.2))
    yield Call(("POST", "/v1/cases/{case_id}/hand-back"), "/v1/cases/e/hand-back", {"expert": "ann"})
    post("/v1/cases", json=case("f", ann=0.1, bob=0.2))
    rule = {"share": 1.0, "above": None, "disagreement": "lead"}
    yield Call(("PUT", "/v1/second-opinions"), body=rule)
    for name in ("g", "h"):
        post("/v1/cases", json=case(name, ann=0.1, bob=0.2, cat=0.3))
        for who, said in (("ann", 1), ("bob", 0)):
            post(f"/v1/cases/{name}/decision", json={"decision": said, "expert": who})
    yield Call(("POST", "/v1/disagreements/settle"), body={"case_id": "g", "decision": 0})
    yield Call(("POST", "/v1/disagreements/ask"), body={"case_id": "h"})
    desk.lead.put("/v1/second-opinions", json={})
    yield Call(("POST", "/v1/second-opinions/wanted"), body={"case_ids": ["f"]})
    yield Call(("POST", "/v1/priorities"), body={"case_ids": ["f"], "priority": "urgent"})
    yield Call(("POST", "/v1/reassignments"), body={"case_ids": ["f"], "to": "bob"})
    desk.lead.put(f"{shift}/roster/bob", json={"absent": True, "release": True})
    yield Call(("POST", "/v1/shifts/{shift_id}/return"), f"{shift}/return", {"maker": "bob"})
    yield Call(("PUT", "/v1/watch/limits"), body={"drift": 0.3})
    with database.writing(desk.service.engine) as connection:
        write_setting(connection, "alerts", {"drift amount": "it moved"})
    yield Call(("POST", "/v1/watch/seen"), body={"alert": "drift amount", "note": "new form"})
    post("/v1/experts", json={"name": "eve", "team": "desk"})
    yield Call(("POST", "/v1/erasures"), body={"name": "eve", "again": "eve"})
    yield Call(("POST", "/v1/plans"), body={"case_ids": ["b", "c"]})
    drafts = [post("/v1/plans", json={"case_ids": ["b", "c"]}).json()["id"] for _ in range(2)]
    yield Call(("POST", "/v1/plans/{plan_id}/commit"), f"/v1/plans/{drafts[0]}/commit")
    yield Call(("POST", "/v1/plans/{plan_id}/discard"), f"/v1/plans/{drafts[1]}/discard")
    limits = {"constraints": {"balance": {"within": 0.5}}}
    yield Call(("PUT", "/v1/plans/constraints"), body=limits)
    candidate = post("/v1/models", content=model_file(folder, 1)).json()["id"]
    yield Call(("POST", "/v1/models"), content=model_file(folder))
    other = post("/v1/models", content=model_bytes(other_model(), folder)).json()["id"]
    yield Call(("POST", "/v1/models/{model_id}/activate"), f"/v1/models/{other - 1}/activate")
    post(f"/v1/models/{other}/activate")
    yield Call(("POST", "/v1/models/roll-back"))
    yield Call(("POST", "/v1/models/{model_id}/notes"), f"/v1/models/{other}/notes", {"text": "tried"})
    yield Call(("POST", "/v1/models/refit"), body={"name": "r"})
    yield Call(("PUT", "/v1/display"), body={"machine": {"default": "after"}})
    post("/v1/cases", json=case("f", bob=0.1))
    first = {"decision": 1, "expert": "bob"}
    yield Call(("POST", "/v1/cases/{case_id}/first-answer"), "/v1/cases/f/first-answer", first)
    golden = {"cases": [{"features": {"amount": 1.0, "channel": "web"}, "label": 0}]}
    yield Call(("POST", "/v1/golden"), body=golden)
    file = "amount,channel,label\n1.5,web,0\n"
    yield Call(("POST", "/v1/golden/import"), content=file, headers=CSV)
    yield Call(("PUT", "/v1/golden/rates/{expert}"), "/v1/golden/rates/ann", {"rate": 0.1})
    trial = {"model": candidate, "share": 0.5, "bound": 1.0}
    yield Call(("POST", "/v1/trials"), body=trial)
    yield Call(("POST", "/v1/trials/{trial_id}/begin"), "/v1/trials/1/begin")
    yield Call(("POST", "/v1/trials/{trial_id}/end"), "/v1/trials/1/end")
    post("/v1/trials", json=trial)
    yield Call(("POST", "/v1/trials/{trial_id}/switch-on"), "/v1/trials/2/switch-on")
    yield Call(("PUT", "/v1/settings"), body={"costs": {"false_positive": 0.1, "false_negative": 1.0}})


def test_every_writing_endpoint_answers_a_repeated_request_as_before(desk: World, tmp_path: Path) -> None:
    assert replay_everything(desk, tmp_path) > 20


def replay_everything(desk: World, folder: Path) -> int:
    """Send one request of every kind three times at once, and again when the day has gone on; how many."""
    seen: dict[tuple[str, str], tuple[Call, Any]] = {}
    with ThreadPoolExecutor(3) as threads:
        for call in calls(desk, folder):
            key, start = f"key {len(seen)}".replace(" ", "-"), threading.Barrier(3)

            def send(_: int, call: Call = call, key: str = key, start: threading.Barrier = start) -> Any:
                start.wait(30)
                return call.send(desk, key)

            answers = list(threads.map(send, range(3)))
            assert {a.status_code for a in answers} <= {200, 201, 202}, (call.route, answers[0].text)
            assert len({(a.status_code, a.text) for a in answers}) == 1, (
                call.route,
                [a.text for a in answers],
            )
            assert sorted("idempotency-replayed" in a.headers for a in answers) == [False, True, True], (
                call.route
            )
            other = call.send(desk, key, "?other=1")
            assert (other.status_code, other.json()["type"]) == (422, "urn:deccaf:problem:key-reused"), (
                call.route
            )
            seen[call.route] = (call, answers[0])
        schema = json.loads(desk.nobody.get("/openapi.json").text)["paths"]
        writing = {(m.upper(), path) for path, methods in schema.items() for m in methods if m != "get"}
        assert writing - READS == set(seen), "a new endpoint has to be tried here too"
        # the day goes on: the shift closes, people leave, a model with other classes is put in force
        desk.lead.patch(f"/v1/shifts/{desk.shift}", json={"state": "closed"})
        for name in ("ann", "bob", "cat"):
            desk.lead.patch(f"/v1/experts/{name}", json={"active": False})
        models = desk.lead.get("/v1/models").json()
        assert desk.lead.post(f"/v1/models/{models['items'][-1]['id']}/activate").status_code == 200
        for number, (call, first) in enumerate(seen.values()):
            again = call.send(desk, f"key-{number}")
            assert (again.status_code, again.text) == (first.status_code, first.text), call.route
            assert again.headers["idempotency-replayed"] == "true"
    desk.assert_sound()
    return len(seen)


def test_a_keys_secret_is_given_again_and_stored_nowhere(desk: World) -> None:
    body, headers = {"name": "k", "role": "machine"}, {"Idempotency-Key": "mine"}
    secrets = [desk.lead.post("/v1/keys", json=body, headers=headers).json()["secret"] for _ in range(2)]
    assert secrets[0] == secrets[1]
    machine = {"Authorization": f"Bearer {secrets[0]}"}
    assert desk.nobody.post("/v1/cases", json=case("a", ann=0.1), headers=machine).status_code == 201
    with desk.service.engine.connect() as connection:
        kept = connection.exec_driver_sql("SELECT body FROM answers").scalars().all()
    assert len(kept) == 1
    assert secrets[0] not in kept[0]
    other = desk.lead.post("/v1/keys", json=body, headers={"Idempotency-Key": "another"}).json()["secret"]
    assert other != secrets[0]


def test_a_refused_request_is_not_remembered(desk: World) -> None:
    headers = {"Idempotency-Key": "label"}
    send = lambda: desk.lead.post(  # noqa: E731
        "/v1/labels", json={"labels": [{"case_id": "late", "label": 1}]}, headers=headers
    )
    assert send().status_code == 404
    desk.lead.post("/v1/cases", json=case("late", ann=0.1))
    assert (send().status_code, send().status_code) == (200, 200)
    assert len([e for e in desk.lead.get("/v1/cases/late").json()["history"] if e["kind"] == "labelled"]) == 1
