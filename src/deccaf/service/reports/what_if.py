"""What if somebody had more time, or less: today's cases, solved again with other capacities.

The losses are those of the ledger, so nothing is scored twice. Where more cases are expected than have
come so far, these represent them: capacities are scaled down to the cases seen, the cost up to the whole
day.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.data.amounts import cost
from deccaf.data.capacity import Capacity
from deccaf.data.costs import MACHINE
from deccaf.errors import CapacityError
from deccaf.planning.scored import Scored
from deccaf.planning.what_if import least_cost
from deccaf.service.ledger import shifts
from deccaf.service.ledger.assignments import loss_matrix
from deccaf.service.store import tables as t

Floats = NDArray[np.float64]

MOST_CASES = 5_000
FEWEST = 20
CURVE_CASES = 800
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
_KEPT = 4


@dataclass(frozen=True, eq=False)
class Day:
    """The cases of a shift so far (the latest of them), and what everybody may get."""

    shift_id: int
    makers: tuple[str, ...]
    loss: Floats
    objective: Floats
    """What plans minimise: the loss itself, or what the model's method has in its place."""
    capacity: dict[str, int | None]
    """What everybody may get in the whole shift; None: no limit. Away is 0."""
    seen: int
    whole: int
    """Cases of the whole day, as far as anybody knows."""
    spent: float
    """Expected cost of the cases so far, as they were given out."""
    machines: frozenset[str] = frozenset((MACHINE,))
    """Who has no hours: more or less time of the team changes nothing about them."""

    def cost(self, capacity: Mapping[str, int | None], step: int = 1) -> float:
        """The least expected cost of the whole day with these capacities, from every `step`-th case."""
        loss, aim = self.loss[::step], self.objective[::step]
        share, cases = len(loss) / self.whole, len(loss)
        upper = {maker: cases if limit is None else round(limit * share) for maker, limit in capacity.items()}
        scored = Scored(pd.RangeIndex(cases), self.makers, loss, aim, np.zeros(cases, np.int64), ("",))
        return least_cost(scored, Capacity.of({MACHINE: 0, **upper})) / share

    def with_team(self, factor: float) -> dict[str, int | None]:
        """Everybody's capacity times a factor; whoever has no limit keeps none, a machine what it has."""
        same = self.machines - {MACHINE}
        return {m: c if c is None or m in same else round(c * factor) for m, c in self.capacity.items()}


@dataclass(frozen=True)
class Scenario:
    """An answer to "what if"."""

    cost: float | None
    now: float
    share: float
    """Capacity in the scenario against today's, in percent."""
    points: list[tuple[float, float]]
    """The curve: capacity in percent of today's, cost of the whole day."""
    sentence: str


class Days:
    """Days that were asked about lately: a slider asks many times about the same one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], tuple[Day, list[tuple[float, float]]]] = OrderedDict()
        self._lock = threading.Lock()

    def day(self, connection: sa.Connection, shift_id: int) -> tuple[Day, list[tuple[float, float]]] | None:
        """The day and its curve; None where too few cases have come."""
        state = _state(connection, shift_id)
        with self._lock:
            if state in self._kept:
                return self._kept[state]
        day = read_day(connection, shift_id)
        if day is None:
            return None
        found = (day, _curve(day))
        with self._lock:
            self._kept[state] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


def read_day(connection: sa.Connection, shift_id: int) -> Day | None:
    """Read the losses of a shift's latest cases from the ledger."""
    a = t.assignments.c
    aim = sa.func.coalesce(a.objective, a.losses).label("aim")
    query = (
        sa.select(*a["losses", "objective", "pricing_id", "expected_loss"], aim)
        .where(a.shift_id == shift_id, a.state.in_(t.LIVE))
        .order_by(a.id.desc())
        .limit(MOST_CASES)
    )
    rows = connection.execute(query).all()
    if len(rows) < FEWEST:
        return None
    roster = shifts.read_roster(connection, shift_id)
    makers = (MACHINE, *[seat.maker for seat in roster if seat.maker != MACHINE])
    loss = loss_matrix(connection, rows, makers)
    objective = loss
    if any(row.objective is not None for row in rows):
        objective = loss_matrix(connection, rows, makers, "aim")
    usable = np.isfinite(loss).any(axis=1)
    seen = sum(seat.cases for seat in roster)
    expected = shifts.read_shift(connection, shift_id).expected_cases
    spent = float(sum(row.expected_loss for row in rows)) * seen / len(rows)
    capacity = {seat.maker: 0 if seat.away else seat.free_for_cases for seat in roster}
    whole = max(expected or 0, seen)
    machines = frozenset(seat.maker for seat in roster if seat.machine) | {MACHINE}
    return Day(shift_id, makers, loss[usable], objective[usable], capacity, seen, whole, spent, machines)


def ask(
    day: Day, points: list[tuple[float, float]], team: float, changes: Mapping[str, int], unit: str = ""
) -> Scenario:
    """What the day would cost, in words in `unit`, if everybody's time were scaled, and some people's set."""
    wanted = {**day.with_team(team), **{m: c for m, c in changes.items() if m in day.capacity}}
    limits = sum(c for m, c in day.capacity.items() if c is not None and m not in day.machines)
    asked = sum(c for m, c in wanted.items() if c is not None and m not in day.machines)
    share = 100.0 * asked / limits if limits else 100.0
    try:
        now = day.cost(day.capacity)
        then = now if wanted == day.capacity else day.cost(wanted)
    except CapacityError as error:
        return Scenario(None, 0.0, share, points, f"That does not work: {error}")
    return Scenario(then, now, share, points, _sentence(then, now, asked - limits, day.whole, unit))


def _sentence(then: float, now: float, more: int, whole: int, unit: str) -> str:
    day, today = f"a day of {whole:,} cases", cost(now, unit, 2)
    if more == 0 and abs(then - now) < 1e-9:
        return f"With today's capacities {day} costs {today} at best. Move a slider to see what would change."
    change = now - then
    words = f"{abs(more):,} {'more' if more >= 0 else 'fewer'} cases of people's time"
    if abs(change) < 0.005:
        return f"{words.capitalize()} would change nothing: {day} would still cost {cost(then, unit, 2)}."
    saved = f"save {cost(change, unit, 2)}" if change > 0 else f"cost {cost(-change, unit, 2)} more"
    return f"{words.capitalize()} would {saved}: {day} would cost {then:,.2f} instead of {today}."


def _curve(day: Day) -> list[tuple[float, float]]:
    """The cost over the whole team's capacity, from some of the cases: the shape is what counts."""
    step = max(len(day.loss) // CURVE_CASES, 1)
    points = []
    for share in SHARES:
        try:
            points.append((100 * share, day.cost(day.with_team(share), step)))
        except CapacityError:
            continue  # without a machine to fall back on there may be no plan with less
    return points


def _state(connection: sa.Connection, shift_id: int) -> tuple[int, ...]:
    """What the day's numbers depend on."""
    a = t.assignments.c
    last = connection.execute(
        sa.select(a.id).where(a.shift_id == shift_id).order_by(a.id.desc()).limit(1)
    ).scalar()
    roster = shifts.read_roster(connection, shift_id)
    return shift_id, last or 0, hash(tuple((seat.maker, seat.capacity, seat.away) for seat in roster))
