"""Who is a machine, and its place on a roster; no change of anything."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from deccaf.service.store import tables as t
from deccaf.service.store.fields import MOST_CASES

HELD_UP = sa.or_(t.machines.c.configured.is_(sa.false()), t.machines.c.down_since.is_not(None))
"""Of a machine: that it gets nothing now."""


@dataclass(frozen=True)
class Machine:
    """A machine as the ledger knows it."""

    name: str
    configured: bool
    """Whether the configuration still names it."""
    has_address: bool
    """Whether cases are sent to it; else a program fetches them like a reviewer."""
    cases_per_minute: float | None = None
    cases_per_day: int | None = None
    down_since: float | None = None
    """When it was found not to answer."""

    def capacity(self, hours: float) -> int | None:
        """Cases that it can take in so long; None: no limit."""
        limits = [] if self.cases_per_day is None else [self.cases_per_day]
        if self.cases_per_minute is not None:
            limits.append(int(self.cases_per_minute * 60.0 * hours))
        return min((*limits, MOST_CASES)) if limits else None


def read_machines(connection: sa.Connection) -> list[Machine]:
    """All machines, by name."""
    c = t.machines.c
    columns = c["configured", "has_address", "cases_per_minute", "cases_per_day", "down_since"]
    rows = connection.execute(sa.select(c.maker, *columns).order_by(c.maker))
    return [Machine(*row) for row in rows]


def machine_names(connection: sa.Connection) -> frozenset[str]:
    """The names of all machines beside deccaf's own."""
    return frozenset(connection.execute(sa.select(t.machines.c.maker)).scalars())


def is_sent_its_cases(connection: sa.Connection, name: str) -> bool:
    """Whether somebody is a machine with an address: it claims nothing."""
    c = t.machines.c
    query = sa.select(c.maker).where(c.maker == name, c.configured, c.has_address)
    return connection.execute(query).scalar() is not None


def usable(connection: sa.Connection) -> list[Machine]:
    """Machines of the configuration that no lead has put out of use."""
    e = t.experts.c
    active = set(connection.execute(sa.select(e.name).where(e.active)).scalars())
    return [one for one in read_machines(connection) if one.configured and one.name in active]
