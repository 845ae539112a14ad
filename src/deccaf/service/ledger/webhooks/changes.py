"""A lead adds or ends an address; each is in the trail."""

from __future__ import annotations

import sqlalchemy as sa

from deccaf.service.ledger import trail
from deccaf.service.ledger.webhooks import hooks
from deccaf.service.ledger.webhooks.hooks import Hook
from deccaf.service.store.keys import Actor


def add(connection: sa.Connection, url: str, kinds: tuple[str, ...], who: Actor, at: float) -> Hook:
    """Tell an address from now on."""
    made = hooks.add(connection, url, kinds, who, at)
    trail.record(connection, "webhook added", at, who, webhook=made.id, address=made.shown)
    return made


def end(connection: sa.Connection, hook_id: int, who: Actor, at: float) -> Hook:
    """Tell an address no more."""
    ended = hooks.end(connection, hook_id, at)
    trail.record(connection, "webhook ended", at, who, webhook=ended.id, address=ended.shown)
    return ended
