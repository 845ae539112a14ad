"""Alerts over time: what came up and what went away, and whether an alert starts a refit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.jobs import records
from deccaf.service.ledger import trail
from deccaf.service.ledger.trail import Event
from deccaf.service.monitor.health import DAY, Alert
from deccaf.service.store import database
from deccaf.service.store.keys import Actor, key_name
from deccaf.service.store.settings import read_setting, write_setting

RAISED, CLEARED, SEEN = "alert raised", "alert cleared", "alert acknowledged"
_IN_FORCE, _RESPONSE = "alerts", "watch"
_LOOKED_AT = 1_000


@dataclass(frozen=True)
class Response:
    """What happens when an alert comes up, and the key of whoever decided that."""

    refit: bool = False
    activate: bool = False
    key: int | None = None


def keep_alerts(engine: sa.Engine, alerts: Sequence[Alert], at: float) -> None:
    """Write what came up and what went away into the trail; start a refit where a lead asked for that."""
    now = {f"{alert.kind} {alert.subject}": alert.finding for alert in alerts}
    with database.reading(engine) as connection:
        if set(now) == set(read_setting(connection, _IN_FORCE) or {}):
            return
    with database.writing(engine) as connection:
        # again, under lock: another process may have been quicker
        before = read_setting(connection, _IN_FORCE) or {}
        for name in sorted(set(now) - set(before)):
            trail.record(connection, RAISED, at, Actor(None), alert=name, said=now[name])
        for name in sorted(set(before) - set(now)):
            trail.record(connection, CLEARED, at, Actor(None), alert=name)
        write_setting(connection, _IN_FORCE, now)
        new = [name for name in set(now) - set(before) if not name.startswith("labels")]
        _respond(connection, sorted(new), at)


@dataclass(frozen=True)
class Acknowledged:
    """Who has seen an alert, when, and what they said."""

    key: int | None
    who: str
    at: float
    note: str


def acknowledge(connection: sa.Connection, name: str, note: str, who: Actor, at: float) -> None:
    """Say that an alert in force was seen; it stays until it is over."""
    if name not in (read_setting(connection, _IN_FORCE) or {}):
        raise not_found("alert in force", name)
    trail.record(connection, SEEN, at, who, alert=name, note=note)


def acknowledged(connection: sa.Connection) -> dict[str, Acknowledged]:
    """Alerts in force that somebody has seen since they came up; the latest to say so."""
    now = read_setting(connection, _IN_FORCE) or {}
    found: dict[str, Acknowledged] = {}
    over: set[str] = set()
    for event in trail.latest_events(connection, (RAISED, SEEN), _LOOKED_AT) if now else []:
        name = str(event.data.get("alert"))
        if event.kind == RAISED:
            over.add(name)
        elif name in now and name not in over | found.keys():
            whose = key_name(connection, event.key)
            found[name] = Acknowledged(event.key, whose, event.at, str(event.data.get("note", "")))
    return found


def in_force(connection: sa.Connection, name: str, at: float) -> bool:
    """Whether an alert was in force at a time, by the trail."""
    events = trail.latest_events(connection, (RAISED, CLEARED), _LOOKED_AT)
    mine = [event for event in events if event.at <= at and event.data.get("alert") == name]
    return bool(mine) and mine[0].kind == RAISED


def read_response(connection: sa.Connection) -> Response:
    """Whether alerts start a refit."""
    return Response(**(read_setting(connection, _RESPONSE) or {}))


def write_response(connection: sa.Connection, refit: bool, activate: bool, who: Actor, at: float) -> None:
    """Decide whether alerts start a refit."""
    write_setting(connection, _RESPONSE, asdict(Response(refit, activate, who.key_id)))
    trail.record(connection, "watch changed", at, who, refit=refit, activate=activate)


def latest_alerts(connection: sa.Connection, most: int) -> list[Event]:
    """What came up, was seen and went away lately, the newest first."""
    return trail.latest_events(connection, (RAISED, CLEARED, SEEN), most)


def _respond(connection: sa.Connection, new: list[str], at: float) -> None:
    """Start a refit, at most once a day."""
    response = read_response(connection)
    if new and response.refit and not records.asked_since(connection, "refit", at - DAY):
        params = {"name": "refit after an alert", "activate": response.activate}
        job = records.enqueue(connection, "refit", params, response.key, at)
        trail.record(connection, "refit asked for", at, Actor(response.key), job=job, alerts=new)
