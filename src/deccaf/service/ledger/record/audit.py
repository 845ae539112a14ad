"""The whole trail, filtered by person, key, case, kind and time, the newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.ledger.record.search import Mark, all_parts
from deccaf.service.store import tables as t
from deccaf.service.store.listing import from_json


@dataclass(frozen=True)
class TrailQuestion:
    """Which lines of the trail are looked for."""

    person: str | None = None
    """Whom they are about."""
    key: int | None = None
    """Whose key did it."""
    case_id: str | None = None
    kind: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True)
class Line:
    """One line of the trail, with the name and the role of the key that it was done with."""

    id: int
    at: float
    kind: str
    case_id: str | None
    shift_id: int | None
    maker: str | None
    key_id: int | None
    key_name: str | None
    role: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class TrailPage:
    """Some lines, and where the next page begins."""

    items: list[Line]
    next: Mark | None


def read_trail(connection: sa.Connection, wanted: TrailQuestion, after: Mark | None, most: int) -> TrailPage:
    """A page of the trail."""
    h, k = t.history.c, t.keys.c
    query = (
        sa.select(*h["id", "at", "kind", "case_id", "shift_id", "maker", "key_id"], h.data)
        .add_columns(k.name.label("key_name"), k.role)
        .outerjoin_from(t.history, t.keys, k.id == h.key_id)
        .where(*_conditions(wanted))
    )
    if after is not None:
        query = query.where(sa.tuple_(h.at, h.id) < sa.tuple_(sa.literal(after.value), sa.literal(after.id)))
    rows = connection.execute(query.order_by(h.at.desc(), h.id.desc()).limit(most + 1)).all()
    items = [Line(**{**row._mapping, "data": from_json(row.data)}) for row in rows[:most]]
    return TrailPage(items, Mark(items[-1].at, items[-1].id) if len(rows) > most else None)


def whole_trail(read: Any, wanted: TrailQuestion, at_once: int = 2_000) -> Iterator[list[Line]]:
    """Everything that is looked for, part by part; `read` asks the ledger."""
    return all_parts(read, lambda connection, after: read_trail(connection, wanted, after, at_once))


def kinds(connection: sa.Connection) -> Sequence[str]:
    """All kinds of lines that there are: one step in the index for each."""
    h, found = t.history.c, list[str]()
    last: str | None = None
    while True:
        query = sa.select(h.kind).order_by(h.kind).limit(1)
        if last is not None:
            query = query.where(h.kind > last)
        last = connection.execute(query).scalar()
        if last is None:
            return found
        found.append(last)


def _conditions(wanted: TrailQuestion) -> list[sa.ColumnElement[bool]]:
    h = t.history.c
    found: list[sa.ColumnElement[bool]] = []
    for column, value in (
        (h.maker, wanted.person),
        (h.key_id, wanted.key),
        (h.case_id, wanted.case_id),
        (h.kind, wanted.kind),
    ):
        if value is not None:
            found.append(column == value)
    if wanted.since is not None:
        found.append(h.at >= wanted.since)
    if wanted.until is not None:
        found.append(h.at < wanted.until)
    return found
