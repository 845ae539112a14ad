"""General solvers for the same problem: CP-SAT and the HiGHS LP (through SciPy).

They are here to be compared with, and for whoever does not trust the transportation solver. HiGHS comes
through SciPy because `highspy` and OR-Tools cannot live in one process.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deccaf.assign.exact.flow import InfeasibleFlowError, Limits, to_integers
from deccaf.assign.exact.scan import Arcs, Losses, all_arcs
from deccaf.errors import SolverError


def solve_lp(losses: Losses, limits: Limits, tie: float, time_limit: float) -> NDArray[np.int32]:
    """A vertex of the transportation polytope is a plan: HiGHS' dual simplex ends in one."""
    from scipy.optimize import linprog

    arcs = all_arcs(losses)
    value = arcs.value(np.zeros(losses.shape[1]), tie)
    largest = float(value.max(initial=0.0)) or 1.0
    size, columns = len(value), np.arange(len(value))
    ones = np.ones(size)
    by_case = scipy.sparse.csr_array((ones, (arcs.case, columns)), shape=(len(arcs.rows), size))
    by_maker = scipy.sparse.csr_array((ones, (arcs.maker, columns)), shape=(losses.shape[1], size))
    result: Any = linprog(  # type: ignore[call-overload]  # the stubs do not know sparse matrices
        value / largest,
        A_ub=scipy.sparse.vstack([by_maker, -by_maker]),
        b_ub=np.concatenate([limits.upper, -limits.lower]).astype(np.float64),
        A_eq=by_case,
        b_eq=np.ones(len(arcs.rows)),
        bounds=(0, 1),
        method="highs-ds",
        options={"time_limit": max(time_limit, 0.0)},
    )
    if result.status == 2:
        raise InfeasibleFlowError
    if result.x is None or result.status != 0:
        raise SolverError(f"lp: no plan within {time_limit:g} s ({result.message.strip()})")
    return _chosen(arcs, result.x > 0.5)


def solve_cpsat(
    losses: Losses, limits: Limits, tie: float, time_limit: float, seed: int
) -> NDArray[np.int32]:
    """One Boolean per arc; the best plan found in time, optimal or not."""
    from ortools.sat.python import cp_model

    arcs = all_arcs(losses)
    value = arcs.value(np.zeros(losses.shape[1]), tie)
    cost = to_integers(value - arcs.least(value)[arcs.case], max(len(arcs.rows), 1 << 16))
    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in range(len(cost))]
    ends = np.append(arcs.first, len(cost))
    for start, stop in pairwise(ends):
        model.add_exactly_one(taken[start:stop])
    for j in range(losses.shape[1]):
        mine = [taken[a] for a in np.flatnonzero(arcs.maker == j)]
        model.add_linear_constraint(sum(mine), int(limits.lower[j]), int(limits.upper[j]))
    model.minimize(cp_model.LinearExpr.weighted_sum(taken, cost.tolist()))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(time_limit, 0.0)
    solver.parameters.num_workers = os.cpu_count() or 1
    solver.parameters.random_seed = seed % (2**31)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        raise InfeasibleFlowError
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise SolverError(f"cpsat: no plan within {time_limit:g} s; raise time_limit or use method='auto'")
    return _chosen(arcs, np.array([solver.value(x) for x in taken], dtype=np.bool_))


def _chosen(arcs: Arcs, taken: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The plan from the arcs taken; one per case, or the solver failed."""
    chosen = np.flatnonzero(taken)
    if not np.array_equal(arcs.case[chosen], np.arange(len(arcs.rows))):
        raise SolverError("the solver did not give every case exactly one maker")
    return arcs.maker[chosen]
