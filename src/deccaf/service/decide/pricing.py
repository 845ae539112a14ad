"""Bid prices of a running shift: renewed as the day goes on, kept in the database for every process."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.assign import Forecast, StreamAssigner
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Desk
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.writer import Writer

SAMPLE = 600
"""Latest cases that stand for those to come."""
FEWEST = 30
"""With fewer cases on record prices stay as they are: they would say little."""
RENEW_SECONDS = 5.0
RENEW_CASES = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What prices are made of: who has room, cases like those to come, and how many are still to come."""

    desk: Desk
    lower: NDArray[np.int64]
    sample: Floats
    left: float


def due(connection: sa.Connection, at: float) -> list[int]:
    """Open shifts whose prices are old enough, with enough cases since."""
    c = t.shifts.c
    query = sa.select(*c["id", "pricing_id"]).where(
        c.state == "open",
        c.starts_at <= at,
        c.ends_at > at,
        sa.or_(c.priced_at.is_(None), c.priced_at < at - RENEW_SECONDS),
    )
    found = []
    for shift in connection.execute(query).all():
        since = (
            sa.select(sa.func.count())
            .select_from(t.assignments)
            .where(t.assignments.c.pricing_id == shift.pricing_id)
        )
        if connection.execute(since).scalar_one() >= RENEW_CASES:
            found.append(int(shift.id))
    return found


def renew(engine: sa.Engine, writer: Writer, shift_id: int) -> bool:
    """Price a shift anew: look, solve without holding anything up, then write; False: too little is known."""
    at = time.time()
    with database.reading(engine, snapshot=False) as connection:
        outlook = look(connection, shift_id, at)
    if len(outlook.sample) < FEWEST:
        return False
    prices = bid_prices(outlook).tolist()

    def change(connection: sa.Connection) -> bool:
        desk = ledger.open_desk(connection, shift_id, at)
        if desk.makers != outlook.desk.makers or desk.pricing_id != outlook.desk.pricing_id:
            return False  # somebody was quicker
        ledger.write_prices(connection, shift_id, desk.makers, prices, "renewed", None, at)
        return True

    return writer.submit(change).result()  # in turn with all other changes: two who write at once wait long


def look(connection: sa.Connection, shift_id: int, at: float) -> Outlook:
    """Gather what prices are made of."""
    desk = ledger.read_desk(connection, shift_id)
    query = sa.select(*t.roster.c["maker", "lower", "used"]).where(t.roster.c.shift_id == shift_id)
    places = connection.execute(query).all()
    owed = {row.maker: max(row.lower - row.used, 0) for row in places}
    seen = sum(row.used for row in places)
    shift = connection.execute(sa.select(t.shifts).where(t.shifts.c.id == shift_id)).one()
    over = min(max((at - shift.starts_at) / (shift.ends_at - shift.starts_at), 1e-6), 1.0)
    expected = shift.expected_cases if shift.expected_cases is not None else seen / over
    sample = recent_losses(connection, desk.makers)
    left = Forecast.of(sample, arrivals=float(max(expected, 1))).remaining(seen, over)
    return Outlook(desk, np.array([owed[maker] for maker in desk.makers], np.int64), sample, left)


def recent_losses(connection: sa.Connection, makers: tuple[str, ...], most: int = SAMPLE) -> Floats:
    """Losses of the latest assignments, in the order of `makers`; infinite for who could not get a case."""
    a, p = t.assignments.c, t.pricings.c
    query = (
        sa.select(a.losses, p.makers)
        .join_from(t.assignments, t.pricings, a.pricing_id == p.id)
        .order_by(a.id.desc())
        .limit(most)
    )
    rows = []
    for losses, names in connection.execute(query).all():
        known = dict(zip(json.loads(names), json.loads(losses), strict=True))
        rows.append([np.inf if known.get(maker) is None else known[maker] for maker in makers])
    table = np.array(rows, np.float64).reshape(len(rows), len(makers))
    return np.asarray(table[np.isfinite(table).any(axis=1)])


def bid_prices(outlook: Outlook) -> Floats:
    """What a unit of each maker's time is worth for the rest of the shift; 0 where none is left."""
    forecast = Forecast.of(outlook.sample, arrivals=max(outlook.left, 1.0))
    stream = StreamAssigner(
        outlook.desk.makers,
        outlook.desk.room,
        np.minimum(outlook.lower, np.minimum(outlook.desk.room, 2**40)),
        forecast,
    )
    return np.where(np.isfinite(stream.prices), stream.prices, 0.0)
