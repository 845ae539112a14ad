"""Model files as versions, and which of them is in force."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import trail
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, read_page


@dataclass(frozen=True)
class Version:
    """A model file on record, without its content."""

    id: int
    name: str
    source: str
    sha256: str
    size: int
    summary: dict[str, Any]
    """What the model learned from."""
    created_at: float


@dataclass(frozen=True)
class Activation:
    """A version was put in force: "activate" or "roll back"."""

    model_id: int
    at: float
    kind: str


_COLUMNS = t.models.c["id", "name", "source", "sha256", "size", "summary", "created_at"]


TURN = ["the model in force"]
"""What changes of it wait for."""


def add_version(
    connection: sa.Connection,
    name: str,
    source: str,
    digest: str,
    content: bytes,
    summary: dict[str, Any],
    who: Actor,
    at: float,
) -> Version:
    """Put a model file into the ledger; the same content only once."""
    known = find_version(connection, digest)
    if known is not None:
        raise conflict("known-model", f"this file is model {known} already", model=known)
    made = connection.execute(
        sa.insert(t.models)
        .values(
            name=name,
            source=source,
            sha256=digest,
            size=len(content),
            summary=json.dumps(summary, default=str),
            created_at=at,
            content=content,
        )
        .returning(t.models.c.id)
    ).scalar_one()
    trail.record(connection, "model added", at, who, model=made, source=source)
    return Version(int(made), name, source, digest, len(content), summary, at)


def find_version(connection: sa.Connection, digest: str) -> int | None:
    """The version with this content, if there is one."""
    return connection.execute(sa.select(t.models.c.id).where(t.models.c.sha256 == digest)).scalar()


def put_in_force(
    connection: sa.Connection, model_id: int, who: Actor, at: float, kind: str = "activate"
) -> None:
    """Make a version the one that scores cases."""
    database.take_turns(connection, TURN)
    if connection.execute(sa.select(t.models.c.id).where(t.models.c.id == model_id)).scalar() is None:
        raise not_found("model", model_id)
    connection.execute(
        sa.insert(t.activations).values(model_id=model_id, key_id=who.key_id, kind=kind, at=at)
    )
    trail.record(connection, "model in force", at, who, model=model_id, by=kind)


def roll_back(connection: sa.Connection, who: Actor, at: float) -> int:
    """Put the version in force that was in force before this one; its id.

    Going back twice goes back twice: activations that a roll-back undid are skipped.
    """
    database.take_turns(connection, TURN)
    stack: list[int] = []
    for activation in activations(connection):
        if activation.kind == "roll back":
            stack.pop()
        else:
            stack.append(activation.model_id)
    if len(stack) < 2:
        raise conflict("nothing-before", "no other model was in force before")
    put_in_force(connection, stack[-2], who, at, "roll back")
    return stack[-2]


def active_id(connection: sa.Connection) -> int | None:
    """The version in force: the one of the latest activation."""
    c = t.activations.c
    found = connection.execute(sa.select(c.model_id).order_by(c.id.desc()).limit(1)).scalar()
    return None if found is None else int(found)


def digest_of(connection: sa.Connection, model_id: int) -> str:
    """The SHA-256 of a version's file."""
    c = t.models.c
    return str(connection.execute(sa.select(c.sha256).where(c.id == model_id)).scalar_one())


def read_content(connection: sa.Connection, model_id: int) -> tuple[str, bytes]:
    """A version's name and its file."""
    c = t.models.c
    row = connection.execute(sa.select(*c["name", "content"]).where(c.id == model_id)).one()
    return row.name, row.content


def read_version(connection: sa.Connection, model_id: int) -> Version:
    """One version."""
    row = connection.execute(sa.select(*_COLUMNS).where(t.models.c.id == model_id)).one_or_none()
    if row is None:
        raise not_found("model", model_id)
    return _version(row)


def list_versions(connection: sa.Connection, cut: Cut) -> Page[Version]:
    """All versions, the oldest first."""
    return read_page(connection, sa.select(*_COLUMNS), t.models.c.id, cut, _version)


def latest_versions(connection: sa.Connection, most: int) -> list[Version]:
    """The newest versions."""
    query = sa.select(*_COLUMNS).order_by(t.models.c.id.desc()).limit(most)
    return [_version(row) for row in connection.execute(query)]


def activations(connection: sa.Connection, model_id: int | None = None) -> list[Activation]:
    """When versions (or one of them) were put in force, in order."""
    c = t.activations.c
    query = sa.select(*c["model_id", "at", "kind"]).order_by(c.id)
    if model_id is not None:
        query = query.where(c.model_id == model_id)
    return [Activation(*row) for row in connection.execute(query)]


def _version(row: Any) -> Version:
    return Version(
        row.id, row.name, row.source, row.sha256, row.size, json.loads(row.summary), row.created_at
    )
