"""API keys: 256 random bits, shown once, kept as a hash; each has a role.

A `lead` may do everything, a `reviewer` sees their own queue only, a `machine` brings cases and labels.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import RefusedError, invalid, not_found
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.listing import Cut, Page, read_page

ROLES = ("lead", "reviewer", "machine")
PREFIX = "deccaf_"
REMEMBERED_SECONDS = 2.0
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class Actor:
    """Who asks for a change: the key's id, its role, and for a reviewer the expert."""

    key_id: int | None
    role: str = "lead"
    expert: str | None = None


@dataclass(frozen=True)
class Key:
    """A key as it is on record: without its secret."""

    id: int
    name: str
    role: str
    expert: str | None
    created_at: float
    revoked_at: float | None
    expires_at: float | None
    """From when on it is refused; None: never."""


@dataclass(frozen=True)
class Identity:
    """Somebody whom an OpenID Connect provider vouches for, and what they are here."""

    issuer: str
    subject: str
    name: str
    role: str
    expert: str | None

    @property
    def account(self) -> str:
        """Stands for the account, in the place of a secret's hash, where no secret can ever lead."""
        return "openid:" + _hash(f"{self.issuer}\n{self.subject}") + ":"

    @property
    def mark(self) -> str:
        """The same for the account and what it is here: who did what stays clear when that changes."""
        return self.account + _hash(f"{self.role}\n{self.expert}")[:16]


def create_key(
    connection: sa.Connection,
    name: str,
    role: str,
    expert: str | None,
    at: float,
    secret: str | None = None,
    expires_at: float | None = None,
) -> tuple[int, str]:
    """A new key's id and its secret (a random one unless it is given), which is stored nowhere."""
    if expires_at is not None and expires_at <= at:
        raise invalid("expired-already", "a key expires in the future, or never")
    if (role == "reviewer") != (expert is not None):
        raise invalid("key-without-person", "a reviewer's key names an expert, and only a reviewer's does")
    if expert is not None and not _is_expert(connection, expert):
        raise not_found("expert", expert)
    secret = secret or PREFIX + secrets.token_urlsafe(32)
    return _insert(connection, name, role, expert, _hash(secret), at, expires_at), secret


def key_of(connection: sa.Connection, identity: Identity, at: float) -> tuple[Actor, bool]:
    """The key that stands for an account, made when it first comes, and whether it is new.

    No secret opens it. An account of which a lead has revoked a key stays out.
    """
    c = t.keys.c
    database.take_turns(connection, [identity.account])
    rows = connection.execute(
        sa.select(*c["id", "hash", "revoked_at"]).where(c.hash.startswith(identity.account, autoescape=True))
    ).all()
    if any(row.revoked_at is not None for row in rows):
        detail = "a lead has revoked the access of this account; they can give you a key of your own"
        raise RefusedError(403, "revoked", detail)
    found = next((int(row.id) for row in rows if row.hash == identity.mark), None)
    made = found or _insert(
        connection, identity.name, identity.role, identity.expert, identity.mark, at, None
    )
    return Actor(made, identity.role, identity.expert), found is None


def _insert(
    connection: sa.Connection,
    name: str,
    role: str,
    expert: str | None,
    hashed: str,
    at: float,
    expires_at: float | None,
) -> int:
    values = {"name": name, "role": role, "expert": expert, "hash": hashed}
    query = sa.insert(t.keys).values(**values, created_at=at, expires_at=expires_at)
    return int(connection.execute(query.returning(t.keys.c.id)).scalar_one())


def derived_secret(of_maker: str, salt: str) -> str:
    """A secret that only the holder of the key that asks for it, and of a random salt, can reckon again.

    So the answer to a request for a key can be given once more without the secret being kept: the ledger
    keeps the salt, which says nothing without the other key.
    """
    mixed = hmac.new(of_maker.encode("utf-8", "replace"), salt.encode(), hashlib.sha256).digest()
    return PREFIX + base64.urlsafe_b64encode(mixed).decode().rstrip("=")


def revoke_key(connection: sa.Connection, key_id: int, at: float) -> None:
    """Put a key out of use; within `REMEMBERED_SECONDS` no process accepts it any more."""
    c = t.keys.c
    done = connection.execute(
        sa.update(t.keys).where(c.id == key_id, c.revoked_at.is_(None)).values(revoked_at=at)
    )
    if done.rowcount != 1:
        raise not_found("key in use", key_id)


def list_keys(connection: sa.Connection, cut: Cut) -> Page[Key]:
    """All keys, in use or not."""
    columns = t.keys.c["id", "name", "role", "expert", "created_at", "revoked_at", "expires_at"]
    return read_page(connection, sa.select(*columns), t.keys.c.id, cut, lambda row: Key(*row))


def key_name(connection: sa.Connection, key_id: int | None) -> str:
    """Under which name a key was made; the service itself has none."""
    c = t.keys.c
    found = connection.execute(sa.select(sa.func.coalesce(c.expert, c.name)).where(c.id == key_id)).scalar()
    return "the service" if found is None else str(found)


def any_keys(engine: sa.Engine) -> bool:
    """Whether anybody can sign in at all."""
    with database.reading(engine) as connection:
        query = sa.select(sa.func.count()).select_from(t.keys).where(t.keys.c.revoked_at.is_(None))
        return bool(connection.execute(query).scalar_one())


class KeyRing:
    """Who a secret belongs to; remembered for a moment, so that not every request asks the database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[float, Actor]] = {}

    def remembered(self, secret: str) -> Actor | None:
        """The owner if the secret was seen a moment ago."""
        found = self._known.get(_hash(secret))
        return found[1] if found is not None and found[0] > time.monotonic() else None

    def look_up(self, secret: str) -> Actor:
        """The owner; an unknown, revoked or expired key is refused, and that of whoever is out of use."""
        hashed = _hash(secret)
        with database.reading(self._engine) as connection:
            c, e = t.keys.c, t.experts.c
            query = (
                sa.select(*c["id", "role", "expert", "expires_at"], e.active)
                .outerjoin_from(t.keys, t.experts, e.name == c.expert)
                .where(c.hash == hashed, c.revoked_at.is_(None))
            )
            row = connection.execute(query).one_or_none()
        if row is None:
            raise RefusedError(401, "unknown-key", "the key is not known, or was revoked")
        if row.expires_at is not None and row.expires_at <= time.time():
            raise RefusedError(401, "expired-key", "the key has expired; a lead can make a new one")
        if row.active is False:
            detail = f"{row.expert} is out of use, so this key is refused; a lead can put them back"
            raise RefusedError(403, "out-of-use", detail)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        actor = Actor(int(row.id), row.role, row.expert)
        self._known[hashed] = (time.monotonic() + REMEMBERED_SECONDS, actor)
        return actor

    def forget(self) -> None:
        """Ask the database again from now on."""
        self._known.clear()


def _hash(secret: str) -> str:
    # A plain hash is enough: the secret has 256 random bits, so there is nothing to guess slowly.
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _is_expert(connection: sa.Connection, name: str) -> Any:
    return connection.execute(sa.select(t.experts.c.name).where(t.experts.c.name == name)).scalar()
