"""What is known of the state of the database itself: full, read-only, damaged.

From errors that requests meet, and from a look every few seconds: whether something can be written, whether
the disk has room, and whether the next rows can be read. The look goes slowly through all rows of SQLite, so
that damage is found before somebody needs what it hit. A damaged ledger takes no changes: an answer that was
sent would promise what cannot be kept.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time

import sqlalchemy as sa

from deccaf.service.errors import RefusedError
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.database import Trouble
from deccaf.service.store.settings import write_setting

log = logging.getLogger("deccaf.service")

LOOK_SECONDS = 10.0
LEAST_FREE = 32 << 20
"""Bytes of the disk below which it counts as full: the next file would not fit."""
ROWS_AT_ONCE = 500
SETTING = "last look"

WORDS: dict[Trouble, str] = {
    "disk-full": "the disk of the database is full; make room, nothing can be entered until then",
    "read-only": "the database can only be read; nothing can be entered",
    "damaged": "the database is damaged; stop the service, and restore a backup: deccaf ledger restore",
    "too-long": "the database took too long to answer; ask for less",
}
_LASTING: tuple[Trouble, ...] = ("disk-full", "read-only", "damaged")


class Condition:
    """The state of one database, as far as this process knows it."""

    def __init__(self, engine: sa.Engine, url: str) -> None:
        self._engine, self._file = engine, database.sqlite_file(url)
        self._lock = threading.Lock()
        self._trouble: Trouble | None = None
        self._looked_at = 0.0
        self._place: tuple[int, int] = (0, 0)
        self._read = [table for table in t.metadata.sorted_tables if "id" in table.c]

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong; None: nothing that anybody knows of."""
        return self._trouble

    def refuse_changes(self) -> None:
        """A damaged ledger is not written to."""
        if self._trouble == "damaged":
            raise RefusedError(503, "damaged", WORDS["damaged"])

    def met(self, error: BaseException) -> Trouble | None:
        """Take note of an error; what it says of the database."""
        found = database.trouble_of(error)
        if found in _LASTING:
            self._set(found)
        return found

    def refusal(self, error: BaseException) -> RefusedError | None:
        """The answer to whoever met an error of the database that is no fault of the request: 503."""
        trouble = self.met(error)
        if trouble is not None:
            return RefusedError(503, trouble, WORDS[trouble])
        if isinstance(error, sa.exc.IntegrityError) or not database.passes_by_itself(error):
            return None
        return RefusedError(503, "database-away", "the database is away; try again")

    def look(self) -> None:
        """If it is time to: write something, look at the disk, read the next rows."""
        if time.monotonic() < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            self._read_on()
            if self._trouble == "damaged" and not self._is_whole():
                return
            if self._file is not None and shutil.disk_usage(self._file.parent).free < LEAST_FREE:
                self._set("disk-full")
                return
            with database.writing(self._engine) as connection:
                write_setting(connection, SETTING, time.time())
            self._set(None)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            if self.met(error) is None and not database.passes_by_itself(error):
                raise

    def _read_on(self) -> None:
        """The next rows of the next table, with everything in them; PostgreSQL checks its own pages."""
        if self._file is None:
            return
        number, after = self._place
        table = self._read[number % len(self._read)]
        query = sa.select(table).where(table.c.id > after).order_by(table.c.id).limit(ROWS_AT_ONCE)
        with database.reading(self._engine) as connection:
            rows = connection.execute(query).all()
        self._place = (number, rows[-1].id) if len(rows) == ROWS_AT_ONCE else (number + 1, 0)

    def _is_whole(self) -> bool:
        """Whether damage that was met is gone: a backup may have been restored."""
        with database.reading(self._engine) as connection:
            return connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() == "ok"

    def _set(self, found: Trouble | None) -> None:
        with self._lock:
            before, self._trouble = self._trouble, found
        if found is not None and found != before:
            log.error("%s", WORDS[found])
        elif found is None and before is not None:
            log.warning("the database is well again (it was: %s)", before)
