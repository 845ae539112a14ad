"""Setting a service up, and running it."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from deccaf import tracing
from deccaf.addresses import is_loopback
from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.dispatching import Machine, read_machines
from deccaf.service.imports import reading
from deccaf.service.ledger import trail
from deccaf.service.store import database, scratch
from deccaf.service.store.keys import Actor, any_keys, create_key
from deccaf.service.web.app import create_app

if TYPE_CHECKING:
    from deccaf.service.openid.provider import Provider

DATABASE_VARIABLE = "DECCAF_DATABASE"
CONFIG_VARIABLE = "DECCAF_CONFIG"
OPENID_VARIABLE = "DECCAF_OPENID"
HEADER_SECONDS = 15.0
WORKER_SECONDS = 120
"""A process that says nothing for so long is replaced; on a busy machine a start takes a while."""


class PatientProtocol(H11Protocol):
    """HTTP whose clients have some seconds to say what they want: a silent connection is closed."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there."""
        super().connection_made(transport)
        self._wind_up()

    def data_received(self, data: bytes) -> None:
        """Something came; the clock runs until the headers of a request are whole."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._wind_up()
        else:
            self._stop_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._stop_clock()
        super().connection_lost(exc)

    def _wind_up(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


_QUIET: dict[str, Any] = {
    "http": PatientProtocol,
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "timeout_keep_alive": 75,
    "timeout_worker_healthcheck": WORKER_SECONDS,
}


def initialise(url: str) -> str:
    """Make or migrate the tables and the first lead's key, whose secret is given back once."""
    engine = database.connect(url, statement_seconds=None)
    try:
        database.migrate(engine)
        if any_keys(engine):
            raise ConfigError("the service is set up already; a lead makes further keys with POST /v1/keys")
        with database.writing(engine) as connection:
            made, secret = create_key(connection, "first lead", "lead", None, time.time())
            trail.record(connection, "key added", time.time(), Actor(made), key=made, role="lead")
        return secret
    except sa.exc.OperationalError as error:
        raise ConfigError(f"the database does not answer: {error.orig}") from error
    finally:
        engine.dispose()


def new_lead_key(url: str) -> str:
    """One more lead's key, for whoever can reach the database itself; the trail says where it came from."""
    check_place(url, "localhost", 1)
    engine = database.connect(url)
    try:
        with database.writing(engine) as connection:
            at = time.time()
            made, secret = create_key(connection, "lead, made on the machine", "lead", None, at)
            where = os.uname().nodename
            trail.record(
                connection, "key added", at, Actor(made), key=made, role="lead", by="--new-lead-key", on=where
            )
        return secret
    finally:
        engine.dispose()


def serve(
    url: str,
    host: str,
    port: int,
    processes: int = 1,
    config: str | Path | None = None,
    openid: str | None = None,
) -> None:
    """Run until stopped; refuses to be reached from elsewhere while nobody has a key.

    The machines of the configuration are makers, and get their cases sent; `openid` is the file about the
    provider that people may sign in at.
    """
    check_place(url, host, processes)
    machines = () if config is None else read_machines(config)
    if processes == 1:
        listen(build(url, machines, openid), host, port)
        return
    find_provider(openid)  # what is wrong with the file is said here, not by every process
    os.environ[DATABASE_VARIABLE] = url
    os.environ.pop(CONFIG_VARIABLE, None)
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(Path(config).resolve())
    if openid is not None:
        os.environ[OPENID_VARIABLE] = openid
    name = "deccaf.service.run:from_environment"
    options = {**_QUIET, "log_level": "info"}  # a process that is replaced is worth a line
    uvicorn.run(name, factory=True, workers=processes, host=host, port=port, **options)


def listen(app: FastAPI, host: str, port: int) -> None:
    """Answer requests until stopped."""
    uvicorn.run(app, host=host, port=port, **_QUIET)


@contextmanager
def demo(url: str, trouble: bool = False, openid: str | None = None) -> Iterator[tuple[FastAPI, str]]:
    """An application with a simulated team at work, and the secret of a lead's key."""
    # takes long to import, and only the demo needs it
    from deccaf.service.demo import TROUBLE_SECONDS, Play, build_stage, furnish

    stage = build_stage()
    engine = database.connect(url)
    database.migrate(engine)
    engine.dispose()
    app = build(url, openid=openid)
    service: Service = app.state.service
    secret = furnish(service, stage)
    play = Play(service, stage, trouble_after=TROUBLE_SECONDS if trouble else None)
    play.start()
    try:
        yield app, secret
    finally:
        play.stop()


def upgrade(url: str) -> None:
    """Bring the tables up to this version."""
    engine = database.connect(url, statement_seconds=None)
    try:
        database.migrate(engine)
    except sa.exc.OperationalError as error:
        raise ConfigError(f"the database does not answer: {error.orig}") from error
    finally:
        engine.dispose()


def check_place(url: str, host: str, processes: int) -> None:
    """Whether the service may listen there."""
    if processes > 1 and sa.make_url(url).get_backend_name() == "sqlite":
        raise ConfigError("several processes need PostgreSQL: --database postgresql://...")
    engine = database.connect(url)
    try:
        found, needed = database.schema_state(engine)
        if found is None:
            raise ConfigError("the database is empty; run deccaf serve --init first")
        if found != needed:
            raise ConfigError(
                f"the database has schema {found}, this version needs {needed}; run deccaf serve --migrate"
            )
        if not is_loopback(host) and not any_keys(engine):
            raise ConfigError(f"{host}: nobody has a key yet, so deccaf listens on loopback only; see --init")
    except sa.exc.OperationalError as error:
        raise ConfigError(f"the database does not answer: {error.orig}") from error
    finally:
        engine.dispose()


def find_provider(openid: str | None) -> Provider | None:
    """The provider that a file is about; without a file nothing of it is imported."""
    if openid is None:
        return None
    from deccaf.service.openid.provider import Provider
    from deccaf.service.openid.settings import read_settings

    return Provider(read_settings(openid), Path(openid).parent)


def build(url: str, machines: Sequence[Machine] = (), openid: str | None = None) -> FastAPI:
    """The application with its service, warm."""
    provider = find_provider(openid)
    tracing.start()
    scratch.sweep()
    service = Service(url, machines=machines)
    service.models.refresh()
    service.trying.refresh()
    service.large.end_open()
    sys.setswitchinterval(0.001)  # whoever answers requests must not wait long for whoever scores cases
    gc.collect()
    gc.freeze()  # what is loaded now stays: no need to look through it again and again
    threading.Thread(target=reading.warm_up, name="deccaf-reader", daemon=True).start()
    return create_app(service, provider)


def from_environment() -> FastAPI:
    """The same for uvicorn's processes."""
    config = os.environ.get(CONFIG_VARIABLE)
    machines = () if config is None else read_machines(config)
    return build(os.environ[DATABASE_VARIABLE], machines, os.environ.get(OPENID_VARIABLE))
