"""Sends machines the cases that are assigned to them; their answers are decisions like anybody's.

Every machine has a thread of its own, so that one that is slow or away holds nobody up. A request is signed,
has its time, and bears an id that stays the same however often the case is sent; only the addresses of the
configuration that the service was started with are ever asked. What goes wrong is tried again after a while,
longer each time, and then the case goes to the next best, with the reason in its trail.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deccaf.addresses import read_secret
from deccaf.data.config import Config
from deccaf.data.makers import Http, machines_of
from deccaf.service.decide.registry import Registry
from deccaf.service.errors import RefusedError
from deccaf.service.ledger.machines import seats, sendings, standing
from deccaf.service.ledger.machines.sendings import Sending
from deccaf.service.posting import post
from deccaf.service.sending import keep_at
from deccaf.service.store import database
from deccaf.service.store.fields import Class, known_class
from deccaf.service.store.writer import Writer

log = logging.getLogger("deccaf.service")

TICK_SECONDS = 0.25
MOST_BYTES = 64 << 10
"""Of an answer."""
SHORTEST_SECRET = 16
_LONGEST = 200
"""Characters that are kept of what an address said."""
_SPARE_SECONDS = 2.0
"""After its time a case that somebody took and never wrote anything about is sent again."""


@dataclass(frozen=True)
class Machine:
    """A machine of the configuration; with an address its cases are sent there."""

    name: str
    http: Http | None = None
    secret: str = field(default="", repr=False)
    cases_per_minute: float | None = None
    cases_per_day: int | None = None

    @property
    def entry(self) -> seats.Machine:
        """As the ledger knows it."""
        known = self.http is not None
        return seats.Machine(self.name, True, known, self.cases_per_minute, self.cases_per_day)


def read_machines(path: str | Path) -> tuple[Machine, ...]:
    """The machines of a configuration file, with their secrets."""
    found, folder = [], Path(path).parent
    for name, one in machines_of(Config.read(path).makers).items():
        secret = ""
        if one.http is not None:
            where, asked = f"[makers.{name}.http] secret", one.http
            secret = read_secret(where, asked.secret_variable, asked.secret_file, folder, SHORTEST_SECRET)
        found.append(Machine(name, one.http, secret, one.cases_per_minute, one.cases_per_day))
    return tuple(found)


class _Answer(BaseModel):
    """What a machine answers; whatever else it says is passed over."""

    model_config = ConfigDict(strict=True)

    decision: Class
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None


@dataclass(frozen=True)
class _Outcome:
    """What came of one request: an answer, or why there is none."""

    sending: Sending
    seconds: float
    said: str = ""
    decision: str = ""
    """As JSON."""
    score: float | None = None

    @property
    def is_good(self) -> bool:
        return bool(self.decision)


class Dispatcher:
    """Sends machines their cases, as long as the service runs."""

    def __init__(
        self,
        engine: sa.Engine,
        writer: Writer,
        models: Registry,
        machines: Sequence[Machine],
        rng: np.random.Generator,
    ) -> None:
        self._engine, self._writer, self._models, self._rng = engine, writer, models, rng
        self._machines = tuple(machines)
        self._stop = threading.Event()
        self._since = time.time()
        self._entered = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Enter the machines, as soon as the database lets one, and begin to send."""
        with suppress(RefusedError, sa.exc.SQLAlchemyError):
            self.enter()
        for machine in self._machines:
            if machine.http is not None:
                thread = threading.Thread(
                    target=self._run, args=(machine, machine.http), name="deccaf-machine", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """End; answers that are under way are waited for a moment, and else asked for again."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=_SPARE_SECONDS)

    def enter(self) -> None:
        """The ledger knows these machines from now on, and no others; once is enough."""
        if self._entered:
            return
        entries = [machine.entry for machine in self._machines]
        with database.reading(self._engine) as connection:
            there = [one for one in seats.read_machines(connection) if one.configured]
        if entries or there:
            self._change(lambda connection: standing.enter(connection, entries, time.time(), self._rng))
            self._models.refresh()  # it knows who is a machine
        self._entered = True

    def _run(self, machine: Machine, http: Http) -> None:
        with ThreadPoolExecutor(http.at_once, thread_name_prefix="deccaf-machine") as pool:

            def work() -> None:
                while self.send_round(machine, http, pool) and not self._stop.is_set():
                    pass

            keep_at(work, self._stop, TICK_SECONDS, f"machine {machine.name}")

    def send_round(self, machine: Machine, http: Http, pool: ThreadPoolExecutor) -> int:
        """Send a machine what is due, as many at once as it takes, and write down what came of it."""
        name, at = machine.name, time.time()
        late = at - http.within_seconds
        with database.reading(self._engine) as connection:
            due = sendings.any_due(connection, name, at)
            overdue = self._since < late and sendings.any_late(connection, name, late, at)
            awake = standing.is_awake(connection, name, at, due)
        if overdue:
            within = http.within_seconds
            self._change(lambda c: sendings.hand_late_back(c, name, late, within, at, self._rng))
        if not awake:
            return 0
        held, pace = http.timeout_seconds + _SPARE_SECONDS, machine.cases_per_minute
        taken = self._change(lambda c: sendings.take(c, name, at, http.at_once, held, pace))
        outcomes = list(pool.map(lambda one: self._ask(machine, http, one), taken))
        for one in outcomes:
            self._write(name, http, one)
        if outcomes and not any(one.is_good for one in outcomes):
            said = outcomes[-1].said
            self._change(lambda c: standing.in_vain(c, name, said, http.tries, time.time(), self._rng))
        return len(taken)

    def _ask(self, machine: Machine, http: Http, sending: Sending) -> _Outcome:
        classes = () if self._models.active is None else self._models.active.classes
        asked = {
            "id": sending.uid,
            "case_id": sending.case_id,
            "maker": machine.name,
            "features": json.loads(sending.features),
            "classes": list(classes),
        }
        headers = {"Idempotency-Key": sending.uid, "Deccaf-Event": "case.asked"}
        began = time.monotonic()
        reply = post(
            http.address, json.dumps(asked), machine.secret, headers, http.timeout_seconds, MOST_BYTES
        )
        seconds = time.monotonic() - began
        if not reply.is_good:
            return _Outcome(sending, seconds, said=reply.said[:_LONGEST])
        try:
            answer = _Answer.model_validate_json(reply.content)
            decision = known_class(answer.decision, classes)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            said = f"answered something else than a decision: {where} {first['msg']}"
            return _Outcome(sending, seconds, said=said[:_LONGEST])
        except RefusedError as error:
            said = f"answered something else than a decision: {error.detail}"
            return _Outcome(sending, seconds, said=said[:_LONGEST])
        return _Outcome(sending, seconds, decision=decision, score=answer.score)

    def _write(self, name: str, http: Http, one: _Outcome) -> None:
        at = time.time()
        if one.is_good:
            self._change(
                lambda c: sendings.answered(c, name, one.sending, one.decision, one.score, one.seconds, at)
            )
        else:
            self._change(lambda c: sendings.failed(c, name, one.sending, one.said, http.tries, at, self._rng))

    def _change(self, change: Callable[[sa.Connection], Any]) -> Any:
        return self._writer.submit(change).result()
