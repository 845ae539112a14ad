"""What comes in: bad input, borderline input, and problems that have no plan."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from assign_instances import Instance
from deccaf.assign import AssignmentProblem, solve, solve_problem
from deccaf.errors import CapacityError, ConfigError, DataError

LOSS = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (np.zeros(3), "1 dimensions"),
        (np.zeros((3, 0)), "no makers"),
        ([["a", "b"]], "expected numbers"),
        (np.array([[1.0, np.nan], [np.inf, 1.0]]), "2 values are not finite, first: nan for case 0, maker 1"),
        (np.full((10, 2), 1e306), "rescale"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "more than one column"),
        (pd.DataFrame({"a": [1.0, -np.inf]}, index=["x", "y"]), "-inf for case 'y', a"),
    ],
)
def test_losses_that_cannot_be_used(loss, message):
    with pytest.raises(DataError, match=message):
        solve(loss, upper=10)


@pytest.mark.parametrize(
    ("upper", "lower", "message"),
    [
        ([1, 2], None, "limits for 3 makers"),
        ([4, 4, -1], None, "first: -1.0 for maker 2"),
        ([4, 4, 0.5], None, "1 limits are not whole numbers"),
        ([4, 4, np.nan], None, "first: nan"),
        (["a", 4, 4], None, "expected numbers"),
        ([4, 4, 4], [0, 5, 0], "lower limit 5 above upper limit 4"),
        ([4, 4, 4], [0, np.inf, 0], "not whole numbers"),
        ({0: 4, 1: 4}, None, r"no limit for \[2\]"),
    ],
)
def test_limits_that_cannot_be_used(upper, lower, message):
    with pytest.raises(ConfigError, match=message):
        solve(LOSS, upper, lower)


@pytest.mark.parametrize(
    ("eligible", "message"),
    [
        (np.ones((4, 2), bool), "shape"),
        (np.full((4, 3), 2), "True or False"),
        ([["x"] * 3] * 4, "True or False"),
    ],
)
def test_eligibility_that_cannot_be_used(eligible, message):
    with pytest.raises(DataError, match=message):
        solve(LOSS, upper=4, eligible=eligible)


def test_losses_nobody_may_incur_need_not_exist():
    loss = np.array([[1.0, np.nan], [np.inf, 2.0]])
    eligible = np.array([[True, False], [False, True]])
    assert solve(loss, upper=2, eligible=eligible).maker.tolist() == [0, 1]


@pytest.mark.parametrize("method", ["auto", "flow", "priced", "lp", "cpsat"])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 1), (1, 6), (3, 7)])
def test_small_shapes(shape, method):
    n, makers = shape
    plan = solve(np.ones(shape), upper=[n] * makers, method=method)
    assert plan.maker.shape == (n,)
    assert plan.objective == n
    assert plan.prices.tolist() == [0] * makers


def test_no_cases_cannot_fill_a_lower_limit():
    with pytest.raises(CapacityError, match="0 cases, but lower limits ask for 2"):
        solve(np.ones((0, 2)), upper=[2, 2], lower=[1, 1])


def test_one_maker_takes_all_or_there_is_no_plan():
    assert solve(np.ones((3, 1)), upper=[3], lower=[3]).load.tolist() == [3]
    with pytest.raises(CapacityError, match="3 cases, capacity 2"):
        solve(np.ones((3, 1)), upper=[2])


def test_totals():
    with pytest.raises(CapacityError) as error:
        solve_problem(AssignmentProblem.of(np.ones((120, 2)), [40, 55], name="batch 3"))
    assert str(error.value) == (
        "batch 3: 120 cases, capacity 95; raise upper limits or let the machine decide"
    )
    with pytest.raises(CapacityError, match="3 cases, but lower limits ask for 4"):
        solve(np.ones((3, 2)), upper=[3, 3], lower=[2, 2])


def team(cases: int, only: dict[int, list[int]], makers: int = 6) -> np.ndarray:
    """Everyone may do everything, but the first cases have a shorter list."""
    eligible = np.ones((cases, makers), bool)
    start = 0
    for count, allowed in only.items():
        eligible[start : start + count] = False
        eligible[np.ix_(range(start, start + count), allowed)] = True
        start += count
    return eligible


@pytest.mark.parametrize("method", ["auto", "flow", "priced", "lp", "cpsat"])
def test_the_group_that_cannot_fit(method):
    names = [f"analyst_{j}" for j in range(6)]
    loss = pd.DataFrame(np.ones((100, 6)), columns=names)
    eligible = team(100, {37: [3, 5], 10: [1, 3]})
    upper = dict.fromkeys(names, 100) | {"analyst_3": 8, "analyst_5": 12}
    with pytest.raises(CapacityError) as error:
        solve(loss, upper, eligible=eligible, method=method)
    assert "37 cases may only go to analyst_3 or analyst_5, who have room for 20" in str(error.value)


def test_the_group_that_cannot_fit_in_a_large_problem():
    n = 60_000
    eligible = team(n, {500: [2, 4]})
    upper = [n, n, 200, n, 100, n]
    with pytest.raises(
        CapacityError, match="500 cases may only go to maker 2 or maker 4, who have room for 300"
    ):
        solve(np.random.default_rng(0).random((n, 6)), upper, eligible=eligible)


def test_a_lower_limit_nobody_can_fill():
    eligible = np.ones((50, 3), bool)
    eligible[4:, 1] = False
    with pytest.raises(CapacityError, match="maker 1 must get at least 10 cases, but only 4 may go there"):
        solve(np.ones((50, 3)), upper=50, lower=[0, 10, 0], eligible=eligible)


def test_cases_nobody_may_have():
    eligible = np.ones((50, 3), bool)
    eligible[[7, 9]] = False
    with pytest.raises(CapacityError, match="2 cases may go to nobody, first: case 7"):
        solve(np.ones((50, 3)), upper=50, eligible=eligible)


def test_cases_that_may_only_go_to_the_absent():
    eligible = team(50, {3: [0]}, makers=3)
    with pytest.raises(CapacityError, match="3 cases may only go to maker 0, who has room for 0"):
        solve(np.ones((50, 3)), upper=[0, 50, 50], eligible=eligible)


def test_many_names_are_cut_short():
    eligible = team(50, {40: list(range(9))}, makers=12)
    with pytest.raises(CapacityError, match="maker 4 or 4 others, who have room for 9"):
        solve(np.ones((50, 12)), upper=[1] * 9 + [50] * 3, eligible=eligible)


def test_limits_far_beyond_the_number_of_cases_are_no_limits():
    instance = Instance(LOSS, np.array([10**15] * 3), np.zeros(3, int), None)
    assert solve_problem(instance.problem()).prices.tolist() == [0, 0, 0]
