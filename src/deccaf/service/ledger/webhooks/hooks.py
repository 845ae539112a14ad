"""The addresses that are told what happens: set by a lead, http or https, each with a secret of its own.

What is in force is kept for a second: a change of the ledger asks for it, and where nobody is to be told that
is all it does.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from deccaf.addresses import web_address
from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

Told = Literal[
    "case.assigned",
    "case.decided",
    "case.undone",
    "case.labelled",
    "alert.raised",
    "plan.committed",
    "model.activated",
]
"""What can be told."""
TOLD: tuple[str, ...] = get_args(Told)
MOST = 20
"""Addresses at a time."""
FRESH_SECONDS = 1.0


@dataclass(frozen=True)
class Hook:
    """An address and what it is told."""

    id: int
    url: str
    kinds: tuple[str, ...]
    secret: str
    created_at: float
    ended_at: float | None

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{place}{parts.path}{'?...' if parts.query else ''}"


_known: WeakKeyDictionary[Any, tuple[float, tuple[Hook, ...]]] = WeakKeyDictionary()
"""What is in force and when that was asked, by database."""


def in_force(connection: sa.Connection) -> tuple[Hook, ...]:
    """Who is told; as old as a second."""
    database, now = connection.engine.dialect, time.monotonic()
    asked, found = _known.get(database, (-FRESH_SECONDS, ()))
    if now - asked >= FRESH_SECONDS:
        found = tuple(list_hooks(connection, ended=False))
        _known[database] = (now, found)
    return found


def forget(engine: sa.Engine) -> None:
    """Ask anew the next time: for whoever has changed something, once that is on disk."""
    _known.pop(engine.dialect, None)


def list_hooks(connection: sa.Connection, *, ended: bool = True) -> list[Hook]:
    """All addresses in the order in which they were given."""
    query = sa.select(t.hooks).order_by(t.hooks.c.id)
    if not ended:
        query = query.where(t.hooks.c.ended_at.is_(None))
    return [_hook(row) for row in connection.execute(query).all()]


def add(connection: sa.Connection, url: str, kinds: tuple[str, ...], who: Actor, at: float) -> Hook:
    """Tell an address from now on."""
    if web_address(url) is None:
        raise invalid(
            "bad-address",
            f"{url[:200]!r}: an address begins with http:// or https:// and a host; a port is 1 to 65535",
        )
    known = list_hooks(connection, ended=False)
    if any(hook.url == url for hook in known):
        raise conflict("known-address", "this address is told already; end it first to change that")
    if len(known) >= MOST:
        raise conflict("many-addresses", f"{MOST} addresses are told already; end one first")
    secret = f"whsec_{secrets.token_urlsafe(32)}"
    values = {"url": url, "kinds": json.dumps(kinds), "secret": secret, "key_id": who.key_id}
    made = connection.execute(sa.insert(t.hooks).values(**values, created_at=at).returning(t.hooks.c.id))
    return Hook(int(made.scalar_one()), url, kinds, secret, at, None)


def end(connection: sa.Connection, hook_id: int, at: float) -> Hook:
    """Tell an address no more; what waits for it is given up."""
    row = connection.execute(sa.select(t.hooks).where(t.hooks.c.id == hook_id)).first()
    if row is None:
        raise not_found("webhook", hook_id)
    connection.execute(
        sa.update(t.hooks).where(t.hooks.c.id == hook_id, t.hooks.c.ended_at.is_(None)).values(ended_at=at)
    )
    d = t.deliveries.c
    waiting = sa.update(t.deliveries).where(d.hook_id == hook_id, d.state == "waiting")
    connection.execute(waiting.values(state="given up", said="the webhook was ended", done_at=at))
    return _hook(row)


def _hook(row: Any) -> Hook:
    return Hook(row.id, row.url, tuple(json.loads(row.kinds)), row.secret, row.created_at, row.ended_at)
