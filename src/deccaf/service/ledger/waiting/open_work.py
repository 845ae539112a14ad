"""Everybody's open cases with what their waiting costs: in which order each should work, what will be late.

What counts are the cases' own due times and waiting costs, and the rules of `[waiting]` in the settings.
Where there are neither, queues are worked through as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.assign import Harm
from deccaf.assign.waiting.order import best_order
from deccaf.assign.waiting.queues import next_index
from deccaf.data.config import WaitingTable
from deccaf.data.costs import MACHINE
from deccaf.planning.waiting import harm_of, with_help
from deccaf.service.ledger import desk
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.settings import LEARNING, read_setting

MOST = 5_000
"""Open cases that are looked at, the oldest."""
LATEST = 50
"""Of somebody's decisions, that say how long one takes them."""
USUAL_SECONDS = 300.0
"""How long a decision takes somebody who has made none."""
MOST_PROJECTED = 150
"""Cases of one person whose order is looked at step by step."""
_IN_HAND = 100
"""Above every priority."""
OPEN = ("assigned", "claimed")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ANY = sa.select(t.cases.c.id).where(t.WAITS, t.cases.c.status == "assigned").limit(1)


@dataclass(frozen=True, eq=False)
class OpenWork:
    """Open cases, one entry each; all times in hours from now."""

    rows: Sequence[Any]
    harm: Harm
    hours: Floats
    saving: Floats
    """What the person is expected to save against the machine."""
    ends: Floats
    """When the shift of each ends."""

    def of(self, maker: str) -> OpenWork:
        """Somebody's part of it."""
        mine = [place for place, row in enumerate(self.rows) if row.maker == maker]
        return OpenWork(
            [self.rows[place] for place in mine],
            self.harm.take(mine),
            self.hours[mine],
            self.saving[mine],
            self.ends[mine],
        )

    def order(self) -> Ints:
        """The order in which one person should work: cases in hand, then by priority, then by the index."""
        end, usual = float(self.ends.max(initial=0.0)), float(self.hours.mean()) if len(self.hours) else 0.0
        rank = next_index(self.harm, self.hours, self.saving, 0.0, end, max(usual, 1e-6))
        in_hand = np.array([row.state == "claimed" for row in self.rows], np.bool_)
        priority = np.array([row.priority for row in self.rows], np.int64)
        ids = np.array([row.id for row in self.rows], np.int64)
        return np.lexsort((ids, self.harm.due, -rank, -priority, ~in_hand))

    def first(self) -> Ints:
        """What comes before all else, the higher the sooner: cases in hand, then those of a priority."""
        return np.array([row.priority + _IN_HAND * (row.state == "claimed") for row in self.rows], np.int64)

    def projected(self) -> Ints:
        """The order as it will come out: what is late anyway makes way, as time goes on."""
        if len(self.rows) > MOST_PROJECTED or not self.harm.dated:
            return self.order()
        return best_order(self.harm, self.hours, 0.0, self.first())


@dataclass(frozen=True)
class LateCase:
    """A case that will be late as things are."""

    case_id: str
    maker: str
    due: float
    finish: float


@dataclass(frozen=True)
class Queued:
    """What somebody's queue will come to as things are."""

    maker: str
    cases: int
    hours: float
    late: int
    waiting: float
    """What waiting will cost from now on."""
    hour_saves: float
    """What it would save if somebody as quick worked beside them for an hour."""
    hour_in_time: int
    """Late cases that would then be in time."""


@dataclass(frozen=True)
class Outlook:
    """What will be late as things are, the most overdue first, and what one more hour would change."""

    people: list[Queued]
    late: list[LateCase]

    @property
    def best(self) -> Queued | None:
        """Whose hour would change most."""
        worth = [one for one in self.people if one.hour_in_time or one.hour_saves > 0]
        return max(worth, key=lambda one: (one.hour_saves, one.hour_in_time), default=None)


def rules(connection: sa.Connection) -> WaitingTable | None:
    """The `[waiting]` table of the settings, if there is one."""
    found = (read_setting(connection, LEARNING) or {}).get("waiting")
    return None if not found else WaitingTable.model_validate(found)


def counts(connection: sa.Connection) -> bool:
    """Whether anything says what waiting costs."""
    return rules(connection) is not None or connection.execute(_ANY).scalar() is not None


def read_open_work(connection: sa.Connection, at: float, maker: str | None = None) -> OpenWork:
    """Open cases of somebody, or of everybody; those that are put aside are left out."""
    table = rules(connection) or WaitingTable()
    a, c = t.assignments.c, t.cases.c
    columns = [a.id, a.case_id, a.maker, a.state, a.expected_loss, a.losses, a.pricing_id]
    columns += [c.priority, c.due, c.waiting_cost, c.arrived_at, t.shifts.c.ends_at]
    columns += [c.features] if table.kind else []
    query = (
        sa.select(*columns)
        .join(t.cases, c.case_id == a.case_id)
        .join(t.shifts, t.shifts.c.id == a.shift_id)
        .where(a.state.in_(OPEN), ~unfinished.unfinished_plan())
        .where(sa.or_(a.parked_until.is_(None), a.parked_until <= at))
    )
    query = query if maker is None else query.where(a.maker == maker)
    rows = connection.execute(query.order_by(c.priority.desc(), a.id).limit(MOST)).all()
    who = sorted({row.maker for row in rows})
    hours = {name: usual_seconds(connection, name) / 3600.0 for name in who}
    return OpenWork(
        rows,
        harm_of_rows(rows, table, at),
        np.array([hours[row.maker] for row in rows]),
        _savings(connection, rows),
        np.array([(row.ends_at - at) / 3600.0 for row in rows]),
    )


def next_of(connection: sa.Connection, maker: str, at: float) -> int | None:
    """The assignment that somebody should take up now; None: as they came."""
    if not counts(connection):
        return None
    work = read_open_work(connection, at, maker)
    free = [place for place in work.order().tolist() if work.rows[place].state == "assigned"]
    return int(work.rows[free[0]].id) if free else None


def places_of(connection: sa.Connection, maker: str, at: float) -> dict[int, int]:
    """The place of somebody's assignments in their order; empty: as they came."""
    if not counts(connection):
        return {}
    work = read_open_work(connection, at, maker)
    return {int(work.rows[row].id): place for place, row in enumerate(work.order().tolist())}


def read_outlook(connection: sa.Connection, at: float, most: int = 8) -> Outlook | None:
    """What will be late if everybody goes on as they do; None: nothing says what waiting costs."""
    if not counts(connection):
        return None
    work = read_open_work(connection, at)
    people, late = [], []
    for maker in sorted({row.maker for row in work.rows} - {MACHINE}):
        mine = work.of(maker)
        finish = np.empty(len(mine.rows))
        order = mine.projected()
        finish[order] = np.cumsum(mine.hours[order])
        people.append(_queued(maker, mine, finish))
        late += list(_late(mine, finish, at))
    return Outlook(people, sorted(late, key=lambda one: one.due - one.finish)[:most])


def usual_seconds(connection: sa.Connection, maker: str) -> float:
    """How long a decision takes somebody: the mean of their latest; of a machine, what its limit says."""
    m = t.machines.c
    pace = connection.execute(sa.select(m.maker, m.cases_per_minute).where(m.maker == maker)).first()
    if pace is not None:
        return 0.0 if pace.cases_per_minute is None else 60.0 / pace.cases_per_minute
    d = t.decisions.c
    latest = sa.select(d.seconds).where(d.maker == maker).order_by(d.at.desc()).limit(LATEST)
    found = [float(value) for value in connection.execute(latest).scalars() if value]
    return float(np.mean(found)) if found else USUAL_SECONDS


def _queued(maker: str, work: OpenWork, finish: Floats) -> Queued:
    now, helped = work.harm.cost(np.zeros(len(finish))), with_help(finish)
    late, then = np.asarray(work.harm.is_late(finish)), np.asarray(work.harm.is_late(helped))
    cost = work.harm.cost(finish)
    return Queued(
        maker,
        len(finish),
        float(work.hours.sum()),
        int(late.sum()),
        float((cost - now).sum()),
        float((cost - work.harm.cost(helped)).sum()),
        int((late & ~then).sum()),
    )


def _late(work: OpenWork, finish: Floats, at: float) -> Iterator[LateCase]:
    for place in np.flatnonzero(work.harm.is_late(finish)).tolist():
        due = at + 3600.0 * float(work.harm.due[place])
        yield LateCase(
            work.rows[place].case_id, work.rows[place].maker, due, at + 3600.0 * float(finish[place])
        )


def harm_of_rows(rows: Sequence[Any], table: WaitingTable, at: float) -> Harm:
    """What waiting costs cases of the ledger, in hours from now."""
    due = np.array([np.inf if row.due is None else (row.due - at) / 3600.0 for row in rows])
    rate = np.array([np.nan if row.waiting_cost is None else row.waiting_cost for row in rows])
    since = np.array([(row.arrived_at - at) / 3600.0 for row in rows])
    kinds = None
    if table.kind:
        kinds = np.array([str(json.loads(row.features).get(table.kind)) for row in rows], dtype=object)
    return harm_of(table, kinds, due, rate, since)


def arriving(features: str, due: float | None, cost: float | None, table: WaitingTable, at: float) -> Harm:
    """What waiting costs a case that comes now."""
    kinds = None
    if table.kind:
        kinds = np.array([str(json.loads(features).get(table.kind))], dtype=object)
    when = np.array([np.inf if due is None else (due - at) / 3600.0])
    return harm_of(table, kinds, when, np.array([np.nan if cost is None else cost]), np.zeros(1))


def _savings(connection: sa.Connection, rows: Sequence[Any]) -> Floats:
    makers = desk.makers_of(connection, sorted({row.pricing_id for row in rows}))
    saved = np.zeros(len(rows))
    for place, row in enumerate(rows):
        losses = dict(zip(makers[row.pricing_id], json.loads(row.losses), strict=True))
        machine = losses.get(MACHINE)
        if machine is not None:
            saved[place] = max(machine - row.expected_loss, 0.0)
    return saved
