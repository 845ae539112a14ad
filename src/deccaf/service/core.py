"""The service without HTTP: what the API, the command line and the pages share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deccaf.service.decide import pricing, registry
from deccaf.service.decide.arrivals import Intake
from deccaf.service.jobs.jobs import Worker
from deccaf.service.ledger import ledger
from deccaf.service.monitor.monitoring import Watcher
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.idempotency import Answer, Call, earlier, forget_old, remember
from deccaf.service.store.keys import KeyRing
from deccaf.service.store.writer import Writer
from deccaf.service.web.limits import Limits

log = logging.getLogger("deccaf.service")

Result = TypeVar("Result")

TICK_SECONDS = 1.0
CLAIM_SECONDS = 1800.0
_SOON = (0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.08, 0.15, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What Prometheus sees."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self.requests = Counter("deccaf_requests_total", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "deccaf_request_seconds", "Time to answer.", ["route"], buckets=_SOON, registry=self.registry
        )
        self.cases = Gauge("deccaf_cases", "Cases by status.", ["status"], registry=self.registry)
        self.used = Gauge("deccaf_used", "Cases in the running shift.", ["maker"], registry=self.registry)
        self.capacity = Gauge(
            "deccaf_capacity", "Limit in the running shift.", ["maker"], registry=self.registry
        )
        self.price = Gauge("deccaf_price", "Price of one unit of time.", ["maker"], registry=self.registry)

    def observe(self, scope: Any, status: int, seconds: float) -> None:
        """Count one request under its route, never under its path: paths hold case ids."""
        route = getattr(scope.get("route"), "path", "none")
        self.requests.labels(scope["method"], route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def look(self, connection: sa.Connection, at: float) -> None:
        """Read the gauges' values."""
        c = t.cases.c
        counted: dict[str, int] = dict(
            connection.execute(sa.select(c.status, sa.func.count()).group_by(c.status)).all()
        )
        for status in ("waiting", "assigned", "decided"):
            self.cases.labels(status).set(counted.get(status, 0))
        shift = ledger.current_shift(connection, at)
        if shift is None:
            return
        desk = ledger.read_desk(connection, shift)
        r = t.roster.c
        for row in connection.execute(sa.select(*r["maker", "capacity", "used"]).where(r.shift_id == shift)):
            self.used.labels(row.maker).set(row.used)
            self.capacity.labels(row.maker).set(np.inf if row.capacity is None else row.capacity)
        for maker, price in zip(desk.makers, desk.prices, strict=True):
            self.price.labels(maker).set(price)


class Service:
    """One process of the service on one database."""

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        *,
        claim_seconds: float = CLAIM_SECONDS,
        housekeeping: bool = True,
    ) -> None:
        self.url = url
        self.limits = limits or Limits()
        self.claim_seconds = claim_seconds
        self.engine = database.connect(url)
        self.writer = Writer(self.engine)
        self.models = registry.Registry(self.engine)
        self.intake = Intake(self.engine, self.writer, self.models)
        self.keys = KeyRing(self.engine)
        self.metrics = Metrics()
        self.watcher = Watcher(self.engine, self.models, self.metrics.registry)
        self.rng = np.random.default_rng()
        self.worker = Worker(self.engine, url)
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep_house, name="deccaf-house", daemon=True)
        if housekeeping:
            self._keeper.start()

    def close(self) -> None:
        """Finish what has begun, then stop."""
        self._stop.set()
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
        return await self.writer.run(lambda connection: _once(connection, call, change, status))

    def read(self, look: Callable[[sa.Connection], Result]) -> Result:
        """Look something up."""
        with database.reading(self.engine) as connection:
            return look(connection)

    def ready(self) -> str | None:
        """Why the service cannot work, or None."""
        try:
            found, needed = database.schema_state(self.engine)
        except sa.exc.SQLAlchemyError as error:
            return f"the database does not answer: {type(error).__name__}"
        if found != needed:
            return f"the database has schema {found}, this version needs {needed}; run deccaf serve --init"
        return None

    def _keep_house(self) -> None:
        ticks = 0
        while not self._stop.wait(TICK_SECONDS):
            for duty in self._duties:
                try:
                    duty()
                except Exception as error:
                    if not database.passes_by_itself(error):
                        log.exception("housekeeping: %s", getattr(duty, "__name__", duty))
            ticks += 1
            if ticks % 3600 == 0:
                self.writer.submit(lambda connection: forget_old(connection, time.time()))

    @property
    def _duties(self) -> tuple[Callable[[], object], ...]:
        return (self.models.refresh, self._expire, self._renew_prices, self.worker.look, self.watcher.look)

    def _expire(self) -> None:
        at = time.time()
        if self.read(lambda connection: ledger.any_expired(connection, at)):
            self.writer.submit(lambda c: ledger.expire_claims(c, at, self.rng)).result()

    def _renew_prices(self) -> None:
        for shift in self.read(lambda connection: pricing.due(connection, time.time())):
            pricing.renew(self.engine, self.writer, shift)


def _once(
    connection: sa.Connection, call: Call, change: Callable[[sa.Connection, float], Any], status: int
) -> Answer:
    at = time.time()
    before = earlier(connection, [call])[0]
    if before is not None:
        return before
    answer = Answer.of(status, change(connection, at))
    remember(connection, [(call, answer)], at)
    return answer
