"""An independent check of a plan, to run before anyone sees it.

It shares no code with the solvers: it reads the matrix, the plan and the prices, and nothing else.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.problem import Assignment, AssignmentProblem
from deccaf.errors import SolverError

ROWS = 4096


def verify(problem: AssignmentProblem, assignment: Assignment) -> None:
    """Raise `SolverError` with everything that is wrong with the plan; return if nothing is.

    Every case has one maker, eligible, within the limits; the objective is the plan's; and weak duality with
    the plan's prices bounds the optimum within the claimed gap:

        sum_i min_j (L_ij + price_j) - sum_j (price_j^+ upper_j - price_j^- lower_j)  >=  objective - gap
    """
    wrong = _wrong_shape(problem, assignment) or _wrong_plan(problem, assignment)
    if not wrong:
        wrong = _wrong_claims(problem, assignment)
    if wrong:
        prefix = f"{problem.name}: " if problem.name else ""
        raise SolverError(f"{prefix}plan rejected: {'; '.join(wrong)}")


def _wrong_shape(problem: AssignmentProblem, plan: Assignment) -> list[str]:
    n, makers = problem.shape
    wrong = []
    maker = np.asarray(plan.maker)
    if maker.shape != (n,) or maker.dtype.kind not in "iu":
        wrong.append(f"expected one whole number per case, got {maker.dtype} of shape {maker.shape}")
    elif n and (maker.min() < 0 or maker.max() >= makers):
        wrong.append(f"{int(((maker < 0) | (maker >= makers)).sum())} cases go to makers that do not exist")
    if np.shape(plan.prices) != (makers,) or not np.isfinite(plan.prices).all():
        wrong.append("expected one finite price per maker")
    if not (math.isfinite(plan.objective) and plan.gap >= 0):
        wrong.append(f"objective {plan.objective} with gap {plan.gap}")
    return wrong


def _wrong_plan(problem: AssignmentProblem, plan: Assignment) -> list[str]:
    wrong = []
    load = np.bincount(plan.maker, minlength=problem.shape[1])
    for j in np.flatnonzero((load > problem.upper) | (load < problem.lower)):
        limits = f"{problem.lower[j]} to {problem.upper[j]}"
        wrong.append(f"{problem.maker_name(int(j))} has {load[j]} cases, limits {limits}")
    if problem.eligible is not None:
        barred = np.flatnonzero(~problem.eligible[np.arange(len(plan.maker)), plan.maker])
        if len(barred):
            first = problem.case_name(int(barred[0]))
            wrong.append(f"{len(barred)} cases go to makers not eligible for them, first: {first}")
    return wrong[:10]


def _wrong_claims(problem: AssignmentProblem, plan: Assignment) -> list[str]:
    wrong = []
    own, best = _sums(problem, plan.maker, np.asarray(plan.prices, dtype=np.float64))
    objective, size = math.fsum(own), math.fsum(np.abs(own))
    # a sum of n floats is only known up to this; the solver may have added in another order
    rounding = 1e-12 * size
    if abs(objective - plan.objective) > rounding:
        wrong.append(f"objective is {objective!r}, not {plan.objective!r}")
    limits = np.where(plan.prices > 0, problem.upper, problem.lower)
    bound = math.fsum([*best, *(-np.asarray(plan.prices) * limits)])
    scale = size + math.fsum(np.abs(plan.prices) * limits) + math.fsum(np.abs(best))
    if objective - bound > plan.gap * (1 + 1e-9) + 1e-14 * scale:  # a large gap is itself a rounded sum
        wrong.append(f"prices prove a gap of {objective - bound:.12g}, not {plan.gap:.12g}")
    return wrong


def _sums(
    problem: AssignmentProblem, maker: NDArray[np.int32], prices: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """The plan's loss and the cheapest priced loss, summed exactly by block of rows."""
    own, best = [], []
    for start in range(0, problem.shape[0], ROWS):
        block = problem.loss[start : start + ROWS].astype(np.float64)
        own.append(math.fsum(block[np.arange(len(block)), maker[start : start + ROWS]]))
        block += prices
        if problem.eligible is not None:
            block[~problem.eligible[start : start + ROWS]] = np.inf
        best.append(math.fsum(block.min(axis=1)))
    return own, best
