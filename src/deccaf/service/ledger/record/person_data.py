"""Everything that is kept about a person, as one JSON document, written part by part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.store import tables as t

_PART = 2_000
_SECRET = {"hash", "content", "payload", "losses", "objective"}
"""Columns that are nobody's data: secrets, files, and what others would cost."""

Read = Callable[[Callable[[sa.Connection], Any]], Any]


def named_in() -> list[tuple[sa.Table, sa.Column[Any]]]:
    """Every table with a column that holds a person's name, and that column."""
    return [
        (table, table.c[column])
        for table in t.metadata.sorted_tables
        for column in ("maker", "expert")
        if column in table.c
    ]


def person_data(read: Read, name: str) -> Iterator[str]:
    """The document: who they are, then by table every row that names them or was done with their keys."""
    person = read(lambda c: _rows(c, sa.select(t.experts).where(t.experts.c.name == name)))
    if not person:
        raise not_found("expert", name)
    keys = read(lambda c: list(c.execute(sa.select(t.keys.c.id).where(t.keys.c.expert == name)).scalars()))
    yield '{"person": ' + json.dumps(person[0])
    for table, column in named_in():
        condition = column == name
        if table is t.history:
            condition = sa.or_(condition, t.history.c.key_id.in_(keys))
        yield from _table(read, table, condition)
    yield from _table(read, t.watch_days, t.watch_days.c.measure == f"errors {name}")
    yield "}\n"


def _table(read: Read, table: sa.Table, condition: sa.ColumnElement[bool]) -> Iterator[str]:
    """Rows of one table, a part at a time, in the order of its primary key."""
    yield f', "{table.name}": ['
    columns = [column for column in table.c if column.name not in _SECRET]
    order: Sequence[sa.Column[Any]] = list(table.primary_key.columns)
    after: tuple[Any, ...] | None = None
    first = True
    while True:
        query = sa.select(*columns).where(condition).order_by(*order).limit(_PART)
        if after is not None:
            query = query.where(sa.tuple_(*order) > sa.tuple_(*[sa.literal(value) for value in after]))
        rows = read(partial(_rows, query=query))
        text = ",\n ".join(json.dumps(row) for row in rows)
        yield text if first or not text else ",\n " + text
        first = first and not rows
        if len(rows) < _PART:
            break
        after = tuple(rows[-1][column.name] for column in order)
    yield "]"


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in connection.execute(query)]
