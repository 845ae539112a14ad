"""Sessions of people who signed in: 256 random bits in a cookie, their hash in the database."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor, Identity

SESSION_SECONDS = 12 * 3600.0


@dataclass(frozen=True)
class Session:
    """Who is signed in, and under which name."""

    actor: Actor
    name: str


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


def close_others(connection: sa.Connection, identity: Identity, actor: Actor) -> None:
    """Whoever is something else here from now on is signed out as what they were."""
    k = t.keys.c
    earlier = sa.select(k.id).where(
        k.hash.startswith(identity.account, autoescape=True), k.id != actor.key_id
    )
    connection.execute(sa.delete(t.sessions).where(t.sessions.c.key_id.in_(earlier)))


def find_session(connection: sa.Connection, token: str, at: float) -> Session | None:
    """Whose session this is, while it lasts and its key and its person are in use."""
    s, k, e = t.sessions.c, t.keys.c, t.experts.c
    query = (
        sa.select(k.id, k.role, k.expert, k.name)
        .join_from(t.sessions, t.keys, s.key_id == k.id)
        .outerjoin(t.experts, e.name == k.expert)
        .where(
            sa.func.coalesce(e.active, sa.true()),
            s.hash == _hash(token),
            s.expires_at > at,
            k.revoked_at.is_(None),
            sa.or_(k.expires_at.is_(None), k.expires_at > at),
        )
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return Session(Actor(int(row.id), row.role, row.expert), row.expert or row.name)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
