"""Bid prices of a running shift: renewed as the day goes on, kept in the database for every process."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.assign import Forecast, StreamAssigner
from deccaf.service.ledger import assignments, desk, shifts
from deccaf.service.ledger.desk import Desk
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.writer import Writer

SAMPLE = 600
"""Latest cases that stand for those to come."""
FEWEST = 30
"""With fewer cases on record prices stay as they are: they would say little."""
RENEW_SECONDS = 5.0
MOVED = 0.001
"""Prices are written anew when one has moved by this share of the largest."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What prices are made of: who has room, cases like those to come, and how many are still to come."""

    at_desk: Desk
    lower: NDArray[np.int64]
    sample: Floats
    left: float


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
    seen = sum(seat.used for seat in seats.values())
    shift = shifts.read_shift(connection, shift_id)
    over = max(shift.over(at), 1e-6)
    expected = shift.expected_cases if shift.expected_cases is not None else seen / over
    sample = recent_losses(connection, at_desk.makers)
    left = Forecast.of(sample, arrivals=float(max(expected, 1))).remaining(seen, over)
    return Outlook(at_desk, np.array(owed, np.int64), sample, left)


def recent_losses(connection: sa.Connection, makers: tuple[str, ...], most: int = SAMPLE) -> Floats:
    """What the latest choices minimised, in the order of `makers`; infinite for who could not get a case."""
    c = t.assignments.c
    aim = sa.func.coalesce(c.objective, c.losses).label("aim")
    query = sa.select(aim, c.pricing_id).order_by(c.id.desc()).limit(most)
    table = assignments.loss_matrix(connection, connection.execute(query).all(), makers, "aim")
    return np.asarray(table[np.isfinite(table).any(axis=1)])


def bid_prices(outlook: Outlook) -> Floats:
    """What a unit of each maker's time is worth for the rest of the shift; 0 where none is left."""
    forecast = Forecast.of(outlook.sample, arrivals=max(outlook.left, 1.0))
    stream = StreamAssigner(
        outlook.at_desk.makers,
        outlook.at_desk.room,
        np.minimum(outlook.lower, np.minimum(outlook.at_desk.room, 2**40)),
        forecast,
    )
    return np.where(np.isfinite(stream.prices), stream.prices, 0.0)
