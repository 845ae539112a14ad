"""What waiting costs the cases of a plan of the desk: their own due times and costs, the settings' rules, how
long everybody usually takes, and what everybody has already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.data.config import WaitingTable
from deccaf.data.costs import MACHINE
from deccaf.planning.waiting import Queued, Waits
from deccaf.service.ledger.waiting.open_work import (
    OpenWork,
    harm_of_rows,
    read_open_work,
    rules,
    usual_seconds,
)

COLUMNS = ("due", "waiting_cost", "arrived_at", "priority")
"""Of a case, beside its features."""


def read_plan_waits(
    connection: sa.Connection, rows: Sequence[Any], makers: Sequence[str], at: float
) -> Waits | None:
    """What waiting costs the cases `rows` from now on; None: nothing is said about it.

    `rows` have the columns `COLUMNS` and `features`; `makers` are those of the plan, in their order.
    """
    table = rules(connection)
    if table is None and all(row.due is None and row.waiting_cost is None for row in rows):
        return None
    hours = np.array(
        [0.0 if name == MACHINE else usual_seconds(connection, name) / 3600.0 for name in makers]
    )
    priority = np.array([row.priority for row in rows], np.int64)
    return Waits(
        harm_of_rows(rows, table or WaitingTable(), at).from_now(),
        np.tile(hours, (len(rows), 1)),
        priority=priority if (priority != priority[0]).any() else None,
        queued=_queued(read_open_work(connection, at), makers, hours),
    )


def _queued(work: OpenWork, makers: Sequence[str], hours: Any) -> Queued | None:
    places = {name: place for place, name in enumerate(makers) if name != MACHINE}
    mine = [k for k, row in enumerate(work.rows) if row.maker in places]
    if not mine:
        return None
    return Queued(
        work.harm.take(mine).from_now(),
        np.array([places[work.rows[k].maker] for k in mine], np.int64),
        np.tile(hours, (len(mine), 1)),
        work.first()[mine],
    )
