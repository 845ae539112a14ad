"""Waiting at the desk: the next case by the index, bids that count queues, and what will be late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from deccaf.service.ledger.waiting import open_work
from pages_world import Person, new_key
from service_world import World, world

SETTINGS = {"costs": {"false_positive": 0.3, "false_negative": 1.0}}


def at(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


def enter(desk: World, name: str, **more: Any) -> dict[str, Any]:
    case = {**desk.case(name, machine=99.0, ann=0.1), "features": {"what": "letter"}, **more}
    answer = desk.machine.post("/v1/cases", json=case)
    assert answer.status_code == 201, answer.text
    return answer.json()


def take(desk: World, expert: str = "ann") -> str:
    answer = desk.lead.post("/v1/queue/next", json={"expert": expert})
    assert answer.status_code == 200, answer.text
    name = answer.json()["case_id"]
    done = desk.lead.post(
        f"/v1/cases/{name}/decision", json={"expert": expert, "decision": 0, "seconds": 600}
    )
    assert done.status_code == 200, done.text
    return name


def test_the_next_case_is_the_one_whose_waiting_costs_most(database_url: str) -> None:
    with world(database_url, {"ann": 20, "bob": 20}, housekeeping=False) as desk:
        for name in ("first", "second"):
            enter(desk, name)
        assert desk.service.read(lambda c: open_work.read_outlook(c, 0.0)) is None
        assert take(desk) == "first"  # nothing says what waiting costs: as they came
        enter(desk, "dear", waiting_cost=5.0)
        enter(desk, "soon", due=at(15))
        enter(desk, "later", due=at(500))
        listed = [item["case_id"] for item in desk.lead.get("/v1/queue?expert=ann").json()["items"]]
        assert listed == ["dear", "soon", "later", "second"]  # no price on being late: then by due times
        assert desk.lead.get("/v1/cases/soon").json()["due"]
        assert desk.lead.get("/v1/cases/dear").json()["waiting_cost"] == 5.0
        assert take(desk) == "dear"
        late = {"late": 9.0, "kind": "what", "kinds": {"payment": {"cost": 50.0}}}
        assert desk.lead.put("/v1/settings", json={**SETTINGS, "waiting": late}).status_code == 200
        enter(desk, "paid", features={"what": "payment"})
        assert [take(desk) for _ in range(2)] == ["paid", "soon"]
        urgent = {"case_ids": ["second"], "priority": "urgent"}
        assert desk.lead.post("/v1/priorities", json=urgent).status_code == 200
        assert take(desk) == "second"  # a lead's word comes first
        bad = {**SETTINGS, "waiting": {"late": -1.0}}
        assert desk.lead.put("/v1/settings", json=bad).status_code == 422
        desk.assert_sound()


def test_bids_count_queues_and_today_shows_what_will_be_late(database_url: str) -> None:
    with world(database_url, {"ann": 20, "bob": 20}, housekeeping=False) as desk:
        losses = {"machine": 9.0, "ann": 0.1, "bob": 0.2}
        plain = [enter(desk, f"p{k}", losses=losses)["maker"] for k in range(3)]
        assert plain == ["ann"] * 3
        urgent = [enter(desk, f"u{k}", losses=losses, waiting_cost=3.0)["maker"] for k in range(4)]
        assert set(urgent) == {"ann", "bob"}  # five minutes in a queue cost more than bob's errors
        enter(desk, "late", due=at(1))
        assert desk.lead.put("/v1/settings", json={**SETTINGS, "waiting": {"late": 2.0}}).status_code == 200
        now = datetime.now(UTC).timestamp()
        outlook = desk.service.read(lambda connection: open_work.read_outlook(connection, now))
        assert outlook is not None
        assert [one.case_id for one in outlook.late] == ["late"]
        assert {one.maker: one.late for one in outlook.people} == {"ann": 1, "bob": 0}
        assert outlook.best is not None
        assert outlook.best.hour_saves > 0
        page = Person(desk, new_key(desk, "lead")).get("/today/numbers").text
        assert "1 case will be late as things are" in page
        assert "One more hour of " in page
        desk.assert_sound()


def test_files_bring_due_times_and_waiting_costs(database_url: str) -> None:
    head = {"Content-Type": "text/csv"}
    with world(database_url, {"ann": 20}, housekeeping=False) as desk:
        bad = "case_id,x,due,waiting_cost\na,1,2026-05-04T12:00Z,2\nb,2,noon,-1\n"
        answer = desk.lead.post("/v1/imports", content=bad, headers=head)
        assert answer.status_code == 422
        said = {(error["column"], error["message"]) for error in answer.json()["errors"]}
        assert said == {
            ("due", "'noon' is no time; use 2026-05-04T12:00Z"),
            ("waiting_cost", "must be a cost of an hour from 0 on"),
        }
        good = "case_id,x,due,waiting_cost\na,1,2026-05-04T12:00Z,2\nb,2,,\n"
        assert desk.lead.post("/v1/imports", content=good, headers=head).status_code == 201
        found = desk.lead.get("/v1/cases/a").json()
        assert (found["due"], found["waiting_cost"]) == ("2026-05-04T12:00:00.000+00:00", 2.0)
        assert found["features"] == {"x": 1}
        assert "due" not in desk.lead.get("/v1/cases/b").json()
