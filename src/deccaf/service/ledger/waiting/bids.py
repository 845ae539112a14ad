"""What waiting would cost with each person, for cases that arrive: from everybody's queue as it is now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from deccaf.assign import Harm, Queues
from deccaf.data.config import WaitingTable
from deccaf.data.costs import MACHINE
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.ledger.desk import Desk, Floats
from deccaf.service.ledger.waiting.open_work import arriving, read_open_work, rules, usual_seconds
from deccaf.service.store import tables as t


class WaitingBids:
    """The price of waiting in the bids for cases that arrive together."""

    def __init__(self, connection: sa.Connection, at_desk: Desk, table: WaitingTable, at: float) -> None:
        self._table, self._at, self._makers = table, at, at_desk.makers
        people = [name for name in at_desk.makers if name != MACHINE]
        hours = {name: usual_seconds(connection, name) / 3600.0 for name in people}
        self._hours = np.array([hours.get(name, 0.0) for name in at_desk.makers])
        instant = np.flatnonzero(self._hours == 0.0).tolist()
        c = t.shifts.c
        shift = connection.execute(sa.select(c.starts_at, c.ends_at).where(c.id == at_desk.shift_id)).one()
        self._queues = Queues(len(at_desk.makers), self._hours, instant, (shift.ends_at - at) / 3600.0)
        self._queues.start = (shift.starts_at - at) / 3600.0
        work = read_open_work(connection, at)
        mine = [place for place, row in enumerate(work.rows) if hours.get(row.maker, 0.0) > 0.0]
        places = {name: place for place, name in enumerate(at_desk.makers)}
        maker = np.array([places[work.rows[place].maker] for place in mine], np.int64)
        names = [int(work.rows[place].id) for place in mine]
        self._queues.fill(names, maker, work.harm.take(mine), np.tile(self._hours, (len(mine), 1)))

    def of(self, arrival: Arrival) -> Floats:
        """What waiting costs with each maker, in the desk's order."""
        return self._queues.bids(self._harm(arrival), self._hours, 0.0)

    def placed(self, arrival: Arrival, maker: str) -> None:
        """The case is in somebody's queue now."""
        place = self._makers.index(maker)
        self._queues.add(arrival.case_id, place, self._harm(arrival), self._hours)

    def _harm(self, arrival: Arrival) -> Harm:
        return arriving(arrival.features, arrival.due, arrival.waiting_cost, self._table, self._at)


def open_bids(
    connection: sa.Connection, at_desk: Desk, arrivals: Sequence[Arrival], at: float
) -> WaitingBids | None:
    """None where nothing says what the waiting of these cases costs."""
    table = rules(connection)
    if table is None and all(a.due is None and a.waiting_cost is None for a in arrivals):
        return None
    return WaitingBids(connection, at_desk, table or WaitingTable(), at)
