"""`solve` against exhaustive search, against an LP solver, and against itself by another method."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from assign_instances import (
    Instance,
    check_against_search,
    excess_over_search,
    structured,
    tiny,
)
from deccaf.assign import solve, solve_problem, verify


def test_a_plan_one_can_check_by_hand():
    loss = np.array([[1.0, 5.0], [2.0, 9.0], [3.0, 4.0], [4.0, 4.5]])
    # everyone prefers the first maker, who takes two: keep those that lose most elsewhere (4 and 7)
    plan = solve(loss, upper=[2, 4])
    assert plan.maker.tolist() == [0, 0, 1, 1]
    assert plan.objective == 1 + 2 + 4 + 4.5
    # a third case at the first maker would be the third one, 3 instead of 4
    assert plan.prices == pytest.approx([1.0, 0.0])
    assert 0 <= plan.gap < 1e-13


@pytest.mark.parametrize("block", range(16))
def test_tiny_instances_against_search(block):
    for number in range(260):
        rng = np.random.default_rng([block, number])
        check_against_search(tiny(rng), "auto", number)


@pytest.mark.parametrize("method", ["lp", "cpsat"])
def test_general_solvers_never_claim_more_than_they_have(method):
    for number in range(120):
        excess, gap = excess_over_search(tiny(np.random.default_rng([99, number])), method, number)
        assert 0 <= excess <= gap


@st.composite
def instances(draw):
    n, makers = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
    loss = draw(st.lists(st.lists(value, min_size=makers, max_size=makers), min_size=n, max_size=n))
    upper = draw(st.lists(st.integers(0, n), min_size=makers, max_size=makers))
    lower = [draw(st.integers(0, most)) for most in upper]
    return Instance(np.array(loss), np.array(upper), np.array(lower), None)


@settings(max_examples=300, deadline=None)
@given(instances())
def test_small_counterexamples_would_show_here(instance):
    check_against_search(instance, "auto", 0)


def lp_optimum(instance: Instance) -> float:
    n, makers = instance.loss.shape
    size = n * makers
    rows, columns = np.divmod(np.arange(size), makers)
    by_case = sparse.csr_array((np.ones(size), (rows, np.arange(size))))
    by_maker = sparse.csr_array((np.ones(size), (columns, np.arange(size))))
    most = np.ones(size) if instance.eligible is None else instance.eligible.ravel().astype(float)
    result = linprog(
        np.where(most > 0, instance.loss.astype(float).ravel(), 0.0),
        A_ub=sparse.vstack([by_maker, -by_maker]),
        b_ub=np.concatenate([instance.upper, -instance.lower]),
        A_eq=by_case,
        b_eq=np.ones(n),
        bounds=np.column_stack([np.zeros(size), most]),
        method="highs",
    )
    assert result.status == 0, result.message
    return result.fun


@pytest.mark.parametrize("block", range(10))
def test_medium_instances_against_highs(block):
    for number in range(10):
        rng = np.random.default_rng([7, block, number])
        instance = structured(rng, int(rng.integers(20, 250)), int(rng.integers(2, 12)))
        problem = instance.problem()
        size = float(np.abs(instance.loss).max())
        for method in ("flow", "priced"):
            plan = solve_problem(problem, method)
            verify(problem, plan)
            # HiGHS works to 1e-7 of the largest coefficient, far more than the gap
            assert plan.objective == pytest.approx(lp_optimum(instance), abs=plan.gap + 2e-6 * size)
            assert plan.gap <= 1e-11 * (np.abs(instance.loss).sum() + np.abs(plan.prices) @ plan.load)


@pytest.mark.parametrize("block", range(10))
def test_pruning_changes_nothing(block):
    """The priced method against all arcs: the same cost, and the same prices."""
    for number in range(4):
        rng = np.random.default_rng([8, block, number])
        n, makers = int(rng.integers(700, 4000)), int(rng.integers(2, 25))
        instance = structured(rng, n, makers)
        problem = instance.problem()
        full, pruned = solve_problem(problem, "flow"), solve_problem(problem, "priced")
        verify(problem, pruned)
        size = np.abs(instance.loss[np.arange(n), full.maker].astype(float)).sum()
        assert pruned.objective == pytest.approx(full.objective, abs=1e-11 * size)
        assert pruned.gap <= 1e-11 * (size + np.abs(pruned.prices) @ pruned.load)
        typical = np.abs(instance.loss).mean() + np.abs(full.prices).max()
        np.testing.assert_allclose(pruned.prices, full.prices, atol=1e-9 * typical)


@pytest.mark.parametrize("seed", range(6))
def test_more_cases_than_a_sample_holds(seed):
    """Large enough for both samples; limits include closed, tiny and unlimited makers."""
    rng = np.random.default_rng(seed)
    n, makers = 40_000, 12
    instance = structured(rng, n, makers)
    upper, lower = instance.upper.copy(), instance.lower.copy()
    upper[0], lower[0], upper[1], lower[1], upper[2] = n, 0, 3, 0, 0
    lower[2] = 0
    instance = Instance(instance.loss, upper, lower, instance.eligible)
    if instance.eligible is not None:
        instance.eligible[:, 0] = True
    problem = instance.problem()
    plan = solve_problem(problem)
    assert plan.method == "priced"
    verify(problem, plan)
    size = np.abs(instance.loss[np.arange(n), plan.maker].astype(float)).sum()
    assert plan.gap <= 1e-11 * (size + np.abs(plan.prices) @ plan.load)


@pytest.mark.parametrize("kind", ["float32", "fortran", "integers", "lists"])
def test_any_matrix_will_do(kind):
    rng = np.random.default_rng(5)
    base = rng.integers(0, 100, (3000, 6)) / 100
    loss = {
        "float32": lambda: base.astype(np.float32),
        "fortran": lambda: np.asfortranarray(base),
        "integers": lambda: np.rint(base * 100).astype(int),
        "lists": lambda: base.tolist(),
    }[kind]()
    expected = solve(base, upper=[600] * 6).objective
    plan = solve(loss, upper=[600] * 6)
    factor = 100 if kind == "integers" else 1
    assert plan.objective == pytest.approx(expected * factor, rel=1e-6 if kind == "float32" else 1e-12)
