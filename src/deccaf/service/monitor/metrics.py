"""Numbers for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deccaf.service.ledger import shifts
from deccaf.service.store import tables as t

_SOON = (0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.08, 0.15, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters of requests, and gauges of the ledger."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
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
        self.longest_write = Gauge(
            "deccaf_longest_write_seconds",
            "Processor time of the longest write transaction of this process.",
            registry=self.registry,
        )
        self.price = Gauge("deccaf_price", "Price of one unit of time.", ["maker"], registry=self.registry)

    def observe(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """Count one request under its route, never under its path: paths hold case ids."""
        route = getattr(scope.get("route"), "path", "none")
        self.requests.labels(scope["method"], route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def read(self, connection: sa.Connection, at: float) -> None:
        """Set the gauges."""
        c = t.cases.c
        query = sa.select(c.status, sa.func.count()).group_by(c.status)
        counted: dict[str, int] = dict(connection.execute(query).all())
        for status in ("waiting", "assigned", "decided"):
            self.cases.labels(status).set(counted.get(status, 0))
        shift = shifts.current_shift(connection, at)
        seats = [] if shift is None else shifts.read_roster(connection, shift)
        with self._lock:
            for gauge in (self.used, self.capacity, self.price):
                gauge.clear()  # of an earlier shift
            for seat in seats:
                self.used.labels(seat.maker).set(seat.used)
                self.capacity.labels(seat.maker).set(np.inf if seat.capacity is None else seat.capacity)
                self.price.labels(seat.maker).set(seat.price)
