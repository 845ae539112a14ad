"""Idempotency: a request sent again with the same `Idempotency-Key` is done once, and answered as before.

Whoever changes something under a key asks `earlier` first, in the transaction of the change and before
anything else: whoever sends the same key at the same moment waits there, and gets the answer of the first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import RefusedError
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

KEPT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Call:
    """One request as the ledger sees it: who, and under which idempotency key, with a hash of its content."""

    actor: Actor
    key: str | None = None
    request: str = ""


@dataclass(frozen=True)
class Answer:
    """A status and a JSON body, sent now or before."""

    status: int
    body: str
    replayed: bool = False

    @classmethod
    def of(cls, status: int, content: Any) -> Answer:
        """An answer from plain data."""
        return cls(status, json.dumps(content, ensure_ascii=True, allow_nan=False))


def earlier(connection: sa.Connection, calls: Sequence[Call], *, wait: bool = True) -> list[Answer | None]:
    """The answer that each call got before, if it did; the same key with another content is refused.

    With `wait` nobody else changes anything under these keys until this transaction ends.
    """
    wanted = {(call.actor.key_id, call.key) for call in calls if call.key is not None}
    if not wanted:
        return [None] * len(calls)
    if wait:
        database.take_turns(connection, [f"answer {key_id} {key}" for key_id, key in wanted])
    c = t.answers.c
    query = sa.select(t.answers).where(
        c.key_id.in_({key_id for key_id, _ in wanted}), c.idempotency_key.in_({key for _, key in wanted})
    )
    found = {(row.key_id, row.idempotency_key): row for row in connection.execute(query)}
    return [_same(call, found.get((call.actor.key_id, call.key))) for call in calls]


def once(
    connection: sa.Connection,
    call: Call,
    change: Callable[[sa.Connection, float], Any],
    status: int = 200,
) -> Answer:
    """A change, at most once under its key: the answer of before, or that of the change, which is kept."""
    at = time.time()
    before = earlier(connection, [call])[0]
    if before is not None:
        return before
    answer = Answer.of(status, change(connection, at))
    remember(connection, [(call, answer)], at)
    return answer


def remember(connection: sa.Connection, made: Sequence[tuple[Call, Answer]], at: float) -> None:
    """Keep answers in the transaction of the changes that they report."""
    rows = [
        {
            "key_id": call.actor.key_id,
            "idempotency_key": call.key,
            "request": call.request,
            "status": answer.status,
            "body": answer.body,
            "at": at,
        }
        for call, answer in made
        if call.key is not None
    ]
    if rows:
        connection.execute(sa.insert(t.answers), rows)


def forget_old(connection: sa.Connection, at: float, most: int = 500) -> bool:
    """Drop the oldest answers that nobody asks for any more; whether there may be more of them."""
    c = t.answers.c
    old = c.at < at - KEPT_SECONDS
    last = connection.execute(sa.select(c.at).where(old).order_by(c.at).offset(most - 1).limit(1)).scalar()
    connection.execute(sa.delete(t.answers).where(old if last is None else c.at <= last))
    return last is not None


def again(call: Call, first: Call, answer: Answer | Exception) -> Answer | Exception:
    """What a call gets whose key another one in the same transaction has."""
    if call.request != first.request:
        return _reused(call)
    return replace(answer, replayed=True) if isinstance(answer, Answer) else answer


def _same(call: Call, row: Any) -> Answer | None:
    if row is None or call.key is None:
        return None
    if row.request != call.request:
        raise _reused(call)
    return Answer(row.status, row.body, replayed=True)


def _reused(call: Call) -> RefusedError:
    return RefusedError(
        422, "key-reused", f"Idempotency-Key {call.key!r} was used for another request; take a new one"
    )
