"""SQLite for SQLAlchemy by way of APSW, which brings a newer SQLite than Python does.

The service keeps its ledger in write-ahead mode, where readers and the writer do not wait for each other.
Before version 3.51.3 SQLite could, very rarely, lose a commit in this mode when a checkpoint met a writer;
the library of Python is as old as the machine. This module is what SQLAlchemy needs of a DB-API driver and no
more; its errors are those of `sqlite3`.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import (
    Binary,
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from typing import Any
from urllib.parse import quote

import apsw

__all__ = [
    "Binary",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "connect",
]

apilevel, threadsafety, paramstyle = "2.0", 1, "qmark"
sqlite_version = apsw.sqlite_lib_version()
sqlite_version_info = tuple(int(part) for part in sqlite_version.split("."))
_STEPS = 100_000

_KINDS: tuple[tuple[type[apsw.Error], type[sqlite3.Error]], ...] = (
    (apsw.ConstraintError, IntegrityError),
    (apsw.MismatchError, IntegrityError),
    (apsw.CorruptError, DatabaseError),
    (apsw.NotADBError, DatabaseError),
    (apsw.MisuseError, ProgrammingError),
    (apsw.TooBigError, DataError),
)


class Cursor:
    """One statement at a time; rows of a query are fetched as they are asked for."""

    arraysize = 1

    def __init__(
        self, connection: apsw.Connection, begin: Callable[[bool], None], together: set[Cursor]
    ) -> None:
        self._connection, self._begin, self._together = connection, begin, together
        self._cursor = connection.cursor()
        self.description: tuple[tuple[Any, ...], ...] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Cursor:
        """Run a statement."""
        self.description, self.rowcount = None, -1
        self._begin(True)
        self._cursor.exec_trace = self._describe
        try:
            with _translated():
                self._cursor.execute(sql, values)
        finally:
            self._cursor.exec_trace = None  # a circle would keep the cursor until somebody sweeps
        self._count(self._connection.changes())
        return self

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        """Run a statement once for every row."""
        self.description, before = None, self._connection.total_changes()
        self._begin(False)  # a large file is many statements, each of them short
        with _translated():
            self._cursor.executemany(sql, rows)
        self._count(self._connection.total_changes() - before)
        return self

    def fetchone(self) -> Any:
        """The next row, or None."""
        with _translated():
            return self._cursor.fetchone()

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """The next rows."""
        with _translated():
            return [row for _, row in zip(range(size or self.arraysize), self._cursor, strict=False)]

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        with _translated():
            return self._cursor.fetchall()

    def close(self) -> None:
        """Done with it, also where rows are left."""
        self._together.discard(self)
        self._cursor.close(True)

    def _describe(self, cursor: apsw.Cursor, sql: str, values: Any) -> bool:
        described = cursor.get_description()
        self.description = tuple((name, *(None,) * 6) for name, *_ in described) or None
        return True

    def _count(self, changes: int) -> None:
        self.rowcount = changes if self.description is None else -1
        self.lastrowid = self._connection.last_insert_rowid()


class Connection:
    """A connection whose transactions deccaf begins itself."""

    isolation_level = None

    def __init__(self, path: str, busy_seconds: float, statement_seconds: float | None) -> None:
        with _translated():
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
            self.apsw = apsw.Connection(path, flags, statementcachesize=300)
        self.apsw.set_busy_timeout(round(1000 * busy_seconds))
        self._open: set[Cursor] = set()
        self._seconds, self._deadline = statement_seconds, 0.0
        if statement_seconds is not None:
            self.apsw.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)

    def cursor(self) -> Cursor:
        """For one statement."""
        cursor = Cursor(self.apsw, self._begin, self._open)
        self._open.add(cursor)
        return cursor

    def _begin(self, limited: bool) -> None:
        if self._seconds is not None:
            self._deadline = time.monotonic() + self._seconds if limited else math.inf

    def execute(self, sql: str) -> Cursor:
        """Run a statement without values."""
        return self.cursor().execute(sql)

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return self.apsw.in_transaction

    def commit(self) -> None:
        """End the transaction, if there is one."""
        if self.apsw.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one, and end all queries.

        A query whose rows were not all fetched would hold on to what it saw, and the connection could not
        write any more once others have written. Nobody else ends it: what is collected as garbage may be so
        in another thread, which must not touch the connection.
        """
        for cursor in list(self._open):
            cursor.close()
        if self.apsw.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """End the connection."""
        self.apsw.close(True)

    def create_function(
        self, name: str, arguments: int, function: Callable[..., Any], *, deterministic: bool = False
    ) -> None:
        """A function of ours in SQL."""
        self.apsw.create_scalar_function(name, function, arguments, deterministic=deterministic)


def connect(path: str, timeout: float = 5.0, statement_seconds: float | None = None, **_: Any) -> Connection:
    """Open a file of a database; a statement that takes longer than it may is interrupted."""
    return Connection(path, timeout, statement_seconds)


def connect_to_read(path: Path) -> Connection:
    """Open a file that is not changed, not even by what stands beside it."""
    return Connection(f"file:{quote(str(path.resolve()))}?immutable=1", 0.0, None)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise _as_sqlite3(error) from error


def _as_sqlite3(error: apsw.Error) -> sqlite3.Error:
    kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), OperationalError)
    made = kind(str(error))
    made.sqlite_errorcode = getattr(error, "result", 0)
    made.sqlite_errorname = type(error).__name__
    return made
