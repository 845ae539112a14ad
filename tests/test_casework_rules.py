"""What casework refuses, names and units on the pages, addresses that are followed: without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service.ledger.review import parking, undo
from deccaf.service.monitor import alerts
from deccaf.service.monitor.health import ExpertCheck, HealthReport
from deccaf.service.store import tables as t
from deccaf.service.web.pages.render import own_path
from pages_world import Person, new_key
from service_world import World, world


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 20, "bob": 20}, housekeeping=False) as found:
        yield found


def enter(desk: World, *names: str) -> None:
    for name in names:
        case = desk.case(name, machine=9.0, ann=0.1)
        assert desk.lead.post("/v1/cases", json=case).json()["maker"] == "ann"


def act(desk: World, what: str, name: str, **body: Any) -> Any:
    return desk.lead.post(f"/v1/cases/{name}/{what}", json={"expert": "ann", **body})


def problem(answer: Any) -> str:
    return str(answer.json().get("type", "")).removeprefix("urn:deccaf:problem:")


def test_a_decision_is_taken_back_in_time_and_before_anybody_acted_on_it(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(desk, "late", "rejected")
    assert act(desk, "decision", "late", decision=1).status_code == 200
    page = Person(desk, new_key(desk, "reviewer", "ann"))
    assert "Undo" in page.get("/queue").text
    with monkeypatch.context() as later:
        later.setattr(undo, "UNDO_SECONDS", -1.0)
        assert problem(act(desk, "undo", "late")) == "too-late"
        assert "Undo" not in page.get("/queue").text, "nothing is offered that would be refused"
    assert problem(act(desk, "undo", "rejected")) == "not-decided"
    assert problem(act(desk, "undo", "missing")) == "not-found"
    settings = {"costs": {"false_positive": 0.3, "false_negative": 1.0}}
    labels = {"selective": "positive", "let_through": 1.0}
    assert desk.lead.put("/v1/settings", json={**settings, "labels": labels}).status_code == 200
    assert act(desk, "decision", "rejected", decision=1).json()["let_through"] is True
    assert problem(act(desk, "undo", "rejected")) == "let-through"
    assert "Undo" not in page.get("/queue").text
    assert problem(act(desk, "undo", "late")) == "not-the-last"
    desk.assert_sound()


def test_only_so_many_cases_are_parked_and_taking_one_up_makes_room(desk: World) -> None:
    names = [f"c{k}" for k in range(parking.MOST_PARKED + 1)]
    enter(desk, *names)
    for name in names[:-1]:
        assert act(desk, "park", name, reason="a call").status_code == 200
    refused = act(desk, "park", names[-1])
    assert (refused.status_code, problem(refused)) == (409, "too-many-parked")
    assert str(parking.MOST_PARKED) in refused.json()["detail"]
    assert act(desk, "park", names[0]).status_code == 200, "one that is parked already"
    assert act(desk, "take-up", names[0]).status_code == 200
    assert act(desk, "park", names[-1]).status_code == 200
    desk.assert_sound()


def test_a_parked_case_whose_decision_is_taken_back_is_in_hand_again(desk: World) -> None:
    enter(desk, "a")
    assert act(desk, "park", "a").status_code == 200
    assert act(desk, "decision", "a", decision=1).status_code == 200
    assert act(desk, "undo", "a").status_code == 200
    with desk.service.engine.connect() as connection:
        assert connection.execute(sa.select(t.assignments.c.parked_until)).scalars().all() == [None]
    again = desk.lead.post("/v1/queue/next", json={"expert": "ann"})
    assert (again.status_code, again.json()["case_id"]) == (200, "a")


def test_costs_are_in_the_unit_that_the_configuration_names(desk: World) -> None:
    costs = {"false_positive": 1.0, "false_negative": 5.0, "unit": "missed frauds"}
    lead = Person(desk, new_key(desk, "lead"))
    waiting = {"cases": [desk.case(f"w{k}", machine=2.0, ann=1.0) for k in range(3)]}
    assert desk.lead.post("/v1/cases/bulk", json=waiting).status_code == 201
    plan = lead.post("/plans").headers["location"]
    assert "missed frauds" not in lead.get(plan).text
    assert desk.lead.put("/v1/settings", json={"costs": costs}).status_code == 200
    for path in (plan, "/cases", "/opinions"):
        assert "missed frauds" in lead.get(path).text, path
    lead.post(f"{plan}/commit")
    assert "missed frauds" in lead.get("/").text


def test_alerts_call_people_by_the_names_that_are_shown(desk: World) -> None:
    desk.lead.patch("/v1/experts/ann", json={"display": "Ann Onymous"})
    odd = ExpertCheck("ann", 40, 0.1, 0.5, 0.3, 0.7, True, 3)
    report = replace(HealthReport(1.0), experts=[odd])
    desk.service.monitor.report = report
    alerts.keep_alerts(desk.service.engine, report.alerts, 1.0)
    lead = Person(desk, new_key(desk, "lead"))
    for path in ("/", "/watch"):
        text = lead.get(path).text
        assert "Ann Onymous was wrong on 50 % of 40 cases in 3 days" in text, path
        assert "Talk to Ann Onymous" in text
        assert "ann was wrong" not in text
    assert lead.post("/watch/seen", {"alert": "errors ann", "note": "asked her"}).status_code == 303
    assert "Errors Ann Onymous" in lead.get("/watch").text
    assert desk.lead.get("/v1/watch").json()["alerts"][0]["subject"] == "ann", "programs know her by her key"


@pytest.mark.parametrize(
    ("given", "followed"),
    [
        ("/cases/a?b=c", True),
        ("/", True),
        ("", False),
        ("cases", False),
        ("//evil.example/x", False),
        ("/\\evil.example", False),
        ("https://evil.example/", False),
        ("/a\nb", False),
        ("/sign-out", False),
        ("/sign-in?next=/x", False),
        ("/" + "x" * 2000, False),
    ],
)
def test_only_our_own_addresses_are_followed_after_signing_in(given: str, followed: bool) -> None:
    assert own_path(given) == (given if followed else None)
