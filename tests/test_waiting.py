"""What waiting costs: order, who and when together, service levels, and plans that are as before without it."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deccaf.assign import AssignmentProblem
from deccaf.assign.waiting.harm import Harm
from deccaf.assign.waiting.order import best_order, total
from deccaf.assign.waiting.queues import Queues
from deccaf.assign.waiting.schedule import schedule
from deccaf.benchmark.waiting_day import WAYS, simulate
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.config import ConstraintsTable, WaitingTable
from deccaf.data.schema import Columns
from deccaf.errors import CapacityError, ConfigError, DataError
from deccaf.planning import Plan, Scored, make_plan, read_waits
from deccaf.simulate.days import Desk

PACE = {"ann": 6.0, "bob": 4.0}


def some_harm(rng: np.random.Generator, cases: int) -> Harm:
    due = np.where(rng.random(cases) < 0.6, rng.uniform(0.2, 1.0, cases), np.inf)
    return Harm.of(cases, rng.random(cases), due, rng.random(cases), rng.random(cases))


def scored(loss: Any, **columns: Any) -> Scored:
    table = np.asarray(loss, float)
    ids = pd.Index([f"c{k}" for k in range(len(table))])
    frame = pd.DataFrame(columns, index=ids) if columns else None
    return Scored(
        ids, ("machine", "ann", "bob"), table, table, np.zeros(len(table), np.int64), (0, 1), columns=frame
    )


def planned(
    cases: Scored,
    waiting: dict[str, Any] | None = None,
    constraints: dict[str, Any] | None = None,
    start: Any = None,
    pace: dict[str, float] = PACE,
    room: int = 20,
) -> Plan:
    table = None if waiting is None else WaitingTable.model_validate(waiting)
    asked = None if constraints is None else ConstraintsTable.model_validate(constraints)
    return make_plan(
        cases,
        Capacity.of({"ann": room, "bob": room}),
        constraints=asked,
        pace=pace,
        waiting=lambda mine: read_waits(mine, Columns(), table, asked, pace, start),
    )


def test_without_due_times_the_greatest_rate_per_hour_of_work_is_first() -> None:
    harm = Harm.of(3, rate=[1.0, 4.0, 3.0])
    assert best_order(harm, np.array([0.1, 1.0, 0.5])).tolist() == [0, 2, 1]  # 10, 6 and 4 an hour


def test_a_case_that_is_late_anyway_does_not_hurry() -> None:
    harm = Harm.of(2, due=[0.1, 0.6], late=[5.0, 1.0])
    assert best_order(harm, np.array([0.5, 0.5])).tolist() == [1, 0]


def test_very_long_lists_are_put_in_order_too() -> None:
    rng, cases = np.random.default_rng(5), 2_500
    harm, hours = some_harm(rng, cases), rng.uniform(0.001, 0.01, cases)
    order = best_order(harm, hours)
    assert sorted(order.tolist()) == list(range(cases))
    assert total(harm, hours, order, 0.0) < total(harm, hours, np.arange(cases), 0.0)


@pytest.mark.parametrize("seed", range(6))
def test_orders_are_the_best_or_nearly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    harm, hours = some_harm(rng, 6), rng.uniform(0.1, 0.4, 6)
    best = min(total(harm, hours, np.array(order), 0.0) for order in permutations(range(6)))
    assert total(harm, hours, best_order(harm, hours), 0.0) <= 1.02 * best


@pytest.mark.parametrize("seed", range(4))
def test_who_and_when_together_are_the_best_or_nearly(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    cases, same = 5, seed % 2 == 0
    people = np.tile([0.2, 0.35], (cases, 1)) if same else rng.uniform(0.1, 0.5, (cases, 2))
    hours = np.column_stack([np.zeros(cases), people])
    loss, harm = rng.random((cases, 3)) * [1.5, 1.0, 1.0], some_harm(rng, cases)
    problem = AssignmentProblem.of(loss, [cases, 3, 3])
    best = np.inf
    for makers in product(range(3), repeat=cases):
        maker = np.array(makers)
        if (np.bincount(maker, minlength=3) > problem.upper).any():
            continue
        cost = loss[np.arange(cases), maker].sum() + harm.take(maker == 0).cost(np.zeros(1)).sum()
        for j in (1, 2):
            mine = np.flatnonzero(maker == j)
            orders = [np.array(order, np.int64) for order in permutations(range(len(mine)))]
            cost += min(total(harm.take(mine), hours[mine, j], order, 0.0) for order in orders)
        best = min(best, cost)
    found = schedule(problem, harm, hours)
    assert found.cost <= 1.02 * best
    assert found.bound <= best + 1e-9
    if same:  # places are then of equal length, and the bound is the optimum
        assert found.bound == pytest.approx(best)


@pytest.mark.parametrize("columns", [{}, {"due": [1.0, 2.0, np.nan, 9.0]}, {"waiting_cost": [0.0] * 4}])
def test_where_waiting_costs_nothing_the_plan_is_the_one_without_it(columns: dict[str, Any]) -> None:
    loss = [[0.9, 0.1, 0.3], [0.5, 0.4, 0.2], [0.1, 0.3, 0.3], [0.8, 0.2, 0.1]]
    waits = planned(scored(loss, **columns), room=2)
    plain = make_plan(scored(loss), Capacity.of({"ann": 2, "bob": 2}), pace=PACE)
    pd.testing.assert_frame_equal(plain.frame, waits.frame[plain.frame.columns])
    pd.testing.assert_frame_equal(plain.prices, waits.prices)
    assert plain.summary.cost == waits.summary.cost
    assert ("order" in waits.frame) == bool(columns)
    assert waits.summary.total == plain.summary.total


def test_a_plan_says_order_finish_lateness_and_what_an_hour_would_change() -> None:
    loss = [[1.0, 0.0, 0.9]] * 3
    plan = planned(scored(loss, due=[9.0, 0.2, 0.4], waiting_cost=[0.1, 0.1, 0.3]), {"late": 0.2})
    frame = plan.frame.set_index("case_id")
    assert frame["maker"].tolist() == ["ann", "ann", "ann"]
    assert frame["order"].tolist() == [3, 1, 2]  # ten minutes each: c1 and c2 are both in time
    assert frame["finish"].tolist() == pytest.approx([0.5, 1 / 6, 1 / 3])
    assert not frame["late"].any()
    waited = plan.summary.waiting
    assert waited is not None
    assert waited.cost == pytest.approx(0.1 * 0.5 + 0.1 / 6 + 0.3 / 3)
    assert plan.summary.total == pytest.approx(plan.summary.cost + waited.cost)
    assert waited.makers.loc["ann", "hour_saves"] == pytest.approx(waited.cost / 2)
    assert any("errors 0.00 + waiting" in line for line in plan.summary.lines())
    assert plan.summary.to_dict()["waiting"]["late"] == 0


def test_waiting_sends_cases_to_others_who_have_time() -> None:
    loss = [[5.0, 0.10, 0.15]] * 8
    patient, urgent = planned(scored(loss), {"cost": 0.0}), planned(scored(loss), {"cost": 2.0})
    assert set(patient.frame["maker"]) == {"ann"}
    assert set(urgent.frame["maker"]) == {"ann", "bob"}
    assert patient.summary.waiting is not None
    assert patient.summary.waiting.cost == 0.0


def test_kinds_have_rules_of_their_own_and_columns_come_first() -> None:
    loss, rules = [[5.0, 0.1, 0.2]] * 3, {"cost": 1.0, "kind": "what", "kinds": {"payment": {"cost": 9.0}}}
    columns = {"what": ["letter", "payment", "payment"], "waiting_cost": [np.nan, np.nan, 0.5]}
    asked = scored(loss, **columns)
    waits = read_waits(asked, Columns(), WaitingTable.model_validate(rules), None, PACE)
    assert waits is not None
    assert waits.harm.rate.tolist() == [1.0, 9.0, 0.5]


def test_due_dates_count_from_the_start() -> None:
    due = ["2026-05-04 08:10", "2026-05-04 12:00", None]
    plan = planned(scored([[1.0, 0.0, 0.9]] * 3, due=due), {"late": 1.0}, start="2026-05-04 08:00")
    assert plan.frame["finish"].iloc[0] == pd.Timestamp("2026-05-04 08:10")
    assert plan.frame["order"].iloc[0] == 1


def test_a_service_level_has_a_price_and_priorities_come_first() -> None:
    loss = [[5.0, 0.0, 4.0]] * 6
    kinds = ["A"] * 3 + ["B"] * 3
    asked = scored(loss, what=kinds, rank=[1, 1, 1, 2, 2, 2])
    level = {"group": "what", "value": "A", "share": 1.0, "hours": 0.51}
    waiting = {"kind": "what", "kinds": {"A": {"cost": 0.1}, "B": {"cost": 0.2}}}
    plan = planned(asked, waiting, {"service_level": [level]})
    assert (plan.frame["finish"][:3] <= 0.51).all()
    assert plan.constraints is not None
    assert plan.constraints["constraint"].tolist() == ["100% of what A within 0.51 h"]
    assert plan.constraints["price"].iloc[0] == pytest.approx(0.1 * 1.5)  # three B wait half an hour more
    first = planned(asked, {"cost": 0.1}, {"priority": {"column": "rank"}})
    assert first.frame["order"].tolist() == [4, 5, 6, 1, 2, 3]
    impossible = scored([[np.inf, 0.0, 4.0]] * 6, what=kinds)
    with pytest.raises(CapacityError, match=r"service level 100% of what A within 0\.05 h: at most 0\.0%"):
        planned(impossible, waiting, {"service_level": [level | {"hours": 0.05}]})


def test_constraints_on_people_are_granted_beside_waiting() -> None:
    loss = [[5.0, 0.10, 0.15]] * 8
    asked = {"minutes": {"capacity": {"ann": 20}, "minutes": 10.0}}
    plan = planned(scored(loss, due=[0.5] * 8), {"cost": 2.0, "late": 1.0}, asked)
    assert (plan.frame["maker"] == "ann").sum() <= 2
    assert plan.summary.waiting is not None
    assert plan.summary.waiting.late == plan.frame["late"].sum() > 0


@pytest.mark.parametrize(
    ("columns", "waiting", "kind", "message"),
    [
        (
            {"waiting_cost": [1.0, "soon"]},
            None,
            DataError,
            "column 'waiting_cost': 1 value.* 'soon' in case 'c1'",
        ),
        ({"waiting_cost": [1.0, -2.0]}, None, DataError, "first: -2.0 in case 'c1'"),
        ({"due": ["2026-05-04", "tomorrow"]}, None, DataError, "column 'due'.*tomorrow"),
        (
            {"what": ["a", "b"]},
            {"kind": "what", "kinds": {"z": {"cost": 1.0}}},
            DataError,
            "holds none of 'z'",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    columns: dict[str, Any], waiting: dict[str, Any] | None, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        planned(scored([[1.0, 0.0, 0.9]] * 2, **columns), waiting)


def test_waiting_needs_to_know_how_long_cases_take() -> None:
    asked = scored([[5.0, 0.0, 4.0]] * 2, waiting_cost=[1.0, 1.0])
    with pytest.raises(ConfigError, match=r"\[waiting\] minutes: the log had no seconds"):
        planned(asked, pace={})
    assert planned(asked, {"minutes": 30.0}, pace={}).frame["finish"].max() == 1.0
    free = scored([[1.0, 0.0, 0.9]] * 2, due=[1.0, 1.0])
    assert "order" not in planned(free, pace={}).frame  # nothing costs anything: as before


def test_a_further_case_waits_and_makes_others_wait() -> None:
    queues = Queues(3, [0.0, 0.5, 0.5])
    slow, quick = Harm.of(1, rate=1.0), Harm.of(1, rate=4.0)
    hours = np.array([0.0, 0.5, 0.5])
    assert queues.bids(slow, hours, 0.0).tolist() == pytest.approx([0.0, 0.5, 0.5])
    queues.add("a", 1, slow, hours)
    bid = queues.bids(quick, hours, 0.0)
    assert bid[1] > bid[2] >= 4.0 * 0.5  # with bob it makes nobody wait
    queues.add("b", 1, quick, hours)
    assert queues.next(1, 0.0) == "b"
    queues.remove("b")
    assert (queues.next(1, 0.0), queues.next(2, 0.0), len(queues)) == ("a", None, 1)
    assert queues.help(2, 0.0) is None  # bob would not have it sooner than ann
    queues.free[1] = 2.0
    assert queues.help(2, 0.0) == "a"


def test_queues_filled_at_once_are_those_filled_one_by_one() -> None:
    hours, rates = np.array([0.0, 0.5, 0.4]), [1.0, 4.0]
    single, both = Queues(3, [0.0, 0.5, 0.4]), Queues(3, [0.0, 0.5, 0.4])
    for name, rate in zip("ab", rates, strict=True):
        single.add(name, 1, Harm.of(1, rate=rate), hours)
    both.fill(["a", "b"], np.array([1, 1]), Harm.of(2, rate=rates), np.tile(hours, (2, 1)))
    case = Harm.of(1, rate=2.0, due=1.0, late=3.0)
    np.testing.assert_array_equal(both.bids(case, hours, 0.1), single.bids(case, hours, 0.1))
    assert (both.next(1, 0.0), both.of(1), len(both)) == ("b", ["a", "b"], 2)


def test_a_day_costs_less_when_waiting_counts() -> None:
    desk = Desk(7)
    past, day = [desk.day("peaks", 8)], desk.day("peaks", 9)
    ways = {name: WAYS[name] for name in ("greedy", "greedy with c-mu", "deccaf")}
    found = simulate(day, past, ways)
    assert found["deccaf"].total < found["greedy"].total
    assert all(0 < one.used <= 1.05 and one.waiting > 0 for one in found.values())
    assert simulate(day, past, {"again": WAYS["deccaf"]})["again"] == found["deccaf"]


def test_cases_keep_their_due_times() -> None:
    frame = pd.DataFrame(
        {"case_id": ["a", "b"], "x": [1.0, 2.0], "due": [1.0, None], "waiting_cost": [0.5, 0.1]}
    )
    cases = Cases.from_frame(frame)
    assert cases.schema.names == ["x"]  # what prices waiting is no feature, unless somebody says so
    assert cases.take([1]).waiting is not None
    assert cases.take([1]).waiting["waiting_cost"].tolist() == [0.1]
    told = Cases.from_frame(frame, columns=Columns(features=("x", "due")))
    assert told.schema.names == ["x", "due"]
    assert list(told.waiting) == ["waiting_cost"]
    with pytest.raises(ValueError, match="has two parts"):
        Columns(due="when", waiting_cost="when")
