"""Makers that are nearly alike, and other losses that are hard to prune: against the flow, and against search."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from assign_instances import (
    ADVERSARIAL,
    Instance,
    chained,
    check_against_search,
    tiny,
)
from deccaf.assign import AssignmentProblem, solve, solve_problem, verify
from deccaf.assign.exact import generation, sample_prices, transport
from deccaf.assign.exact.flow import Deadline


@pytest.fixture
def generated(monkeypatch):
    """Arcs are generated whatever the size; counts how often that led to a plan."""
    seen = {"plans": 0, "asked": 0}
    certify = transport._certify_generated

    def counting(*arguments):
        plan = certify(*arguments)
        seen["asked"] += 1
        seen["plans"] += plan is not None
        return plan

    monkeypatch.setattr(transport, "MANY", 1)
    monkeypatch.setattr(sample_prices, "sample_sizes", lambda n, makers: [0])
    monkeypatch.setattr(transport, "_certify_generated", counting)
    return seen


@pytest.mark.parametrize("block", range(6))
def test_generating_arcs_against_search(block, generated):
    for number in range(120):
        check_against_search(tiny(np.random.default_rng([55, block, number])), "priced", number)
    assert generated["plans"] > 0.8 * generated["asked"]


def test_a_machine_with_room_needs_no_full_flow(generated):
    made = ADVERSARIAL["roomy machine"](np.random.default_rng(1), 12_000, 200)
    plan = solve(made.loss, made.upper, made.lower, method="priced")
    assert generated == {"plans": 1, "asked": 1}
    assert plan.gap <= 1e-12 * plan.objective


def check_against_flow(problem: AssignmentProblem, method: str) -> None:
    plan, full = solve_problem(problem, method), solve_problem(problem, "flow")
    verify(problem, plan)
    size = np.abs(problem.loss[np.arange(problem.shape[0]), full.maker]).sum()
    assert not plan.stopped
    assert plan.objective == pytest.approx(full.objective, abs=1e-12 * size)
    assert plan.gap <= 1e-11 * (size + np.abs(plan.prices) @ plan.load)
    typical = np.median(np.abs(problem.loss)) + np.abs(full.prices).max()
    np.testing.assert_allclose(plan.prices, full.prices, atol=1e-9 * typical)


@pytest.mark.parametrize("kind", ADVERSARIAL)
@pytest.mark.parametrize("seed", range(2))
def test_hard_losses_against_the_flow(kind, seed):
    instance = ADVERSARIAL[kind](np.random.default_rng(seed), 3_200, 110)
    check_against_flow(instance.problem(), "priced")


@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_hard_losses_of_few_makers_against_the_flow(kind):
    for seed in range(3):
        rng = np.random.default_rng([seed, 1])
        instance = ADVERSARIAL[kind](rng, int(rng.integers(300, 2500)), int(rng.integers(5, 20)))
        check_against_flow(instance.problem(), "auto")


@pytest.mark.parametrize("kind", ["fitted", "two traits", "duplicates"])
def test_hard_losses_with_lower_limits_and_eligibility(kind, generated):
    rng = np.random.default_rng(3)
    made = ADVERSARIAL[kind](rng, 2_000, 40)
    eligible = rng.random(made.loss.shape) < 0.7
    eligible[:, 0] = True
    upper = made.upper.copy()
    upper[0] = 2_000
    check_against_flow(Instance(made.loss, upper, made.upper // 3, eligible).problem(), "priced")
    assert generated["plans"]


@pytest.mark.parametrize("block", range(8))
def test_chains_of_eligibility_do_not_overflow(block):
    """Potentials add up along 50 makers; whatever the flow's integers, there is a plan."""
    for number in range(25):
        rng = np.random.default_rng([9, block, number])
        problem = chained(rng, int(rng.integers(60, 2_500)), 50).problem()
        for method in ("auto", "priced"):
            plan = solve_problem(problem, method)
            verify(problem, plan)
            assert plan.gap <= 1e-9 * plan.objective


def test_losses_of_very_different_size_leave_no_gap():
    """Integers as fine as the solver takes do not tell ordinary losses apart beside 1e14."""
    made = ADVERSARIAL["outliers"](np.random.default_rng(0), 2_000, 30)
    plan = solve_problem(made.problem(), "flow")
    ordinary = made.loss.max(axis=1) < 2
    assert plan.objective < 5.1e14
    swapped = made.loss[ordinary]
    alone = solve(swapped, plan.load - np.bincount(plan.maker[~ordinary], minlength=30))
    here = made.loss[np.arange(2_000), plan.maker][ordinary].sum()
    assert here <= alone.objective + 1e-9


PRINT_PLAN = """
import sys
sys.path.insert(0, sys.argv[1])
import hashlib, numpy as np
from assign_instances import ADVERSARIAL
from deccaf.assign import solve
from deccaf.assign.exact import flow, scan
scan.threads_available = lambda: {threads}
spent = iter(range(10**9))
flow.Deadline.spent = lambda self: {slow} * next(spent)
made = ADVERSARIAL["two traits"](np.random.default_rng(0), 4_000, 110)
plan = solve(made.loss, made.upper, made.lower, seed=5)
print(hashlib.sha256(plan.maker.tobytes() + plan.prices.tobytes()).hexdigest(), plan.gap, plan.stopped)
"""


def test_same_plan_on_a_busy_machine(request):
    """However long a step takes and however many threads there are, until the time limit ends the search."""
    scripts = [PRINT_PLAN.format(threads=t, slow=s) for t, s in ((2, 0.0), (1, 0.5), (3, 1.0))]
    tests = str(request.path.parent)
    printed = [subprocess.check_output([sys.executable, "-c", code, tests], text=True) for code in scripts]
    assert len(set(printed)) == 1
    assert printed[0].endswith("False\n")


def test_a_search_that_the_time_limit_ends_says_so(monkeypatch):
    made = ADVERSARIAL["rank 1"](np.random.default_rng(0), 4_000, 110)
    best = solve_problem(made.problem(), "flow")
    steps = iter(range(10**9))
    monkeypatch.setattr(Deadline, "spent", lambda self: 20.0 * next(steps))
    plan = solve_problem(made.problem(), "priced")
    verify(made.problem(), plan)
    assert plan.stopped
    assert best.objective <= plan.objective <= best.objective + plan.gap


def changed(made: Instance, rng: np.random.Generator, what: str) -> Instance:
    loss, upper = made.loss, made.upper + made.upper // 5 + 1
    if what == "cases more":
        loss = np.vstack([loss, loss[rng.integers(0, len(loss), 50)] * rng.uniform(0.8, 1.2, (50, 1))])
        upper[:-1] += 2
    if what == "one absent":
        upper = np.where(np.arange(len(upper)) == 3, 0, upper)
    return Instance(loss, upper, 0 * upper, made.eligible)


@pytest.mark.parametrize("what", ["nothing", "cases more", "one absent"])
@pytest.mark.parametrize("kind", ["fitted", "rank 2", "near-ties", "outliers"])
def test_from_given_prices_the_plan_is_the_same(kind, what):
    for n, makers in ((2_500, 12), (3_000, 120)):
        rng = np.random.default_rng(2)
        made = ADVERSARIAL[kind](rng, n, makers)
        before = solve_problem(changed(made, rng, "nothing").problem())
        problem = changed(made, rng, what).problem()
        anew = solve_problem(problem, "priced")
        warm = solve_problem(problem, "priced", warm_prices=before.prices)
        verify(problem, warm)
        size = np.abs(problem.loss[np.arange(problem.shape[0]), anew.maker]).sum()
        assert warm.objective == pytest.approx(anew.objective, abs=1e-13 * size)
        if kind != "near-ties":  # there the cheapest plan is not the only one
            assert np.array_equal(warm.maker, anew.maker)
        typical = np.median(np.abs(problem.loss)) + np.abs(anew.prices).max()
        np.testing.assert_allclose(warm.prices, anew.prices, atol=1e-9 * typical)


def test_prices_that_are_nonsense_cost_time_alone():
    made = ADVERSARIAL["fitted"](np.random.default_rng(4), 2_500, 12)
    anew = solve_problem(made.problem(), "priced")
    for prices in (np.full(12, 1e6), np.arange(12.0), -np.arange(12.0)):
        warm = solve_problem(made.problem(), "priced", warm_prices=prices)
        assert np.array_equal(warm.maker, anew.maker)


@pytest.mark.parametrize("loads", ["exact", "full", "with closed makers"])
@pytest.mark.parametrize("kind", ["generic", *list(ADVERSARIAL)[:3]])
def test_a_corrected_sample_with_loads_that_leave_no_room(kind, loads, generated, monkeypatch):
    """What a sample is asked for instead has to add up to all cases too."""
    monkeypatch.setattr(generation, "SAMPLE", 1_000)
    monkeypatch.setattr(generation, "TO_CORRECT", 1)
    rng = np.random.default_rng([9, len(kind)])
    if kind == "generic":
        loss = rng.random((3_000, 40))
    else:
        loss = np.asarray(ADVERSARIAL[kind](rng, 3_000, 40).loss, np.float64)
    share = rng.dirichlet(np.full(40, 2.0))
    if loads == "with closed makers":
        share[rng.choice(40, 12, replace=False)] = 0.0
    upper = rng.multinomial(3_000, share / share.sum())
    lower = np.zeros_like(upper) if loads == "full" else upper
    asked = []
    fitting = generation._fitting
    monkeypatch.setattr(generation, "_fitting", lambda *a: asked.append(fitting(*a)) or asked[-1])
    check_against_flow(AssignmentProblem(loss, upper, lower), "priced")
    assert asked
    for limits in asked:
        assert limits.lower.min() >= 0
        assert (limits.lower <= limits.upper).all()
        assert limits.lower.sum() <= 3_000 <= limits.upper.sum()


def test_limits_that_fit_are_next_to_those_asked_for():
    rng = np.random.default_rng(0)
    for _ in range(300):
        total = int(rng.integers(1, 400))
        load = rng.multinomial(total, rng.dirichlet(np.full(12, 0.5)))
        off = rng.integers(-9, 10, 12) * (load > 0)
        for lower, upper in ((load, load), (np.zeros_like(load), load), (load, load + 3)):
            found = generation._fitting(lower + off, upper + off, total)
            assert found.lower.min() >= 0
            assert (found.lower <= found.upper).all()
            assert found.lower.sum() <= total <= found.upper.sum()
    whole = generation._fitting(np.array([2, 3]), np.array([4, 9]), 10)
    np.testing.assert_array_equal([whole.lower, whole.upper], [[2, 3], [4, 9]])


def sampled(number: int, monkeypatch) -> AssignmentProblem:
    """A problem of any kind, and samples so small that every stage of the search is passed through."""
    rng = np.random.default_rng([123, number])
    n, makers = int(rng.integers(600, 4_000)), int(rng.integers(5, 60))
    monkeypatch.setattr(generation, "SAMPLE", int(rng.integers(200, 4_000)))
    monkeypatch.setattr(generation, "PER_MAKER", int(rng.integers(1, 5)))
    monkeypatch.setattr(generation, "TO_CORRECT", 1)
    monkeypatch.setattr(generation, "CORRECTIONS", 1 + number % 3)
    monkeypatch.setattr(generation, "BLOCK", int(rng.choice([4, 16, 64])))
    kind = str(rng.choice(["generic", "rounded", *ADVERSARIAL]))
    if kind in ADVERSARIAL:
        loss = np.asarray(ADVERSARIAL[kind](rng, n, makers).loss, np.float64)
    else:
        loss = rng.random((n, makers)).round(1 if kind == "rounded" else 9)
    n, makers = loss.shape
    share = rng.dirichlet(np.full(makers, float(rng.choice([0.3, 1.0, 5.0]))))
    if rng.random() < 0.3:
        share[rng.choice(makers, max(1, makers // 4), replace=False)] = 0.0
    load = rng.multinomial(n, share / share.sum())
    room = rng.integers(0, n // makers + 1, makers)
    some = (load * rng.random(makers)).astype(np.int64)
    lower, upper = [(load, load), (0 * load, load), (0 * load, load + room), (some, load + room)][number % 4]
    eligible = None
    if rng.random() < 0.4:
        eligible = rng.random((n, makers)) < rng.choice([0.3, 0.8])
        eligible[np.arange(n), rng.permutation(np.repeat(np.arange(makers), load))] = True
    return AssignmentProblem(loss, upper, lower, eligible)


SHORT = (145, 548, 552, 665, 777, 795, 881, 883, 1229)
"""Where a maker that was short of room in a flow has no case to give, and no other maker needs one."""


@pytest.mark.parametrize(
    "numbers", [range(40), SHORT, pytest.param(range(40, 3_000), marks=pytest.mark.long)]
)
@pytest.mark.usefixtures("generated")
def test_small_samples_against_the_flow(numbers, monkeypatch):
    for number in numbers:
        problem = sampled(number, monkeypatch)
        plan, full = solve_problem(problem, "priced"), solve_problem(problem, "flow")
        verify(problem, plan)
        size = np.abs(problem.loss[np.arange(problem.shape[0]), full.maker]).sum()
        assert plan.objective == pytest.approx(full.objective, abs=1e-11 * size), number
        assert not plan.stopped, number
