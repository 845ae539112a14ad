"""Webhooks against a real HTTP server: signed, in order for each case, again after failures, through kills."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deccaf.client import Client
from deccaf.service.ledger.webhooks import hooks
from deccaf.service.ledger.webhooks.hooks import TOLD
from pages_world import Person, new_key
from service_processes import Client as RawClient
from service_processes import Server
from service_world import World, first_key, model_file, world
from webhook_receiver import Receiver

DOCS = Path(__file__).parents[1] / "docs" / "service.md"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def desk(database_url: str) -> Iterator[World]:
    with world(database_url, {"ann": 5, "bob": 5}) as found:
        yield found


def until_sent(desk: World, count: int) -> list[dict[str, Any]]:
    """Wait until so many deliveries are on record as sent."""
    deadline = time.monotonic() + 60
    while True:
        items = desk.lead.get("/v1/webhooks/deliveries").json()["items"]
        if sum(one["state"] == "sent" for one in items) >= count:
            return items
        assert time.monotonic() < deadline, items
        time.sleep(0.05)


def test_programs_are_told_what_happens(desk: World, receiver: Receiver, tmp_path: Path) -> None:
    assert desk.machine.post("/v1/webhooks", json={"url": receiver.address}).status_code == 403
    made = desk.lead.post("/v1/webhooks", json={"url": receiver.address}).json()
    assert made["events"] == list(TOLD)
    again = desk.lead.post("/v1/webhooks", json={"url": receiver.address})
    assert again.status_code == 409
    odd = ("http://[::1", "https://[v1.]/a", "http://x:99999/", "http://x:0/", "http://x:ab/")
    for wrong in ("ftp://x/y", "file:///etc/passwd", "http://", "https://a b", *odd):
        assert desk.lead.post("/v1/webhooks", json={"url": wrong}).status_code == 422
    desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1, machine=0.5))
    desk.machine.post("/v1/cases", json=desk.case("m", ann=0.9, bob=0.9, machine=0.1))
    desk.ann.post("/v1/queue/next", json={})
    desk.ann.post("/v1/cases/a/decision", json={"decision": 1})
    desk.ann.post("/v1/cases/a/undo", json={})
    desk.ann.post("/v1/cases/a/decision", json={"decision": 0})
    desk.machine.post("/v1/labels", json={"labels": [{"case_id": "a", "label": 1}]})
    many = [desk.case(f"p{k}", ann=0.1, machine=0.05 if k else 0.9) for k in range(3)]
    desk.machine.post("/v1/cases/bulk", json={"cases": many})
    plan = desk.lead.post("/v1/plans", json={}).json()
    assert desk.lead.post(f"/v1/plans/{plan['id']}/commit").status_code == 200
    model = desk.lead.post("/v1/models", content=model_file(tmp_path)).json()["id"]
    desk.lead.post(f"/v1/models/{model}/activate")
    receiver.wait_for(lambda got: any(one["event"] == "model.activated" for one in got))
    receiver.wait_for(lambda got: any(one["event"] == "plan.committed" for one in got))
    receiver.wait_for(lambda got: sum(one["event"] == "case.assigned" for one in got) == 5)
    receiver.wait_for(lambda got: sum(one["event"] == "case.decided" for one in got) >= 5)
    receiver.wait_for(lambda got: any(one["event"] == "case.labelled" for one in got))
    about_a = [one["event"] for one in receiver.got if one["case_id"] == "a"]
    wanted = ["case.assigned", "case.decided", "case.undone", "case.decided", "case.labelled"]
    assert about_a == wanted
    by_machine = [one for one in receiver.got if one["case_id"] == "m"]
    assert [one["event"] for one in by_machine] == ["case.assigned", "case.decided"]
    assert by_machine[1]["data"] == {"decision": 0}
    documented: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(next(block for block in blocks if "is_genuine" in block), documented)
    for body, headers in zip(receiver.raw, receiver.headers, strict=True):
        signed = headers["Deccaf-Signature"]
        sent_at = int(signed.partition(",")[0].removeprefix("t="))
        for now, content, genuine in (
            (sent_at + 1, body, True),
            (sent_at + 1, body + b" ", False),
            (sent_at + 600, body, False),
        ):
            documented["time"] = SimpleNamespace(time=lambda now=now: now)
            assert documented["is_genuine"](made["secret"], signed, content) is genuine
        assert headers["Deccaf-Delivery"] == json.loads(body)["id"]
    assert len({one["id"] for one in receiver.got}) == len(receiver.got)
    sent = until_sent(desk, len(receiver.got))
    assert "secret" not in desk.lead.get("/v1/webhooks").text
    before = len(receiver.got)
    redone = desk.lead.post(f"/v1/webhooks/deliveries/{sent[0]['id']}/send-again")
    assert redone.json()["delivery"] == sent[0]["delivery"]
    receiver.wait_for(lambda got: len(got) == before + 1)
    assert receiver.got[-1]["id"] == sent[0]["delivery"]
    assert desk.lead.delete(f"/v1/webhooks/{made['id']}").json()["ended_at"]
    desk.machine.post("/v1/cases", json=desk.case("z", ann=0.1))
    assert not [
        one for one in desk.lead.get("/v1/webhooks/deliveries").json()["items"] if one["case_id"] == "z"
    ]
    desk.assert_sound()


def test_a_case_waits_for_its_own_only_and_redirects_are_not_followed(
    desk: World, receiver: Receiver
) -> None:
    desk.lead.post(
        "/v1/webhooks", json={"url": receiver.address, "events": ["case.assigned", "case.decided"]}
    )
    receiver.answer = 302
    desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1))
    receiver.wait_for(lambda got: len(got) >= 1)
    assert {one["event"] for one in receiver.got} == {"case.assigned"}
    desk.ann.post("/v1/queue/next", json={})
    desk.ann.post("/v1/cases/a/decision", json={"decision": 1})
    receiver.answer = 200
    desk.machine.post("/v1/cases", json=desk.case("b", ann=0.1))
    until_sent(desk, 3)
    order = [one["event"] for one in receiver.got if one["case_id"] == "a"]
    assert order[-2:] == ["case.assigned", "case.decided"]
    assert len(set(order[:-1])) == 1, "the decision came only after the assignment had been taken"
    first = [one["id"] for one in receiver.got if one["case_id"] == "a" and one["event"] == "case.assigned"]
    assert len(first) >= 2
    assert len(set(first)) == 1, "sent again with the same id"


def test_nothing_is_lost_when_the_sender_is_killed(
    database_url: str, receiver: Receiver, monkeypatch: Any
) -> None:
    """A first service that dies before it writes down what it has sent; a second one that goes on."""
    from deccaf.service.ledger.webhooks import outbox

    monkeypatch.setattr(outbox, "TAKEN_SECONDS", 1.0)
    with world(database_url, {"ann": 5, "bob": 5}, housekeeping=False) as desk:
        desk.lead.post("/v1/webhooks", json={"url": receiver.address, "events": ["case.assigned"]})
        for k in range(4):
            desk.machine.post("/v1/cases", json=desk.case(f"c{k}", ann=0.1, bob=0.2))
        sender = desk.service.sender
        taken = sender._change(lambda c: outbox.take(c, 1, time.time()))
        assert len(taken) == 4
        # killed here: two were sent, none of it is on record
        from deccaf.service import sending

        hook = desk.service.read(lambda c: hooks.list_hooks(c)[0])
        for delivery in taken[:2]:
            assert sending._post(hook, delivery).is_good
        assert sender.send_due() == 0, "somebody has taken them"
        desk.service.sender.start()
        until_sent(desk, 4)
    ids = [one["id"] for one in receiver.got]
    assert {one["case_id"] for one in receiver.got} == {"c0", "c1", "c2", "c3"}
    assert len(set(ids)) == 4
    assert len(ids) == 6, "two came twice, with the same ids"


def test_nothing_is_lost_through_kills(tmp_path: Path, receiver: Receiver) -> None:
    """Processes that are killed in the middle of sending: everything arrives, in order for each case."""
    url = f"sqlite:///{tmp_path}/deccaf.db"
    lead_key = first_key(url)
    server = Server(url, tmp_path / "log")
    server.start()
    try:
        lead = Client(f"http://127.0.0.1:{server.port}", lead_key, attempts=9)
        now = datetime.now(UTC)
        lead.add_team("desk")
        lead.add_expert("ann", "desk")
        lead.add_shift("today", "desk", now - timedelta(hours=1), now + timedelta(hours=7), {"ann": 100})
        body = {"url": receiver.address, "events": ["case.assigned", "case.labelled"]}
        assert RawClient(server.port, lead_key).call("POST", "/v1/webhooks", body)[0] == 201
        receiver.pause = 0.05  # a slow program: the kill comes while some are under way
        for k in range(30):
            lead.add_case(f"c{k}", losses={"ann": 0.1})
        lead.add_labels({f"c{k}": 1 for k in range(30)})
        receiver.wait_for(lambda got: len(got) >= 5)
        server.kill()
        known = len({one["id"] for one in receiver.got})
        assert known < 60, "the kill came too late to tell anything"
        receiver.pause = 0.0
        server.start()
        receiver.wait_for(lambda got: len({one["id"] for one in got}) == 60)
    finally:
        server.stop()
    for k in range(30):
        order = list(dict.fromkeys(one["event"] for one in receiver.got if one["case_id"] == f"c{k}"))
        assert order == ["case.assigned", "case.labelled"]


def test_an_address_that_is_away_is_left_alone_for_longer_each_time(
    tmp_path: Path, receiver: Receiver
) -> None:
    from service_databases import free_port

    with world(f"sqlite:///{tmp_path}/x.db", {"ann": 5, "bob": 5}, housekeeping=False) as desk:
        desk.lead.post("/v1/webhooks", json={"url": f"http://user:pw@127.0.0.1:{free_port()}/x?token=1"})
        desk.lead.post("/v1/webhooks", json={"url": receiver.address})
        assert desk.lead.get("/v1/webhooks").json()["items"][0]["url"].endswith("/x?...")
        assert "pw" not in desk.lead.get("/v1/webhooks").text
        for k in range(2):
            desk.machine.post("/v1/cases", json=desk.case(f"c{k}", ann=0.1))
        assert desk.service.sender.send_due() == 2
        items = desk.lead.get("/v1/webhooks/deliveries?webhook=1").json()["items"]
        assert [one["attempts"] for one in items] == [0, 1], "one was tried, the other only put back"
        assert "does not answer" in items[1]["said"]
        assert desk.service.sender.send_due() == 0
        assert "pw" not in json.dumps(desk.lead.get("/v1/reports/trail").json())


def test_a_lead_sees_deliveries_and_sends_one_again(tmp_path: Path, receiver: Receiver) -> None:
    with world(f"sqlite:///{tmp_path}/x.db", {"ann": 5, "bob": 5}, housekeeping=False) as desk:
        lead = Person(desk, new_key(desk, "lead"))
        assert Person(desk, new_key(desk, "reviewer", "ann")).get("/webhooks").status_code == 403
        assert 'href="/webhooks"' in lead.get("/setup").text
        assert "Nothing was told yet" in lead.get("/webhooks").text
        assert lead.post("/webhooks", {"url": receiver.address}).status_code == 422, "it is told of nothing"
        assert lead.post("/webhooks", {"url": "gopher://x", "case.assigned": "yes"}).status_code == 422
        shown = lead.post("/webhooks", {"url": receiver.address, "case.assigned": "yes"}).text
        assert re.search(r"<code>whsec_[\w-]+</code>", shown)
        assert "whsec_" not in lead.get("/webhooks").text
        desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1))
        assert desk.service.sender.send_due() == 1
        page = lead.get("/webhooks").text
        assert ">sent<" in page
        again = re.search(r'action="(/webhooks/deliveries/\d+/send-again)"', page)
        assert again is not None
        assert lead.post(again[1]).status_code == 303
        assert desk.service.sender.send_due() == 1
        assert len(receiver.got) == 2
        assert receiver.got[0] == receiver.got[1]
        assert lead.post("/webhooks/1/end").status_code == 303
        assert "0 addresses" in lead.get("/webhooks").text
