"""What a lead does beyond today: moving work, finding cases, the trail, people and keys, erasure of a name."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service.ledger.record import search
from deccaf.service.monitor import alerts, daily
from deccaf.service.monitor.health import HealthReport
from deccaf.service.store import database
from deccaf.service.store import tables as t
from pages_world import Person, new_key
from service_world import World, model_file, world


@pytest.fixture
def desk(database_url: str) -> Iterator[World]:
    with world(database_url, {"ann": 9, "bob": 2, "cat": 1}, housekeeping=False) as found:
        yield found


def enter(desk: World, case_id: str, **losses: float) -> str:
    answer = desk.lead.post("/v1/cases", json=desk.case(case_id, **losses))
    assert answer.status_code in (201, 202), answer.text
    return str(answer.json().get("maker"))


def found(desk: World, **asked: Any) -> list[str]:
    answer = desk.lead.get("/v1/reports/cases", params=asked)
    assert answer.status_code == 200, answer.text
    return [item["case_id"] for item in answer.json()["items"]]


def history_of(desk: World, case_id: str) -> list[str]:
    return [event["kind"] for event in desk.lead.get(f"/v1/cases/{case_id}").json()["history"]]


def test_cases_are_moved_at_a_known_cost_within_capacity(desk: World) -> None:
    for k in range(4):
        assert enter(desk, f"c{k}", ann=0.1, bob=0.3, cat=0.2 + k / 10) == "ann"
    wanted = {"case_ids": ["c0", "c1", "c2", "c3", "nowhere"], "to": "bob"}
    shown = desk.lead.post("/v1/reassignments/preview", json=wanted).json()
    assert (len(shown["moved"]), round(shown["before"], 6), round(shown["after"], 6)) == (2, 0.2, 0.6)
    assert desk.roster()["bob"]["used"] == 0, "nothing has moved yet"
    done = desk.lead.post("/v1/reassignments", json=wanted)
    assert done.json() == shown
    why = {refused["case_id"]: refused["why"] for refused in shown["refused"]}
    assert why["c2"] == "bob has no room"
    assert why["nowhere"] == "there is no such case"
    assert (desk.roster()["ann"]["used"], desk.roster()["bob"]["used"]) == (2, 2)
    # the best with room: bob is full, cat has one place; without a choice the rest stays
    best = desk.lead.post("/v1/reassignments", json={"case_ids": ["c2", "c3"]}).json()
    assert [(move["case_id"], move["to"]) for move in best["moved"]] == [("c2", "cat")]
    assert best["refused"] == [{"case_id": "c3", "why": "nobody else has room"}]
    assert history_of(desk, "c2") == ["assigned", "released", "assigned"]
    nothing = desk.lead.post("/v1/reassignments", json={"case_ids": ["c3"], "to": "ann"})
    assert (nothing.status_code, nothing.json()["type"]) == (409, "urn:deccaf:problem:nothing-moved")
    desk.assert_sound()


def test_who_may_not_get_a_case_does_not_get_it_and_what_is_in_hand_stays(desk: World) -> None:
    case = {**desk.case("x", ann=0.1, bob=0.2, cat=0.3), "excluded": ["bob"]}
    desk.lead.post("/v1/cases", json=case)
    move = lambda **more: desk.lead.post("/v1/reassignments", json={"case_ids": ["x"], **more})  # noqa: E731
    assert "may not get it" in move(to="bob").json()["detail"]
    desk.lead.patch("/v1/experts/cat", json={"active": False})
    assert "has no room" in move(to="cat").json()["detail"], "out of use"
    desk.lead.patch("/v1/experts/cat", json={"active": True})
    desk.lead.put(f"/v1/shifts/{desk.shift}/roster/cat", json={"absent": True})
    assert "has no room" in move(to="cat").json()["detail"], "away"
    desk.lead.put(f"/v1/shifts/{desk.shift}/roster/cat", json={"absent": False})
    assert desk.lead.post("/v1/queue/next", json={"expert": "ann"}).json()["case_id"] == "x"
    assert "in hand" in move(to="cat").json()["detail"]
    assert move(to="cat", begun=True).json()["moved"][0]["to"] == "cat"
    assert desk.lead.post("/v1/queue/next", json={"expert": "ann"}).status_code == 204
    desk.assert_sound()


def test_urgent_cases_come_first(desk: World) -> None:
    for k in range(3):
        enter(desk, f"c{k}", ann=0.1)
    assert desk.lead.post("/v1/priorities", json={"case_ids": ["c2"], "priority": "urgent"}).json() == {
        "priority": "urgent",
        "changed": 1,
    }
    desk.lead.post("/v1/priorities", json={"case_ids": ["c0"], "priority": "low"})
    queue = desk.lead.get("/v1/queue", params={"expert": "ann"}).json()
    assert [item["case_id"] for item in queue["items"]] == ["c2", "c1", "c0"]
    assert desk.lead.get("/v1/cases/c2").json()["priority"] == "urgent"
    for expected in ("c2", "c1", "c0"):
        assert desk.lead.post("/v1/queue/next", json={"expert": "ann"}).json()["case_id"] == expected
        decided = desk.lead.post(f"/v1/cases/{expected}/decision", json={"decision": 1, "expert": "ann"})
        assert decided.status_code == 200
    late = desk.lead.post("/v1/priorities", json={"case_ids": ["c2"], "priority": "low"})
    assert late.json()["type"] == "urn:deccaf:problem:already-decided"


def test_an_absence_is_undone(desk: World) -> None:
    shift = f"/v1/shifts/{desk.shift}"
    for k in range(5):
        assert enter(desk, f"c{k}", ann=0.1, bob=0.2, cat=0.5) == "ann"
    shown = desk.lead.get(f"{shift}/absence", params={"maker": "ann"}).json()
    assert sorted(move["to"] for move in shown["moved"]) == ["bob", "bob", "cat"]
    assert len(shown["refused"]) == 2, "these would wait"
    assert desk.lead.post(f"{shift}/return", json={"maker": "ann"}).status_code == 409, "she is not away"
    assert (
        desk.lead.put(f"{shift}/roster/ann", json={"absent": True, "release": True}).json()["released"] == 5
    )
    began = desk.lead.post("/v1/queue/next", json={"expert": "bob"}).json()["case_id"]
    back = desk.lead.post(f"{shift}/return", json={"maker": "ann"}).json()
    assert back == {"maker": "ann", "returned": 4, "kept": 1}
    roster = desk.roster()
    assert (roster["ann"]["used"], roster["bob"]["used"], roster["cat"]["used"]) == (4, 1, 0)
    for k in range(5):
        case = desk.lead.get(f"/v1/cases/c{k}").json()
        assert case["assignment"]["maker"] == ("bob" if case["case_id"] == began else "ann")
        assert ("ann" in case["excluded"]) == (case["case_id"] == began), "she may get hers again"
    desk.assert_sound()
    # a second absence, and a return without the work
    desk.lead.put(f"{shift}/roster/ann", json={"absent": True, "release": True})
    assert (
        desk.lead.post(f"{shift}/return", json={"maker": "ann", "with_work": False}).json()["returned"] == 0
    )
    desk.assert_sound()


def fill_for_search(desk: World) -> None:
    for k in range(12):
        enter(desk, f"alpha-{k:02}", ann=0.1 * k, machine=0.65)
    desk.lead.post(
        "/v1/cases/bulk", json={"cases": [desk.case("waits_1", bob=0.5), desk.case("w,2", bob=0.5)]}
    )
    for k in range(3):
        desk.lead.post(f"/v1/cases/alpha-0{k}/decision", json={"decision": k % 2, "expert": "ann"})
    labels = [{"case_id": f"alpha-0{k}", "label": 1} for k in range(3)]
    assert desk.lead.post("/v1/labels", json={"labels": labels}).status_code == 200


def test_cases_are_found_by_everything_that_is_known_of_them(desk: World) -> None:
    fill_for_search(desk)
    assert found(desk)[:2] == ["w,2", "waits_1"]
    assert found(desk, find="alpha-1") == ["alpha-11", "alpha-10"]
    assert found(desk, find="ha-0", sort="oldest")[:2] == ["alpha-00", "alpha-01"]
    assert found(desk, find="%") == []
    assert found(desk, find="_") == ["waits_1"]
    assert found(desk, find="ALPHA") == []
    assert found(desk, status="waiting", find="w") == ["w,2", "waits_1"]
    assert found(desk, person="machine", sort="oldest") == [f"alpha-{k:02}" for k in range(7, 12)]
    assert found(desk, person="ann", status="assigned", sort="oldest") == [f"alpha-0{k}" for k in range(3, 7)]
    assert found(desk, sort="highest", person="ann")[:2] == ["alpha-06", "alpha-05"]
    assert found(desk, sort="lowest")[:2] == ["alpha-00", "alpha-01"]
    assert found(desk, loss_from=0.15, loss_to=0.35, sort="lowest") == ["alpha-02", "alpha-03"]
    assert found(desk, loss_from=0.15, loss_to=0.35) == ["alpha-03", "alpha-02"]
    assert found(desk, decision="1") == ["alpha-01"]
    assert found(desk, disagreement="label") == ["alpha-02", "alpha-00"]
    assert found(desk, disagreement="machine", person="ann") == ["alpha-01"]
    assert found(desk, since="2200-01-01") == []
    assert len(found(desk, until="2200-01-01")) == 14
    assert found(desk, find="alpha-0", disagreement="label", sort="highest") == ["alpha-02", "alpha-00"]
    for mark in ("x", "nan~1", f"1.0~{2**70}"):
        refused = desk.lead.get("/v1/reports/cases", params={"after": mark})
        assert refused.json()["type"] == "urn:deccaf:problem:bad-mark"
    assert desk.lead.get("/v1/reports/cases", params={"loss_from": "nan"}).status_code == 422
    for path in ("cases?find", "trail?kind", "person?name"):
        assert desk.lead.get(f"/v1/reports/{path}=a%00").status_code == 422

    pages_follow_each_other(desk)


def pages_follow_each_other(desk: World) -> None:
    """Without gap and without repetition, also where an index serves nothing; and the CSV holds all."""
    sorts: list[dict[str, str]] = [{}, {"sort": "oldest"}, {"sort": "highest"}, {"person": "ann"}]
    for asked in [*sorts, {"decision": "0"}, {"find": "alpha"}]:
        whole = found(desk, **asked)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"STRETCH": 4, "SECONDS": 0.0, "MOST_IDS": 3}.items():
                patch.setattr(search, name, value)
            pages, after, looked = [], "", set()
            while True:
                asking = {**asked, "limit": 2, "after": after}
                answer = desk.lead.get("/v1/reports/cases", params=asking).json()
                pages += [item["case_id"] for item in answer["items"]]
                looked.add(answer["looked"])
                if answer["next"] is None:
                    break
                after = answer["next"]
            text = desk.lead.get("/v1/reports/cases.csv", params=asked).text
        assert pages == whole, asked
        assert (looked != {None}) == ("decision" in asked), "whoever looks through says so"
        assert [row["case_id"] for row in csv.DictReader(io.StringIO(text))] == whole
    too_large_to_look_inside(desk)
    the_trail_is_read_by_everything(desk)


def too_large_to_look_inside(desk: World) -> None:
    """A ledger with more cases than are looked through says that only the beginnings of ids were."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SCANNED", 5)
        for part, beginnings in (("alpha-1", True), ("pha-1", False)):
            answer = desk.lead.get("/v1/reports/cases", params={"find": part}).json()
            assert [item["case_id"] for item in answer["items"]] == ["alpha-11", "alpha-10"]
            assert answer["beginnings"] is beginnings


def the_trail_is_read_by_everything(desk: World) -> None:
    """By person, case, kind and time, page after page, and as CSV."""
    read = lambda **asked: desk.lead.get("/v1/reports/trail", params=asked).json()["items"]  # noqa: E731
    assert {line["maker"] for line in read(person="ann")} == {"ann"}
    assert [line["kind"] for line in read(case="alpha-01")] == ["labelled", "decided", "assigned"]
    assert len(read(kind="decided")) == 3
    assert read(kind="key added")[0]["role"] == "lead"
    assert read(since="2200-01-01") == []
    everything = read(limit=1000)
    pages, after = [], ""
    while True:
        answer = desk.lead.get("/v1/reports/trail", params={"limit": 7, "after": after}).json()
        pages += answer["items"]
        if answer["next"] is None:
            break
        after = answer["next"]
    assert pages == everything
    text = desk.lead.get("/v1/reports/trail.csv").text
    assert [int(row["id"]) for row in csv.DictReader(io.StringIO(text))] == [
        line["id"] for line in everything
    ]


def everything_kept(desk: World) -> str:
    """Every text and every file of the database."""
    with database.reading(desk.service.engine) as connection:
        return "\n".join(
            repr(tuple(row))
            for table in t.metadata.sorted_tables
            for row in connection.execute(sa.select(table))
        )


def test_a_person_is_exported_and_erased_and_the_record_stays_append_only(
    desk: World, tmp_path: Path
) -> None:
    lead = desk.lead
    model = lead.post("/v1/models", content=model_file(tmp_path)).json()["id"]
    assert lead.post(f"/v1/models/{model}/activate").status_code == 200
    lead.patch("/v1/experts/ann", json={"display": "Ann Onymous"})
    case = {"case_id": "m1", "features": {"amount": 1.0, "channel": "web"}}
    losses = lambda case_id: lead.get(f"/v1/cases/{case_id}").json()["assignment"]["reason"]["losses"]  # noqa: E731
    assert lead.post("/v1/cases", json=case).status_code == 201
    before = losses("m1")
    for k in range(3):
        enter(desk, f"c{k}", ann=0.1, bob=0.2)
    lead.post("/v1/cases/c0/decision", json={"decision": 1, "expert": "ann"})
    lead.post("/v1/cases/c1/hand-back", json={"expert": "ann"})
    data = lead.get("/v1/reports/person-data", params={"name": "ann"}).json()
    assert data["person"]["display"] == "Ann Onymous"
    assert [row["case_id"] for row in data["decisions"]] == ["c0"]
    assert {line["kind"] for line in data["history"]} >= {
        "expert added",
        "expert changed",
        "decided",
        "returned",
    }
    assert "hash" not in data["keys"][0]
    assert "'ann'" in everything_kept(desk)
    assert lead.get("/v1/reports/shift").json()["random_cost"] is not None

    assert lead.post("/v1/erasures", json={"name": "ann", "again": "bob"}).status_code == 422
    done = lead.post("/v1/erasures", json={"name": "ann", "again": "ann"})
    assert done.status_code == 201, done.text
    pseudonym = done.json()["pseudonym"]
    kept = everything_kept(desk)
    assert not re.search(r"\bann\b|Ann Onymous", kept), "the name is nowhere"
    with database.reading(desk.service.engine) as connection:
        content = connection.execute(sa.select(t.models.c.content)).scalar_one()
    assert b"ann" not in content.replace(b"channel", b"")
    assert lead.get("/v1/cases/c0").json()["decision"]["maker"] == pseudonym
    lines = lead.get("/v1/reports/trail", params={"person": pseudonym}).json()["items"]
    assert lines[0]["kind"] == "person erased"
    assert desk.ann.get("/v1/queue").status_code in (401, 403), "her key is revoked"
    # the model knows her under the pseudonym, and gives the same numbers
    active = desk.service.models.refresh()
    assert pseudonym in active.system.experts_
    lead.patch(f"/v1/experts/{pseudonym}", json={"active": True})
    wanted = {(pseudonym if maker == "ann" else maker): loss for maker, loss in before.items()}
    deadline = time.monotonic() + 20
    for k in itertools.count(2):  # who is on the roster is looked up once a second
        assert lead.post("/v1/cases", json={**case, "case_id": f"m{k}"}).status_code == 201
        if losses(f"m{k}")[pseudonym] is not None or time.monotonic() > deadline:
            break
    assert losses(f"m{k}") == wanted
    day = lead.get("/v1/reports/shift").json()
    assert day["random_cost"] is not None, "sums that were kept under the name are made anew"
    assert pseudonym in {load["maker"] for load in day["makers"]}
    desk.assert_sound()
    # afterwards nothing can be changed again
    for statement in (
        "UPDATE history SET maker = 'x'",
        "UPDATE decisions SET maker = 'x'",
        "DELETE FROM history",
    ):
        with (
            pytest.raises(sa.exc.DBAPIError, match="append-only"),
            database.writing(desk.service.engine) as connection,
        ):
            connection.execute(sa.text(statement))


def test_even_during_an_erasure_only_the_name_can_change(desk: World) -> None:
    enter(desk, "c0", ann=0.1)
    for statement in (
        "UPDATE history SET maker = 'bob', at = 0 WHERE maker = 'ann'",
        "UPDATE history SET maker = 'cat' WHERE maker = 'ann'",
        "UPDATE history SET data = '{}' WHERE kind = 'assigned'",
        "DELETE FROM history",
    ):
        with (
            pytest.raises(sa.exc.DBAPIError, match="append-only"),
            database.writing(desk.service.engine) as connection,
        ):
            connection.execute(sa.insert(t.erasures).values(before="ann", after="bob"))
            connection.execute(sa.text(statement))
    with database.reading(desk.service.engine) as connection:
        assert connection.execute(sa.select(t.erasures)).all() == []


def test_people_and_keys_from_the_page(desk: World) -> None:
    lead = Person(desk, new_key(desk, "lead"))
    assert lead.post("/people", {"name": "dora", "display": "Dora <b>", "team": "desk"}).status_code == 303
    shown = lead.get("/people").text
    assert "Dora &lt;b&gt;" in shown
    made = lead.post("/people/keys", {"role": "reviewer", "person": "dora"})
    secret = re.search(r'id="secret">(deccaf_[^<]+)<', made.text).group(1)
    assert secret not in lead.get("/people").text, "shown once"
    dora = Person(desk, secret)
    assert dora.get("/queue").status_code == 200
    keys = desk.lead.get("/v1/keys", params={"limit": 1000}).json()["items"]
    number = next(key["id"] for key in keys if key["expert"] == "dora")
    assert lead.post("/people/keys/revoke", {"key": str(number)}).status_code == 303
    assert dora.get("/queue").status_code == 401
    lead.post("/people/change", {"name": "dora", "display": "D. Ora", "active": "no"})
    page = lead.get("/person?name=dora").text
    assert "D. Ora (out of use)" in page
    assert "dora" in lead.get("/audit?kind=key+revoked").text or "key revoked" in lead.get("/audit").text
    assert lead.post("/people", {"name": "a b", "team": "desk"}).status_code in (303, 422)
    assert dora.get("/people").status_code == 401
    kinds = [line["kind"] for line in desk.lead.get("/v1/reports/trail").json()["items"]]
    assert {"signed in", "key added", "key revoked", "expert added", "expert changed"} <= set(kinds)
    person_at_a_glance(desk)
    watch_is_kept_by_day(desk)


def watch_is_kept_by_day(desk: World) -> None:
    """One row a day and measure; limits in the trail; an alert that is seen, and seen anew when it came back."""
    at, engine = time.time(), desk.service.engine
    measure = daily.Measure("errors ann", 0.5, 0.1, 1.0, 40, False)
    for when, value in ((at - 86400, 0.2), (at, 0.4), (at, 1.1)):
        with database.writing(engine) as connection:
            daily.keep(connection, [replace(measure, value=value, odd=value > 1)], None, when)
    lead = desk.lead
    (series,) = lead.get("/v1/watch").json()["measures"]
    assert [value for _, value in series["points"]] == [0.2, 1.1]
    assert (series["alert_at"], series["latest"]["odd"], series["latest"]["count"]) == (1.0, True, 40)
    assert lead.put("/v1/watch/limits", json={"drift": 0.4}).json()["drift"] == 0.4
    assert lead.put("/v1/watch/limits", json={"drift": -1}).status_code == 422
    assert lead.get("/v1/watch").json()["limits"] == {"drift": 0.4, "label_days": 60.0, "false_days": 600.0}
    assert lead.get("/v1/reports/trail?kind=watch limits changed").json()["items"][0]["data"]["drift"] == 0.4
    late = HealthReport(at, late=1e9)
    alerts.keep_alerts(engine, late.alerts, at)
    assert lead.post("/v1/watch/seen", json={"alert": "errors bob"}).status_code == 404
    assert lead.post("/v1/watch/seen", json={"alert": "labels delay", "note": "holidays"}).status_code == 200
    desk.service.monitor.report = late
    (alert,) = lead.get("/v1/watch").json()["alerts"]
    assert (alert["seen"]["who"], alert["seen"]["note"]) == ("a lead", "holidays")
    alerts.keep_alerts(engine, [], at)
    alerts.keep_alerts(engine, late.alerts, at)
    (alert,) = lead.get("/v1/watch").json()["alerts"]
    assert alert["seen"] is None, "it came up anew"


def person_at_a_glance(desk: World) -> None:
    for k in range(9):
        enter(desk, f"c{k}", ann=0.1, machine=0.9)
        desk.lead.post(f"/v1/cases/c{k}/decision", json={"decision": 1, "expert": "ann"})
    labels = [{"case_id": f"c{k}", "label": int(k > 2)} for k in range(9)]
    desk.lead.post("/v1/labels", json={"labels": labels})
    report = desk.lead.get("/v1/reports/person", params={"name": "ann"}).json()
    assert (report["decided"], report["errors"]["wrong"], report["errors"]["labelled"]) == (9, 3, 9)
    assert [row["case_id"] for row in report["disagreements"]] == ["c2", "c1", "c0"]
    assert report["days"][-1][1] == 9
    assert desk.lead.get("/v1/reports/person", params={"name": "nobody"}).status_code == 404


def test_the_pages_of_the_lead_move_and_find(desk: World) -> None:
    lead = Person(desk, new_key(desk, "lead"))
    for k in range(3):
        enter(desk, f"c{k}", ann=0.1, bob=0.4)
    chosen = {"case": ["c0", "c1"], "to": "bob", "back": "/cases?person=ann", "do": "move"}
    shown = lead.post("/moves/preview", chosen)
    assert "Moving 2 cases costs 0.60 more" in shown.text
    done = lead.post("/moves", chosen)
    assert done.headers["location"] == "/cases?person=ann&moved=2&stayed=0"
    assert "2 cases moved" in lead.get(done.headers["location"]).text
    assert lead.post("/moves/preview", {"back": "//evil", "do": "move"}).status_code == 422
    urgent = lead.post(
        "/moves/preview", {"case": "c2", "do": "priority", "priority": "urgent", "back": "//evil"}
    )
    assert urgent.headers["location"] == "/cases"
    assert lead.get("/cases?find=c2").headers["location"] == "/cases/c2"
    assert "Move it" in lead.get("/cases/c2").text
    text = lead.get("/cases.csv?person=bob&sort=oldest").text
    assert [row["case_id"] for row in csv.DictReader(io.StringIO(text))] == ["c0", "c1"]
    away = lead.get("/absence?maker=bob")
    assert "2 cases of bob would go to others" in away.text
    lead.post("/absence", {"maker": "bob", "away": "yes"})
    assert "2 cases would go back" in lead.get("/absence?maker=bob").text
    lead.post("/return", {"maker": "bob", "work": "yes"})
    assert desk.roster()["bob"]["used"] == 2
    assert "returned 2" in lead.get("/audit?person=bob&kind=roster+changed").text
    assert json.loads(lead.get("/person/data?name=bob").text)["person"]["name"] == "bob"
    desk.assert_sound()
