"""Who looks at a page: signed in once with an API key, then known by a cookie for a working day.

The cookie holds 256 random bits, and the database their hash. Every form carries a token that only somebody
who can read the cookie's page could know, and browsers send the cookie with requests from our own pages only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import sqlalchemy as sa
from anyio import to_thread
from fastapi import Depends, Request
from starlette.datastructures import FormData

from deccaf.service.core import Service
from deccaf.service.errors import RefusedError
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t

COOKIE = "deccaf_session"
SESSION_SECONDS = 12 * 3600.0
FORM_FIELDS = 5_000


@dataclass(frozen=True)
class Visitor:
    """Somebody who is signed in: what they may do, their name, and the token of their forms."""

    actor: Actor
    name: str
    token: str

    @property
    def csrf(self) -> str:
        """What every form of this visitor carries."""
        return hashlib.sha256(f"form {self.token}".encode()).hexdigest()

    @property
    def is_lead(self) -> bool:
        """Whether they see everything."""
        return self.actor.role == "lead"


def open_session(connection: sa.Connection, actor: Actor, at: float) -> str:
    """A new session's token; sessions that have ended are swept away."""
    token = secrets.token_urlsafe(32)
    connection.execute(sa.delete(t.sessions).where(t.sessions.c.expires_at < at))
    connection.execute(
        sa.insert(t.sessions).values(
            hash=_hash(token), key_id=actor.key_id, created_at=at, expires_at=at + SESSION_SECONDS
        )
    )
    return token


def close_session(connection: sa.Connection, token: str) -> None:
    """Sign out."""
    connection.execute(sa.delete(t.sessions).where(t.sessions.c.hash == _hash(token)))


def find_visitor(connection: sa.Connection, token: str, at: float) -> Visitor | None:
    """Whose session this is, while it lasts and its key is in use."""
    s, k = t.sessions.c, t.keys.c
    query = (
        sa.select(k.id, k.role, k.expert, k.name)
        .join_from(t.sessions, t.keys, s.key_id == k.id)
        .where(s.hash == _hash(token), s.expires_at > at, k.revoked_at.is_(None))
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return Visitor(Actor(int(row.id), row.role, row.expert), row.expert or row.name, token)


def _visitor(*roles: str) -> Callable[[Request], Awaitable[Visitor]]:
    async def who(request: Request) -> Visitor:
        service: Service = request.app.state.service
        token = request.cookies.get(COOKIE)
        found = None
        if token:
            found = await to_thread.run_sync(
                service.read, lambda connection: find_visitor(connection, token, time.time())
            )
        if found is None:
            raise RefusedError(401, "signed-out", "sign in with your key")
        if found.actor.role not in roles:
            raise RefusedError(403, "not-allowed", "this page is for leads; your queue is under Queue")
        return found

    return who


LeadHere = Annotated[Visitor, Depends(_visitor("lead"))]
AnyoneHere = Annotated[Visitor, Depends(_visitor("lead", "reviewer"))]


async def checked_form(request: Request, visitor: Visitor | None) -> FormData:
    """The fields of a form that was sent from one of our own pages."""
    came_from = request.headers.get("sec-fetch-site", "same-origin")
    if came_from not in {"same-origin", "none"}:
        raise RefusedError(403, "foreign-form", "this form was sent by another site")
    form = await request.form(max_files=1, max_fields=FORM_FIELDS)
    if visitor is not None and not hmac.compare_digest(
        str(form.get("csrf", "")).encode(), visitor.csrf.encode()
    ):
        raise RefusedError(403, "stale-form", "this form is out of date; load the page again and repeat")
    return form


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
