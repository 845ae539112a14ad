"""Runs changes of the ledger, each whole or not at all, and answers only after the commit.

On SQLite there is one writer: changes that wait together share one commit (and its flush to disk), each
behind a savepoint of its own, until the transaction has taken its time. On PostgreSQL each has a transaction,
several at a time. `longest` is the processor time of the longest transaction so far.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa

from deccaf import tracing
from deccaf.service.errors import OvertakenError, RefusedError
from deccaf.service.store import database
from deccaf.service.store.condition import Condition
from deccaf.service.store.unfinished import StillEnteringError

Result = TypeVar("Result")
Change = Callable[[sa.Connection], Result]
_Asked = tuple[Change[Any], Future[Any]]
_Done = tuple[Future[Any], Any, BaseException | None]

TOGETHER = 64
"""At most so many changes share a commit."""
TOGETHER_SECONDS = 0.02
"""And a transaction that has used so much of the processor takes no further ones."""
WAIT_SECONDS, WAIT_STEP = 30.0, 0.02
"""How long a change waits for the end of a plan that is being committed, and how often it looks."""
TRIES = 5
"""How often a change that collided with another is run."""
WRITERS = 4


class Writer:
    """The one way to change the database."""

    def __init__(self, engine: sa.Engine, condition: Condition) -> None:
        self._engine, self._condition = engine, condition
        self._waiting: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None
        self.longest = 0.0
        if engine.dialect.name == "sqlite":
            self._thread = threading.Thread(target=self._write_together, name="deccaf-writer", daemon=True)
            self._thread.start()
        else:
            self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="deccaf-writer")

    def submit(self, change: Change[Result]) -> Future[Result]:
        """Run a change soon; the future is done when it is on disk, or not in the database at all."""
        change = tracing.carried(change)
        future: Future[Result] = Future()
        try:
            self._condition.refuse_changes()
        except RefusedError as error:
            future.set_exception(error)
            return future
        if self._pool is not None:
            return self._pool.submit(self._alone, change)
        self._waiting.put((change, future))
        return future

    async def run(self, change: Change[Result]) -> Result:
        """`submit` for coroutines; a client that goes away does not stop a change that has begun.

        A change that has to wait for the end of a large one is tried until then.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return await asyncio.shield(asyncio.wrap_future(self.submit(change)))
            except StillEnteringError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(WAIT_STEP)

    def close(self) -> None:
        """Finish what waits, then stop."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(timeout=30)

    def _alone(self, change: Change[Result]) -> Result:
        for left in reversed(range(TRIES)):
            try:
                with self._timed(), database.writing(self._engine) as connection:
                    return change(connection)
            except sa.exc.IntegrityError:
                if (
                    left < TRIES - 1
                ):  # once more: the other one is visible now, and is met with a better answer
                    raise
            except OvertakenError:
                if not left:
                    raise
            except sa.exc.DBAPIError as error:
                if not (left and database.collided(error)):
                    raise
        raise AssertionError("unreachable")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            self.longest = max(self.longest, time.thread_time() - began)

    def _write_together(self) -> None:
        while (first := self._waiting.get()) is not None:
            group = [first]
            try:
                with self._timed():
                    done, last = self._commit(group)
            except BaseException as error:
                for _, future in group:
                    if not future.done():
                        future.set_exception(error)
                continue
            for future, result, failure in done:
                if failure is not None:
                    future.set_exception(failure)
                else:
                    future.set_result(result)
            if last:
                return

    def _commit(self, group: list[_Asked]) -> tuple[list[_Done], bool]:
        """Commit a change, and those that come until its time is over; whether it was the last one ever."""
        done: list[_Done] = []
        began, last = time.thread_time(), False
        with database.writing(self._engine) as connection:
            for change, future in group:
                if future.set_running_or_notify_cancel():
                    done.append((future, *_attempt(connection, change)))
                if last or len(group) == TOGETHER or time.thread_time() - began > TOGETHER_SECONDS:
                    continue
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    continue
                if following is None:
                    last = True
                else:
                    group.append(following)  # the loop goes on with it
        return done, last


def _attempt(connection: sa.Connection, change: Change[Any]) -> tuple[Any, BaseException | None]:
    """One change behind a savepoint: what goes wrong with it leaves no trace and spoils no other."""
    connection.exec_driver_sql("SAVEPOINT one_change")
    try:
        result = change(connection)
    except Exception as error:
        if not database.in_transaction(connection):
            raise  # a full disk ends the whole transaction, with everybody's changes in it
        connection.exec_driver_sql("ROLLBACK TO one_change")
        connection.exec_driver_sql("RELEASE one_change")
        return None, error
    connection.exec_driver_sql("RELEASE one_change")
    return result, None
