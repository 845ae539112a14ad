"""Shadow prices: what one more unit saves, checked by solving again."""

from __future__ import annotations

import numpy as np
import pytest

from assign_instances import Instance, structured
from deccaf.assign import solve, solve_problem
from deccaf.errors import CapacityError


def cost(instance: Instance, **changes: np.ndarray) -> float:
    changed = Instance(**{**vars(instance), **changes})
    return solve_problem(changed.problem(), "flow").objective


def one_more(limits: np.ndarray, j: int, by: int = 1) -> np.ndarray:
    changed = limits.copy()
    changed[j] += by
    return changed


def expected_price(instance: Instance, base: float, j: int) -> tuple[float, float]:
    """What one more unit of upper saves, and what one more of lower (or of both, if equal) saves."""
    more = one_more(instance.upper, j)
    saves = base - cost(instance, upper=more)
    lower = one_more(instance.lower, j)
    try:
        forced = base - cost(instance, lower=lower, upper=np.maximum(instance.upper, lower))
    except CapacityError:
        forced = np.nan
    return saves, forced


@pytest.mark.parametrize("method", ["flow", "priced"])
@pytest.mark.parametrize("block", range(8))
def test_one_more_unit(block, method):
    checked = 0
    for number in range(8):
        rng = np.random.default_rng([11, block, number])
        n = int(rng.integers(30, 120)) if method == "flow" else int(rng.integers(650, 900))
        instance = structured(rng, n, int(rng.integers(2, 6)))
        plan = solve_problem(instance.problem(), method)
        if not (plan.load > instance.lower).any():
            continue  # nobody can give a case up: see the two special cases below
        size = np.abs(instance.loss).max() + np.abs(plan.prices).max()
        base = cost(instance)
        for j, price in enumerate(plan.prices):
            saves, forced = expected_price(instance, base, j)
            assert saves == pytest.approx(max(price, 0.0), abs=1e-9 * size)
            if price < 0:
                assert forced == pytest.approx(price, abs=1e-9 * size)
            checked += 1
    assert checked > 5


def test_room_has_no_price_and_scarcity_has():
    loss = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    assert solve(loss, upper=[3, 3]).prices.tolist() == [0, 0]
    assert solve(loss, upper=[2, 3]).prices == pytest.approx([1, 0])
    assert solve(loss, upper=[0, 3]).prices == pytest.approx([3, 0])


def test_a_lower_limit_is_a_negative_price():
    loss = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    # the first case must go to the second maker; a second one would cost 2
    assert solve(loss, upper=[3, 3], lower=[0, 1]).prices == pytest.approx([0, -2])


def test_equalities_price_what_a_moved_unit_saves():
    rng = np.random.default_rng(3)
    instance = Instance(rng.random((40, 4)), np.array([10] * 4), np.array([10] * 4), None)
    plan = solve_problem(instance.problem())
    base = plan.objective
    assert plan.prices.min() == 0
    for j in range(4):
        saved = [0.0]
        for k in range(4):
            if k != j:
                limits = one_more(one_more(instance.upper, j), k, -1)
                saved.append(base - cost(instance, upper=limits, lower=limits))
        assert plan.prices[j] == pytest.approx(max(saved), abs=1e-12)


def test_all_at_their_least_price_what_one_unit_less_saves():
    rng = np.random.default_rng(4)
    instance = Instance(rng.random((40, 4)), np.array([40] * 4), np.array([10] * 4), None)
    plan = solve_problem(instance.problem())
    assert (plan.prices <= 0).all()
    for j in range(4):
        saved = plan.objective - cost(instance, lower=one_more(instance.lower, j, -1))
        assert plan.prices[j] == pytest.approx(-saved, abs=1e-12)


def test_groups_that_cannot_exchange_cases_have_prices_all_the_same():
    """Two teams with their own cases, one full and one with room."""
    loss = np.array([[1.0, 4.0, 0, 0]] * 3 + [[0, 0, 1.0, 7.0]] * 3)
    eligible = np.array([[1, 1, 0, 0]] * 3 + [[0, 0, 1, 1]] * 3, dtype=bool)
    plan = solve(loss, upper=[2, 1, 2, 3], eligible=eligible)
    assert plan.objective == pytest.approx(1 + 1 + 4 + 1 + 1 + 7)
    assert plan.prices == pytest.approx([3, 0, 6, 0])
