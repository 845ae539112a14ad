"""How many hours of whom next week, from the losses that the ledger holds of the past ones."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from pydantic import ValidationError

from deccaf.data.capacity import UNLIMITED
from deccaf.data.costs import MACHINE
from deccaf.data.staffing import StaffingTable
from deccaf.errors import DataError
from deccaf.planning.scored import Scored
from deccaf.planning.staffing import Staffing, staffed
from deccaf.planning.terms import Terms
from deccaf.service.errors import invalid
from deccaf.service.jobs.learning import read_config
from deccaf.service.ledger import claims, people
from deccaf.service.ledger.assignments import loss_matrix
from deccaf.service.ledger.machines import seats
from deccaf.service.store import tables as t

MOST_CASES = 3_000
FEWEST = 20
A_WEEK = 7 * 86_400.0
A_WEEK_OF_DAYS = 7
"""Past days from which on one weekday is told from another."""
LESSONS = 3
PRECISION = 0.01
"""A page need not be as exact as a roster."""
_NEEDED = 0.5
"""Share of the cases of which somebody's loss must be known."""


def asked_for(connection: sa.Connection, changes: dict[str, Any]) -> StaffingTable | None:
    """The `[staffing]` of the settings with some of it changed; None where nobody said what an hour costs."""
    try:
        known = read_config(connection).staffing
    except DataError:  # a desk that is told all losses has no configuration
        known = None
    values = {**({} if known is None else known.model_dump(exclude_unset=True)), **changes}
    if "wage" not in values:
        return None
    try:
        return StaffingTable.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid("bad-staffing", f"{first['loc'][0]}: {first['msg']}") from error


def next_week(connection: sa.Connection, table: StaffingTable, terms: Terms | None) -> Staffing | None:
    """The best roster for a week like the past ones; None where too few cases are known."""
    a, since = t.assignments.c, time.time() - table.weeks * A_WEEK
    query = (
        sa.select(*a["losses", "pricing_id", "created_at"])
        .where(a.created_at >= since, a.state.in_(t.LIVE))
        .order_by(a.id.desc())
        .limit(MOST_CASES)
    )
    rows = connection.execute(query).all()[::-1]
    limits = {one.name: one.capacity(24.0) for one in seats.usable(connection)}
    machines = {name: UNLIMITED if limit is None else limit for name, limit in limits.items()}
    active, ever = people.active_experts(connection), seats.machine_names(connection)
    makers = (MACHINE, *table.people(active, ever), *machines)
    loss = loss_matrix(connection, rows, makers)
    usable = np.isfinite(loss[:, 0])
    loss = loss[usable]
    if len(loss) < FEWEST:
        return None
    kept = [0, *(j for j in range(1, len(makers)) if np.isfinite(loss[:, j]).mean() >= _NEEDED)]
    loss = np.where(np.isfinite(loss), loss, loss[:, :1])[
        :, kept
    ]  # who may not get a case gains nothing by it
    at = pd.Series(pd.to_datetime([row.created_at for row in rows], unit="s"))[usable].reset_index(drop=True)
    days = at.dt.normalize().nunique()
    if days < A_WEEK_OF_DAYS:
        table = table.model_copy(update={"cases": table.cases or len(at) / days})
    dates = None if days < A_WEEK_OF_DAYS else at
    scored = Scored(
        ids=pd.RangeIndex(len(loss)),
        makers=tuple(makers[j] for j in kept),
        loss=loss,
        objective=loss,
        says=np.zeros(len(loss), np.int64),
        classes=("",),
        notes=tuple(
            f"too few cases are known of {makers[j]}" for j in range(1, len(makers)) if j not in kept
        ),
        terms=terms,
    )
    pace = {name: 3600.0 / each for name, each in claims.mean_seconds(connection, since).items() if each > 0}
    return staffed(scored, table, pace, machines=machines, dates=dates, lessons=LESSONS, precision=PRECISION)
