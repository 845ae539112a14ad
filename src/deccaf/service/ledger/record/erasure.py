"""Erasing a person: their name gives way to a pseudonym, everywhere and for good; what they did stays.

The key of a person stands as text in many rows, the trail's among them, which the database keeps from being
changed. It makes one exception: a text that stands in `erasures` may be replaced by the other beside it, and
nothing else in the row may change (triggers, see `migrations`). That table is filled at the beginning of an
erasure and empty again at its end, so that the name is nowhere afterwards. Model files are written anew, with
the same numbers under the pseudonym. Backups that were taken before still hold the name.

What is not looked through: features of cases, and what people wrote as free text (reasons, notes).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.models.model_file import rename_expert
from deccaf.service.errors import invalid, not_found
from deccaf.service.ledger import roster, trail
from deccaf.service.ledger.record.person_data import named_in
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import from_json
from deccaf.service.store.scratch import scratch_folder

PREFIX = "person-"
_AT_ONCE = 50_000
_TEXTS = (
    (t.history, "data"),
    (t.pricings, "makers"),
    (t.cases, "excluded"),
    (t.cases, "given"),
    (t.plans, "summary"),
    (t.jobs, "params"),
    (t.jobs, "result"),
    (t.models, "summary"),
    (t.answers, "body"),
    (t.settings, "value"),
    (t.imports, "errors"),
    (t.past_entries, "facts"),
    (t.deliveries, "body"),
)
"""JSON texts that may name people."""
_ALERTS = ("alert raised", "alert cleared", "alert acknowledged")


@dataclass(frozen=True)
class Erased:
    """What an erasure did."""

    pseudonym: str
    rows: int
    models: int
    released: int


def confirm(name: str, again: str) -> None:
    """Nobody is erased by a slip: the name is given twice."""
    if name != again:
        raise invalid("not-confirmed", f"give {name!r} once more to erase it; nothing was changed")


def rewritten_models(connection: sa.Connection, name: str) -> tuple[str, dict[int, bytes]]:
    """A new pseudonym, and the model files that know the person, written under it; nothing is changed yet."""
    pseudonym = PREFIX + secrets.token_hex(5)
    m = t.models.c
    found: dict[int, bytes] = {}
    for row in connection.execute(sa.select(m.id, m.summary)).all():
        if json.dumps(name) in row.summary:
            content = connection.execute(sa.select(m.content).where(m.id == row.id)).scalar_one()
            found[row.id] = _renamed(content, name, pseudonym)
    return pseudonym, found


def erase(
    connection: sa.Connection,
    name: str,
    rewritten: tuple[str, dict[int, bytes]],
    who: Actor,
    at: float,
    rng: np.random.Generator,
) -> Erased:
    """Put somebody out of use, end their keys and sessions, and replace their name everywhere."""
    pseudonym, files = rewritten
    if name == MACHINE or connection.execute(_DISPLAY, {"name": name}).scalar() is None:
        raise not_found("expert", name)
    _, released = roster.change_expert(connection, name, None, False, who, at, rng)
    displays = _displays(connection, name)
    _end_keys(connection, name, pseudonym, at)
    changed = _replace_names(connection, name, pseudonym)
    changed += _replace_in_texts(connection, name, pseudonym, displays)
    _forget_drafts(connection, name)
    e, w = t.experts.c, t.watch_days.c
    connection.execute(sa.update(t.experts).where(e.name == pseudonym).values(display=pseudonym))
    connection.execute(
        sa.update(t.watch_days).where(w.measure == f"errors {name}").values(measure=f"errors {pseudonym}")
    )
    for number, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        connection.execute(
            sa.update(t.models)
            .where(t.models.c.id == number)
            .values(content=content, sha256=digest, size=len(content))
        )
    trail.record(connection, "person erased", at, who, None, None, pseudonym, models=sorted(files))
    return Erased(pseudonym, changed, len(files), released)


def _renamed(content: bytes, name: str, pseudonym: str) -> bytes:
    with scratch_folder() as folder:
        path = folder / "model.deccaf"
        path.write_bytes(content)
        rename_expert(path, name, pseudonym)
        return path.read_bytes()


_DISPLAY = sa.select(t.experts.c.display).where(t.experts.c.name == sa.bindparam("name"))


def _displays(connection: sa.Connection, name: str) -> set[str]:
    """All names that they were shown under."""
    h = t.history.c
    found = {str(connection.execute(_DISPLAY, {"name": name}).scalar_one())}
    lines = sa.select(h.data).where(h.maker == name, h.kind.in_(("expert added", "expert changed")))
    for text in connection.execute(lines).scalars():
        shown = from_json(text).get("display")
        found |= {shown} if isinstance(shown, str) else set()
    return found


def _end_keys(connection: sa.Connection, name: str, pseudonym: str, at: float) -> None:
    k = t.keys.c
    theirs = sa.select(k.id).where(k.expert == name)
    connection.execute(sa.delete(t.sessions).where(t.sessions.c.key_id.in_(theirs)))
    connection.execute(
        sa.update(t.keys).where(k.expert == name, k.revoked_at.is_(None)).values(revoked_at=at)
    )
    nothing = sa.literal(f"{pseudonym}:") + sa.cast(
        k.id, sa.Text
    )  # an account's mark could be reckoned again
    connection.execute(sa.update(t.keys).where(k.expert == name).values(name=pseudonym, hash=nothing))


def _replace_names(connection: sa.Connection, name: str, pseudonym: str) -> int:
    """The name where it stands for itself."""
    connection.execute(sa.insert(t.erasures).values(before=name, after=pseudonym))
    changed = 0
    for table, column in [*named_in(), (t.experts, t.experts.c.name)]:
        changed += _update(connection, table, column == name, {column.name: pseudonym})
    connection.execute(sa.delete(t.erasures))
    return changed


def _replace_in_texts(connection: sa.Connection, name: str, pseudonym: str, displays: set[str]) -> int:
    """The name inside of JSON texts, with what stands around it: half a word is nobody's name."""
    h, bare, quoted = t.history.c, json.dumps(name)[1:-1], json.dumps(pseudonym)
    everywhere = [(table, column, sa.true()) for table, column in _TEXTS]
    changed = _replace_text(connection, f'"{bare}"', quoted, everywhere)
    theirs = [(t.history, "data", h.maker == pseudonym), (t.answers, "body", sa.true())]
    for display in sorted(displays - {name}):
        changed += _replace_text(connection, json.dumps(display), quoted, theirs)
    alerts = [(t.history, "data", h.kind.in_(_ALERTS)), (t.settings, "value", sa.true())]
    for before, after in (
        (f'"errors {bare}"', f'"errors {pseudonym}"'),
        (f'"person {bare}"', f'"person {pseudonym}"'),
        (f'"{bare} was wrong on', f'"{pseudonym} was wrong on'),
    ):
        changed += _replace_text(connection, before, after, alerts)
    return changed


def _replace_text(
    connection: sa.Connection,
    before: str,
    after: str,
    places: Sequence[tuple[sa.Table, str, sa.ColumnElement[bool]]],
) -> int:
    connection.execute(sa.insert(t.erasures).values(before=before, after=after))
    changed = 0
    for table, name, condition in places:
        column = table.c[name]
        holds = sa.and_(condition, sa.func.replace(column, before, "") != column)
        changed += _update(connection, table, holds, {name: sa.func.replace(column, before, after)})
    connection.execute(sa.delete(t.erasures))
    return changed


def _update(
    connection: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool], values: dict[str, Any]
) -> int:
    """Change rows of a table, so many at a time that no statement takes long; how many."""
    number = next(iter(table.primary_key.columns))
    if not isinstance(number.type, sa.Integer):
        return connection.execute(sa.update(table).where(which).values(values)).rowcount
    last = connection.execute(sa.select(sa.func.max(number))).scalar() or 0
    changed = 0
    for start in range(0, int(last) + 1, _AT_ONCE):
        part = sa.and_(which, number >= start, number < start + _AT_ONCE)
        changed += connection.execute(sa.update(table).where(part).values(values)).rowcount
    return changed


def _forget_drafts(connection: sa.Connection, name: str) -> None:
    """Packed plans and whole reports cannot be rewritten: open drafts are discarded, reports removed."""
    p, b = t.plans.c, t.backtest_reports.c
    connection.execute(sa.update(t.plans).where(p.state == "draft").values(state="discarded"))
    connection.execute(sa.update(t.plans).where(p.payload.is_not(None)).values(payload=None))
    for row in connection.execute(sa.select(t.backtest_reports)).all():
        if name.encode() in row.html:
            connection.execute(sa.delete(t.backtest_reports).where(b.job_id == row.job_id))
