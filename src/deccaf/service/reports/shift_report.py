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
    machine: bool = False
    """Whether it is a machine of the configuration."""
    held_up: bool = False
    """Of a machine: that it does not answer, or is not in the configuration any more."""

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
    counted = sa.select(a.maker, a.state, sa.func.count(), sa.func.sum(a.expected_loss))
    counted = counted.where(a.shift_id == shift_id).group_by(a.maker, a.state)
    states: dict[str, dict[str, Any]] = {}
    for held in (t.IS_LIVE, t.IS_ANSWERED):  # each has its index
        for maker, state, count, loss in connection.execute(counted.where(held)):
            states.setdefault(maker, {})[state] = (count, loss)
    golden = _golden(connection, shift_id)
    makers = [
        MakerLoad(
            maker=seat.maker,
            capacity=seat.capacity,
            used=seat.used,
            absent=seat.away,
            active=seat.active,
            answered=seat.answered,
            machine=seat.machine,
            held_up=seat.held_up,
            decided=sum(
                states.get(seat.maker, {}).get(state, (0, 0))[0] for state in ("decided", t.ANSWERED)
            ),
            expected_loss=sum(
                loss for state, (_, loss) in states.get(seat.maker, {}).items() if state != t.ANSWERED
            )
            - golden.get(seat.maker, (0, 0.0))[1],
            price=seat.price,
        )
        for seat in roster
    ]
    means = losses.means(connection, shift_id)
    every = sum(seat.cases for seat in roster)
    cases = every - sum(count for count, _ in golden.values())
    return ShiftReport(
        shift=shift_id,
        waiting=case_records.waiting_count(connection),
        assigned=every,
        decided=sum(load.decided - load.answered for load in makers),
        expected_cost=sum(load.expected_loss for load in makers),
        machine_cost=cases * means[MACHINE] if cases and MACHINE in means else None,
        random_cost=_random_cost(means, makers, {name: count for name, (count, _) in golden.items()}),
        makers=makers,
    )


def _golden(connection: sa.Connection, shift_id: int) -> dict[str, tuple[int, float]]:
    """Everybody's golden cases, which take their time and are no cost of the day: how many, expected loss."""
    a = t.assignments.c
    # SQLite: from the golden cases, which are few, to their assignments, and not by the index of the shift;
    # PostgreSQL knows how few they are, and would go through all assignments
    shift = a.shift_id + 0 if connection.dialect.name == "sqlite" else a.shift_id
    query = sa.select(a.maker, sa.func.count(), sa.func.sum(a.expected_loss)).where(
        shift == shift_id, t.IS_LIVE, a.case_id.in_(sa.select(t.golden_cases.c.case_id))
    )
    rows = connection.execute(query.group_by(a.maker))
    return {maker: (int(count), float(loss)) for maker, count, loss in rows}


def _random_cost(means: dict[str, float], makers: list[MakerLoad], golden: dict[str, int]) -> float | None:
    """What the loads would cost if they were dealt at random; None where somebody's losses are not known."""
    loads = {load.maker: load.used - load.answered - golden.get(load.maker, 0) for load in makers}
    busy = [name for name, count in loads.items() if count > 0]
    if not busy or any(name not in means for name in busy):
        return None
    return random_cost([[means[name] for name in busy]], [loads[name] for name in busy])
