"""A shift at a glance: cases, loads, and its expected cost against the machine alone and random sharing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.planning.random_sharing import random_cost
from deccaf.service.ledger import case_records, shifts
from deccaf.service.monitor.live_losses import LiveLosses
from deccaf.service.store import tables as t


@dataclass(frozen=True)
class MakerLoad:
    """How much somebody has got and done in a shift."""

    maker: str
    capacity: int | None
    used: int
    absent: bool
    active: bool
    """False: out of use, which is absent too."""
    decided: int
    expected_loss: float
    price: float
    answered: int = 0
    """Of those used and decided: answers on cases that others hold, who were asked too."""

    @property
    def room(self) -> int | None:
        """How many more cases they can get; None: no limit."""
        return None if self.capacity is None else self.capacity - self.used


@dataclass(frozen=True)
class ShiftReport:
    """A shift at a glance."""

    shift: int
    waiting: int
    """Cases that wait for a plan, in whichever shift."""
    assigned: int
    decided: int
    expected_cost: float
    machine_cost: float | None
    """The same cases, all decided by the machine."""
    random_cost: float | None
    """The same loads, filled with random ones among these cases."""
    makers: list[MakerLoad]


def report_shift(connection: sa.Connection, shift_id: int, losses: LiveLosses) -> ShiftReport:
    """Cases, loads and expected costs of a shift."""
    roster = shifts.read_roster(connection, shift_id)
    a = t.assignments.c
    counted = sa.select(a.maker, a.state, sa.func.count(), sa.func.sum(a.expected_loss)).where(
        a.shift_id == shift_id, a.state.in_(t.HELD)
    )
    states: dict[str, dict[str, Any]] = {}
    for maker, state, count, loss in connection.execute(counted.group_by(a.maker, a.state)):
        states.setdefault(maker, {})[state] = (count, loss)
    makers = [
        MakerLoad(
            maker=seat.maker,
            capacity=seat.capacity,
            used=seat.used,
            absent=seat.away,
            active=seat.active,
            answered=seat.answered,
            decided=sum(
                states.get(seat.maker, {}).get(state, (0, 0))[0] for state in ("decided", t.ANSWERED)
            ),
            expected_loss=sum(
                loss for state, (_, loss) in states.get(seat.maker, {}).items() if state != t.ANSWERED
            ),
            price=seat.price,
        )
        for seat in roster
    ]
    means = losses.means(connection, shift_id)
    cases = sum(seat.cases for seat in roster)
    return ShiftReport(
        shift=shift_id,
        waiting=case_records.waiting_count(connection),
        assigned=cases,
        decided=sum(load.decided - load.answered for load in makers),
        expected_cost=sum(load.expected_loss for load in makers),
        machine_cost=cases * means[MACHINE] if cases and MACHINE in means else None,
        random_cost=_random_cost(means, makers),
        makers=makers,
    )


def _random_cost(means: dict[str, float], makers: list[MakerLoad]) -> float | None:
    """What the loads would cost if they were dealt at random; None where somebody's losses are not known."""
    busy = [load for load in makers if load.used > load.answered]
    if not busy or any(load.maker not in means for load in busy):
        return None
    average_case = [[means[load.maker] for load in busy]]
    return random_cost(average_case, [load.used - load.answered for load in busy])
