"""Long lists, a page at a time, and JSON columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some items of a list, and where the next page begins (None: this is the last one)."""

    items: list[Item]
    next: int | None


@dataclass(frozen=True)
class Cut:
    """Which page: at most `limit` items, after the one with this id."""

    limit: int
    after: int | None = None


def read_page(
    connection: sa.Connection,
    query: sa.Select[Any],
    column: sa.ColumnElement[int],
    cut: Cut,
    item: Callable[[Any], Item],
) -> Page[Item]:
    """A page of a query, in order of `column`."""
    if cut.after is not None:
        query = query.where(column > cut.after)
    rows = connection.execute(query.order_by(column).limit(cut.limit + 1)).all()
    kept = rows[: cut.limit]
    following = getattr(kept[-1], column.key or "id") if len(rows) > cut.limit else None
    return Page([item(row) for row in kept], following)


def from_json(text: str | None) -> Any:
    """A JSON column's value; None where the column is empty."""
    return None if text is None else json.loads(text)
