"""One process of the service, without HTTP: it owns the parts that the API and the pages use."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from anyio import to_thread

from deccaf.errors import DeccafError
from deccaf.service.decide import golden_choice, pricing, registry
from deccaf.service.decide.arrivals import Intake
from deccaf.service.decide.trying import Trying
from deccaf.service.dispatching import Dispatcher, Machine
from deccaf.service.jobs.worker import Worker
from deccaf.service.large_changes import LargeChanges
from deccaf.service.ledger import claims, shifts
from deccaf.service.ledger.machines import sendings
from deccaf.service.ledger.trials import trial_records
from deccaf.service.ledger.webhooks import outbox
from deccaf.service.monitor.live_losses import LiveLosses
from deccaf.service.monitor.metrics import Metrics
from deccaf.service.monitor.monitoring import Monitor
from deccaf.service.reports.expert_report import Records
from deccaf.service.reports.team_report import Disagreements
from deccaf.service.reports.trial_report import look_at
from deccaf.service.reports.what_if import Days
from deccaf.service.sending import Sender
from deccaf.service.store import database
from deccaf.service.store.condition import WORDS, Condition
from deccaf.service.store.idempotency import Answer, Call, earlier, forget_old, once
from deccaf.service.store.keys import KeyRing
from deccaf.service.store.writer import Writer

log = logging.getLogger("deccaf.service")

Result = TypeVar("Result")
Prepared = TypeVar("Prepared")

TICK_SECONDS = 1.0
TRIAL_SECONDS = 60.0
"""How often it is asked whether a trial does harm."""
CLAIM_SECONDS = 1800.0
FORGET_SECONDS = 3600.0
SIZES_SECONDS = 900.0


@dataclass(frozen=True)
class Limits:
    """How large requests and files may be."""

    json_bytes: int = 8 << 20
    upload_bytes: int = 256 << 20
    anybody_bytes: int = 16 << 10
    """Of a body whose sender is not known: a form to sign in."""
    depth: int = 32
    parts: int = 100_000
    values: int = 1_000_000
    """Lists and objects of one JSON document, and all values in it."""
    body_seconds: float = 60.0
    upload_seconds: float = 600.0
    """Until a body is there, of JSON and of a file."""
    part_seconds: float = 20.0
    """Until the next part of it is there, or the next part of the answer is taken."""
    rows: int = 200_000
    columns: int = 2_000
    bulk_cases: int = 10_000
    upload_paths: tuple[str, ...] = (
        "/v1/imports",
        "/v1/history",
        "/v1/models",
        "/setup/history",
        "/setup/cases",
        "/models/upload",
    )
    """Where files come in: streamed, not parsed as JSON."""


class Service:
    """One process of the service on one database."""

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        *,
        claim_seconds: float = CLAIM_SECONDS,
        housekeeping: bool = True,
        machines: Sequence[Machine] = (),
    ) -> None:
        self.url = url
        self.limits = limits or Limits()
        self.claim_seconds = claim_seconds
        self.engine = database.connect(url)
        self.condition = Condition(self.engine, url)
        self.writer = Writer(self.engine, self.condition)
        self.models = registry.Registry(self.engine)
        self.large = LargeChanges(self.engine, self.writer)
        self.trying = Trying(self.engine, self.models)
        self.intake = Intake(self.engine, self.writer, self.models, trying=self.trying)
        self.keys = KeyRing(self.engine)
        self.metrics = Metrics()
        self.monitor = Monitor(self.engine, self.models, self.metrics.registry)
        self.live_losses = LiveLosses()
        self.days = Days()
        self.disagreements = Disagreements()
        self.records = Records()
        self.rng = np.random.default_rng()
        self.worker = Worker(self.engine, url)
        self.sender = Sender(self.engine, self.writer)
        self.dispatcher = Dispatcher(self.engine, self.writer, self.models, machines, self.rng)
        self._forget_at = time.monotonic() + FORGET_SECONDS
        self._sizes_at = 0.0
        self._trial_at = time.monotonic()
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep_house, name="deccaf-house", daemon=True)
        if housekeeping:
            self._keeper.start()
            self.sender.start()
            self.dispatcher.start()

    def close(self) -> None:
        """Finish what has begun, then stop."""
        self._stop.set()
        self.sender.close()
        self.dispatcher.close()
        self.worker.close()
        self.intake.close()
        self.writer.close()
        if self._keeper.is_alive():
            self._keeper.join(timeout=30)
        self.engine.dispose()

    async def change(
        self, call: Call, change: Callable[[sa.Connection, float], Any], status: int = 200
    ) -> Answer:
        """One change, at most once under its idempotency key, answered when it is on disk."""
        return await self.writer.run(lambda connection: once(connection, call, change, status))

    async def prepared_change(
        self,
        call: Call,
        prepare: Callable[[], Prepared],
        change: Callable[[sa.Connection, float, Prepared], Any],
        status: int = 200,
        run: Callable[[Callable[[], Prepared]], Awaitable[Prepared]] = to_thread.run_sync,
    ) -> Answer:
        """A change with work to do before it, in a thread: to read a file, to plan, to ask the model."""

        async def write(prepared: Prepared) -> Answer:
            return await self.change(call, lambda connection, at: change(connection, at, prepared), status)

        return await self.prepared(call, prepare, write, status, run)

    async def prepared(
        self,
        call: Call,
        prepare: Callable[[], Prepared],
        write: Callable[[Prepared], Awaitable[Answer]],
        status: int = 200,
        run: Callable[[Callable[[], Prepared]], Awaitable[Prepared]] = to_thread.run_sync,
    ) -> Answer:
        """Prepare a change in a thread, then write it.

        A request that was answered before gets that answer, whatever the preparation would say now: it is
        looked for at the beginning, and once more in the transaction, also if the preparation was refused.
        """
        if call.key is not None:
            look = lambda connection: earlier(connection, [call], wait=False)[0]  # noqa: E731
            before = await to_thread.run_sync(self.read, look)
            if before is not None:
                return before
        try:
            prepared = await run(prepare)
        except DeccafError as error:
            if call.key is None:
                raise
            return await self.change(call, _refusing(error), status)
        return await write(prepared)

    def read(self, question: Callable[[sa.Connection], Result]) -> Result:
        """Ask the ledger something."""
        with database.reading(self.engine) as connection:
            return question(connection)

    def ready(self) -> str | None:
        """Why the service cannot work, or None."""
        try:
            found, needed = database.schema_state(self.engine)
        except sa.exc.SQLAlchemyError as error:
            found = self.condition.met(error)
            return WORDS[found] if found else f"the database does not answer: {type(error).__name__}"
        if found != needed:
            return f"the database has schema {found}, this version needs {needed}; run deccaf serve --init"
        return None if self.condition.trouble is None else WORDS[self.condition.trouble]

    def _keep_house(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            for duty in self._duties:
                try:
                    duty()
                except Exception as error:
                    if self.condition.met(error) is None and not database.passes_by_itself(error):
                        log.exception("housekeeping: %s", getattr(duty, "__name__", duty))

    @property
    def _duties(self) -> tuple[Callable[[], object], ...]:
        return (
            self.condition.look,
            self._checkpoint,
            self._look_at_sizes,
            self.models.refresh,
            self.trying.refresh,
            self.large.end_open,
            self.dispatcher.enter,
            self._expire,
            self._renew_prices,
            self._golden,
            self._watch_trial,
            self.worker.start_next,
            self.monitor.check,
            self._add_up,
            self._forget,
        )

    def _forget(self) -> None:
        if time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + FORGET_SECONDS
        at = time.time()
        self.writer.submit(sendings.forget_ended).result()
        for forget in (forget_old, outbox.forget_old):
            while self.writer.submit(lambda connection, forget=forget: forget(connection, at)).result():  # type: ignore[misc]
                pass

    def _look_at_sizes(self) -> None:
        if time.monotonic() >= self._sizes_at:
            self._sizes_at = time.monotonic() + SIZES_SECONDS
            database.look_at_sizes(self.engine)

    def _checkpoint(self) -> None:
        database.checkpoint(self.engine)

    def _expire(self) -> None:
        at = time.time()
        if self.read(lambda connection: claims.any_expired(connection, at)):
            self.writer.submit(lambda c: claims.expire_claims(c, at, self.rng)).result()

    def _add_up(self) -> None:
        """Keep at hand what pages show and what takes long to add up."""

        def update(connection: sa.Connection) -> None:
            at = time.time()
            self.records.keep_fresh(connection, at)
            shift = shifts.current_shift(connection, at)
            if shift is not None:
                self.live_losses.means(connection, shift)

        self.read(update)

    def _watch_trial(self) -> None:
        if time.monotonic() >= self._trial_at:
            self._trial_at = time.monotonic() + TRIAL_SECONDS
            self.stop_harm()

    def stop_harm(self) -> None:
        """End a trial whose harm rule fires: all cases go by today's practice again, at once."""
        running, model = self.trying.current, self.models.active
        if running is None or running.trial.state != "trial" or model is None:
            return
        trial = running.trial
        look = self.read(lambda connection: look_at(connection, trial, model.system.costs_))
        if look is not None and look.verdict == "harm":
            self.writer.submit(lambda c: trial_records.stop(c, trial.id, "harm", time.time())).result()
            self.trying.refresh()

    def _golden(self) -> None:
        golden_choice.hand_out(self.engine, self.writer, self.models.active, self.rng)

    def _renew_prices(self) -> None:
        for shift in self.read(lambda connection: pricing.due(connection, time.time())):
            pricing.renew(self.engine, self.writer, shift)


def _refusing(error: DeccafError) -> Callable[[sa.Connection, float], Any]:
    def change(connection: sa.Connection, at: float) -> Any:
        raise error

    return change
