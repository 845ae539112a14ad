"""Random sharing and the reason of a choice: each is one function, and every page uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deccaf.planning.random_sharing import random_cost
from deccaf.planning.reason import reason
from deccaf.service.monitor.live_losses import LiveLosses
from pages_world import Person, new_key
from service_world import World, world


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 6, "bob": 6}) as found:
        yield found


def test_loads_times_mean_losses_by_hand() -> None:
    # machine: mean 2 of (1, 3); ann: mean 4 of (2, 6)
    loss = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert random_cost(loss, [1, 1]) == pytest.approx(2 + 4)
    assert random_cost(loss, [0, 2]) == pytest.approx(8)
    # ann may get the first case alone: 2
    eligible = np.array([[True, True], [True, False]])
    assert random_cost(np.where(eligible, loss, np.inf), [1, 1], eligible) == pytest.approx(2 + 2)
    assert random_cost(np.empty((0, 2)), [0, 0]) == 0.0


def random_sharing(page: str) -> str:
    """The amount that a page gives for random sharing: a tile on the plan, a bar on Today."""
    tile = re.search(r'<h[23]>Random sharing</h[23]>\s*<p class="big">([0-9.,]+) ', page)
    bar = re.search(r"Random sharing: ([0-9.,]+)\"", page)
    found = tile or bar
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("random_share", [0.0, 0.5])
def test_the_plan_and_today_give_one_number_for_random_sharing(desk: World, random_share: float) -> None:
    desk.lead.patch(f"/v1/shifts/{desk.shift}", json={"random_share": random_share})
    rng = np.random.default_rng(0)
    cases = [
        desk.case(f"r{k:02}", machine=float(rng.uniform(1, 9)), ann=float(rng.uniform(0, 5)), bob=1.5)
        for k in range(30)
    ]
    cases[0]["excluded"] = ["ann"]  # whose loss must not count for this case
    assert desk.lead.post("/v1/cases/bulk", json={"cases": cases}).status_code == 201
    lead = Person(desk, new_key(desk, "lead"))
    where = lead.post("/plans").headers["location"]
    on_plan = random_sharing(lead.get(where).text)
    plan = desk.lead.get("/v1" + where).json()
    assert lead.post(f"{where}/commit").headers["location"] == "/"
    assert random_sharing(lead.get("/").text) == on_plan
    report = desk.lead.get("/v1/reports/shift").json()
    assert report["random_cost"] == pytest.approx(plan["random_cost"], rel=1e-6)
    assert report["machine_cost"] == pytest.approx(plan["machine_cost"], rel=1e-6)
    assert report["expected_cost"] == pytest.approx(plan["cost"], rel=1e-6)


def test_other_shifts_and_cases_handed_back_do_not_count_today(desk: World) -> None:
    desk.lead.post("/v1/cases", json=desk.case("a", machine=9, ann=1, bob=5))
    desk.lead.post("/v1/cases", json=desk.case("b", machine=7, ann=3, bob=5))
    before = desk.lead.get("/v1/reports/shift").json()
    assert before["random_cost"] == pytest.approx(2 * 2)  # ann has both: twice the mean of 1 and 3
    assert desk.lead.post("/v1/cases/a/hand-back", json={"expert": "ann"}).status_code == 200
    after = desk.lead.get("/v1/reports/shift").json()
    # ann has b and could only get b (3); bob has a, and could get both (5)
    assert after["random_cost"] == pytest.approx(3 + 5)
    assert after["machine_cost"] == pytest.approx(9 + 7)
    desk.service.live_losses = LiveLosses()
    assert desk.lead.get("/v1/reports/shift").json() == after, "sums kept and sums read anew agree"


def test_the_reason_by_hand() -> None:
    losses = {"machine": 0.9, "ann": 0.2, "bob": 0.4}
    free = dict.fromkeys(losses, 0.0)
    assert reason(losses, free, "ann") == "ann has the least expected loss, 0.2000; next is bob with 0.4000."
    busy = {**free, "ann": 0.3}
    assert reason(losses, busy, "bob") == (
        "ann would lose less, 0.2000 against 0.4000, but has no room for it: one more case for ann is worth "
        "0.3000 elsewhere, together 0.5000 against 0.4000 for bob."
    )
    assert "bob has a minimum load to reach" in reason(losses, free, "bob")
    assert "bob was drawn by lot (chance 5.0%)" in reason(losses, free, "bob", drawn=0.05)
    assert reason({"ann": 0.2, "bob": None}, free, "ann") == "ann has it; nobody else could have got it."
    assert reason({"ann": None}, {}, "ann") == "ann has it."
    # a plan that minimises something else names its own favourite
    aim = {"machine": 0.1, "ann": 0.5, "bob": 0.6}
    assert reason(losses, free, "machine", objective=aim).startswith("machine has the least")
