"""Small instances against every plan there is; medium ones against a linear programme."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from deccaf import CapacityError
from deccaf.assign import AssignmentProblem, solve, verify

INSTANCES, SHARDS = 5_200, 4


@cache
def all_plans(cases: int, makers: int) -> tuple[np.ndarray, np.ndarray]:
    """Every plan of `cases` cases, and the load of every maker in each."""
    plans = np.indices((makers,) * cases).reshape(cases, -1).T
    return plans, np.stack([(plans == j).sum(axis=1) for j in range(makers)], axis=1)


def cheapest(loss, upper, lower, eligible) -> float | None:
    plans, load = all_plans(*loss.shape)
    fits = (load <= upper).all(axis=1) & (load >= lower).all(axis=1)
    rows = np.arange(len(loss))
    if eligible is not None:
        fits &= eligible[rows, plans].all(axis=1)
    if not fits.any():
        return None
    return float(loss[rows, plans[fits]].sum(axis=1).min())


def draw_losses(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Ordinary, tied, zero, huge, tiny, of mixed size, negative."""
    loss = rng.random(shape)
    kinds = (
        lambda: loss,
        lambda: np.round(loss, 1),
        lambda: np.zeros(shape),
        lambda: loss * 10.0 ** rng.integers(-300, 300),
        lambda: loss * 10.0 ** rng.integers(-8, 8, shape),
        lambda: rng.integers(-3, 3, shape).astype(float),
        lambda: np.outer(rng.random(shape[0]), rng.random(shape[1])),
        lambda: np.repeat(loss[:1], shape[0], axis=0),
    )
    return kinds[rng.integers(len(kinds))]()


def draw_instance(rng: np.random.Generator):
    cases, makers = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    loss = draw_losses(rng, (cases, makers))
    upper = rng.integers(0, cases + 1, makers)
    if rng.random() < 0.7:  # most instances can be solved
        upper[rng.integers(makers)] = cases
    lower = np.zeros(makers, int)
    if rng.random() < 0.4:
        lower = np.minimum(upper, rng.integers(0, 2, makers) * rng.integers(0, cases // 2 + 1, makers))
    if rng.random() < 0.15:
        upper = np.bincount(rng.integers(0, makers, cases), minlength=makers)
        lower = upper.copy()
    eligible = rng.random((cases, makers)) < 0.8 if rng.random() < 0.3 else None
    return loss, upper, lower, eligible


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_plan_is_cheaper(shard: int) -> None:
    solved = infeasible = 0
    for number in range(INSTANCES // SHARDS):
        rng = np.random.default_rng([shard, number])
        loss, upper, lower, eligible = draw_instance(rng)
        best = cheapest(loss, upper, lower, eligible)
        methods = ("auto",) if number % 40 else ("auto", "flow", "priced", "lp", "cpsat")
        for method in methods:
            if best is None:
                with pytest.raises(CapacityError):
                    solve(loss, upper, lower, eligible, method=method)
                infeasible += 1
                continue
            plan = solve(loss, upper, lower, eligible, method=method, seed=number)
            verify(AssignmentProblem.of(loss, upper, lower, eligible), plan)
            size = np.abs(loss).sum()
            assert plan.objective <= best + plan.gap + 1e-12 * size, (shard, number, method)
            if method not in ("lp", "cpsat"):  # general solvers stop at a tolerance, and say so in the gap
                assert plan.gap <= 1e-9 * max(size, 1e-300), (shard, number, method)
            solved += 1
    assert solved > infeasible > 0


def linear_programme(loss, upper, lower, eligible) -> float:
    n, makers = loss.shape
    case, maker = np.divmod(np.arange(n * makers), makers)
    once = coo_array((np.ones(n * makers), (case, np.arange(n * makers))), shape=(n, n * makers)).tocsr()
    load = coo_array(
        (np.ones(n * makers), (maker, np.arange(n * makers))), shape=(makers, n * makers)
    ).tocsr()
    allowed = np.ones(n * makers) if eligible is None else eligible.ravel().astype(float)
    found = linprog(
        loss.ravel(),
        A_ub=vstack([load, -load]),
        b_ub=np.concatenate([upper, -lower]),
        A_eq=once,
        b_eq=np.ones(n),
        bounds=np.column_stack([np.zeros(n * makers), allowed]),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("shard", range(4))
def test_medium_instances_match_a_linear_programme(shard: int) -> None:
    for number in range(25):
        rng = np.random.default_rng([99, shard, number])
        n, makers = int(rng.integers(40, 400)), int(rng.integers(2, 12))
        loss = np.round(rng.random((n, makers)) ** 2, int(rng.integers(1, 9)))
        lower = rng.multinomial(n // 2, np.full(makers, 1 / makers))
        upper = lower + rng.multinomial(n, np.full(makers, 1 / makers))
        eligible = rng.random((n, makers)) < 0.9 if number % 3 == 0 else None
        if eligible is not None:
            eligible[:, 0] = True
            upper[0] = n
        method = ("auto", "priced", "flow")[number % 3]
        plan = solve(loss, upper, lower, eligible, method=method)
        verify(AssignmentProblem.of(loss, upper, lower, eligible), plan)
        assert plan.objective == pytest.approx(
            linear_programme(loss, upper, lower, eligible), abs=plan.gap + 1e-7 * n
        )


@pytest.mark.parametrize("seed", range(40))
def test_a_price_is_what_one_more_unit_saves(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    n, makers = int(rng.integers(5, 200)), int(rng.integers(2, 7))
    loss = rng.random((n, makers))
    upper = np.append(rng.integers(0, n // makers + 1, makers - 1), n)
    plan = solve(loss, upper)
    for j in range(makers):
        more = upper.copy()
        more[j] += 1
        saved = plan.objective - solve(loss, more).objective
        assert plan.prices[j] == pytest.approx(saved, abs=1e-9)
