"""Bid prices of a running shift: renewed as the day goes on, kept in the database for every process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.assign import Forecast
from deccaf.assign.stream.assigner import NO_LIMIT
from deccaf.assign.stream.outlook import Today, mean_prices
from deccaf.service.ledger import assignments, desk, shifts
from deccaf.service.ledger.desk import Desk
from deccaf.service.ledger.shifts import Shift
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.writer import Writer

SAMPLE = 600
"""Cases of past shifts, and of this one, that stand for those to come."""
SHIFTS = 8
"""Past shifts that say when in a shift cases come."""
FEWEST = 30
"""With fewer cases on record prices stay as they are: they would say little."""
RENEW_SECONDS = 5.0
MOVED = 0.001
"""Prices are written anew when one has moved by this share of the largest."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What prices are made of: who has room, what past shifts were like, and what has come in this one."""

    at_desk: Desk
    lower: NDArray[np.int64]
    forecast: Forecast
    today: Today

    @property
    def sample(self) -> Floats:
        """All cases that say something of those to come."""
        return np.concatenate([self.forecast.loss, self.today.rows])


@dataclass(frozen=True, eq=False)
class NewPrices:
    """Prices that are not in force yet, and the desk that they were reckoned for."""

    at_desk: Desk
    prices: Floats


def due(connection: sa.Connection, at: float) -> list[int]:
    """Open shifts that run now, and whose prices are old enough."""
    c = t.shifts.c
    query = sa.select(c.id).where(
        c.state == "open",
        c.starts_at <= at,
        c.ends_at > at,
        sa.or_(c.priced_at.is_(None), c.priced_at < at - RENEW_SECONDS),
    )
    return [int(shift) for shift in connection.execute(query).scalars()]


def renew(engine: sa.Engine, writer: Writer, shift_id: int) -> bool:
    """Price a shift anew; False: too little is known, or somebody was quicker."""
    at = time.time()
    new = reckon(engine, shift_id, at)
    # in turn with all other changes: two who write at once wait long
    return new is not None and writer.submit(lambda connection: put_in_force(connection, new, at)).result()


def reckon(engine: sa.Engine, shift_id: int, at: float) -> NewPrices | None:
    """New prices for a shift, reckoned without holding anything up; None: too little is known."""
    with database.reading(engine, snapshot=False) as connection:
        outlook = read_outlook(connection, shift_id, at)
    if len(outlook.sample) < FEWEST:
        return None
    return NewPrices(outlook.at_desk, bid_prices(outlook))


def put_in_force(connection: sa.Connection, new: NewPrices, at: float) -> bool:
    """Write new prices down, unless the roster or the prices changed meanwhile.

    Prices that are as they were are only said to be fresh: a quiet night fills no table.
    """
    now = desk.open_desk(connection, new.at_desk.shift_id, at)
    if now.makers != new.at_desk.makers or now.pricing_id != new.at_desk.pricing_id:
        return False
    largest = max(float(np.abs(new.prices).max()), float(np.abs(now.prices).max()))
    if float(np.abs(new.prices - now.prices).max()) > MOVED * largest:
        desk.write_prices(connection, now.shift_id, now.makers, new.prices, "renewed", None, at)
    else:
        desk.confirm_prices(connection, now.shift_id, at)
    return True


def read_outlook(connection: sa.Connection, shift_id: int, at: float) -> Outlook:
    """Gather what prices are made of."""
    at_desk = desk.read_desk(connection, shift_id)
    seats = {seat.maker: seat for seat in shifts.read_roster(connection, shift_id)}
    owed = [max(seats[maker].lower - seats[maker].used, 0) for maker in at_desk.makers]
    shift = shifts.read_shift(connection, shift_id)
    past, past_at, usual = past_losses(connection, at_desk.makers, shift_id, at)
    rows, when = losses_of(connection, at_desk.makers, [shift], {shift_id: 1})
    expected = usual if shift.expected_cases is None else float(shift.expected_cases)
    forecast = Forecast.of(past, expected, past_at)
    seen = sum(seat.cases for seat in seats.values())
    today = Today.by_clock(rows, when, seen, shift.over(at))
    return Outlook(at_desk, np.array(owed, np.int64), forecast, today)


def past_losses(
    connection: sa.Connection, makers: tuple[str, ...], shift_id: int, at: float
) -> tuple[Floats, Floats, float]:
    """What choices of past shifts minimised, when in its shift each case came, and how many a shift has."""
    c, a = t.shifts.c, t.assignments.c
    query = sa.select(c.id).where(c.id != shift_id, c.ends_at <= at).order_by(c.ends_at.desc()).limit(SHIFTS)
    ids = connection.execute(query).scalars().all()
    counted = sa.select(a.shift_id, sa.func.count()).where(a.shift_id.in_(ids), a.state.in_(t.LIVE))
    cases: dict[int, int] = dict(connection.execute(counted.group_by(a.shift_id)).all())
    found = [shifts.read_shift(connection, number) for number in cases]
    thin = -(-sum(cases.values()) // SAMPLE)
    rows, when = losses_of(connection, makers, found, dict.fromkeys(cases, max(thin, 1)))
    return rows, when, float(np.mean(list(cases.values()))) if cases else 0.0


def losses_of(
    connection: sa.Connection, makers: tuple[str, ...], of: Sequence[Shift], thin: Mapping[int, int]
) -> tuple[Floats, Floats]:
    """What the latest choices of shifts minimised (every so manieth), and when in its shift each case came.

    In the order of `makers`; infinite for who could not get a case.
    """
    c = t.assignments.c
    aim = sa.func.coalesce(c.objective, c.losses).label("aim")
    tables, times = [np.empty((0, len(makers)))], [np.empty(0)]
    for shift in of:
        query = sa.select(aim, *c["pricing_id", "created_at"]).where(
            c.shift_id == shift.id, c.state.in_(t.LIVE), c.id % thin[shift.id] == 0
        )
        rows = connection.execute(query.order_by(c.id.desc()).limit(SAMPLE)).all()[::-1]
        table = assignments.loss_matrix(connection, rows, makers, "aim")
        usable = np.isfinite(table).any(axis=1)
        tables.append(table[usable])
        times.append(np.array([shift.over(row.created_at) for row in rows], np.float64)[usable])
    return np.concatenate(tables), np.concatenate(times)


def bid_prices(outlook: Outlook) -> Floats:
    """What one more unit of each maker's time would be worth for the rest of the shift, also of the full."""
    room = np.minimum(outlook.at_desk.room, NO_LIMIT).astype(np.int64)
    return mean_prices(
        outlook.forecast,
        outlook.today,
        room,
        np.minimum(outlook.lower, room),
        room < NO_LIMIT,
        np.zeros(len(room)),
        [0, outlook.today.seen],
    )
