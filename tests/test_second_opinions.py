"""Second opinions: nobody who is asked knows of the others, and everything still adds up."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service.jobs.learning import read_lesson
from deccaf.service.ledger.review import second
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from pages_world import Person, new_key
from service_world import World, bearer, world

LOSSES = {"machine": 9.0, "ann": 0.1, "bob": 0.2, "cat": 0.3}


@pytest.fixture
def desk(database_url: str) -> Iterator[World]:
    with world(database_url, {"ann": 9, "bob": 9, "cat": 9}, housekeeping=False) as found:
        yield found


def rule(desk: World, **fields: Any) -> None:
    answer = desk.lead.put("/v1/second-opinions", json=fields)
    assert answer.status_code == 200, answer.text


def enter(desk: World, case_id: str = "x", **losses: float) -> None:
    case = {**desk.case(case_id, **(losses or LOSSES)), "features": {"amount": 7}}
    assert desk.lead.post("/v1/cases", json=case).status_code == 201


def post(desk: World, path: str, expert: str, **body: Any) -> Any:
    return desk.lead.post(path, json={"expert": expert, **body})


def decide(desk: World, who: str, decision: int, case_id: str = "x") -> Any:
    answer = post(desk, f"/v1/cases/{case_id}/decision", who, decision=decision, seconds=2.0)
    assert answer.status_code == 200, answer.text
    return answer.json()


def who_has(desk: World, case_id: str = "x") -> tuple[str, str | None]:
    case = desk.lead.get(f"/v1/cases/{case_id}").json()
    return case["status"], None if case["assignment"] is None else case["assignment"]["maker"]


def used(desk: World) -> dict[str, int]:
    return {maker: place["used"] for maker, place in desk.roster().items() if place["used"]}


def problem(answer: Any) -> str:
    return str(answer.json()["type"]).removeprefix("urn:deccaf:problem:")


def test_a_second_opinion_that_is_wanted_while_the_first_decides_is_asked_for(desk: World) -> None:
    """On PostgreSQL the decision waits for the lock on the case, and must look again when it has it."""
    enter(desk)
    engine = desk.service.engine
    waiting = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with ThreadPoolExecutor(1) as pool:
        with database.writing(engine) as connection:
            assert second.want(connection, ["x"], Actor(1), time.time()) == 1
            answer = pool.submit(decide, desk, "ann", 1)
            if engine.dialect.name == "postgresql":  # SQLite has one writer: the decision has not begun
                with engine.connect() as other:
                    while not other.execute(waiting).scalar():
                        assert not answer.done()
                        other.rollback()
        assert answer.result()["status"] == "assigned"
    assert who_has(desk) == ("assigned", "bob")
    desk.assert_sound()


def test_two_who_agree_decide_and_each_is_charged(desk: World) -> None:
    rule(desk, share=1.0)
    enter(desk)
    assert decide(desk, "ann", 1)["status"] == "assigned", "the lead knows that it goes on"
    assert who_has(desk) == ("assigned", "bob")
    assert used(desk) == {"ann": 1, "bob": 1}
    desk.assert_sound()
    assert decide(desk, "bob", 1)["status"] == "decided"
    case = desk.lead.get("/v1/cases/x").json()
    assert (case["status"], case["decision"]["maker"], case["decision"]["decision"]) == ("decided", "bob", 1)
    assert desk.lead.get("/v1/disagreements").json() == {"items": []}
    # counts: one case is decided, by two people
    desk.lead.post("/v1/labels", json={"labels": [{"case_id": "x", "label": 0}]})
    report = desk.lead.get("/v1/reports/shift").json()
    assert (report["assigned"], report["decided"]) == (1, 1)
    assert {row["maker"]: (row["used"], row["decided"]) for row in report["makers"] if row["used"]} == {
        "ann": (1, 1),
        "bob": (1, 1),
    }
    record = {row["maker"]: row for row in desk.lead.get("/v1/reports/experts").json()["items"]}
    assert {name: (row["decisions"], row["all_cases"]["wrong"]) for name, row in record.items()} == {
        "ann": (1, 1),
        "bob": (1, 1),
    }
    for name in ("ann", "bob"):
        person = desk.lead.get("/v1/reports/person", params={"name": name}).json()
        assert (person["decided"], person["errors"]["wrong"]) == (1, 1)
        assert desk.lead.get("/v1/queue", params={"expert": name}).json()["decided"] == 1
    desk.lead.put("/v1/settings", json={"costs": {"false_positive": 1.0, "false_negative": 1.0}})
    with database.reading(desk.service.engine) as connection:
        lesson = read_lesson(connection)
    assert list(zip(lesson.decisions["expert_id"], lesson.decisions["decision"], strict=True)) == [
        ("ann", 1),
        ("bob", 1),
    ]
    assert len(lesson.cases) == 1
    csv = desk.lead.get("/v1/reports/assignments.csv").text
    assert csv.count("\n") == 3
    desk.assert_sound()


def test_a_third_decides_or_the_lead(desk: World) -> None:
    rule(desk, above=0.05)
    enter(desk)
    enter(desk, "cheap", machine=9.0, ann=0.01, bob=0.02)
    decide(desk, "ann", 1, "cheap")
    assert who_has(desk, "cheap") == ("decided", "ann"), "below the limit"
    decide(desk, "ann", 1)
    decide(desk, "bob", 0)
    assert who_has(desk) == ("assigned", "cat"), "neither of the two gets it again"
    assert used(desk) == {"ann": 2, "bob": 1, "cat": 1}
    decide(desk, "cat", 0)
    case = desk.lead.get("/v1/cases/x").json()
    assert (case["decision"]["maker"], case["decision"]["decision"]) == ("cat", 0)
    found = desk.lead.get("/v1/reports/cases", params={"disagreement": "people"}).json()["items"]
    assert [item["case_id"] for item in found] == ["x"]
    # the lead's list
    rule(desk, share=1.0, disagreement="lead")
    enter(desk, "y")
    decide(desk, "ann", 1, "y")
    decide(desk, "bob", 0, "y")
    assert who_has(desk, "y") == ("assigned", None)
    (item,) = desk.lead.get("/v1/disagreements").json()["items"]
    assert [(one["maker"], one["decision"]) for one in item["answers"]] == [("ann", 1), ("bob", 0)]
    assert "waits for the lead" in desk.lead.post("/v1/reassignments", json={"case_ids": ["y"]}).text
    desk.assert_sound()
    settle = lambda decision: desk.lead.post(  # noqa: E731
        "/v1/disagreements/settle",
        json={"case_id": "y", "decision": decision},
        headers={"Idempotency-Key": f"settle-{decision}"},
    )
    assert problem(settle(5)) == "nobody-said-so"
    assert settle(1).json() == {"case_id": "y", "status": "decided", "maker": "ann", "decision": 1}
    assert settle(1).headers["Idempotency-Replayed"] == "true"
    assert problem(settle(0)) == "not-on-list"
    assert problem(post(desk, "/v1/cases/y/undo", "ann")) in {"acted-on", "not-the-last"}
    assert problem(post(desk, "/v1/cases/y/undo", "bob")) == "acted-on"
    # one more person instead
    enter(desk, "z")
    decide(desk, "ann", 1, "z")
    decide(desk, "bob", 0, "z")
    ask = desk.lead.post("/v1/disagreements/ask", json={"case_id": "z", "to": "ann"})
    assert problem(ask) == "may-not-get-it"
    assert desk.lead.post("/v1/disagreements/ask", json={"case_id": "z"}).json()["maker"] == "cat"
    decide(desk, "cat", 1, "z")
    assert who_has(desk, "z") == ("decided", "cat")
    assert used(desk) == {"ann": 4, "bob": 3, "cat": 2}
    desk.assert_sound()


def test_who_is_second_sees_nothing_of_the_first(desk: World) -> None:
    """Everything that a reviewer can read or do gives the same as on a case that nobody had before."""
    keys = {name: new_key(desk, "reviewer", name) for name in ("ann", "bob", "cat")}
    cases = {}
    for case_id, is_second in (("early", False), ("before", False), ("plain", False), ("twice", True)):
        rule(desk, share=1.0 if is_second else 0.0)
        enter(desk, case_id, **(LOSSES if is_second else {"machine": 9.0, "bob": 0.2}))
        if is_second:
            ann = Person(desk, keys["ann"])
            assert ann.post("/queue/next").status_code == 303
            assert ann.post("/queue/note", {"case": case_id, "text": "smells of ann"}).status_code == 303
            assert ann.post("/queue/decide", {"case": case_id, "decision": "1"}).status_code == 303
            assert "Undo" in ann.get("/queue").text, "as after any other decision"
        cases[case_id] = seen_by(desk, keys["bob"], case_id)
    for plain, twice in zip(cases["plain"], cases["twice"], strict=True):
        assert plain[0] == twice[0]
        assert plain[1].splitlines() == twice[1].splitlines()  # line by line, so that one sees which
    assert not any(word in json.dumps(cases["twice"]) for word in ("ann", "smells", "second", "opinion"))
    # the first knows as little of a second
    mine = desk.nobody.get("/v1/cases/twice", headers=bearer(keys["ann"])).json()
    assert (mine["status"], mine["label"]) == ("decided", None)
    again = desk.nobody.post("/v1/cases/twice/decision", headers=bearer(keys["ann"]), json={"decision": 0})
    assert problem(again) == "already-decided"
    note = desk.nobody.post("/v1/cases/twice/note", headers=bearer(keys["ann"]), json={"text": "late"})
    assert note.status_code == 201
    assert desk.nobody.get("/v1/cases/twice", headers=bearer(keys["cat"])).status_code == 404
    for path in ("/v1/disagreements", "/v1/second-opinions"):
        assert desk.nobody.get(path, headers=bearer(keys["bob"])).status_code == 403
    assert desk.nobody.get("/opinions").status_code in (303, 401)


def seen_by(desk: World, key: str, case_id: str) -> list[Any]:
    """What a reviewer gets to see around one case, without its id and times."""
    person, headers = Person(desk, key), bearer(key)
    ask = lambda way, path, **more: getattr(desk.nobody, way)(path, headers=headers, **more)  # noqa: E731
    found = [ask("get", "/v1/queue"), ask("post", "/v1/queue/next", json={})]
    found += [ask("get", f"/v1/cases/{case_id}"), person.get("/queue"), person.get(f"/cases/{case_id}")]
    found += [ask("post", f"/v1/cases/{case_id}/park", json={})]
    found += [ask("post", f"/v1/cases/{case_id}/take-up", json={})]
    found += [ask("post", f"/v1/cases/{case_id}/note", json={"text": "mine"}), person.get("/queue")]
    found += [ask("post", f"/v1/cases/{case_id}/decision", json={"decision": 1})]
    found += [ask("post", f"/v1/cases/{case_id}/undo", json={}), person.get("/queue")]
    found += [ask("post", f"/v1/cases/{case_id}/decision", json={"decision": 1})]
    return [(one.status_code, stripped(one.text)) for one in found]


def stripped(text: str) -> str:
    """Without what differs between any two cases: the id, numbers, times, tokens, what was decided before."""
    text = re.sub(r'<section class="card"><h2>Your latest decisions.*?</section>', "", text, flags=re.S)
    text = re.sub(r'name="csrf" value="\w+"', "", re.sub("early|before|plain|twice", "CASE", text))
    return re.sub(r"\d+", "#", re.sub(r"\d[\d:.,T+-]*", "#", text))


def test_an_answer_is_taken_back_until_the_next_has_begun(desk: World) -> None:
    rule(desk, share=1.0)
    enter(desk)
    decide(desk, "ann", 1)
    assert post(desk, "/v1/cases/x/undo", "ann").status_code == 200
    assert who_has(desk) == ("assigned", "ann")
    assert used(desk) == {"ann": 1}
    case = desk.lead.get("/v1/cases/x").json()
    assert case["excluded"] == [], "she may keep it, and the machine may get it"
    desk.assert_sound()
    rule(desk, share=0.0)
    decide(desk, "ann", 0)
    assert who_has(desk) == ("assigned", "bob"), "the lot is drawn once for a case"
    assert post(desk, "/v1/queue/next", "bob").json()["case_id"] == "x"
    assert problem(post(desk, "/v1/cases/x/undo", "ann")) == "acted-on"
    decide(desk, "bob", 0)
    assert problem(post(desk, "/v1/cases/x/undo", "ann")) == "acted-on"
    # who made it the decision can take that back, and then it is open again
    assert post(desk, "/v1/cases/x/undo", "bob").status_code == 200
    assert who_has(desk) == ("assigned", "bob")
    assert problem(post(desk, "/v1/cases/x/undo", "ann")) == "acted-on"
    decide(desk, "bob", 1)
    assert who_has(desk) == ("assigned", "cat")
    assert post(desk, "/v1/cases/x/undo", "bob").status_code == 200, "cat has not begun"
    assert used(desk) == {"ann": 1, "bob": 1}
    decide(desk, "bob", 0)
    kinds = [event["kind"] for event in desk.lead.get("/v1/cases/x").json()["history"]]
    assert kinds.count("undone") == 3
    with database.reading(desk.service.engine) as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(t.undone)).scalar_one() == 3
    desk.assert_sound()


def test_what_the_second_gives_back_goes_on_and_where_nobody_has_room_the_lead_decides(desk: World) -> None:
    rule(desk, share=1.0)
    enter(desk)
    decide(desk, "ann", 1)
    assert post(desk, "/v1/cases/x/hand-back", "bob", reason="not mine").json()["maker"] == "cat"
    assert desk.lead.post("/v1/reassignments", json={"case_ids": ["x"], "to": "ann"}).status_code == 409
    assert (
        "may not get it"
        in desk.lead.post("/v1/reassignments", json={"case_ids": ["x"], "to": "machine"}).text
    )
    shift = f"/v1/shifts/{desk.shift}/roster/cat"
    assert desk.lead.put(shift, json={"absent": True, "release": True}).json()["released"] == 1
    assert who_has(desk) == ("assigned", None), "nobody is left: neither the machine nor the first"
    (item,) = desk.lead.get("/v1/disagreements").json()["items"]
    assert len(item["answers"]) == 1
    desk.assert_sound()
    assert problem(desk.lead.post("/v1/disagreements/ask", json={"case_id": "x"})) == "no-room"
    assert post(desk, "/v1/cases/x/undo", "ann").status_code == 200, (
        "it lies with the lead, who has not spoken"
    )
    decide(desk, "ann", 0)
    assert who_has(desk) == ("assigned", None)
    lead = Person(desk, new_key(desk, "lead"))
    assert "1 case waits for your word" in lead.get("/").text
    shown = lead.get("/opinions").text
    assert "Case x" in shown
    assert "ann" in shown
    assert lead.post("/opinions/settle", {"case": "x", "decision": "0"}).status_code == 303
    assert "No case waits for your word" in lead.get("/opinions").text
    assert who_has(desk) == ("decided", "ann")
    # a wish for one case, whatever the rule says, and the rule from the page
    assert (
        lead.post("/opinions/rule", {"share": "12,5", "above": "", "disagreement": "lead"}).status_code == 303
    )
    assert desk.lead.get("/v1/second-opinions").json() == {
        "share": 0.125,
        "above": None,
        "disagreement": "lead",
    }
    assert lead.post("/opinions/rule", {"share": "many"}).status_code == 422
    assert "two readings" in lead.post("/opinions/rule", {"share": "1,000"}).text
    rule(desk, share=0.0)
    enter(desk, "w")
    assert lead.post("/moves/preview", {"case": "w", "do": "second"}).status_code == 303
    assert desk.lead.post("/v1/second-opinions/wanted", json={"case_ids": ["w"]}).json() == {"changed": 0}
    assert (
        problem(desk.lead.post("/v1/second-opinions/wanted", json={"case_ids": ["x"]})) == "already-decided"
    )
    decide(desk, "ann", 1, "w")
    assert who_has(desk, "w") == ("assigned", "bob")
    desk.assert_sound()


def test_a_reject_is_drawn_once_when_it_is_the_decision(desk: World) -> None:
    costs, labels = (
        {"false_positive": 0.3, "false_negative": 1.0},
        {"selective": "positive", "let_through": 1.0},
    )
    assert desk.lead.put("/v1/settings", json={"costs": costs, "labels": labels}).status_code == 200
    rule(desk, share=1.0)
    enter(desk)
    for _ in range(2):
        assert "let_through" not in decide(desk, "ann", 1), "it is no decision yet"
        assert post(desk, "/v1/cases/x/undo", "ann").status_code == 200
    decide(desk, "ann", 1)
    assert decide(desk, "bob", 1)["let_through"] is True
    assert problem(post(desk, "/v1/cases/x/undo", "bob")) == "let-through"
    rule(desk, share=1.0, disagreement="lead")
    enter(desk, "y")
    decide(desk, "ann", 1, "y")
    decide(desk, "bob", 0, "y")
    settled = desk.lead.post("/v1/disagreements/settle", json={"case_id": "y", "decision": 1})
    assert settled.json()["let_through"] is True
    desk.assert_sound()


def test_names_of_those_who_answered_can_be_exported_and_erased(desk: World) -> None:
    rule(desk, share=1.0, disagreement="lead")
    enter(desk)
    decide(desk, "ann", 1)
    decide(desk, "bob", 0)
    data = desk.lead.get("/v1/reports/person-data", params={"name": "ann"}).json()
    assert [row["decision"] for row in data["opinions"]] == ["1"]
    done = desk.lead.post("/v1/erasures", json={"name": "ann", "again": "ann"})
    assert done.status_code == 201, done.text
    (item,) = desk.lead.get("/v1/disagreements").json()["items"]
    assert [one["maker"] for one in item["answers"]] == [done.json()["pseudonym"], "bob"]
    trail = desk.lead.get("/v1/reports/trail", params={"kind": "decided"}).json()["items"]
    assert len(trail) == 2
    assert desk.lead.post("/v1/disagreements/settle", json={"case_id": "x", "decision": 1}).status_code == 200
    desk.assert_sound()


def test_the_lot_is_a_share_of_the_cases_that_nobody_can_foresee(desk: World) -> None:
    rule(desk, share=0.25)
    with database.reading(desk.service.engine) as connection:
        table = second.read_rule(connection)

        class Case:
            expected_loss = 0.0

            def __init__(self, k: int) -> None:
                self.case_id = f"c{k}"

        drawn = [second._why(connection, table, Case(k)) == "lot" for k in range(2_000)]  # type: ignore[arg-type]
    assert 0.21 < sum(drawn) / len(drawn) < 0.29
    assert "second lot" not in desk.lead.get("/v1/reports/trail").text
