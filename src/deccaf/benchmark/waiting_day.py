"""A day at a desk, hour by hour, under a way to route cases and to take them up; what it cost in the end.

All ways see the same believed losses and usual minutes, and today's router (`StreamAssigner`) with the same
past days; the cost is counted by what is true.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deccaf.assign import Forecast, StreamAssigner
from deccaf.assign.exact.scan import Floats
from deccaf.assign.waiting.harm import Harm
from deccaf.assign.waiting.queues import Queues
from deccaf.simulate.days import LENGTH, PEOPLE, Day

MAKERS = ("machine", *[f"person {j}" for j in range(1, PEOPLE + 1)])
MACHINE = 0


@dataclass(frozen=True)
class Outcome:
    """What a day came to."""

    errors: float
    waiting: float
    late: float
    """Share of the cases with a price on being late that were late."""
    used: float
    """Share of the people's hours that they worked."""

    @property
    def total(self) -> float:
        """Errors and waiting."""
        return self.errors + self.waiting


Rank = Callable[["Running", Sequence[int], int, float], int]
"""Which of somebody's waiting cases to take up now."""


@dataclass(frozen=True)
class Way:
    """How cases are routed, and how they are taken up."""

    rank: Rank | None
    """None: by the index."""
    priced: bool = False
    """Whether the router's prices of capacity count; else the least bid among those with room."""
    waits: str = "none"
    """Whose waiting counts in the bids: none, own, all."""
    helps: bool = False
    """Whether somebody with nothing to do takes a case from another's queue, where that is cheaper."""


class Running:
    """A day while it runs."""

    def __init__(self, day: Day, past: Sequence[Day], way: Way, routes: dict[int, int] | None = None) -> None:
        self.day, self.way, self.routes = day, way, routes
        self.harm = Harm.of(len(day.arrival), day.rate, day.due, day.late, day.late_rate, day.arrival)
        usual = np.concatenate([one.usual for one in past]).mean(axis=0)
        self.room = np.append(np.inf, np.floor(LENGTH / usual[1:]))
        self.router = None
        if way.priced and not routes:
            losses, at = [one.believed for one in past], [one.arrival / LENGTH for one in past]
            self.router = StreamAssigner(MAKERS, self.room, forecast=Forecast.of_days(losses, at))
        self.queues = Queues(len(MAKERS), usual, end=LENGTH)
        self.here = np.ones(len(MAKERS), np.bool_)
        self.busy = np.zeros(len(MAKERS), np.bool_)
        self.maker = np.full(len(day.arrival), -1)
        self.done = np.full(len(day.arrival), np.nan)
        self.worked = 0.0

    def run(self) -> Outcome:
        """The day from the first case to the last."""
        events: list[tuple[float, int, int]] = [(at, 1, i) for i, at in enumerate(self.day.arrival.tolist())]
        events += [(float(at), 0, j) for j, at in enumerate(self.day.leaves) if at < LENGTH]
        heapq.heapify(events)
        while events:
            now, what, which = heapq.heappop(events)
            if now >= LENGTH and what != 2:
                break
            if what == 0:
                self._leave(which, now)
            elif what == 1:
                self._arrive(which, now)
            else:
                self.busy[which] = False
            for j in np.flatnonzero(self.here & ~self.busy & ~self.queues.instant):
                if now < LENGTH:
                    self._take_up(int(j), now, events)
        return self._outcome()

    def _arrive(self, case: int, now: float) -> None:
        row = np.where(self.here, self.day.believed[case], np.inf)
        harm, hours = self.harm.take([case]), self.day.usual[case]
        if self.way.waits == "none":
            waiting = None
        elif self.way.waits == "own":
            waiting = self._own(harm, hours, now)
        else:
            waiting = self.queues.bids(harm, hours, now)
        j = self._route(case, row, waiting, now)
        self.maker[case] = j
        if j == MACHINE:
            self.done[case] = now
        else:
            self.queues.add(case, j, harm, hours, row, now)

    def _route(self, case: int, row: Floats, waiting: Floats | None, now: float) -> int:
        if self.router is not None:
            return self.router.route(row, None, now / LENGTH, waiting=waiting).position
        if self.routes:
            return self.routes[case]
        bid = row if waiting is None else row + waiting
        j = int(np.where(self.room > 0, bid, np.inf).argmin())
        self.room[j] -= 1
        return j

    def _own(self, harm: Harm, hours: Floats, now: float) -> Floats:
        """A queue is worked off as it came: what the case itself would wait."""
        table = self.queues
        work = np.bincount(table._maker[: len(table)], table._hours(), len(MAKERS))
        done = np.maximum(table.free, now) + work + hours
        found = harm.cost(done) - harm.cost(np.array([now]))
        found[MACHINE] = 0.0
        return found

    def _leave(self, j: int, now: float) -> None:
        self.here[j] = False
        if self.router is not None:
            self.router.absent(MAKERS[j])
        for case in self.queues.of(j):
            self.queues.remove(case)
            self._arrive(int(case), now)

    def _take_up(self, j: int, now: float, events: list[tuple[float, int, int]]) -> None:
        if self.way.rank is None:
            case = self.queues.next(j, now)
            if case is None and self.way.helps:
                case = self.queues.help(j, now)
                if case is not None:
                    self.maker[int(case)] = j
        else:
            mine = self.queues.of(j)
            case = self.way.rank(self, [int(one) for one in mine], j, now) if mine else None
        if case is None:
            return
        case = int(case)
        self.queues.remove(case)
        took = float(self.day.hours[case, j])
        self.busy[j], self.worked = True, self.worked + took
        self.queues.free[j] = now + float(self.day.usual[case, j])
        self.done[case] = now + took
        heapq.heappush(events, (now + took, 2, j))

    def _outcome(self) -> Outcome:
        day, left = self.day, np.isnan(self.done)
        maker, done = np.where(left, MACHINE, self.maker), np.where(left, LENGTH, self.done)
        errors = day.loss[np.arange(len(maker)), maker].sum()
        late = self.harm.is_late(done)
        present = float(day.leaves[1:].sum())
        return Outcome(
            float(errors), float(self.harm.cost(done).sum()), float(late.mean()), self.worked / present
        )


def first_come(day: Running, cases: Sequence[int], maker: int, now: float) -> int:
    """As they came."""
    return min(cases)


def earliest_due(day: Running, cases: Sequence[int], maker: int, now: float) -> int:
    """What is due first."""
    return min(cases, key=lambda case: day.harm.due[case])


def c_mu(day: Running, cases: Sequence[int], maker: int, now: float) -> int:
    """The greatest cost of an hour's waiting per hour of work; what is late grows dearer by its own rate."""
    harm, hours = day.harm, day.day.usual

    def worth(case: int) -> float:
        rate = harm.rate[case] + (harm.late_rate[case] if now > harm.due[case] else 0.0)
        return float(rate / hours[case, maker])

    return max(cases, key=worth)


RULES = {
    "first-come": Way(first_come, priced=True),
    "earliest due": Way(earliest_due, priced=True),
    "c-mu": Way(c_mu, priced=True),
    "greedy": Way(first_come, waits="own"),
}
WAYS = RULES | {
    "greedy with c-mu": Way(c_mu, waits="own"),
    "deccaf, no helping": Way(None, waits="all"),
    "deccaf": Way(None, waits="all", helps=True),
}


def simulate(day: Day, past: Sequence[Day], ways: Mapping[str, Way]) -> dict[str, Outcome]:
    """One day under every way.

    Prices of capacity do not look at queues: where nobody leaves, all ways with them route alike, once.
    """
    routes: dict[int, int] = {}
    found = {}
    for name, way in ways.items():
        running = Running(day, past, way, routes if way.priced else None)
        found[name] = running.run()
        if way.priced and (day.leaves >= LENGTH).all():
            routes.update(enumerate(running.maker.tolist()))
    return found
