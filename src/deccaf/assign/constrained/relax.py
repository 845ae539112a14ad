"""Solving a programme: its linear relaxation by column generation, then a plan by rounding.

There are few rows, so an optimal vertex of the relaxation splits few cases (at most one per row), and the
prices of the rows settle nearly all others. What remains goes to HiGHS as a small mixed-integer programme.
The bound comes from the prices alone and holds for all columns, those left out too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from deccaf.assign.constrained.columns import BROKEN, Programme
from deccaf.assign.exact.flow import Deadline
from deccaf.assign.exact.scan import Bools, Floats, Ints

ALL_COLUMNS = 20_000  # up to here the relaxation is solved at once
SMOOTHING = (1.0, 0.2, 0.05, 0.02, 0.01)  # of the mean cost
STEPS = 120
KEPT = 1.5  # columns a case, on average, that start the relaxation
ROUNDS = 60
LP_GAP = 3e-5  # of the objective: the relaxation is solved when its bound is this close
MOST = 1e6  # penalty on one unit of a row, times the spread of the costs: beyond it a row cannot be held
SANE = 100.0  # the same for the first prices
OPEN = (300, 1_500, 8_000)  # columns beside the relaxation's own among which a plan is looked for
PROVED_IMPOSSIBLE = 2  # SciPy's status


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Prices of the rows, the bound they prove, the share of every column, by how much rows are broken."""

    prices: Floats
    bound: float
    share: Floats
    broken: Floats


@dataclass(frozen=True, eq=False)
class Rounded:
    """A plan: the chosen column of every case, what it costs, and what no plan costs less than."""

    chosen: Ints
    objective: float
    bound: float


def relax(
    programme: Programme, deadline: Deadline, start: Floats | None = None, ceiling: float = MOST
) -> Relaxation:
    """Solve the linear relaxation; rows may be broken at a penalty, so that there is always a solution.

    Penalties begin near the starting prices, which keeps the prices of early rounds sane, and grow for rows
    that stay broken, up to `ceiling` times the spread of the costs.
    """
    columns = programme.columns
    if not len(programme.lower):  # nothing is asked for: every case takes its cheapest column
        cheapest = (columns.cost <= programme.least(columns.cost)[columns.case]).astype(np.float64)
        return Relaxation(programme.lower, programme.bound(programme.lower), cheapest, programme.lower)
    spread = float(np.ptp(columns.cost)) if len(columns) else 0.0
    most = ceiling * (spread or 1.0)
    if start is None and len(columns) > ALL_COLUMNS:
        start = _ascend(programme, deadline)
    penalty = np.full(len(programme.lower), most)
    if start is not None and spread > 0:
        penalty = np.minimum(5 * np.abs(start) + np.abs(start).mean() + 1e-3 * (spread or 1.0), most)
    kept = _near(programme, start)
    best = Relaxation(np.zeros(len(penalty)), -np.inf, np.zeros(len(columns)), np.zeros(len(penalty)))
    for _ in range(ROUNDS):
        found = _restricted(programme, kept, penalty, deadline)
        bound = programme.bound(found.prices)
        value = found.bound
        best = (
            replace(found, bound=bound)
            if bound >= best.bound
            else replace(found, prices=best.prices, bound=best.bound)
        )
        if deadline.left() <= 0 or best.bound > programme.dearest:
            break
        more = _missing(programme, programme.reduced(found.prices), kept)
        done = value - best.bound <= LP_GAP * max(abs(value), 1e-9) or not more.any()
        stuck = (found.broken > BROKEN) & (penalty < most)
        if done and not stuck.any():
            break
        if done:
            penalty = np.where(stuck, np.minimum(10 * penalty, most), penalty)
        kept |= more
    return best


def _ascend(programme: Programme, deadline: Deadline) -> Floats:
    """Prices close to optimal: the bound, smoothed, is raised by quasi-Newton steps, ever less smoothed.

    A row has two prices that are not negative, one for its lower and one for its upper limit.
    """
    from scipy.optimize import minimize

    rows, spread = len(programme.lower), float(np.ptp(programme.columns.cost))
    low, high = np.isfinite(programme.lower), np.isfinite(programme.upper)
    most = SANE * spread if spread > 0 else 1.0
    bounds = [(0.0, most if allowed else 0.0) for allowed in np.append(low, high)]
    limits = np.where(np.append(low, high), np.append(programme.lower, -programme.upper), 0.0)
    both = np.zeros(2 * rows)
    size = float(np.mean(np.abs(programme.columns.cost))) or 1.0
    for smoothing in SMOOTHING:

        def lost(both: Floats, heat: float = smoothing * size) -> tuple[float, Floats]:
            value, slope = programme.smooth(both[:rows] - both[rows:], heat)
            return -value - float(both @ limits), -np.append(slope, -slope) - limits

        both = minimize(
            lost, both, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": STEPS, "maxcor": 20}
        ).x
        if deadline.left() <= 0:
            break
    return programme.signed(both[:rows] - both[rows:])


def _near(programme: Programme, start: Floats | None) -> Bools:
    """Columns to begin with: all, or each case's best at the starting prices and others close to it."""
    columns = programme.columns
    if len(columns) <= ALL_COLUMNS:
        return np.ones(len(columns), np.bool_)
    reduced = programme.reduced(np.zeros(len(programme.lower)) if start is None else start)
    above = reduced - programme.least(reduced)[columns.case]
    wanted = min(int(KEPT * columns.cases), len(above) - 1)
    near: Bools = above <= np.partition(above, wanted)[wanted]
    return near


def _missing(programme: Programme, reduced: Floats, kept: Bools) -> Bools:
    """For every case that has a cheaper column than those kept: the cheapest one."""
    columns = programme.columns
    inside = programme.least(np.where(kept, reduced, np.inf))
    cheapest = programme.least(reduced)
    tolerance = 1e-9 * (1.0 + np.abs(cheapest))
    better = cheapest < inside - tolerance
    more: Bools = better[columns.case] & (reduced <= cheapest[columns.case]) & ~kept
    return more


@dataclass(frozen=True, eq=False)
class _Part:
    """The open cases of a programme: those that keep more than one column. The others are settled."""

    open: Ints  # columns of open cases
    case: Ints  # numbered anew
    settled: Ints  # columns of settled cases

    @classmethod
    def of(cls, programme: Programme, kept: Bools) -> _Part:
        columns = programme.columns
        count = np.bincount(columns.case[kept], minlength=columns.cases)
        opened = np.flatnonzero(kept & (count[columns.case] > 1))
        number = np.cumsum(count > 1) - 1
        return cls(opened, number[columns.case[opened]], np.flatnonzero(kept & (count[columns.case] == 1)))

    @property
    def cases(self) -> int:
        """How many cases are open."""
        return int(self.case.max(initial=-1)) + 1

    def one_each(self, extra: int) -> Any:
        """Every open case takes one column; `extra` variables follow the columns."""
        place = self.case, np.arange(len(self.open))
        return scipy.sparse.csr_array(
            (np.ones(len(self.open)), place), shape=(self.cases, len(self.open) + extra)
        )


def _restricted(programme: Programme, kept: Bools, penalty: Floats, deadline: Deadline) -> Relaxation:
    """The relaxation over the kept columns; its `bound` is its own value."""
    from scipy.optimize import linprog

    part = _Part.of(programme, kept)
    fixed = programme.values(part.settled)
    lower, upper = programme.lower - fixed, programme.upper - fixed
    rows, levels = len(lower), programme.levels.shape[1]
    body = scipy.sparse.hstack([programme.matrix[:, part.open], scipy.sparse.csr_array(programme.levels)])
    slack = scipy.sparse.eye_array(rows)
    above, below = np.flatnonzero(np.isfinite(upper)), np.flatnonzero(np.isfinite(lower))
    full = scipy.sparse.csr_array(scipy.sparse.hstack([body, -slack, slack]))  # value - over + under
    bounds = np.tile([0.0, np.inf], (full.shape[1], 1))
    bounds[len(part.open) : len(part.open) + levels] = programme.level_bounds
    result: Any = linprog(  # type: ignore[call-overload]  # the stubs do not know sparse matrices
        np.concatenate([programme.columns.cost[part.open], np.zeros(levels), penalty, penalty]),
        A_ub=scipy.sparse.vstack([full[above], -full[below]]),
        b_ub=np.concatenate([upper[above], -lower[below]]),
        A_eq=part.one_each(levels + 2 * rows),
        b_eq=np.ones(part.cases),
        bounds=bounds,
        method="highs",
        options={"time_limit": max(deadline.left(), 0.1)},
    )
    prices, share = np.zeros(rows), np.zeros(len(programme.columns))
    share[part.settled] = 1.0
    if result.status != 0:
        return Relaxation(prices, np.inf, share, np.full(rows, np.inf))
    prices[above] += result.ineqlin.marginals[: len(above)]
    prices[below] -= result.ineqlin.marginals[len(above) :]
    share[part.open] = result.x[: len(part.open)]
    value = float(result.fun) + float(programme.columns.cost[part.settled].sum())
    over, under = result.x[len(part.open) + levels :].reshape(2, rows)
    return Relaxation(programme.signed(prices), value, share, over + under)


def round_off(programme: Programme, relaxed: Relaxation, deadline: Deadline, target: float) -> Rounded | None:
    """A plan near the relaxation: among its own columns and the next cheapest, ever more until one is found.

    Then, while the gap is above `target` (a share of the objective), among all columns that a better plan
    could use: one that is dearer than the gap at the prices cannot be part of it. None: no plan was found.
    """
    columns = programme.columns
    reduced = programme.reduced(relaxed.prices)
    above = reduced - programme.least(reduced)[columns.case]
    best, kept = None, np.zeros(len(columns), np.bool_)
    for wanted in (*OPEN, len(columns)):
        place = min(columns.cases + wanted, len(above) - 1)
        kept = (above <= np.partition(above, place)[place]) | (relaxed.share > 1e-9)
        best = _integer(programme, kept, relaxed.bound, deadline, target)
        if best is not None or deadline.left() <= 0:
            break
    if best is None:
        return None
    bound = relaxed.bound
    while True:
        needed = above <= (best.objective - bound) * (1 + 1e-9)
        if (kept | ~needed).all():  # then the solver looked at all that could be better
            return replace(best, bound=max(bound, min(best.bound, best.objective)))
        if best.objective - bound <= target * abs(best.objective) or deadline.left() <= 0:
            return replace(best, bound=min(bound, best.objective))
        kept |= needed
        found = _integer(programme, kept, bound, deadline, target)
        if found is None:
            return replace(best, bound=min(bound, best.objective))
        best = found if found.objective < best.objective else replace(best, bound=found.bound)


def is_hopeless(programme: Programme, deadline: Deadline) -> bool:
    """A quick proof, found where rows are broken by more than a little: prices under which all plans pay."""
    nothing = programme.phase_one()
    return bool(len(nothing.lower)) and nothing.bound(_ascend(nothing, deadline)) > BROKEN


def is_impossible(programme: Programme, deadline: Deadline) -> bool:
    """Whether it is proved that no plan holds all rows: by prices, or for few columns by the solver."""
    if is_hopeless(programme, deadline):
        return True
    nothing = programme.phase_one()
    if relax(nothing, deadline, np.zeros(len(programme.lower)), 1.0).bound > BROKEN:
        return True
    if len(programme.columns) > ALL_COLUMNS:
        return False
    every = np.ones(len(programme.columns), np.bool_)
    found = _solve_integer(nothing, _Part.of(nothing, every), 0.0, deadline, 0.5)
    return bool(found is not None and found.status == PROVED_IMPOSSIBLE)


def _integer(
    programme: Programme, kept: Bools, bound: float, deadline: Deadline, target: float
) -> Rounded | None:
    """The best plan over the kept columns, with the solver's bound for plans of these columns only."""
    part, columns = _Part.of(programme, kept), programme.columns
    chosen, inner = part.settled, float(columns.cost[part.settled].sum())
    if len(part.open):
        result = _solve_integer(programme, part, bound, deadline, target)
        if result.x is None:
            return None
        chosen = np.append(chosen, part.open[result.x[: len(part.open)] > 0.5])
        inner = -np.inf if result.mip_dual_bound is None else inner + float(result.mip_dual_bound)
    chosen = chosen[np.argsort(columns.case[chosen], kind="stable")]
    whole = np.array_equal(columns.case[chosen], np.arange(columns.cases))
    if not whole or programme.violation(programme.values(chosen)) > BROKEN:
        return None
    return Rounded(chosen, float(columns.cost[chosen].sum()), inner)


def _solve_integer(programme: Programme, part: _Part, bound: float, deadline: Deadline, target: float) -> Any:
    """HiGHS on the open cases; `target` is a share of the whole objective, of which they are a part."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    levels, cost = programme.levels.shape[1], programme.columns.cost[part.open]
    fixed = programme.values(part.settled)
    size = max(abs(bound - float(programme.columns.cost[part.settled].sum())), 1e-9)
    body = scipy.sparse.hstack([programme.matrix[:, part.open], scipy.sparse.csr_array(programme.levels)])
    return milp(
        np.concatenate([cost, np.zeros(levels)]),
        constraints=[
            LinearConstraint(part.one_each(levels), 1, 1),
            LinearConstraint(body, programme.lower - fixed, programme.upper - fixed),
        ],
        integrality=np.repeat([1, 0], [len(cost), levels]),
        bounds=Bounds(
            np.append(np.zeros(len(cost)), programme.level_bounds[:, 0]),
            np.append(np.ones(len(cost)), programme.level_bounds[:, 1]),
        ),
        options={
            "time_limit": max(deadline.left(), 0.1),
            "mip_rel_gap": min(0.4 * target * abs(bound) / size, 0.5),
        },
    )
