"""Teams and the experts in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.ledger import trail
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, read_page


@dataclass(frozen=True)
class Team:
    """A team."""

    id: int
    name: str


@dataclass(frozen=True)
class Expert:
    """A person who decides; `name` is the one that models know."""

    name: str
    display: str
    active: bool
    team: str


_TURN = (
    sa.select(t.experts.c.name)
    .where(t.experts.c.name == sa.bindparam("name"))
    .with_for_update(key_share=True)
)


def take_turn(connection: sa.Connection, name: str) -> None:
    """Changes of what one person has in hand take turns, until the transaction ends."""
    connection.execute(_TURN, {"name": name}).all()  # rows left unread would keep a snapshot open


def add_team(connection: sa.Connection, name: str, who: Actor, at: float) -> Team:
    """A new team."""
    if connection.execute(sa.select(t.teams.c.id).where(t.teams.c.name == name)).scalar():
        raise conflict("known-team", f"there is a team {name!r} already")
    made = connection.execute(
        sa.insert(t.teams).values(name=name, created_at=at).returning(t.teams.c.id)
    ).scalar_one()
    trail.record(connection, "team added", at, who, team=name)
    return Team(int(made), name)


def list_teams(connection: sa.Connection, cut: Cut) -> Page[Team]:
    """All teams."""
    query = sa.select(*t.teams.c["id", "name"])
    return read_page(connection, query, t.teams.c.id, cut, lambda row: Team(row.id, row.name))


def first_team(connection: sa.Connection) -> Team | None:
    """The oldest team."""
    c = t.teams.c
    row = connection.execute(sa.select(*c["id", "name"]).order_by(c.id).limit(1)).one_or_none()
    return None if row is None else Team(row.id, row.name)


def add_expert(
    connection: sa.Connection, name: str, team: str, display: str, who: Actor, at: float
) -> Expert:
    """A new person in a team."""
    if name == MACHINE:
        raise invalid("machine-is-no-person", f"{MACHINE!r} is the name of the machine")
    found = connection.execute(sa.select(t.teams.c.id).where(t.teams.c.name == team)).scalar()
    if found is None:
        raise not_found("team", team)
    if connection.execute(sa.select(t.experts.c.name).where(t.experts.c.name == name)).scalar():
        raise conflict("known-expert", f"there is an expert {name!r} already")
    _insert(connection, name, display, found, at)
    trail.record(connection, "expert added", at, who, None, None, name, team=team)
    return Expert(name, display, True, team)


def add_unknown(connection: sa.Connection, names: Sequence[str], team: str, who: Actor, at: float) -> Team:
    """Add those of these people who are not known yet to the first team, or to a new one; that team."""
    known = set(connection.execute(sa.select(t.experts.c.name)).scalars())
    home = first_team(connection) or add_team(connection, team, who, at)
    for name in names:
        if name not in known:
            _insert(connection, name, name, home.id, at)
            trail.record(connection, "expert added", at, who, None, None, name)
    return home


def change_expert(
    connection: sa.Connection, name: str, display: str | None, active: bool | None, who: Actor, at: float
) -> Expert:
    """Rename a person, or say whether they are in use; None leaves a field as it is.

    What follows for their work is done by `roster.change_expert`.
    """
    given = {"display": display, "active": active}
    values = {key: value for key, value in given.items() if value is not None}
    c = t.experts.c
    take_turn(connection, name)
    if connection.execute(sa.select(c.name).where(c.name == name)).scalar() is None:
        raise not_found("expert", name)
    if values:
        connection.execute(sa.update(t.experts).where(c.name == name).values(**values))
        trail.record(connection, "expert changed", at, who, None, None, name, **values)
    row = connection.execute(_experts().where(c.name == name)).one()
    return _expert(row)


def list_experts(connection: sa.Connection) -> list[Expert]:
    """Everyone, by name."""
    return [_expert(row) for row in connection.execute(_experts().order_by(t.experts.c.name))]


def display_names(connection: sa.Connection) -> dict[str, str]:
    """What people are called, of those who are called something else than their name in models."""
    c = t.experts.c
    rows = connection.execute(sa.select(*c["name", "display"]).where(c.name != c.display))
    return {row.name: row.display for row in rows}


def active_experts(connection: sa.Connection) -> list[str]:
    """The names of those who can be on a roster."""
    c = t.experts.c
    return list(connection.execute(sa.select(c.name).where(c.active).order_by(c.name)).scalars())


def is_active(connection: sa.Connection, name: str) -> bool:
    """Whether somebody is in use."""
    c = t.experts.c
    return connection.execute(sa.select(c.name).where(c.name == name, c.active)).scalar() is not None


def anyone(connection: sa.Connection) -> bool:
    """Whether any person is known."""
    return connection.execute(sa.select(t.experts.c.name).limit(1)).scalar() is not None


def _expert(row: Any) -> Expert:
    return Expert(row.name, row.display, row.active, row.team)


def _experts() -> sa.Select[Any]:
    return sa.select(*t.experts.c["name", "display", "active"], t.teams.c.name.label("team")).join_from(
        t.experts, t.teams
    )


def _insert(connection: sa.Connection, name: str, display: str, team_id: int, at: float) -> None:
    values = {"name": name, "display": display, "active": True, "team_id": team_id, "created_at": at}
    connection.execute(sa.insert(t.experts).values(**values))
