"""How many hours of whom: the roster of least wages and errors together, proved.

The least errors of a day are a convex function of everybody's room u, and any prices bound them from below:

    errors(u) >= sum_i min_j (L_ij + price_j) - sum_j price_j u_j      for all price >= 0,

with equality where the prices are the shadow prices at u. So each roster that is tried yields a *cut*, a
small programme over hours looks for a better roster above all cuts (Benders' decomposition), and the search
ends when what it finds costs no more than the cuts prove that any roster must. Cuts know neither wages nor
budgets and serve every further question about the same days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from deccaf.assign.problem import AssignmentProblem
from deccaf.assign.solve import solve_problem
from deccaf.errors import ConfigError, SolverError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRECISION = 3e-3
"""Share of the cost by which a roster may be worse than the best, unless told otherwise."""
ROUNDS = 200
"""Rosters that are tried for one answer; then it is given with the gap that it has."""
FACTOR, FACTORS = 1.5, 16
"""Under a budget, wages are tried to count FACTOR**1, ... FACTOR**FACTORS times."""
PATIENCE = 4
"""Rounds in which a bound may hardly grow."""
MASTER_SECONDS = 20.0
"""For one look for a better roster; then what it proved until then counts."""


@dataclass(frozen=True, eq=False)
class StaffedDay:
    """A day to come, and the past days that stand for it, each as likely as the others."""

    name: str
    losses: tuple[Floats, ...]
    """Of each past day: cases x makers; the first column is the machine, which has no limit."""
    weight: float = 1.0
    """Cases of the day to come for which one of these stands."""

    @property
    def cases(self) -> float:
        """Cases that are expected."""
        return self.weight * float(np.mean([len(loss) for loss in self.losses]))


@dataclass(frozen=True, eq=False)
class Hours:
    """What can be bought: an entry for each person, in the order of the losses' columns after the machine."""

    wage: Floats
    """What an hour costs."""
    pace: Floats
    """Cases an hour."""
    most: Floats
    """Days x people: hours at most."""
    week: Floats
    """Hours at most in all days together."""
    step: float = 1.0
    """Hours come in whole multiples of this."""
    budget: float | None = None
    """Wages at most."""


@dataclass(frozen=True, eq=False)
class Roster:
    """Everybody's hours, what they cost, and a proof."""

    hours: Floats
    """Days x people."""
    room: Ints
    """Days x people: cases of the past days, each of which stands for `weight` cases to come."""
    errors: Floats
    """By day: the expected cost of errors at best."""
    prices: Floats
    """Days x people: what room for one more case of the past days would save there."""
    wages: float
    gap: float
    """No roster within the limits is cheaper, wages and errors together, by more than this."""

    @property
    def cost(self) -> float:
        """Wages and errors."""
        return self.wages + float(self.errors.sum())


@dataclass(frozen=True, eq=False)
class _Cut:
    """Errors of a day are at least `level` less the prices of everybody's room."""

    day: int
    past: int
    level: float
    prices: Floats


@dataclass(eq=False)
class Week:
    """The days to staff, and all that was learned about them so far; ask `best` as often as you like."""

    days: Sequence[StaffedDay]
    seed: int = 0
    _cuts: list[_Cut] = field(default_factory=list)
    _known: dict[tuple[int, bytes], tuple[float, Floats]] = field(default_factory=dict)
    _hindsight: dict[tuple[object, ...], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.days or not any(len(loss) for day in self.days for loss in day.losses):
            raise ConfigError("staffing: there are no cases to staff for")
        for number, day in enumerate(self.days):
            if not all(np.isfinite(loss).all() for loss in day.losses):
                raise ConfigError(
                    f"staffing: day {day.name}: a loss is not finite; everybody must be eligible"
                )
            for past in range(len(day.losses)):
                self._cut(number, past, np.zeros(self.people))
            self.errors_at(number, np.zeros(self.people, np.int64))

    @property
    def people(self) -> int:
        """How many people there are."""
        return int(self.days[0].losses[0].shape[1]) - 1

    def best(self, hours: Hours, precision: float = PRECISION) -> Roster:
        """The roster of least wages and errors within the limits, within a share `precision` of the best."""
        bound, relaxed = self._relaxed(hours, precision)
        best, whole = self.at(hours, _rounded(hours, relaxed)), 1
        for _ in range(ROUNDS):
            if best.cost - bound <= precision * abs(best.cost) + 1e-9:
                break
            steps, lowest = _roster_above(self.days, self._cuts, hours, whole=whole, precision=precision)
            known = len(self._cuts)
            bound, tried = max(bound, lowest), self.at(hours, steps * hours.step)
            best = tried if tried.cost < best.cost else best
            whole = 1 if len(self._cuts) > known else 2
        return replace(best, gap=max(best.cost - bound, 0.0))

    def at(self, hours: Hours, given: Floats) -> Roster:
        """What a given roster (days x people, hours) costs; its gap is not known."""
        room = _room(self.days, hours, given)
        found = [self.errors_at(day, room[day]) for day in range(len(self.days))]
        errors = np.array([cost for cost, _ in found])
        return Roster(
            given, room, errors, np.stack([p for _, p in found]), float((given @ hours.wage).sum()), np.nan
        )

    def errors_at(self, day: int, room: Ints) -> tuple[float, Floats]:
        """The expected cost of a day's errors at best, and what room for one more case would save."""
        key = (day, room.tobytes())
        if key not in self._known:
            found = [solved_day(loss, room, self.seed) for loss in self.days[day].losses]
            prices = [np.maximum(price, 0.0) for _, price, _ in found]
            weight = self.days[day].weight
            for past, price in enumerate(prices):
                self._cut(day, past, price)
            cost = weight * float(np.mean([cost for cost, _, _ in found]))
            self._known[key] = cost, weight * np.mean(prices, axis=0)
        return self._known[key]

    def _relaxed(self, hours: Hours, precision: float) -> tuple[float, Floats]:
        """A bound on every roster, from hours in any fractions, and these hours; it leaves good cuts.

        The roster that the cuts like best swings from one end to the other, so errors are looked at between
        it and the best that was seen.
        """
        bound, best, still = -np.inf, self.at(hours, self._in_hindsight(hours)), 0
        for _ in range(ROUNDS):
            steps, lowest = _roster_above(self.days, self._cuts, hours, whole=0)
            still = still + 1 if lowest <= bound + 0.05 * precision * abs(bound) else 0
            bound = max(bound, lowest)
            if still == PATIENCE or best.cost - bound <= 0.2 * precision * abs(bound):
                break
            for share in (0.3, 1.0):
                known = len(self._cuts)
                tried = self.at(hours, best.hours + share * (steps * hours.step - best.hours))
                best = tried if tried.cost < best.cost else best
                if len(self._cuts) > known:
                    break
        return bound, best.hours

    def _in_hindsight(self, hours: Hours) -> Floats:
        """The mean of the hours that would have been best for each past day by itself, within the budget."""
        given = self._bought(hours, 0)
        if hours.budget is not None and (given @ hours.wage).sum() > hours.budget:
            low, high = 0, FACTORS  # wages count FACTOR**low times: too dear; FACTOR**high times: not
            while high - low > 1:
                middle = (low + high) // 2
                dear = (self._bought(hours, middle) @ hours.wage).sum() > hours.budget
                low, high = (middle, high) if dear else (low, middle)
            given = self._bought(hours, low)
            spent = float((given @ hours.wage).sum())
            given = given * min(1.0, hours.budget / max(spent, 1e-12))
        return np.asarray(given * np.minimum(1.0, hours.week / np.maximum(given.sum(axis=0), 1e-12)))

    def _bought(self, hours: Hours, power: int) -> Floats:
        """The hours that pay for each past day by itself where wages count so much; and their cuts."""
        key = (power, *(part.tobytes() for part in (hours.wage, hours.pace, hours.most)))
        if key not in self._hindsight:
            given, rate = np.zeros_like(hours.most), FACTOR**power * hours.wage / hours.pace
            for number, day in enumerate(self.days):
                room = _room([day], hours, hours.most[[number]])[0]
                for past, loss in enumerate(day.losses):
                    _, prices, load = solved_day(loss + np.append(0.0, rate), room, self.seed)
                    self._cut(number, past, rate + np.maximum(prices, 0.0))
                    given[number] += load * day.weight / hours.pace / len(day.losses)
            self._hindsight[key] = given
        return self._hindsight[key]

    def _cut(self, day: int, past: int, price: Floats) -> None:
        one = self.days[day]
        level = (one.losses[past] + np.append(0.0, price)).min(axis=1).sum()
        share = one.weight / len(one.losses)
        self._cuts.append(_Cut(day, past, share * float(level), share * price))


def solved_day(loss: Floats, room: Ints, seed: int) -> tuple[float, Floats, Ints]:
    """Cost, everybody's price and load of a past day with this much room; the machine takes the rest."""
    cases = len(loss)
    if not cases:
        return 0.0, np.zeros(len(room)), np.zeros_like(room)
    upper = np.append(cases, np.minimum(room, cases))
    found = solve_problem(AssignmentProblem(loss, upper, np.zeros_like(upper)), seed=seed)
    return found.objective, found.prices[1:], found.load[1:]


def _room(days: Sequence[StaffedDay], hours: Hours, given: Floats) -> Ints:
    """Days x people: cases of the past days for which these hours are enough."""
    weight = np.array([[day.weight] for day in days])
    cases = np.floor(np.maximum(given, 0.0) * hours.pace / weight + 1e-9)
    return np.asarray(cases, np.int64)


def _rounded(hours: Hours, given: Floats) -> Floats:
    """Whole steps near these hours: rounded down, then up again where the most is lost, as far as it fits."""
    steps = np.clip(given / hours.step, 0.0, np.floor(hours.most / hours.step + 1e-9))
    whole = np.floor(steps + 1e-6)
    for place in np.argsort((whole - steps).ravel(), kind="stable"):
        day, person = divmod(int(place), hours.most.shape[1])
        if steps[day, person] - whole[day, person] < 0.3:
            continue
        more = whole.copy()
        more[day, person] += 1
        spent = float((more @ hours.wage).sum()) * hours.step
        if hours.budget is not None and spent > hours.budget:
            continue
        if more[:, person].sum() * hours.step <= hours.week[person] + 1e-9:
            whole = more
    return np.asarray(whole * hours.step)


def _roster_above(
    days: Sequence[StaffedDay],
    cuts: Sequence[_Cut],
    hours: Hours,
    *,
    whole: int,
    precision: float = PRECISION,
) -> tuple[Floats, float]:
    """The cheapest roster (days x people, in steps) if errors were as low as the cuts allow; and a bound.

    `whole`: 0, steps in any fractions; 1, whole steps; 2, and whole cases. Variables: steps and room of every
    day and person, then the errors of every past day.
    """
    count, people = hours.most.shape
    cells, pasts = count * people, [len(day.losses) for day in days]
    first, last = np.cumsum([0, *pasts[:-1]]), sum(pasts)
    weight = np.repeat([day.weight for day in days], people)
    per_step = np.tile(hours.pace, count) * hours.step / weight
    wage = np.tile(hours.wage, count) * hours.step
    fits = sparse.hstack([sparse.diags(-per_step), sparse.eye(cells), sparse.csr_array((cells, last))])
    rules = [LinearConstraint(fits, ub=1e-9)]
    weekly = sparse.hstack(
        [sparse.csr_array(np.tile(np.eye(people), count)), sparse.csr_array((people, cells + last))]
    )
    rules.append(LinearConstraint(weekly, ub=hours.week / hours.step + 1e-9))
    if hours.budget is not None:
        spent = np.concatenate([wage, np.zeros(cells + last)])
        rules.append(LinearConstraint(spent, ub=hours.budget * (1 + 1e-12)))
    rules.append(_above(cuts, first, last, count, people))
    most = np.floor(hours.most.ravel() / hours.step + 1e-9)
    largest = np.repeat([max(len(loss) for loss in day.losses) for day in days], people)
    found = milp(
        np.concatenate([wage, np.zeros(cells), np.ones(last)]),
        integrality=np.concatenate([np.full(cells, whole > 0), np.full(cells, whole > 1), np.zeros(last)]),
        bounds=Bounds(
            np.concatenate([np.zeros(2 * cells), np.full(last, -np.inf)]),
            np.concatenate([most, largest, np.full(last, np.inf)]),
        ),
        constraints=rules,
        options={"mip_rel_gap": 0.3 * precision, "time_limit": MASTER_SECONDS},
    )
    if found.x is None:
        raise SolverError(f"staffing: no roster was found in {MASTER_SECONDS:g} s: {found.message}")
    steps = found.x[:cells].reshape(count, people)
    if not whole:
        return steps, float(found.fun)
    return np.round(steps), float(found.mip_dual_bound)


def _above(
    cuts: Sequence[_Cut], first: NDArray[np.int64], last: int, count: int, people: int
) -> LinearConstraint:
    """Every past day's errors lie above its cuts."""
    rows = np.repeat(np.arange(len(cuts)), people)
    columns = np.concatenate([count * people + cut.day * people + np.arange(people) for cut in cuts])
    prices = sparse.csr_array(
        (np.concatenate([cut.prices for cut in cuts]), (rows, columns)),
        shape=(len(cuts), 2 * count * people),
    )
    which = [first[cut.day] + cut.past for cut in cuts]
    days = sparse.csr_array((np.ones(len(cuts)), (np.arange(len(cuts)), which)), shape=(len(cuts), last))
    return LinearConstraint(sparse.hstack([prices, days]), lb=np.array([cut.level for cut in cuts]))
