"""Connections to SQLite or PostgreSQL, migrations, and which errors pass by themselves.

SQLite runs in write-ahead mode: readers see one state and hold no writer up. Every commit is flushed to disk
(`synchronous=FULL`); the log's entry in its folder is flushed when the file is made, and the file stays. What
the log holds is brought into the file by `checkpoint`, beside the writer: who commits does not wait for it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from deccaf import tracing
from deccaf.errors import ConfigError
from deccaf.service.store import apsw_driver, unfinished

BUSY_SECONDS = 30
STATEMENT_SECONDS = 60.0
"""A statement of the service that takes longer is stopped: whoever asked has gone."""
POOL = 8
LOG_PAGES = 64_000
"""Pages in the log of SQLite from which on a commit brings them into the file itself: nobody kept house."""
_TURNS = sa.text("SELECT pg_advisory_xact_lock(turn) FROM unnest(CAST(:turns AS bigint[])) AS turn")
_SERIALIZATION = {"40001", "40P01"}

Trouble = Literal["disk-full", "read-only", "damaged", "too-long"]
_SQLITE_TROUBLE: dict[int, Trouble] = {
    13: "disk-full",
    8: "read-only",
    11: "damaged",
    26: "damaged",
    9: "too-long",
}
_POSTGRESQL_TROUBLE: dict[str, Trouble] = {
    "53100": "disk-full",
    "25006": "read-only",
    "XX001": "damaged",
    "XX002": "damaged",
    "57014": "too-long",
}


def connect(url: str, statement_seconds: float | None = STATEMENT_SECONDS) -> sa.Engine:
    """An engine for `sqlite:///path` or `postgresql://...`; whatever else is a `ConfigError`.

    A file of SQLite that is not there yet is made, for its owner's eyes only.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ConfigError(f"database {url!r}: expected sqlite:///path or postgresql://...") from error
    if parsed.get_backend_name() == "postgresql":
        engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_size=POOL,
            max_overflow=POOL,
            pool_timeout=BUSY_SECONDS,
            connect_args={"connect_timeout": 5, "prepare_threshold": 1},
        )
        sa.event.listen(engine, "connect", lambda made, _: _prepare_postgres(made, statement_seconds))
        return _traced(engine)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise ConfigError(f"database {url!r}: expected sqlite:///path or postgresql://...")
    _make_file(Path(parsed.database))
    engine = sa.create_engine(
        parsed.set(drivername="sqlite+pysqlite"),
        module=apsw_driver,
        pool_size=POOL,
        max_overflow=4 * POOL,
        pool_timeout=BUSY_SECONDS,
        connect_args={"timeout": BUSY_SECONDS, "statement_seconds": statement_seconds},
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return _traced(engine)


def _traced(engine: sa.Engine) -> sa.Engine:
    """The engine; while traces are on, every statement is a span of what is under way."""
    if tracing.is_on():
        sa.event.listen(engine, "before_cursor_execute", _query_begins)
        sa.event.listen(engine, "after_cursor_execute", lambda *given: _query_ends(given[4]))
        sa.event.listen(
            engine, "handle_error", lambda error: _query_ends(error.execution_context, failed=True)
        )
    return engine


def _query_begins(
    connection: sa.Connection, _cursor: Any, statement: str, _values: Any, context: Any, _many: bool
) -> None:
    context.deccaf_span = tracing.query_begins(statement, connection.dialect.name)


def _query_ends(context: Any, failed: bool = False) -> None:
    span = getattr(context, "deccaf_span", None)
    if span is not None:
        if failed:
            tracing.failed(span)
        context.deccaf_span = None
        span.end()


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that may write; on SQLite it takes the write lock at once and never fails halfway."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        try:
            if not in_transaction(connection):
                raise InterfaceError("COMMIT", None, Exception("the transaction was given up"))
            connection.commit()
        except BaseException:
            connection.invalidate()  # whatever is left of the transaction ends with the connection
            raise


@contextmanager
def reading(engine: sa.Engine, *, snapshot: bool = True) -> Iterator[sa.Connection]:
    """One transaction that only reads, so that everything seen belongs together: one snapshot.

    Nobody waits for it. Without `snapshot` each query stands for itself, and sees what is unfinished.
    """
    with engine.connect() as connection:
        if snapshot and engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
            unfinished.mask(connection)
        elif snapshot:  # by default PostgreSQL shows every query the latest commits
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        yield connection
        connection.rollback()


def checkpoint(engine: sa.Engine) -> None:
    """Bring what the log of SQLite holds into the file, as far as nobody reads what was before."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()


def look_at_sizes(engine: sa.Engine) -> None:
    """Let SQLite look at samples of its tables, to know the better index; PostgreSQL does so by itself."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA optimize=0x10002").all()


def in_transaction(connection: sa.Connection) -> bool:
    """Whether what was changed can still be committed: some errors of SQLite end the transaction."""
    driver = connection.connection.dbapi_connection
    return driver.in_transaction if isinstance(driver, apsw_driver.Connection) else True


def take_turns(connection: sa.Connection, names: Iterable[str]) -> None:
    """Wait for all who change what these names stand for; others wait until this transaction ends.

    Names that are asked for together are taken in one order, so that no two wait for each other in a circle.
    SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == "postgresql":
        turns = sorted(
            int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True) for name in names
        )
        connection.execute(_TURNS, {"turns": turns}).all()


def passes_by_itself(error: BaseException) -> bool:
    """Whether the same request may succeed a little later: the server restarts, or two changes collided."""
    if isinstance(error, PoolTimeout | InterfaceError):
        return True
    if isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", None)
        if error.connection_invalidated or state in _SERIALIZATION:
            return True
        return isinstance(error, OperationalError)
    return False


def trouble_of(error: BaseException) -> Trouble | None:
    """What is wrong with the database itself, as far as an error tells."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return _SQLITE_TROUBLE.get(code & 0xFF)
    return _POSTGRESQL_TROUBLE.get(getattr(cause, "sqlstate", None) or "")


def collided(error: BaseException) -> bool:
    """Whether two transactions met and this one should simply be run again."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _SERIALIZATION


def migrate(engine: sa.Engine) -> None:
    """Bring the schema up to this version, in one transaction; nothing happens where it is."""
    config = _alembic()
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":  # two processes that start at once take turns
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(20240817)"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def schema_state(engine: sa.Engine) -> tuple[str | None, str | None]:
    """(what the database has, what this version needs)."""
    with reading(engine, snapshot=False) as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found, ScriptDirectory.from_config(_alembic()).get_current_head()


def _alembic() -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    return config


def sqlite_file(url: str) -> Path | None:
    """The file of a database of SQLite; None for PostgreSQL."""
    parsed = sa.make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def sync_folder(folder: Path) -> None:
    """Flush what the folder says of its files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_file(path: Path) -> None:
    """The file and its folder, for their owner alone; a file that others may read is closed to them."""
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(path.parent)
    except FileExistsError:
        with suppress(OSError):  # not ours: its owner decides
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"{path}: the database cannot be made: {error.strerror}") from error


def _prepare_postgres(connection: Any, statement_seconds: float | None) -> None:
    connection.autocommit = True
    connection.execute("SET jit = off")  # compiling takes longer than any query of a page
    if statement_seconds is not None:
        connection.execute(f"SET statement_timeout = {round(1000 * statement_seconds)}")
    connection.autocommit = False


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "journal_size_limit=67108864",
        f"wal_autocheckpoint={LOG_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
