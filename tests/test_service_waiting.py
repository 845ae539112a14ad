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


def bulk(desk: World, name: str, losses: list[list[float]], **columns: list[Any]) -> list[str]:
    """Cases that wait for a plan; losses of the machine, ann and bob."""
    cases = []
    for number, row in enumerate(losses, 1):
        more = {key: values[number - 1] for key, values in columns.items() if values[number - 1] is not None}
        known = dict(zip(("machine", "ann", "bob"), row, strict=True))
        cases.append({**desk.case(f"{name}{number}", **known), "features": {"what": "letter"}, **more})
    assert desk.lead.post("/v1/cases/bulk", json={"cases": cases}).status_code == 201
    return [case["case_id"] for case in cases]


def drafted(desk: World, names: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    made = desk.lead.post("/v1/plans", json={"case_ids": names})
    assert made.status_code == 201, made.text
    rows = desk.lead.get(f"/v1/plans/{made.json()['id']}/rows").json()["items"]
    return made.json(), rows


def test_a_plan_of_the_desk_counts_waiting_and_what_everybody_has_already(database_url: str) -> None:
    losses = [[0.90, 0.05, 0.10], [0.90, 0.05, 0.10], [0.30, 0.05, 0.25], [0.10, 0.08, 0.09]]
    # a case takes five minutes: as in docs/waiting.md, with half an hour as five minutes
    with world(database_url, {"ann": 3, "bob": 3, "machine": 4}, housekeeping=False) as desk:
        plain, rows = drafted(desk, bulk(desk, "a", losses))
        errors_alone = [row["maker"] for row in rows]
        assert errors_alone == ["ann", "ann", "ann", "bob"]
        assert "waiting" not in plain
        assert "order" not in rows[0]
        free = bulk(desk, "f", losses, waiting_cost=[0.0] * 4, due=[at(9), *[at(400)] * 3])
        found, rows = drafted(desk, free)
        assert [row["maker"] for row in rows] == errors_alone  # what costs nothing changes nothing
        assert found["cost"] == plain["cost"]
        assert (found["waiting"]["cost"], found["waiting"]["late"]) == (0.0, 0)

        settings = {**SETTINGS, "waiting": {"late": 0.4}}
        assert desk.lead.put("/v1/settings", json=settings).status_code == 200
        names = bulk(desk, "b", losses, waiting_cost=[0.6, 0.6, 1.2, 0.0], due=[at(9), None, None, None])
        found, rows = drafted(desk, names)
        assert [row["maker"] for row in rows] == ["bob", "ann", "ann", "ann"]
        assert [row["order"] for row in rows] == [1, 2, 1, 3]
        assert [row["late"] for row in rows] == [False] * 4
        assert abs(found["cost"] - 0.28) < 1e-9
        assert abs(found["waiting"]["cost"] - 0.25) < 1e-9
        fewer = desk.lead.post(f"/v1/plans/{found['id']}/what-if", json={"changes": {"bob": "0"}}).json()
        assert fewer["change"] > 0
        assert fewer["cost"] == fewer["plan"]["cost"] + fewer["plan"]["waiting"]["cost"]
        page = Person(desk, new_key(desk, "lead")).get(f"/plans/{found['id']}").text
        assert "Errors and waiting together: 0.53." in page
        assert desk.lead.post(f"/v1/plans/{found['id']}/commit").status_code == 200
        listed = [item["case_id"] for item in desk.lead.get("/v1/queue?expert=ann").json()["items"]]
        assert listed == ["b3", "b2", "b4"]

        for name in ("ann", "bob"):
            more = desk.lead.put(f"/v1/shifts/{desk.shift}/roster/{name}", json={"capacity": 9})
            assert more.status_code == 200, more.text
        # with ann: 2/12 h after b3, and b2 waits 1/12 h more; with bob: as long after b1, and nobody behind
        late = bulk(desk, "c", [[0.9, 0.05, 0.09]], waiting_cost=[0.9])
        found, rows = drafted(desk, late)
        assert (rows[0]["maker"], rows[0]["order"]) == ("bob", 2)
        assert abs(found["waiting"]["cost"] - 0.15) < 1e-9
        level = {"service_level": [{"share": 0.9, "hours": 2.0}]}
        refused = desk.lead.post("/v1/plans", json={"constraints": level})
        assert refused.status_code == 422
        assert "promises no order" in refused.json()["detail"]
        assert desk.lead.patch(f"/v1/shifts/{desk.shift}", json={"random_share": 0.5}).status_code == 200
        found, _ = drafted(desk, [*late, *bulk(desk, "d", losses, waiting_cost=[1.0] * 4)])
        assert found["by_lot"] > 0
        assert desk.lead.post(f"/v1/plans/{found['id']}/commit").status_code == 200
        desk.assert_sound()
