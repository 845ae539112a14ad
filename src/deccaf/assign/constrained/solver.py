"""Plans under side constraints: any combination of them, an honest gap, and the price of each.

    from deccaf.assign import HandlingMinutes, GroupBand, solve_constrained
    plan = solve_constrained(loss, upper, constraints=[HandlingMinutes(minutes, capacity)])
    plan.maker, plan.objective, plan.gap, plan.table

The transportation optimum comes first: where it meets every constraint, it is the plan. Otherwise they
become rows of a programme (`columns`); its relaxation gives a bound and its rounding a plan (`relax`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.assign.constrained.build import build_columns
from deccaf.assign.constrained.columns import BROKEN, Block, Columns, Programme
from deccaf.assign.constrained.constraints import Balance, Constraint, RandomQuota, Reviewers, by_maker
from deccaf.assign.constrained.random_quota import RandomDraw, draw
from deccaf.assign.constrained.relax import ALL_COLUMNS, Rounded, is_hopeless, is_impossible, relax, round_off
from deccaf.assign.exact.flow import Deadline
from deccaf.assign.exact.scan import Floats, Ints
from deccaf.assign.problem import Assignment, AssignmentProblem, LimitsLike
from deccaf.assign.solve import solve_problem
from deccaf.errors import CapacityError, ConfigError, SolverError

LIMITS = "limits"
RELAX_SHARE = 0.7  # of the time for a plan, at most, before a whole plan is looked for
MAIN_SHARE = 0.6  # of the time, at most, for the plan; the rest is for the prices of the constraints


@dataclass(frozen=True)
class Binding:
    """A part of a constraint that costs something: its value, and what one unit of its limit would save."""

    part: str
    value: float
    limit: float
    price: float


@dataclass(frozen=True)
class ConstraintPrice:
    """What a constraint costs: the objective with and without it, the other constraints kept.

    Both plans have a gap, so the price of the optimum lies between `at_least` and `at_most`. All are nan
    where the time did not suffice for the plan without it.
    """

    name: str
    objective: float
    without: float
    at_least: float
    at_most: float
    binding: tuple[Binding, ...] = ()

    @property
    def price(self) -> float:
        """What the constraint costs."""
        return self.objective - self.without


@dataclass(frozen=True, eq=False)
class ConstrainedPlan:
    """A plan, how far it can be from the best, and what each constraint costs.

    `maker` is the column of every case, or cases x reviewers (padded with -1) where several are asked for,
    and `loss` what each case is expected to cost.
    No plan that meets the constraints costs less than `bound`. `prices[j]` is what one more unit of maker
    j's upper limit would save in the relaxation. `draw` tells the random quota.
    """

    maker: NDArray[np.int32]
    loss: Floats
    objective: float
    bound: float
    prices: Floats
    seconds: float
    constraints: tuple[ConstraintPrice, ...]
    draw: RandomDraw | None = None
    cases: pd.Index | None = field(default=None, repr=False)
    makers: pd.Index | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """How much cheaper a plan could be."""
        return max(self.objective - self.bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the bound."""
        return self.gap / abs(self.bound) if self.bound else (0.0 if self.gap == 0 else np.inf)

    @property
    def load(self) -> Ints:
        """Cases by maker."""
        return np.bincount(self.maker[self.maker >= 0], minlength=len(self.prices))

    @property
    def labels(self) -> pd.DataFrame:
        """The makers of every case by name, one column per reviewer; empty where there is none."""
        index = pd.RangeIndex(len(self.maker)) if self.cases is None else self.cases
        names = pd.RangeIndex(len(self.prices)) if self.makers is None else self.makers
        table = self.maker.reshape(len(index), -1)
        shown = {
            f"maker_{k + 1}": pd.Series(names.take(np.maximum(column, 0)), index=index).where(column >= 0)
            for k, column in enumerate(table.T)
        }
        return pd.DataFrame(shown, index=index)

    @property
    def table(self) -> pd.DataFrame:
        """One row per constraint: the objective with and without it, its price, what binds."""
        return pd.DataFrame(
            {
                "constraint": [constraint.name for constraint in self.constraints],
                "with": [constraint.objective for constraint in self.constraints],
                "without": [constraint.without for constraint in self.constraints],
                "price": [constraint.price for constraint in self.constraints],
                "binds": [
                    ", ".join(part.part for part in constraint.binding) for constraint in self.constraints
                ],
            }
        )


def solve_constrained(
    loss: pd.DataFrame | ArrayLike,
    upper: LimitsLike,
    lower: LimitsLike = None,
    eligible: pd.DataFrame | ArrayLike | None = None,
    constraints: Sequence[Constraint] = (),
    time_limit: float = 60.0,
    gap: float = 1e-3,
    prices: bool = True,
    name: str = "",
) -> ConstrainedPlan:
    """The cheapest plan that meets all constraints, within a time limit; it stops at a relative gap `gap`.

    With `prices` the plan without each constraint is solved too. Raises `CapacityError` with the smallest
    set of constraints that clash where there is no plan, `SolverError` where none was found in time.
    """
    problem = AssignmentProblem.of(loss, upper, lower, eligible, name)
    return solve_constrained_problem(problem, constraints, time_limit, gap, prices)


def solve_constrained_problem(
    problem: AssignmentProblem,
    constraints: Sequence[Constraint],
    time_limit: float = 60.0,
    gap: float = 1e-3,
    prices: bool = True,
) -> ConstrainedPlan:
    """`solve_constrained` for inputs already checked."""
    if not time_limit > 0:
        raise ConfigError(f"time_limit: expected more than 0 seconds, got {time_limit}")
    names = [constraint.name for constraint in constraints]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"constraints: two are called {next(n for n in names if names.count(n) > 1)!r}; name them"
        )
    desk = _Desk.of(problem, constraints, Deadline(time_limit))
    found = desk.solve(
        constraints, Deadline(MAIN_SHARE * time_limit if prices and constraints else time_limit), gap
    )
    asked = [desk.price(constraints, constraint, found, gap, prices) for constraint in constraints]
    members = found.columns.members[found.plan.chosen]
    return ConstrainedPlan(
        maker=members[:, 0] if members.shape[1] == 1 else members,
        loss=found.columns.cost[found.plan.chosen],
        objective=found.plan.objective,
        bound=found.plan.bound,
        prices=found.maker_prices(problem.shape[1]),
        seconds=desk.deadline.spent(),
        constraints=tuple(asked),
        draw=desk.draw,
        cases=problem.cases,
        makers=problem.makers,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """A solved programme."""

    programme: Programme
    row_prices: Floats
    plan: Rounded

    @property
    def columns(self) -> Columns:
        return self.programme.columns

    def maker_prices(self, makers: int) -> Floats:
        """Of the limits on cases."""
        prices = np.zeros(makers)
        for (constraint, part), price, scale in zip(
            self.programme.parts, self.row_prices, self.programme.scale, strict=True
        ):
            if constraint == LIMITS:
                prices[int(part)] = -price / scale + 0.0
        return prices

    def binding(self, constraint: str) -> tuple[Binding, ...]:
        """The parts of a constraint with a price."""
        programme = self.programme
        values = programme.values(self.plan.chosen)
        level = programme.levels @ programme.best_levels(values)
        noise = 1e-6 * abs(self.plan.objective) / max(self.columns.cases, 1)
        found = []
        for row, (name, part) in enumerate(programme.parts):
            price, scale = float(self.row_prices[row]), float(programme.scale[row])
            if name == constraint and abs(price) > noise:
                limit = float(programme.lower[row] if price > 0 else programme.upper[row])
                at, most = float(values[row]) * scale, (limit - float(level[row])) * scale
                found.append(Binding(part, at, most, abs(price) / scale))
        return tuple(sorted(found, key=lambda part: -part.price))


@dataclass(frozen=True, eq=False)
class _Desk:
    """The problem, its transportation optimum (if it has one), and what is drawn or computed once."""

    problem: AssignmentProblem
    transport: Assignment | None
    deadline: Deadline
    draw: RandomDraw | None = None

    @classmethod
    def of(cls, problem: AssignmentProblem, constraints: Sequence[Constraint], deadline: Deadline) -> _Desk:
        quota = next((constraint for constraint in constraints if isinstance(constraint, RandomQuota)), None)
        several = any(isinstance(constraint, Reviewers) for constraint in constraints)
        try:
            transport = solve_problem(problem, time_limit=max(deadline.left(), 1e-3))
        except CapacityError:
            if not several:  # lower limits may ask for more units than there are cases
                raise
            transport = None
        return cls(problem, transport, deadline, None if quota is None else draw(problem, quota))

    def solve(self, constraints: Sequence[Constraint], deadline: Deadline, gap: float) -> _Found:
        """The plan under these constraints."""
        programme = self.programme(constraints)
        warm = self._warm_start(programme, constraints)
        if warm is not None:
            return warm
        if is_hopeless(programme, deadline):
            raise CapacityError(self._clash(constraints))
        relaxed = relax(programme, Deadline(RELAX_SHARE * max(deadline.left(), 0.0)))
        broken = BROKEN < relaxed.broken.max(initial=0.0) < np.inf
        proved = relaxed.bound > programme.dearest
        if proved or (broken and is_impossible(programme, self._patience())):
            raise CapacityError(self._clash(constraints))
        plan = round_off(programme, relaxed, deadline, gap)
        if plan is None:
            raise self._no_plan(programme, constraints, deadline)
        return _Found(programme, relaxed.prices, plan)

    def price(
        self,
        constraints: Sequence[Constraint],
        constraint: Constraint,
        found: _Found,
        gap: float,
        wanted: bool,
    ) -> ConstraintPrice:
        """The plan again without one constraint."""
        objective, bound, nan = found.plan.objective, found.plan.bound, float("nan")
        others = [other for other in constraints if other is not constraint]
        answer = ConstraintPrice(constraint.name, objective, nan, nan, nan, found.binding(constraint.name))
        if not wanted or self.deadline.left() <= 0:
            return answer
        share = Deadline(max(self.deadline.left() / (len(constraints) - constraints.index(constraint)), 0.1))
        try:
            without = self.solve(others, share, gap).plan
        except (SolverError, CapacityError):
            return answer
        return replace(
            answer,
            without=without.objective,
            at_least=bound - without.objective,
            at_most=objective - without.bound,
        )

    def programme(self, constraints: Sequence[Constraint]) -> Programme:
        """The columns and rows of some constraints."""
        reviewers = next(
            (constraint for constraint in constraints if isinstance(constraint, Reviewers)), None
        )
        drawn = self.draw if any(isinstance(constraint, RandomQuota) for constraint in constraints) else None
        columns = build_columns(self.problem, reviewers, drawn)
        blocks = [_limits(self.problem, columns)]
        for constraint in constraints:
            if isinstance(constraint, Balance) and constraint.around is None:
                constraint = replace(constraint, around=self._usual(constraint))
            block = constraint.block(self.problem, columns)
            if block is not None:
                blocks.append(block)
        return Programme.of(columns, blocks)

    def _usual(self, constraint: Balance) -> float:
        """The mean difficulty of what these makers get in the plan without constraints."""
        if self.transport is None:
            raise ConfigError(
                f"{constraint.name}: there is no plan without constraints to balance around; give `around`"
            )
        mine = np.isin(self.transport.maker, constraint.who(self.problem))
        rows = np.flatnonzero(mine)
        table = constraint.table(self.problem)
        return float(table[rows, self.transport.maker[rows]].mean()) if len(rows) else 0.0

    def _warm_start(self, programme: Programme, constraints: Sequence[Constraint]) -> _Found | None:
        """The transportation optimum, if the constraints are content with it."""
        transport, columns = self.transport, programme.columns
        if any(isinstance(constraint, Reviewers) for constraint in constraints):
            return None
        if any(isinstance(constraint, RandomQuota) for constraint in constraints):
            transport = _with_draw(self.problem, self.draw, self.deadline)
        if transport is None:
            return None
        chosen = np.flatnonzero(columns.members[:, 0] == transport.maker[columns.case])
        values = programme.values(chosen)
        if len(chosen) < columns.cases or programme.violation(values) > BROKEN:
            return None
        prices = np.zeros(len(programme.lower))
        for row, (constraint, part) in enumerate(programme.parts):
            if constraint == LIMITS:
                prices[row] = -transport.prices[int(part)] * programme.scale[row]
        return _Found(
            programme, prices, Rounded(chosen, transport.objective, transport.objective - transport.gap)
        )

    def _patience(self) -> Deadline:
        return Deadline(max(self.deadline.left(), 10.0))

    def _clash(self, constraints: Sequence[Constraint]) -> str:
        """The smallest set of constraints that cannot be granted together.

        For many columns only quick proofs are looked for: a smaller set that fails by a hair may be missed.
        """
        prefix = f"{self.problem.name}: " if self.problem.name else ""
        deadline = self._patience()
        for size in range(len(constraints)):
            for some in combinations(constraints, size):
                programme = self.programme(some)
                small = len(programme.columns) <= ALL_COLUMNS
                if (is_impossible if small else is_hopeless)(programme, deadline):
                    return prefix + _clash_message([constraint.name for constraint in some])
        return prefix + _clash_message([constraint.name for constraint in constraints])

    def _no_plan(
        self, programme: Programme, constraints: Sequence[Constraint], deadline: Deadline
    ) -> CapacityError | SolverError:
        """No whole plan: because there is none, or because time ran out."""
        if deadline.left() > 0 and is_impossible(programme, self._patience()):
            return CapacityError(self._clash(constraints))
        return SolverError(
            f"no plan found within {self.deadline.limit:g} s for {', '.join(c.name for c in constraints)};"
            " raise time_limit or loosen a constraint"
        )


def _limits(problem: AssignmentProblem, columns: Columns) -> Block:
    """The limits on cases; who may get everything and must get nothing has no row."""
    n, makers = problem.shape
    upper = np.where(problem.upper >= n, np.inf, problem.upper)
    lower = np.where(problem.lower <= 0, -np.inf, problem.lower)
    return Block(LIMITS, by_maker(columns, makers), lower, upper, [str(j) for j in range(makers)])


def _with_draw(problem: AssignmentProblem, drawn: RandomDraw | None, deadline: Deadline) -> Assignment | None:
    """The exact plan around a random draw: drawn cases may go to their maker only."""
    if drawn is None:
        return None
    eligible = np.ones(problem.shape, np.bool_) if problem.eligible is None else problem.eligible.copy()
    rows = np.flatnonzero(drawn.drawn)
    eligible[rows] = False
    eligible[rows, drawn.maker[rows]] = True
    try:
        return solve_problem(replace(problem, eligible=eligible), time_limit=max(deadline.left(), 1e-3))
    except CapacityError:
        return None


def _clash_message(names: list[str]) -> str:
    if not names:
        return "no plan exists within the limits, even without constraints; raise upper limits"
    if len(names) == 1:
        return f"{names[0]} cannot be granted within the limits; loosen it or the limits"
    return f"{', '.join(names[:-1])} and {names[-1]} clash: no plan grants them together; loosen one of them"
