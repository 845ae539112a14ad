"""Backups of a ledger on SQLite, taken while the service runs, and checked before they are relied on.

A copy of the file alone (`cp`) may catch it in the middle of a change, and misses what is still in the log
beside it. PostgreSQL has its own tools.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import apsw
import sqlalchemy as sa

from deccaf.data.files import replacing
from deccaf.errors import ConfigError, DataError
from deccaf.service.ledger.check import check
from deccaf.service.store import apsw_driver, database

_BESIDE = ("-wal", "-shm", "-journal")


def back_up(url: str, target: Path) -> int:
    """Write the ledger as it is now to a file of its own; its bytes. Nobody who writes waits."""
    source = _file(url, "pg_dump --format=custom --file=FILE")
    if not source.is_file() or not source.stat().st_size:
        raise ConfigError(f"{source}: there is no ledger")
    if target.exists():
        raise ConfigError(f"{target}: is there already; name another file")
    with replacing(target) as beside:
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        _copy(source, beside)
        wrong = look_at(beside)
        if wrong:
            raise DataError(f"{source}: the ledger is not sound: {wrong[0]}; see deccaf ledger check")
    database.sync_folder(target.parent)
    return target.stat().st_size


def inspect(url: str) -> list[str]:
    """Everything that is wrong with a ledger: damaged pages, another schema, what does not add up."""
    file = database.sqlite_file(url)
    if file is not None and not file.is_file():
        raise ConfigError(f"{file}: there is no ledger")
    engine = database.connect(url, statement_seconds=None)
    try:
        return _damage(engine) or _schema(engine) or _sums(engine)
    except sa.exc.OperationalError as error:
        raise ConfigError(f"the database does not answer: {error.orig}") from error
    except sa.exc.DatabaseError as error:
        return [f"the database is damaged: {error.orig}"]
    finally:
        engine.dispose()


def restore(url: str, source: Path) -> Path | None:
    """Put a backup in the place of the ledger; where the old one is kept, if there was one."""
    target = _file(url, "pg_restore --clean --dbname=NAME FILE")
    if not source.is_file():
        raise ConfigError(f"{source}: there is no such file")
    wrong = look_at(source)
    if wrong:
        raise DataError(f"{source}: is no sound backup: {wrong[0]}")
    kept = _set_aside(target) if target.exists() and target.stat().st_size else None
    with replacing(target) as beside:
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copyfile(source, beside)
    database.sync_folder(target.parent)
    return kept


def look_at(path: Path) -> list[str]:
    """What is wrong with a backup; a file that is none is a `DataError`. The file is not changed."""
    try:
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\x00":
                raise DataError(f"{path}: is no database of SQLite")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    engine = sa.create_engine(
        "sqlite+pysqlite://",
        creator=lambda: apsw_driver.connect_to_read(path),
        poolclass=sa.StaticPool,
    )
    try:
        return _damage(engine) or _schema(engine) or _sums(engine)
    except sa.exc.DatabaseError as error:
        return [f"the database is damaged: {error.orig}"]
    finally:
        engine.dispose()


def _file(url: str, instead: str) -> Path:
    file = database.sqlite_file(url)
    if file is None:
        raise ConfigError(f"PostgreSQL has its own tools: {instead} (docs/service.md)")
    return file


def _copy(source: Path, target: Path) -> None:
    """All pages in one step: in write-ahead mode that holds nobody up, and nobody changes what is read."""
    with (
        closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)) as taken,
        closing(apsw.Connection(str(target))) as made,
    ):
        taken.set_busy_timeout(1000 * database.BUSY_SECONDS)
        with made.backup("main", taken, "main") as copying:
            copying.step()
        made.execute("PRAGMA journal_mode=DELETE")  # one file, nothing beside it


def _set_aside(target: Path) -> Path:
    """The old ledger under another name, whole; refused while a service uses it."""
    try:
        with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)) as old:
            used = old.execute("PRAGMA journal_mode=DELETE").get != "delete"  # needs the file for itself
    except (apsw.BusyError, apsw.LockedError):
        used = True
    except apsw.Error:
        used = False  # too damaged to be opened: kept as it is
    if used:
        raise ConfigError(f"{target}: a service is at work on it; stop it first")
    kept = target.with_name(f"{target.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
    for ending in ("", *_BESIDE):
        beside = target.with_name(target.name + ending)
        if beside.exists():
            beside.replace(kept.with_name(kept.name + ending))
    return kept


def _damage(engine: sa.Engine) -> list[str]:
    if engine.dialect.name != "sqlite":
        return []
    with database.reading(engine) as connection:
        found = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
    return [] if found == ["ok"] else [f"the database is damaged: {line}" for line in found]


def _schema(engine: sa.Engine) -> list[str]:
    found, needed = database.schema_state(engine)
    return [] if found == needed else [f"its schema is {found}, this version needs {needed}"]


def _sums(engine: sa.Engine) -> list[str]:
    with database.reading(engine) as connection:
        return check(connection)
