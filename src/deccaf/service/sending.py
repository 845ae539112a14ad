"""Sends what webhooks are told: signed, in order for each case, again after failures, at least once.

A thread of its own, so that an address that is slow or away holds nobody up. An address gets one request at a
time; where it cannot be reached at all, everything for it waits, longer each time, and other addresses do not
notice. Redirects are not followed: only addresses that a lead has set are ever asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import RefusedError
from deccaf.service.ledger.webhooks import hooks, outbox
from deccaf.service.ledger.webhooks.hooks import Hook
from deccaf.service.ledger.webhooks.outbox import Delivery
from deccaf.service.posting import Reply, post
from deccaf.service.store import database
from deccaf.service.store.writer import Writer

log = logging.getLogger("deccaf.service")

TICK_SECONDS = 0.25
ANSWER_SECONDS = 5.0
"""How long an address may take to answer."""
LONGEST_PAUSE = 60.0
"""Between attempts at an address that does not answer at all."""
_ROUND_SECONDS = outbox.TAKEN_SECONDS - 2 * ANSWER_SECONDS


def keep_at(duty: Callable[[], object], stop: threading.Event, seconds: float, what: str) -> None:
    """Do something again and again until it is stopped, whatever goes wrong meanwhile."""
    while not stop.wait(seconds):
        try:
            duty()
        except (RefusedError, sa.exc.SQLAlchemyError) as error:
            if not isinstance(error, RefusedError) and not database.passes_by_itself(error):
                log.exception(what)
        except Exception:
            log.exception(what)


class Sender:
    """Sends what is due, as long as the service runs."""

    def __init__(self, engine: sa.Engine, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self._stop = threading.Event()
        self._pauses: dict[int, tuple[float, float]] = {}
        """By address that does not answer: until when it is left alone, and how long that was."""
        self._thread = threading.Thread(target=self._run, name="deccaf-webhooks", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after the request under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * ANSWER_SECONDS)

    def _run(self) -> None:
        keep_at(self.send_due, self._stop, TICK_SECONDS, "webhooks")

    def send_due(self) -> int:
        """Send what is due to all addresses, each by itself; how many were sent."""
        with database.reading(self._engine) as connection:
            told = hooks.in_force(connection)
            if not told or not outbox.any_due(connection, time.time()):
                return 0
        now = time.monotonic()
        awake = [hook for hook in told if self._pauses.get(hook.id, (0.0, 0.0))[0] <= now]
        if not awake:
            return 0
        with ThreadPoolExecutor(len(awake), thread_name_prefix="deccaf-webhook") as pool:
            return sum(pool.map(self._send_to, awake))

    def _send_to(self, hook: Hook) -> int:
        at = time.time()
        taken = self._change(lambda connection: outbox.take(connection, hook.id, at))
        stop, sent = time.monotonic() + _ROUND_SECONDS, 0
        done: list[tuple[Delivery, Reply]] = []
        for delivery in taken:
            answer = _post(hook, delivery)
            done.append((delivery, answer))
            sent += answer.is_good
            if answer.status is None or self._stop.is_set() or time.monotonic() > stop:
                break
        rest = taken[len(done) :]
        away = bool(done) and done[-1][1].status is None
        until = time.time() + (self._pause(hook) if away else 0.0)
        if not away:
            self._pauses.pop(hook.id, None)
        if taken:
            self._change(lambda connection: _write(connection, done, rest, until))
        return sent

    def _pause(self, hook: Hook) -> float:
        seconds = min(2 * self._pauses.get(hook.id, (0.0, 0.5))[1], LONGEST_PAUSE)
        self._pauses[hook.id] = (time.monotonic() + seconds, seconds)
        return seconds

    def _change(self, change: Any) -> Any:
        return self._writer.submit(change).result()


def _write(
    connection: sa.Connection,
    done: Sequence[tuple[Delivery, Reply]],
    rest: Sequence[Delivery],
    until: float,
) -> None:
    at = time.time()
    for delivery, answer in done:
        if answer.is_good:
            assert answer.status is not None
            outbox.arrived(connection, delivery.id, answer.status, at)
        else:
            outbox.failed(connection, delivery, answer.status, answer.said, at)
    if rest:
        outbox.put_back(connection, rest, until)


def _post(hook: Hook, delivery: Delivery) -> Reply:
    headers = {"Deccaf-Event": delivery.kind, "Deccaf-Delivery": delivery.uid}
    return post(hook.url, delivery.body, hook.secret, headers, ANSWER_SECONDS)
