"""Who takes which case and when, for cases that are all there: least cost of errors and waiting together.

Where a case takes one person as long as any other, somebody's day is a row of places of equal length, and who
gets which place is a transportation problem: the exact solver settles it over the places, of which those far
off are counted together. Everybody's cases are then put in their best order with the hours that they really
take, and single cases moved to somebody else as long as that is cheaper. The same problem with every place as
early as it can possibly be bounds what any plan can reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.assign.problem import Assignment, AssignmentProblem
from deccaf.assign.solve import solve_problem
from deccaf.assign.verify import verify
from deccaf.assign.waiting.harm import Harm
from deccaf.assign.waiting.order import best_order, finish_times

GROWTH = 1.15
"""Each group of places is longer than the one before by this factor, so that far-off places are few."""
MOST_CELLS = 40_000_000
"""Cases x places; above, groups grow faster."""
PLACES = 48
"""Places of a queue at which a case that moves may come in."""
ROUNDS = 30
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Schedule:
    """One entry per case, but for the totals."""

    maker: Ints
    place: Ints
    """The place in the maker's order, from 1; 0 with makers who decide at once."""
    start: Floats
    finish: Floats
    loss: float
    waiting: float
    prices: Floats
    """(makers,): what one more case would save."""
    bound: float
    """No plan costs less, errors and waiting together."""
    priced: Floats
    """(cases, makers): the loss, and what waiting costs, the case's own and that of others."""

    @property
    def cost(self) -> float:
        """Errors and waiting."""
        return self.loss + self.waiting


def schedule(
    problem: AssignmentProblem,
    harm: Harm,
    hours: Floats,
    instant: int | None = 0,
    priority: Ints | None = None,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Schedule:
    """Settle who and when; `hours` are cases x makers, `instant` decides at once (the machine).

    Everybody begins at 0 on the clock of `harm`, and takes cases of a higher `priority` first.
    """
    desk = _Desk(problem, harm, hours, instant, priority)
    first = desk.over_places(optimistic=False, time_limit=time_limit, seed=seed)
    least = desk.over_places(optimistic=True, time_limit=time_limit, seed=seed)
    maker = desk.improved(first.maker.astype(np.int64))
    found = desk.timed(maker)
    bound = min(least.objective - least.gap, found.cost)
    return replace(found, prices=first.prices, bound=bound, priced=desk.priced(maker))


def in_order(
    loss: Floats,
    harm: Harm,
    hours: Floats,
    maker: Ints,
    instant: int | None = 0,
    priority: Ints | None = None,
) -> Schedule:
    """The best order for everybody where it is settled who does what."""
    everybody = np.full(loss.shape[1], len(loss))
    problem = AssignmentProblem(loss, everybody, np.zeros_like(everybody))
    return _Desk(problem, harm, hours, instant, priority).timed(np.asarray(maker, np.int64))


@dataclass(frozen=True, eq=False)
class _Desk:
    """The problem, and how a plan of it is timed and priced."""

    problem: AssignmentProblem
    harm: Harm
    hours: Floats
    instant: int | None
    priority: Ints | None

    @property
    def people(self) -> list[int]:
        """Makers who have a queue."""
        return [j for j in range(self.problem.shape[1]) if j != self.instant]

    def over_places(self, *, optimistic: bool, time_limit: float, seed: int) -> Assignment:
        """The transportation problem of makers and groups of places; as an assignment to makers."""
        problem, growth = self.problem, GROWTH
        groups = {j: _groups(int(problem.upper[j]), growth) for j in self.people}
        while problem.shape[0] * sum(map(len, groups.values())) > MOST_CELLS and growth < 16:
            growth *= 1.5
            groups = {j: _groups(int(problem.upper[j]), growth) for j in self.people}
        columns, who, upper, lower = [], [], [], []
        for j in range(problem.shape[1]):
            for low, high in [(0, int(problem.upper[j]))] if j == self.instant else groups[j]:
                columns.append(problem.loss[:, j] + self._at_place(j, low, high, optimistic))
                who.append(j)
                upper.append(high - low)
                lower.append(min(max(int(problem.lower[j]) - low, 0), high - low))
        maker = np.array(who)
        mask = None if problem.eligible is None else problem.eligible[:, maker]
        names = pd.Index([f"{problem.maker_name(j)} ({k})" for k, j in enumerate(who)])
        wide = AssignmentProblem(
            np.column_stack(columns),
            np.array(upper),
            np.array(lower),
            mask,
            problem.cases,
            names,
            problem.name,
        )
        found = solve_problem(wide, "auto", time_limit, seed)
        verify(wide, found)
        prices = np.full(problem.shape[1], np.inf)
        np.minimum.at(prices, maker, found.prices)  # the last place: what one more would bring
        return replace(found, maker=maker[found.maker], prices=np.where(np.isfinite(prices), prices, 0.0))

    def _at_place(self, j: int, low: int, high: int, optimistic: bool) -> Floats:
        """What waiting costs every case at these places of a person's day."""
        if j == self.instant:
            return self.harm.cost(np.zeros(len(self.harm)))
        own = self.hours[:, j]
        if optimistic:
            return self.harm.cost(low * float(own.min(initial=np.inf) if len(own) else 0.0) + own)
        return self.harm.cost(0.5 * (low + high - 1) * float(own.mean()) + own)

    def timed(self, maker: Ints) -> Schedule:
        """Everybody's cases in their best order."""
        count = len(maker)
        place, start, finish = np.zeros(count, np.int64), np.zeros(count), np.zeros(count)
        for j in self.people:
            mine = np.flatnonzero(maker == j)
            hours = self.hours[mine, j]
            level = None if self.priority is None else self.priority[mine]
            order = best_order(self.harm.take(mine), hours, 0.0, level)
            place[mine[order]] = np.arange(1, len(mine) + 1)
            finish[mine] = finish_times(hours, order, 0.0)
            start[mine] = finish[mine] - hours
        loss = float(self.problem.loss[np.arange(count), maker].sum())
        waiting = float(self.harm.cost(finish).sum())
        none = np.empty((0, 0))
        return Schedule(maker, place, start, finish, loss, waiting, np.zeros(0), -np.inf, none)

    def priced(self, maker: Ints) -> Floats:
        """Loss and waiting of every case with every maker, all others staying where they are."""
        found, now = self.timed(maker), np.asarray(self.problem.loss, np.float64)
        at_once = self.harm.cost(np.zeros(len(maker)))
        columns = [
            at_once if j == self.instant else self._joining(found, j) for j in range(self.problem.shape[1])
        ]
        table = now + np.column_stack(columns)
        own = np.arange(len(maker))
        table[own, maker] = now[own, maker] + self._leaving(found)
        return np.asarray(table, np.float64)

    def improved(self, maker: Ints) -> Ints:
        """Single cases moved to somebody else as long as the whole gets cheaper."""
        best = self.timed(maker).cost
        most = max(len(maker) // 8, 1)
        for _ in range(ROUNDS):
            moved = self._with_moves(maker, most)
            if moved is None:
                break
            cost = self.timed(moved).cost
            if cost < best - _SAME:
                maker, best = moved, cost
            elif most == 1:
                break
            else:
                most = max(most // 4, 1)
        return maker

    def _with_moves(self, maker: Ints, most: int) -> Ints | None:
        """The plan after the moves that promise most, few enough at a time; None: no move promises any."""
        problem, each = self.problem, np.arange(len(maker))
        table = self.priced(maker)
        gain = table[each, maker][:, None] - table
        if problem.eligible is not None:
            gain[~problem.eligible] = -np.inf
        load = np.bincount(maker, minlength=problem.shape[1])
        gain[:, load >= problem.upper] = -np.inf
        gain[(load <= problem.lower)[maker]] = -np.inf
        target = gain.argmax(axis=1)
        worth = gain[each, target]
        moved, taken, given = maker.copy(), load.copy(), load.copy()
        for case in np.argsort(-worth, kind="stable")[:most]:
            come, leave = int(target[case]), int(maker[case])
            if worth[case] <= _SAME:
                break
            if taken[come] < problem.upper[come] and given[leave] > problem.lower[leave]:
                moved[case], taken[come], given[leave] = come, taken[come] + 1, given[leave] - 1
        return None if (moved == maker).all() else moved

    def _queue(self, found: Schedule, j: int) -> tuple[Ints, Floats]:
        """Somebody's cases in order, and what an hour's delay costs from each place on."""
        mine = np.flatnonzero(found.maker == j)
        mine = mine[np.argsort(found.place[mine], kind="stable")]
        hours = max(float(self.hours[:, j].mean()), 1e-9)
        some, done = self.harm.take(mine), found.finish[mine]
        each = (some.cost(done + hours) - some.cost(done)) / hours
        return mine, np.append(np.cumsum(each[::-1])[::-1], 0.0)

    def _joining(self, found: Schedule, j: int) -> Floats:
        """What it costs that a case joins this queue at the best place: its waiting, and that of others."""
        mine, delay = self._queue(found, j)
        begins = np.append(0.0, found.finish[mine])
        places = np.unique(np.linspace(0, len(mine), PLACES).astype(np.int64))
        own = self.hours[:, j]
        best = np.full(len(own), np.inf)
        for place in places:
            best = np.minimum(best, self.harm.cost(begins[place] + own) + own * delay[place])
        return best

    def _leaving(self, found: Schedule) -> Floats:
        """What a case costs where it is: its waiting, and that of those behind it."""
        cost = self.harm.cost(found.finish)
        for j in self.people:
            mine, delay = self._queue(found, j)
            cost[mine] += self.hours[mine, j] * delay[1:]
        return cost


def _groups(most: int, growth: float) -> list[tuple[int, int]]:
    """Places from 0 to `most`: first one by one, then ever longer groups."""
    found, low, size = [], 0, 1.0
    while low < most:
        high = min(low + int(size), most)
        found.append((low, high))
        low, size = high, size * growth
    return found
