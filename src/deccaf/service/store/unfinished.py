"""Large changes on SQLite go in pieces, so that no write transaction is long; nobody sees half of one.

SQLite has one writer: whoever enters 50,000 rows at once holds everybody up. So a file, or the commit of a
plan, is written piece by piece, and a row of `unfinished` says so until the last piece. Whoever reads
meanwhile sees the ledger without it: `mask` puts views in place of the tables, for this one transaction.
Whoever writes leaves its rows alone (`unfinished_plan`, `unfinished_import`) or waits (`wait_for_plans`).
The open work of somebody who is absent or out of use goes to others in pieces too (`claims.release_all`):
each case of it is always whole, and nothing is hidden; labels likewise.

On PostgreSQL a large change is one transaction, which nobody sees before its end, and there is no such row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.errors import RefusedError
from deccaf.service.store import tables as t

PIECE = 300
"""Rows of a large change that are written together."""
_AT_ONCE = 500
_OPEN = sa.select(t.unfinished)
_HIDDEN = (
    "SELECT import_id, plan_id, shift_id, units FROM unfinished "
    "WHERE import_id IS NOT NULL OR plan_id IS NOT NULL"
)


class StillEnteringError(RefusedError):
    """A change has to wait for the end of another; it is tried again before anybody hears of it."""

    def __init__(self) -> None:
        super().__init__(503, "plan-being-committed", "a plan is being committed; try again in a second")


@dataclass(frozen=True)
class Unfinished:
    """A large change that has begun."""

    id: int
    at: float
    key_id: int | None
    import_id: int | None
    plan_id: int | None
    shift_id: int | None
    pricing_id: int | None
    units: str
    """Capacity that was taken for a plan, by maker; or whose work goes to others and why; or labels. JSON."""
    done: int
    """How many of its cases are written."""
    after_id: int
    """The cases of a file have larger ids; the assignments that are released have none larger."""
    lost: int
    """Cases of a file that others have entered meanwhile."""
    idempotency_key: str | None
    request: str
    body: str
    """Its answer, as JSON."""

    @property
    def kind(self) -> Literal["file", "plan", "release", "labels"]:
        """What it is."""
        if self.import_id is not None:
            return "file"
        if self.plan_id is not None:
            return "plan"
        return "labels" if self.shift_id is None else "release"


def is_in_pieces(connection: sa.Connection | sa.Engine, rows: int, piece: int | None = None) -> bool:
    """Whether a change of so many rows is written in pieces."""
    return connection.dialect.name == "sqlite" and rows > (piece or PIECE)


def begin(connection: sa.Connection, at: float, **values: object) -> Unfinished:
    """Write down that a large change has begun."""
    row = {"units": "{}", "done": 0, "after_id": 0, "lost": 0, "body": "", **values, "at": at}
    made = connection.execute(sa.insert(t.unfinished).values(**row).returning(t.unfinished)).one()
    return Unfinished(**made._asdict())


def read_open(connection: sa.Connection) -> list[Unfinished]:
    """Changes that have begun and not ended."""
    return [Unfinished(**row._asdict()) for row in connection.execute(_OPEN)]


def move_on(connection: sa.Connection, change: Unfinished, done: int, rows: int) -> bool:
    """Count the rows of the next piece; False: somebody else has written them."""
    c = t.unfinished.c
    step = sa.update(t.unfinished).where(c.id == change.id, c.done == done).values(done=done + rows)
    return connection.execute(step).rowcount == 1


def end(connection: sa.Connection, change: Unfinished) -> bool:
    """From now on everybody sees it; False: somebody else has ended it."""
    gone = connection.execute(sa.delete(t.unfinished).where(t.unfinished.c.id == change.id))
    return gone.rowcount == 1


def done(connection: sa.Connection, change: Unfinished) -> int | None:
    """How many of its rows are written by now; None: it has ended, or somebody has stopped it."""
    query = sa.select(t.unfinished.c.done).where(t.unfinished.c.id == change.id)
    return connection.execute(query).scalar()


def lower_capacity(connection: sa.Connection, shift_id: int, maker: str, wanted: int) -> None:
    """Lower somebody's capacity to what is wanted, or to what they have if that is more."""
    c = t.roster.c
    reached = sa.case((c.used > wanted, c.used), else_=wanted)
    here = sa.and_(c.shift_id == shift_id, c.maker == maker)
    connection.execute(sa.update(t.roster).where(here).values(capacity=reached))


def stop_releases(connection: sa.Connection, maker: str, shift_id: int | None = None) -> None:
    """Somebody is back, or their place changes once more: what they still have stays with them."""
    if connection.dialect.name != "sqlite":
        return
    for change in read_open(connection):
        if change.kind != "release":
            continue
        wanted = json.loads(change.units)
        if wanted["maker"] == maker and shift_id in (None, change.shift_id):
            end(connection, change)
            if wanted.get("capacity") is not None and change.shift_id is not None:
                lower_capacity(connection, change.shift_id, maker, wanted["capacity"])


def unfinished_plan() -> sa.ColumnElement[bool]:
    """Of an assignment: that its plan is still being committed."""
    return sa.exists().where(t.unfinished.c.plan_id == t.assignments.c.plan_id)


def unfinished_import() -> sa.ColumnElement[bool]:
    """Of a case: that its file is still being entered."""
    return sa.exists().where(t.unfinished.c.import_id == t.cases.c.import_id)


def wait_for_plans(connection: sa.Connection) -> None:
    """Changes of who is at work, and of plans, come before a commit or after it, not in between."""
    if connection.dialect.name != "sqlite":
        return
    if connection.execute(sa.select(t.unfinished.c.id).where(t.unfinished.c.plan_id.is_not(None))).first():
        raise StillEnteringError


def make_way(connection: sa.Connection, case_ids: Sequence[str]) -> None:
    """Cases that arrive now come before those of a file that is still being entered: its rows give way."""
    if connection.dialect.name != "sqlite":
        return
    c = t.unfinished.c
    row = connection.execute(_OPEN.where(c.import_id.is_not(None))).first()
    if row is None:
        return
    change, gone = Unfinished(**row._asdict()), 0
    for start in range(0, len(case_ids), _AT_ONCE):
        part = list(case_ids[start : start + _AT_ONCE])
        same = sa.and_(t.cases.c.case_id.in_(part), t.cases.c.import_id == change.import_id)
        gone += connection.execute(sa.delete(t.cases).where(same)).rowcount
    lose(connection, change, gone)


def lose(connection: sa.Connection, change: Unfinished, cases: int) -> None:
    """Count cases of a file that others have entered."""
    if cases:
        c = t.unfinished.c
        connection.execute(sa.update(t.unfinished).where(c.id == change.id).values(lost=c.lost + cases))


def lost(connection: sa.Connection, change: Unfinished) -> int:
    """How many cases of a file others have entered."""
    query = sa.select(t.unfinished.c.lost).where(t.unfinished.c.id == change.id)
    return int(connection.execute(query).scalar_one())


def mask(connection: sa.Connection) -> None:
    """Show this reading transaction the ledger without what is unfinished.

    Views of the temporary schema come before tables of the same name; the end of the transaction takes them
    away.
    """
    try:
        row = connection.exec_driver_sql(_HIDDEN).first()
    except sa.exc.OperationalError as error:
        if "no such table" not in str(error.orig):
            raise
        return  # of an earlier version: a backup before the migration, say
    if row is not None:
        views = _of_import(int(row[0])) if row[1] is None else _of_plan(int(row[1]), int(row[2]), row[3])
        for name, view in views.items():
            connection.exec_driver_sql(f"CREATE TEMP VIEW {name} AS {view}")


def _of_import(number: int) -> dict[str, str]:
    return {
        "imports": _without(t.imports, f"id = {number}"),
        "cases": _without(t.cases, f"import_id IS {number}"),
    }


def _of_plan(plan_id: int, shift_id: int, units: str) -> dict[str, str]:
    """Its cases wait, and nobody's time is used for them; what it wrote bears the time of its beginning."""
    its_time = f"at = (SELECT at FROM main.unfinished WHERE plan_id = {plan_id})"
    its_cases = f"SELECT case_id FROM main.assignments WHERE plan_id = {plan_id}"
    status = f"CASE WHEN status <> 'waiting' AND case_id IN ({its_cases}) THEN 'waiting' ELSE status END"
    taken = " ".join(f"WHEN {_quoted(maker)} THEN {int(count)}" for maker, count in json.loads(units).items())
    used = f"used - CASE WHEN shift_id = {shift_id} THEN CASE maker {taken} ELSE 0 END ELSE 0 END"
    return {
        "assignments": _without(t.assignments, f"plan_id IS {plan_id}"),
        "decisions": _without(t.decisions, f"{its_time} AND maker = {_quoted(MACHINE)}"),
        "history": _without(t.history, f"{its_time} AND kind = 'assigned'"),
        "cases": _instead(t.cases, "status", status),
        "roster": _instead(t.roster, "used", used),
    }


def _without(table: sa.Table, condition: str) -> str:
    names = ", ".join(_name(column) for column in table.c)
    return f"SELECT {names} FROM main.{table.name} WHERE NOT ({condition})"


def _instead(table: sa.Table, column: str, expression: str) -> str:
    names = ", ".join(f"{expression} AS {column}" if c.name == column else _name(c) for c in table.c)
    return f"SELECT {names} FROM main.{table.name}"


def _name(column: sa.Column[Any]) -> str:
    return f'"{column.name}"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
