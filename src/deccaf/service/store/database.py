"""Connections to SQLite or PostgreSQL, migrations, and which errors pass by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from deccaf.errors import ConfigError

BUSY_SECONDS = 30
POOL = 8
_TURNS = sa.text("SELECT pg_advisory_xact_lock(turn) FROM unnest(CAST(:turns AS bigint[])) AS turn")
_SERIALIZATION = {"40001", "40P01"}


def connect(url: str) -> sa.Engine:
    """An engine for `sqlite:///path` or `postgresql://...`; whatever else is a `ConfigError`."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ConfigError(f"database {url!r}: expected sqlite:///path or postgresql://...") from error
    if parsed.get_backend_name() == "postgresql":
        return sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_size=POOL,
            max_overflow=POOL,
            pool_timeout=BUSY_SECONDS,
            connect_args={"connect_timeout": 5, "prepare_threshold": 1},
        )
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise ConfigError(f"database {url!r}: expected sqlite:///path or postgresql://...")
    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        parsed.set(drivername="sqlite+pysqlite"),
        pool_size=POOL,
        max_overflow=4 * POOL,
        pool_timeout=BUSY_SECONDS,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


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
            connection.commit()
        except BaseException:
            connection.invalidate()  # whatever is left of the transaction ends with the connection
            raise


@contextmanager
def reading(engine: sa.Engine, *, snapshot: bool = True) -> Iterator[sa.Connection]:
    """One transaction that only reads, so that everything seen belongs together: one snapshot.

    On SQLite nobody can commit meanwhile; without `snapshot` each query stands for itself, and nobody waits.
    """
    with engine.connect() as connection:
        if snapshot and engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        elif snapshot:  # by default PostgreSQL shows every query the latest commits
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        yield connection
        connection.rollback()


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
    with reading(engine) as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found, ScriptDirectory.from_config(_alembic()).get_current_head()


def _alembic() -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    return config


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # deccaf says BEGIN itself
    for pragma in (
        "journal_mode=DELETE",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={BUSY_SECONDS}000",
    ):
        connection.execute(f"PRAGMA {pragma}")
