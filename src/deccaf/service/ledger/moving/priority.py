"""Which cases come first in a queue."""

from __future__ import annotations

from typing import Annotated, Literal

import sqlalchemy as sa
from pydantic import Field

from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import case_records, trail
from deccaf.service.store import tables as t
from deccaf.service.store.fields import CaseId, Strict
from deccaf.service.store.keys import Actor

LEVELS = {"low": -1, "normal": 0, "high": 1, "urgent": 2}
NAMES = {level: name for name, level in LEVELS.items()}


class Priority(Strict):
    """Cases that come sooner in their queues, or later."""

    case_ids: Annotated[list[CaseId], Field(min_length=1, max_length=1_000)]
    priority: Literal["low", "normal", "high", "urgent"]


def set_priority(connection: sa.Connection, wanted: Priority, who: Actor, at: float) -> int:
    """Say how urgent cases are, all or none; how many changed. Queues are worked through in this order."""
    ids = list(dict.fromkeys(wanted.case_ids))
    standing = case_records.lock(connection, ids)
    for case_id in ids:
        if case_id not in standing:
            raise not_found("case", case_id)
        if standing[case_id].status == "decided":
            raise conflict("already-decided", f"case {case_id!r} is decided already")
    c = t.cases.c
    done = connection.execute(
        sa.update(t.cases)
        .where(c.case_id.in_(ids), c.status != "decided", c.priority != LEVELS[wanted.priority])
        .values(priority=LEVELS[wanted.priority])
    )
    lines = [trail.line("priority", at, who, case_id=case_id, priority=wanted.priority) for case_id in ids]
    trail.write(connection, lines)
    return done.rowcount
