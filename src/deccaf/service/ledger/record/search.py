"""Finding cases: by part of an id, person, status, decision, time, expected loss, disagreement; sorted.

Cases are read in the order of an index. Conditions that the index does not serve are checked on stretches of
`STRETCH` rows until the page is full or `SECONDS` have passed; `Found.looked` then says how far that went.
Part of an id: the beginnings of ids are in an index; inside of ids all are looked through up to `SCANNED`
cases in the ledger, beyond that the latest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from deccaf.service.errors import invalid
from deccaf.service.store import tables as t
from deccaf.service.store.listing import from_json

STRETCH = 5_000
SECONDS = 0.2
SCANNED = 2_000_000
MOST_IDS = 5_000
"""More cases than this with the part of an id are looked for stretch by stretch."""

Sort = Literal["newest", "oldest", "highest", "lowest"]
Disagreement = Literal["label", "machine", "people"]


class Mark(NamedTuple):
    """Where a page ends: the value that cases are sorted by, and an id."""

    value: float
    id: int

    def __str__(self) -> str:
        return f"{self.value!r}~{self.id}"

    @classmethod
    def read(cls, text: str) -> Mark:
        """The mark that a text stands for."""
        value, _, number = text.partition("~")
        try:
            found = cls(float(value), int(number))
        except ValueError:
            found = cls(math.nan, 0)
        if not math.isfinite(found.value) or not 0 <= found.id < 2**62:
            raise invalid("bad-mark", f"{text!r} is no place in this list; take `next` as it was given")
        return found


@dataclass(frozen=True)
class Question:
    """Which cases are looked for, and in which order."""

    part: str = ""
    """Of the id."""
    person: str | None = None
    """Who has or decided them."""
    status: str | None = None
    decision: str | None = None
    """As JSON."""
    since: float | None = None
    until: float | None = None
    """When they arrived."""
    loss_from: float | None = None
    loss_to: float | None = None
    disagreement: Disagreement | None = None
    """The decision is not the label; not what the machine says; or other people decided otherwise."""
    sort: Sort = "newest"


@dataclass(frozen=True)
class FoundCase:
    """A case with who has it and what was decided."""

    id: int
    case_id: str
    status: str
    priority: int
    arrived_at: float
    label: int | str | None
    maker: str | None
    state: str | None
    expected_loss: float | None
    method: str | None
    machine_says: int | str | None
    decision: int | str | None
    decided_at: float | None


@dataclass(frozen=True)
class Found:
    """A page of cases; where the next begins; and how many were looked through where no index served."""

    items: list[FoundCase]
    next: Mark | None
    looked: int | None = None
    """None: the answer is complete up to its end."""
    beginnings: bool = False
    """Only ids that begin with the part were looked for: there are too many to look inside of them."""


def find_cases(connection: sa.Connection, wanted: Question, after: Mark | None, most: int) -> Found:
    """A page of the cases that are looked for."""
    ids, beginnings = _ids_with(connection, wanted.part) if wanted.part else (None, False)
    order = _Order.of(wanted)
    if ids is not None:
        found = _page(connection, wanted, order, after, most, None, ids)
        return replace(found, beginnings=beginnings)
    if not _conditions(wanted, order):
        return _page(connection, wanted, order, after, most, None, None)
    return _search(connection, wanted, order, after, most)


def all_cases(read: Any, wanted: Question, at_once: int = 1_000) -> Iterator[list[FoundCase]]:
    """Everything that is looked for, part by part; `read` asks the ledger."""
    return all_parts(read, lambda connection, after: find_cases(connection, wanted, after, at_once))


def all_parts(read: Any, ask: Callable[[sa.Connection, Mark | None], Any]) -> Iterator[list[Any]]:
    """The items of all pages of a question, page after page: each has `items`, and `next` but the last."""
    after: Mark | None = None
    while True:
        page = read(lambda connection, after=after: ask(connection, after))
        if page.items:
            yield page.items
        if page.next is None:
            return
        after = page.next


@dataclass(frozen=True, eq=False)
class _Order:
    """The index that is read: its table's rows, the value they are sorted by, and the direction."""

    table: sa.Table
    value: sa.ColumnElement[float]
    id: sa.ColumnElement[int]
    down: bool
    by_case: bool

    @classmethod
    def of(cls, wanted: Question) -> _Order:
        down = wanted.sort in ("newest", "highest")
        a, c = t.assignments.c, t.cases.c
        if wanted.sort in ("highest", "lowest"):
            return cls(t.assignments, a.expected_loss, a.id, down, False)
        if wanted.person is not None:
            return cls(t.assignments, a.id, a.id, down, False)
        return cls(t.cases, c.arrived_at, c.id, down, True)

    def stretch(self, wanted: Question, after: Mark | None, most: int | None) -> sa.Select[Any]:
        """The next rows of the index, with what it serves of the question."""
        c, a = t.cases.c, t.assignments.c
        query = sa.select(self.table.c.case_id, self.value.label("value"), self.id.label("place"))
        if self.by_case:
            if wanted.status is not None:
                query = query.where(c.status == wanted.status)
            if wanted.since is not None:
                query = query.where(c.arrived_at >= wanted.since)
            if wanted.until is not None:
                query = query.where(c.arrived_at < wanted.until)
        else:
            query = query.where(t.IS_LIVE)
            if wanted.person is not None:
                query = query.where(a.maker == wanted.person)
            if self.value is a.expected_loss:
                query = query.where(*_losses(wanted))
        if after is not None:
            query = query.where(self._beyond(after))
        ways = [column.desc() if self.down else column.asc() for column in self._keys]
        return query.order_by(*ways).limit(most)

    @property
    def _keys(self) -> tuple[sa.ColumnElement[Any], ...]:
        return (self.id,) if self.value is self.id else (self.value, self.id)

    def _beyond(self, mark: Mark) -> sa.ColumnElement[bool]:
        if self.value is self.id:
            return self.id < mark.id if self.down else self.id > mark.id
        here, there = sa.tuple_(self.value, self.id), sa.tuple_(sa.literal(mark.value), sa.literal(mark.id))
        return here < there if self.down else here > there


def _search(
    connection: sa.Connection, wanted: Question, order: _Order, after: Mark | None, most: int
) -> Found:
    """Stretch by stretch, until the page is full or time is up."""
    began, looked = time.perf_counter(), 0
    items: list[FoundCase] = []
    while True:
        found = _page(connection, wanted, order, after, most - len(items), STRETCH, None)
        items += found.items
        looked += found.looked or 0
        if found.next is None or len(items) >= most:
            return Found(items, found.next)
        after = found.next
        if time.perf_counter() - began > SECONDS:
            return Found(items, after, looked)


def _page(
    connection: sa.Connection,
    wanted: Question,
    order: _Order,
    after: Mark | None,
    most: int,
    stretch: int | None,
    ids: list[str] | None,
) -> Found:
    """The cases of one stretch of the index (or of some ids) that meet all conditions."""
    rows = order.stretch(wanted, after, stretch if stretch is not None or ids is not None else most + 1)
    if ids is not None:
        rows = rows.where(order.table.c.case_id.in_(ids))
    window = rows.subquery()
    conditions = _conditions(wanted, order)
    query = sa.select(window.c.case_id, window.c.value, window.c.place).select_from(
        _joined(window, wanted, order)
    )
    ways = [column.desc() if order.down else column.asc() for column in (window.c.value, window.c.place)]
    chosen = connection.execute(query.where(*conditions).order_by(*ways).limit(most + 1)).all()
    items = _details(connection, [row.case_id for row in chosen[:most]])
    if len(chosen) > most:
        last = chosen[most - 1]
        return Found(items, Mark(float(last.value), int(last.place)))
    if stretch is None:
        return Found(items, None)
    # where the stretch itself ends: the next one begins there
    end = rows.with_only_columns(order.value.label("value"), order.id.label("place"))
    last_row = connection.execute(end.offset(stretch - 1).limit(1)).one_or_none()
    if last_row is None:
        return Found(items, None)
    return Found(items, Mark(float(last_row.value), int(last_row.place)), stretch)


def _joined(window: Any, wanted: Question, order: _Order) -> Any:
    """The stretch with the tables that its conditions are about."""
    c, a, d = t.cases.c, t.assignments.c, t.decisions.c
    found = window
    of_cases = (wanted.status, wanted.since, wanted.until) != (None, None, None) and not order.by_case
    if of_cases or wanted.part or wanted.disagreement == "label":
        found = found.join(t.cases, c.case_id == window.c.case_id)
    if wanted.disagreement == "machine" or (_losses(wanted) and order.value is not a.expected_loss):
        found = found.join(t.assignments, sa.and_(a.case_id == window.c.case_id, t.IS_LIVE))
    if wanted.decision is not None or wanted.disagreement is not None:
        found = found.join(t.decisions, d.case_id == window.c.case_id)
    return found


def _conditions(wanted: Question, order: _Order) -> list[sa.ColumnElement[bool]]:
    """What the index does not serve."""
    c, a, d = t.cases.c, t.assignments.c, t.decisions.c
    found: list[sa.ColumnElement[bool]] = []
    if wanted.part:
        found.append(_contains(wanted.part))
    if not order.by_case:
        if wanted.status is not None:
            found.append(c.status == wanted.status)
        if wanted.since is not None:
            found.append(c.arrived_at >= wanted.since)
        if wanted.until is not None:
            found.append(c.arrived_at < wanted.until)
    if order.value is not a.expected_loss:
        found += _losses(wanted)
    if wanted.decision is not None:
        found.append(d.decision == wanted.decision)
    if wanted.disagreement == "label":
        found.append(sa.and_(c.label.is_not(None), c.label != d.decision))
    if wanted.disagreement == "machine":
        found.append(sa.and_(a.machine_says.is_not(None), a.machine_says != d.decision))
    if wanted.disagreement == "people":
        found.append(otherwise())
    return found


def otherwise() -> sa.ColumnElement[bool]:
    """Whether other people decided a case of `decisions` otherwise, by the trail."""
    h, d = t.history.c, t.decisions.c
    start = sa.literal('{"decision": ') + d.decision
    return sa.exists().where(
        h.case_id == d.case_id,
        h.kind == "decided",
        h.maker != d.maker,
        h.data != start + "}",
        sa.not_(h.data.startswith(start + ",")),
    )


def _losses(wanted: Question) -> list[sa.ColumnElement[bool]]:
    loss = t.assignments.c.expected_loss
    found = []
    if wanted.loss_from is not None:
        found.append(loss >= wanted.loss_from)
    if wanted.loss_to is not None:
        found.append(loss <= wanted.loss_to)
    return found


def _contains(part: str) -> sa.ColumnElement[bool]:
    """Whether an id holds a text, letter by letter: `LIKE` would be of two minds about capitals."""
    return sa.func.replace(t.cases.c.case_id, part, "") != t.cases.c.case_id


def _ids_with(connection: sa.Connection, part: str) -> tuple[list[str] | None, bool]:
    """All ids with this part (None: too many), and whether only the beginnings of ids were looked at."""
    c = t.cases.c
    most = connection.execute(sa.select(sa.func.max(c.id))).scalar() or 0
    if most > SCANNED:
        found = _with_prefix(connection, part, MOST_IDS + 1)
        return (found, True) if 0 < len(found) <= MOST_IDS else (None, False)
    inside = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.strpos
    query = sa.select(c.case_id).where(inside(c.case_id, part) > 0).limit(MOST_IDS + 1)
    found = list(connection.execute(query).scalars())
    return (found, False) if len(found) <= MOST_IDS else (None, False)


def _with_prefix(connection: sa.Connection, part: str, most: int) -> list[str]:
    """The first ids that begin with a text, by the index of ids."""
    c, above = t.cases.c.case_id, part[:-1] + chr(ord(part[-1]) + 1)
    if connection.dialect.name == "sqlite":
        query = sa.select(c).where(c >= part, c < above)
    else:
        query = sa.select(c).where(c.op("~>=~")(part), c.op("~<~")(above))
    return list(connection.execute(query.limit(most)).scalars())


_DETAILS = (
    sa.select(
        *t.cases.c["id", "case_id", "status", "priority", "arrived_at", "label"],
        *t.assignments.c["maker", "state", "expected_loss", "method", "machine_says"],
        t.decisions.c.decision,
        t.decisions.c.at.label("decided_at"),
    )
    .outerjoin_from(t.cases, t.assignments, sa.and_(t.assignments.c.case_id == t.cases.c.case_id, t.IS_LIVE))
    .outerjoin(t.decisions, t.decisions.c.case_id == t.cases.c.case_id)
    .where(t.cases.c.case_id.in_(sa.bindparam("ids", expanding=True)))
)


def _details(connection: sa.Connection, ids: Sequence[str]) -> list[FoundCase]:
    """What is shown of cases, in the order of their ids."""
    if not ids:
        return []
    rows = {
        row.case_id: FoundCase(**row._mapping) for row in connection.execute(_DETAILS, {"ids": list(ids)})
    }
    return [_read(rows[case_id]) for case_id in ids]


def _read(row: FoundCase) -> FoundCase:
    texts = {name: from_json(getattr(row, name)) for name in ("label", "machine_says", "decision")}
    return replace(row, **texts)
