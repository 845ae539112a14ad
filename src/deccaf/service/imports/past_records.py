"""Histories that were entered: apart from the desk's own cases, so that nothing of them counts as today's.

An entry stands until it is taken back, as a whole; refits and backtests learn from what stands. The rows of
an entry that was taken back stay on record, and nobody reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.imports import case_import
from deccaf.service.imports.case_import import RowError
from deccaf.service.imports.past_columns import Column
from deccaf.service.imports.past_import import Past
from deccaf.service.ledger import case_records, people, trail
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, read_page

TEAM = "team"
_AT_ONCE = 500
_CHUNK = 5_000
_STANDING = t.past_entries.c.withdrawn_at.is_(None)
_HALF = sa.and_(~_STANDING, t.past_entries.c.withdrawn_by.is_(None))
"""Of an entry: that it is being entered in pieces, or was when its process was killed."""


@dataclass(frozen=True)
class Entry:
    """A history that was entered."""

    id: int
    at: float
    filename: str
    facts: dict[str, Any]
    """As `Past.facts` gives them."""
    withdrawn_at: float | None

    @property
    def columns(self) -> list[Column]:
        """What its columns seemed to be."""
        return [Column(**column) for column in self.facts["columns"]]


class PastTruth(NamedTuple):
    """A case of the past, its features as JSON, and its truth."""

    case_id: str
    features: str
    label: int | str


@dataclass(frozen=True)
class PastLesson:
    """Cases and decisions of the past that stand, for those who learn: rows of the tables."""

    cases: Sequence[Any]
    decisions: Sequence[Any]


def without_known(connection: sa.Connection, past: Past) -> Past:
    """The same, with an error for every row of a case that is in the ledger or in another entry already."""
    ids = [case.case_id for case in past.cases]
    known = dict.fromkeys(case_records.known_cases(connection, ids), "is a case of the desk already")
    p, e = t.past_cases.c, t.past_entries.c
    for start in range(0, len(ids), _AT_ONCE):
        query = (
            sa.select(p.case_id, p.entry_id)
            .join_from(t.past_cases, t.past_entries, e.id == p.entry_id)
            .where(_STANDING, p.case_id.in_(ids[start : start + _AT_ONCE]))
        )
        known |= {
            row.case_id: f"is in entry {row.entry_id} already: take that back first, or leave these rows out"
            for row in connection.execute(query)
        }
    if not known:
        return past
    mine = {case.row: case.case_id for case in past.cases if case.case_id in known}
    mine |= {one.row: one.case_id for one in past.decisions if one.case_id in known}
    errors = [RowError(row, case, "case_id", known[case]) for row, case in sorted(mine.items())]
    return replace(
        past,
        cases=[case for case in past.cases if case.case_id not in known],
        decisions=[one for one in past.decisions if one.case_id not in known],
        errors=case_import.first_errors([*past.errors, *errors]),
        error_count=past.error_count + len(errors),
        rejected=past.rejected + len(errors),
    )


def enter_past(
    connection: sa.Connection, past: Past, filename: str, who: Actor, at: float, skip_bad: bool = False
) -> Entry:
    """Enter a history: all of it, or with `skip_bad` all rows that can be."""
    checked = need_rows(connection, past, skip_bad)
    entry = _add(connection, checked, filename, who, at)
    for table, rows in rows_of(checked, entry):
        _insert(connection, table, rows)
    return finish(connection, entry, checked, who)


def need_rows(connection: sa.Connection, past: Past, skip_bad: bool) -> Past:
    """The rows that can be entered; refused where there are none, or bad ones that nobody wants skipped."""
    if past.trouble is not None:
        raise invalid("missing-columns", past.trouble)
    checked = without_known(connection, past)
    if not checked.cases:
        raise invalid("nothing-new", "no row of the file can be entered: see the preview", **checked.facts())
    if checked.rejected and not skip_bad:
        raise invalid(
            "bad-rows", f"{checked.rejected} of {checked.rows} rows cannot be used", **checked.facts()
        )
    return checked


def begin(connection: sa.Connection, checked: Past, filename: str, who: Actor, at: float) -> Entry:
    """Begin to enter a history in pieces (see `unfinished`); nobody sees it before `finish`."""
    return _add(connection, checked, filename, who, at, withdrawn_at=at)


def write_piece(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """The next rows of a history."""
    many.add(connection, table, rows)


def finish(connection: sa.Connection, entry: Entry, checked: Past, who: Actor) -> Entry:
    """All of a history is in the ledger: from now on it stands."""
    e = t.past_entries.c
    connection.execute(sa.update(t.past_entries).where(e.id == entry.id).values(withdrawn_at=None))
    people.add_unknown(connection, list(checked.people), TEAM, who, entry.at)
    facts: dict[str, Any] = {
        "entry": entry.id,
        "filename": entry.filename,
        "cases": len(checked.cases),
        "decisions": len(checked.decisions),
        "rejected": checked.rejected,
    }
    trail.record(connection, "history entered", entry.at, who, None, None, None, **facts)
    return replace(entry, withdrawn_at=None)


def rows_of(checked: Past, entry: Entry) -> Iterator[tuple[sa.Table, Iterable[dict[str, Any]]]]:
    """The rows of a history, by table."""
    yield t.past_cases, _case_rows(checked, entry.id, entry.at)
    yield t.past_decisions, ({"entry_id": entry.id, **_plain(d)} for d in checked.decisions)


def take_out(connection: sa.Connection, most: int) -> bool:
    """Take rows out of a history that was not entered whole, at last its entry; whether any may be left."""
    left = connection.execute(sa.select(t.past_entries.c.id).where(_HALF).limit(1)).scalar()
    if left is None:
        return False
    for table in (t.past_decisions, t.past_cases):
        some = sa.select(table.c.id).where(table.c.entry_id == left).limit(most)
        if connection.execute(sa.delete(table).where(table.c.id.in_(some))).rowcount:
            return True
    connection.execute(sa.delete(t.past_entries).where(t.past_entries.c.id == left))
    return True


def is_half(connection: sa.Connection) -> bool:
    """Whether a history is there that was not entered whole."""
    return connection.execute(sa.select(t.past_entries.c.id).where(_HALF).limit(1)).first() is not None


def _add(
    connection: sa.Connection,
    checked: Past,
    filename: str,
    who: Actor,
    at: float,
    withdrawn_at: float | None = None,
) -> Entry:
    facts = checked.facts()
    values = {"at": at, "key_id": who.key_id, "filename": filename, "facts": json.dumps(facts)}
    made = connection.execute(
        sa.insert(t.past_entries).values(**values, withdrawn_at=withdrawn_at).returning(t.past_entries.c.id)
    ).scalar_one()
    return Entry(int(made), at, filename, facts, withdrawn_at)


def withdraw(connection: sa.Connection, entry_id: int, who: Actor, at: float) -> Entry:
    """Take an entry back as a whole: nobody learns from it any more.

    People who came with it and whom nothing else is about are taken back too.
    """
    e = t.past_entries.c
    entry = read_entry(connection, entry_id)
    done = connection.execute(
        sa.update(t.past_entries)
        .where(e.id == entry_id, _STANDING)
        .values(withdrawn_at=at, withdrawn_by=who.key_id)
    )
    if done.rowcount != 1:
        raise conflict("taken-back", f"entry {entry_id} was taken back already")
    trail.record(connection, "history taken back", at, who, entry=entry_id, filename=entry.filename)
    for name in _needless(connection, entry):
        connection.execute(sa.delete(t.experts).where(t.experts.c.name == name))
        trail.record(connection, "expert removed", at, who, None, None, name, entry=entry_id)
    return replace(entry, withdrawn_at=at)


def read_entry(connection: sa.Connection, entry_id: int) -> Entry:
    """One entry."""
    row = connection.execute(_ENTRY.where(t.past_entries.c.id == entry_id)).one_or_none()
    if row is None:
        raise not_found("entry of history", entry_id)
    return _entry(row)


def list_entries(connection: sa.Connection, cut: Cut) -> Page[Entry]:
    """All entries, those that were taken back too."""
    return read_page(connection, _ENTRY, t.past_entries.c.id, cut, _entry)


def latest_entries(connection: sa.Connection, most: int) -> list[Entry]:
    """The newest entries."""
    return [
        _entry(row) for row in connection.execute(_ENTRY.order_by(t.past_entries.c.id.desc()).limit(most))
    ]


def labelled_count(connection: sa.Connection) -> int:
    """How many cases of the past that stands have a label."""
    p = t.past_cases.c
    query = sa.select(sa.func.count()).select_from(t.past_cases).where(p.label.is_not(None), _stands(p))
    return int(connection.execute(query).scalar_one())


def latest_labelled(connection: sa.Connection, most: int) -> list[PastTruth]:
    """The latest cases of the past that stands, with their truth."""
    p = t.past_cases.c
    query = sa.select(*p["case_id", "features", "label"]).where(p.label.is_not(None), _stands(p))
    rows = connection.execute(query.order_by(p.came_at.desc(), p.id.desc()).limit(most))
    return [PastTruth(row.case_id, row.features, json.loads(row.label)) for row in rows]


def counted(connection: sa.Connection) -> Sequence[Any]:
    """How often everybody decided what on which truth: maker, label, decision, decisions."""
    p, d = t.past_cases.c, t.past_decisions.c
    groups = (d.maker, p.label, d.decision)
    query = (
        sa.select(*groups, sa.func.count().label("decisions"))
        .join_from(t.past_decisions, t.past_cases, sa.and_(p.entry_id == d.entry_id, p.case_id == d.case_id))
        .where(_stands(d))
        .group_by(*groups)
    )
    return connection.execute(query).all()


def lesson(connection: sa.Connection, only_labelled: bool) -> PastLesson:
    """What stands; a case that has come to the desk since is learned from there."""
    p, d = t.past_cases.c, t.past_decisions.c
    desk = sa.exists().where(t.cases.c.case_id == p.case_id)
    cases = sa.select(*p["case_id", "features", "label", "came_at"]).where(_stands(p), ~desk)
    if only_labelled:
        cases = cases.where(p.label.is_not(None))
    rows = connection.execute(cases.order_by(p.came_at, p.id)).all()
    kept = {row.case_id for row in rows}
    decisions = (
        sa.select(*d["case_id", "maker", "decision", "decided_at", "seconds"])
        .where(_stands(d))
        .order_by(d.id)
    )
    return PastLesson(rows, [row for row in connection.execute(decisions) if row.case_id in kept])


_ENTRY = sa.select(
    *[t.past_entries.c[name] for name in ("id", "at", "filename", "facts", "withdrawn_at")]
).where(~_HALF)


def _stands(columns: Any) -> sa.ColumnElement[bool]:
    return columns.entry_id.in_(sa.select(t.past_entries.c.id).where(_STANDING))  # type: ignore[no-any-return]


def _entry(row: Any) -> Entry:
    return Entry(row.id, row.at, row.filename, json.loads(row.facts), row.withdrawn_at)


def _case_rows(past: Past, entry: int, at: float) -> Iterable[dict[str, Any]]:
    """Where the file has no dates, cases keep their order: a second for each rank, before the entry."""
    last = 0.0 if past.dated else max(case.came_at for case in past.cases)
    for case in past.cases:
        came = case.came_at if past.dated else at - 10.0 - (last - case.came_at)
        yield {
            "entry_id": entry,
            "case_id": case.case_id,
            "features": case.features,
            "label": case.label,
            "came_at": came,
            "labelled_at": case.labelled_at,
        }


def _plain(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name != "row"}


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    part: list[dict[str, Any]] = []
    for row in rows:
        part.append(row)
        if len(part) == _CHUNK:
            many.add(connection, table, part)
            part = []
    many.add(connection, table, part)


def _needless(connection: sa.Connection, entry: Entry) -> list[str]:
    """People whom this entry brought, and nothing else is about."""
    e, d = t.experts.c, t.past_decisions.c
    query = sa.select(e.name).where(
        e.name.in_(list(entry.facts["people"])),
        e.created_at == entry.at,
        ~sa.exists().where(t.roster.c.maker == e.name),
        ~sa.exists().where(t.keys.c.expert == e.name),
        ~sa.exists().where(d.maker == e.name, _stands(d)),
    )
    return list(connection.execute(query).scalars())
