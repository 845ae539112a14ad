"""`verify` passes right plans and catches wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deccaf.assign import AssignmentProblem, solve_problem, verify
from deccaf.errors import SolverError


@pytest.fixture
def solved():
    rng = np.random.default_rng(0)
    eligible = rng.random((300, 4)) < 0.8
    eligible[:, 0] = True
    problem = AssignmentProblem.of(rng.random((300, 4)), [150, 70, 70, 70], [0, 50, 0, 0], eligible, "monday")
    return problem, solve_problem(problem)


def moved(plan, case, maker):
    changed = plan.maker.copy()
    changed[case] = maker
    return changed


def test_a_right_plan_passes(solved):
    assert verify(*solved) is None


def swap_two(problem, plan):
    """Same loads, higher cost, cost reported right: only the duals can tell."""
    gain = np.inf
    for i in np.flatnonzero(plan.maker == 0)[:40]:
        for k in np.flatnonzero(plan.maker == 1)[:40]:
            if problem.eligible[i, 1]:
                more = problem.loss[i, 1] + problem.loss[k, 0] - problem.loss[i, 0] - problem.loss[k, 1]
                if 1e-6 < more < gain:
                    gain, best = more, (i, k)
    maker = moved(plan, best[0], 1)
    maker[best[1]] = 0
    return replace(plan, maker=maker, objective=plan.objective + gain)


WRONG = {
    "one case short": (lambda p, a: replace(a, maker=a.maker[:-1]), "one whole number per case"),
    "fractions": (lambda p, a: replace(a, maker=a.maker.astype(float)), "one whole number per case"),
    "no such maker": (
        lambda p, a: replace(a, maker=moved(a, 3, 4)),
        "1 cases go to makers that do not exist",
    ),
    "negative maker": (lambda p, a: replace(a, maker=moved(a, 3, -1)), "do not exist"),
    "too many": (lambda p, a: replace(a, maker=np.zeros(300, int)), "maker 0 has 300 cases, limits 0 to 150"),
    "too few": (
        lambda p, a: replace(a, maker=np.where(a.maker == 1, 0, a.maker)),
        "maker 1 has 0 cases, limits 50 to 70",
    ),
    "not eligible": (
        lambda p, a: replace(a, maker=moved(a, np.flatnonzero(~p.eligible[:, 3])[0], 3)),
        "not eligible",
    ),
    "objective too low": (lambda p, a: replace(a, objective=a.objective - 1e-6), "objective is"),
    "objective of another plan": (swap_two, "prices prove a gap"),
    "gap too small": (
        lambda p, a: replace(swap_two(p, a), gap=1e-9),
        "prices prove a gap",
    ),
    "price too high": (
        lambda p, a: replace(a, prices=a.prices + np.array([0.05, 0, 0, 0])),
        "prices prove a gap",
    ),
    "prices zero": (lambda p, a: replace(a, prices=np.zeros(4)), "prices prove a gap"),
    "price missing": (lambda p, a: replace(a, prices=a.prices[:3]), "one finite price per maker"),
    "price not a number": (lambda p, a: replace(a, prices=np.full(4, np.nan)), "one finite price per maker"),
    "gap negative": (lambda p, a: replace(a, gap=-1.0), "gap -1.0"),
    "gap not a number": (lambda p, a: replace(a, gap=np.nan), "gap nan"),
    "objective not finite": (lambda p, a: replace(a, objective=np.inf), "objective inf"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_plans_are_caught(name, solved):
    problem, plan = solved
    wrong, message = WRONG[name]
    with pytest.raises(SolverError, match=message) as error:
        verify(problem, wrong(problem, plan))
    assert str(error.value).startswith("monday: plan rejected: ")


def test_an_honest_gap_passes(solved):
    problem, plan = solved
    worse = swap_two(problem, plan)
    honest = replace(worse, gap=worse.objective - plan.objective + plan.gap)
    assert verify(problem, honest) is None


def test_a_large_gap_is_a_rounded_sum():
    """A plan ended by the time limit claims thousands; adding up in another order gives other last digits."""
    rng = np.random.default_rng(1)
    problem = AssignmentProblem.of(rng.random((500, 3)) * 1e3, [500] * 3)
    plan = solve_problem(problem)
    worse = replace(plan, maker=np.zeros(500, np.int32), objective=float(problem.loss[:, 0].sum()))
    gap = worse.objective - plan.objective
    verify(problem, replace(worse, gap=gap * (1 - 1e-11)))
    with pytest.raises(SolverError, match="prove a gap of") as refused:
        verify(problem, replace(worse, gap=gap * (1 - 1e-7)))
    proved, claimed = str(refused.value).split("gap of ")[1].split(", not ")
    assert proved != claimed  # enough digits to see why
