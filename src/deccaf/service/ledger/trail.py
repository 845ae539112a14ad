"""The audit trail: one line for everything that happened, never changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.ledger.webhooks import outbox
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

_ADD = sa.insert(t.history)


@dataclass(frozen=True)
class Event:
    """One line of the trail."""

    at: float
    kind: str
    maker: str | None
    key: int | None
    data: dict[str, Any]


def line(
    kind: str,
    at: float,
    actor: Actor,
    case_id: str | None = None,
    shift_id: int | None = None,
    maker: str | None = None,
    **data: Any,
) -> dict[str, Any]:
    """A line to be written by `write`."""
    return {
        "at": at,
        "kind": kind,
        "case_id": case_id,
        "shift_id": shift_id,
        "maker": maker,
        "key_id": actor.key_id,
        "data": json.dumps(data),
    }


def write(
    connection: sa.Connection,
    lines: Sequence[dict[str, Any]],
    told: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Add lines, all at once, and what programs of others are told of them, or of `told` in their place."""
    many.add(connection, t.history, lines)
    outbox.add(connection, lines if told is None else told)


def record(
    connection: sa.Connection,
    kind: str,
    at: float,
    actor: Actor,
    case_id: str | None = None,
    shift_id: int | None = None,
    maker: str | None = None,
    **data: Any,
) -> None:
    """Add one line, and what programs of others are told of it."""
    added = line(kind, at, actor, case_id, shift_id, maker, **data)
    connection.execute(_ADD, added)
    outbox.add(connection, [added])


def events_of(connection: sa.Connection, case_id: str) -> list[Event]:
    """What happened to a case, in order."""
    h = t.history.c
    query = sa.select(t.history).where(h.case_id == case_id).order_by(h.id)
    return [_event(row) for row in connection.execute(query)]


def latest_events(connection: sa.Connection, kinds: Sequence[str], most: int) -> list[Event]:
    """The latest lines of some kinds, the newest first."""
    h = t.history.c
    query = sa.select(t.history).where(h.kind.in_(kinds)).order_by(h.id.desc()).limit(most)
    return [_event(row) for row in connection.execute(query)]


def _event(row: Any) -> Event:
    return Event(row.at, row.kind, row.maker, row.key_id, json.loads(row.data))
