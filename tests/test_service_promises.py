"""Promises that races, stale drafts and people who leave once broke, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service.ledger import people, trail, versions
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from pages_world import Person, new_key
from service_world import World, world

ROUNDS = 8


@pytest.fixture
def desk(database_url: str) -> Iterator[World]:
    with world(database_url, {"ann": 9, "bob": 9}, housekeeping=False) as found:
        yield found


def at_once(*requests: Callable[[], Any]) -> list[Any]:
    start = threading.Barrier(len(requests))

    def send(request: Callable[[], Any]) -> Any:
        start.wait(30)
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


def enter(desk: World, *cases: dict[str, Any]) -> None:
    assert desk.lead.post("/v1/cases/bulk", json={"cases": list(cases)}).status_code == 201


def draft(desk: World, **body: Any) -> int:
    made = desk.lead.post("/v1/plans", json=body)
    assert made.status_code == 201, made.text
    return int(made.json()["id"])


def put(desk: World, maker: str, **body: Any) -> None:
    assert desk.lead.put(f"/v1/shifts/{desk.shift}/roster/{maker}", json=body).status_code == 200


def gave_back(desk: World) -> None:
    """Another plan gave ann the case; she handed it back, and nobody else may get it."""
    assert desk.lead.post(f"/v1/plans/{draft(desk)}/commit").status_code == 200
    desk.lead.post("/v1/cases/a/hand-back", json={"expert": "ann"})
    assert desk.lead.get("/v1/cases/a").json()["excluded"] == ["ann"]


def took(desk: World) -> None:
    assert desk.lead.post(f"/v1/plans/{draft(desk)}/commit").status_code == 200
    desk.lead.post("/v1/cases/a/decision", json={"decision": 1, "expert": "ann"})


def labelled(desk: World) -> None:
    desk.machine.post("/v1/labels", json={"labels": [{"case_id": "a", "label": 1}]})


def filled(desk: World) -> None:
    put(desk, "ann", capacity=1)
    desk.machine.post("/v1/cases", json=desk.case("quick", ann=0.1))


def left(desk: World) -> None:
    assert desk.lead.patch("/v1/experts/ann", json={"active": False}).status_code == 200


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (
            gave_back,
            {
                "case_id": "a",
                "maker": "ann",
                "why": "may not go to ann any more, who gave it back or lost it",
            },
        ),
        (took, {"case_id": "a", "maker": "ann", "why": "no longer waits, it is decided"}),
        (labelled, {"case_id": "a", "maker": "ann", "why": "has a label now, nobody needs to decide it"}),
        (filled, {"maker": "ann", "why": "has room for 0 of 1 case(s)"}),
        (left, {"maker": "ann", "why": "is out of use"}),
        (lambda desk: put(desk, "ann", absent=True), {"maker": "ann", "why": "is absent"}),
    ],
    ids=["handed back", "decided", "labelled", "no room", "out of use", "absent"],
)
def test_a_stale_draft_is_refused_with_what_changed(
    desk: World, change: Callable[[World], None], changed: dict[str, str]
) -> None:
    enter(desk, {"case_id": "a", "losses": {"ann": 0.1}})
    stale = draft(desk)
    change(desk)
    before = desk.lead.get("/v1/cases/a").json()
    refused = desk.lead.post(f"/v1/plans/{stale}/commit")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:deccaf:problem:plan-stale")
    assert refused.json()["changed"] == [changed]
    assert changed["why"] in refused.json()["detail"]
    assert "draft again" in refused.json()["detail"]
    assert desk.lead.get("/v1/cases/a").json() == before
    assert desk.lead.get(f"/v1/plans/{stale}").json()["state"] == "draft"
    desk.assert_sound()


def test_cases_whose_truth_is_known_are_planned_only_if_they_are_named(desk: World) -> None:
    enter(desk, desk.case("a", ann=0.1), desk.case("b", ann=0.1))
    labelled(desk)
    made = desk.lead.post("/v1/plans", json={}).json()
    assert made["cases"] == 1
    assert desk.lead.post(f"/v1/plans/{made['id']}/commit").status_code == 200
    refused = desk.lead.post("/v1/plans", json={})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:deccaf:problem:nothing-waits")
    assert "1 wait whose label is known" in refused.json()["detail"]
    named = draft(desk, case_ids=["a"])
    labelled(desk)
    assert desk.lead.post(f"/v1/plans/{named}/commit").status_code == 200, "the lead knew of the label"
    desk.assert_sound()


def test_two_tabs_and_a_decision_at_once(desk: World) -> None:
    for number in range(ROUNDS):
        names = [f"c{number}-{k}" for k in range(2)]
        for name in names:
            desk.machine.post("/v1/cases", json=desk.case(name, ann=0.1))
        take = lambda: desk.ann.post("/v1/queue/next", json={})  # noqa: E731
        decide = lambda: desk.ann.post(f"/v1/cases/{names[0]}/decision", json={"decision": 1})  # noqa: E731, B023
        *taken, decided = at_once(take, take, decide)
        assert decided.status_code == 200
        assert [answer.status_code for answer in taken] == [200, 200]
        assert {answer.json()["status"] for answer in taken} == {"assigned"}
        assert desk.ann.post("/v1/queue/next", json={}).json()["case_id"] == names[1]
        states = [item["state"] for item in desk.ann.get("/v1/queue").json()["items"]]
        assert states == ["claimed"]
        assert desk.ann.post(f"/v1/cases/{names[1]}/decision", json={"decision": 0}).status_code == 200
        put(desk, "ann", capacity=9 + 2 * number)
    desk.assert_sound()


def test_the_label_of_a_case_is_the_last_of_its_trail(desk: World) -> None:
    for number in range(2 * ROUNDS):
        names = [f"c{number}-{k}" for k in range(1 + (number % 4 == 3))]
        enter(desk, *[desk.case(name, machine=0.1) for name in names])

        def label(value: int, order: Sequence[str]) -> Callable[[], Any]:
            rows = [{"case_id": name, "label": value} for name in order]
            return lambda: desk.machine.post("/v1/labels", json={"labels": rows})

        answers = at_once(*[label(k, names if k % 2 else names[::-1]) for k in range(6)])
        assert [answer.status_code for answer in answers] == [200] * 6
        for name in names:
            case = desk.lead.get(f"/v1/cases/{name}").json()
            said = [event["data"]["label"] for event in case["history"] if event["kind"] == "labelled"]
            assert sorted(said) == list(range(6))
            assert case["label"] == said[-1]


def test_reads_that_belong_together_see_one_moment(desk: World) -> None:
    engine, count = desk.service.engine, sa.select(sa.func.count()).select_from(t.history)

    def write() -> None:
        with database.writing(engine) as connection:
            trail.record(connection, "noticed", 0.0, Actor(None))

    with database.reading(engine) as connection:
        before = connection.execute(count).scalar_one()
        writer = threading.Thread(target=write)
        writer.start()
        if engine.dialect.name == "postgresql":  # a writer of SQLite may have to wait for readers
            writer.join()
        assert connection.execute(count).scalar_one() == before
    writer.join()
    with database.reading(engine) as connection:
        assert connection.execute(count).scalar_one() == before + 1


def test_a_sender_who_is_put_back_in_use_meanwhile_stays_refused(desk: World) -> None:
    """The body was not read: the request is refused as it was at first, not for a body that is missing."""
    desk.lead.post("/v1/cases", json=desk.case("a", ann=0.1))
    keys, look_up = desk.service.keys, desk.service.keys.look_up

    def put_back_after(secret: str) -> Actor:
        try:
            return look_up(secret)
        finally:
            keys.look_up = look_up  # type: ignore[method-assign]
            assert desk.lead.patch("/v1/experts/ann", json={"active": True}).status_code == 200

    assert desk.lead.patch("/v1/experts/ann", json={"active": False}).status_code == 200
    desk.lead.get("/v1/experts")  # whose key is known again
    keys.look_up = put_back_after  # type: ignore[method-assign]
    refused = desk.ann.post("/v1/cases/a/decision", json={"decision": 1})
    assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (403, "out-of-use")
    assert desk.ann.post("/v1/queue/next", json={}).status_code in (200, 204), "the next request is done"


def test_whoever_is_out_of_use_gets_nothing_and_their_cases_go_to_others(desk: World) -> None:
    for case in ("a", "b", "c"):
        desk.machine.post("/v1/cases", json=desk.case(case, ann=0.1, bob=0.2))
    assert desk.ann.post("/v1/queue/next", json={}).json()["case_id"] == "a"
    desk.ann.post("/v1/cases/a/decision", json={"decision": 1})
    assert desk.ann.post("/v1/queue/next", json={}).json()["case_id"] == "b", "b is in her hands"
    browser, lead = Person(desk, new_key(desk, "reviewer", "ann")), Person(desk, new_key(desk, "lead"))
    assert browser.get("/queue").status_code == 200
    gone = desk.lead.patch("/v1/experts/ann", json={"active": False}).json()
    assert gone == {"name": "ann", "display": "ann", "active": False, "released": 2}
    assert [desk.lead.get(f"/v1/cases/{c}").json()["assignment"]["maker"] for c in "abc"] == [
        "ann",
        "bob",
        "bob",
    ]
    kinds = [event["kind"] for event in desk.lead.get("/v1/cases/b").json()["history"]]
    assert kinds == ["assigned", "claimed", "released", "assigned"]
    for request in (
        lambda: desk.ann.post("/v1/queue/next", json={}),
        lambda: desk.ann.post("/v1/cases/b/decision", json={"decision": 1}),
    ):
        refused = request()
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:deccaf:problem:out-of-use")
        assert "ann is out of use" in refused.json()["detail"]
    assert browser.get("/queue").status_code == 401, "her browser is signed out"
    assert (
        "ann is out of use"
        in browser.client.post("/sign-in", data={"key": new_key(desk, "reviewer", "ann")}).text
    )
    assert desk.machine.post("/v1/cases", json=desk.case("d", ann=0.1)).status_code == 202
    enter(desk, desk.case("e", ann=0.1, bob=0.9))
    assert desk.lead.get(f"/v1/plans/{draft(desk, case_ids=['e'])}/rows").json()["items"][0]["maker"] == "bob"
    assert desk.roster()["ann"] | {"price": 0} == {
        "maker": "ann",
        "capacity": 9,
        "lower": 0,
        "used": 1,
        "absent": False,
        "active": False,
        "price": 0,
        "answered": 0,
        "machine": False,
        "held_up": False,
    }
    assert "ann</a> (out of use)" in lead.get("/queue").text
    assert "out of use" in lead.get("/today/numbers").text
    assert "ann (out of use)" in lead.get("/team").text
    desk.assert_sound()
    back = desk.lead.patch("/v1/experts/ann", json={"active": True}).json()
    assert (back["active"], back["released"]) == (True, 0)
    assert desk.machine.post("/v1/cases", json=desk.case("f", ann=0.1)).json()["maker"] == "ann"
    assert desk.ann.post("/v1/queue/next", json={}).json()["case_id"] == "f"
    desk.assert_sound()


def test_nothing_reaches_somebody_who_is_just_put_out_of_use(desk: World) -> None:
    for number in range(ROUNDS):
        cases = [desk.case(f"c{number}-{k}", ann=0.1, bob=0.2, machine=0.9) for k in range(2)]
        arrive = [lambda body=body: desk.machine.post("/v1/cases", json=body) for body in cases]
        leave = lambda: desk.lead.patch("/v1/experts/ann", json={"active": False})  # noqa: E731
        take = lambda: desk.lead.post("/v1/queue/next", json={"expert": "ann"})  # noqa: E731
        answers = at_once(arrive[0], leave, take, arrive[1])
        assert [answer.status_code for answer in answers[:2]] == [201, 200]
        assert answers[2].status_code in (200, 204)
        queue = desk.lead.get("/v1/queue?expert=ann").json()
        assert (queue["waiting"], queue["items"]) == (0, [])
        assert desk.lead.patch("/v1/experts/ann", json={"active": True}).status_code == 200
    assert desk.service.read(people.active_experts) == ["ann", "bob", "cat"]
    desk.assert_sound()


def test_going_back_twice_at_once_goes_back_twice(desk: World) -> None:
    with database.writing(desk.service.engine) as connection:
        for number in range(1, 5):
            made = versions.add_version(connection, "m", "test", f"digest {number}", b"", {}, Actor(1), 0.0)
            versions.put_in_force(connection, made.id, Actor(1), 0.0)
    back = lambda: desk.service.writer.submit(  # noqa: E731
        lambda connection: versions.roll_back(connection, Actor(1), 1.0)
    ).result(30)
    assert sorted(at_once(back, back, back)) == [1, 2, 3]
