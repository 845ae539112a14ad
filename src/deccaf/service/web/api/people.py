"""Teams, experts and keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from deccaf.data.costs import MACHINE
from deccaf.service.errors import conflict, invalid
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t
from deccaf.service.store.keys import create_key, revoke_key
from deccaf.service.web.api.common import (
    After,
    Here,
    IdempotencyKey,
    Lead,
    Limit,
    Maker,
    MakerPath,
    Name,
    Strict,
    as_time,
    call_of,
    need_one,
    page,
    problems,
    send,
)

router = APIRouter(prefix="/v1", tags=["people"], responses=problems(404, 409))

Display = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]


class NewTeam(Strict):
    """A team."""

    name: Name


class NewExpert(Strict):
    """A person who decides; the name is the one that the model knows."""

    name: Maker
    team: Name
    display: Display | None = None


class ExpertChange(Strict):
    """What can change about a person."""

    display: Display | None = None
    active: bool | None = None


class NewKey(Strict):
    """A key; its secret is in the answer, once."""

    name: Name
    role: Literal["lead", "reviewer", "machine"]
    expert: Maker | None = None


@router.post("/teams", status_code=201)
async def add_team(
    team: NewTeam, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Add a team."""
    call = await call_of(request, who, key)
    return send(await here.change(call, lambda c, at: new_team(c, team.name, who, at), 201))


def new_team(connection: sa.Connection, name: str, who: Actor, at: float) -> dict[str, Any]:
    """The change behind POST /v1/teams."""
    if connection.execute(sa.select(t.teams.c.id).where(t.teams.c.name == name)).scalar():
        raise conflict("known-team", f"there is a team {name!r} already")
    made = connection.execute(
        sa.insert(t.teams).values(name=name, created_at=at).returning(t.teams.c.id)
    ).scalar_one()
    ledger.record(connection, "team added", at, who, team=name)
    return {"id": made, "name": name}


@router.get("/teams")
def list_teams(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All teams."""
    c = t.teams.c
    show = lambda row: {"id": row.id, "name": row.name}  # noqa: E731
    return here.read(lambda connection: page(connection, sa.select(t.teams), c.id, limit, after, show))


@router.post("/experts", status_code=201)
async def add_expert(
    expert: NewExpert, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Add a person to a team."""
    call, display = await call_of(request, who, key), expert.display or expert.name
    change = lambda c, at: new_expert(c, expert.name, expert.team, display, who, at)  # noqa: E731
    return send(await here.change(call, change, 201))


def new_expert(
    connection: sa.Connection, name: str, team: str, display: str, who: Actor, at: float
) -> dict[str, Any]:
    """The change behind POST /v1/experts."""
    if name == MACHINE:
        raise invalid("machine-is-no-person", f"{MACHINE!r} is the name of the machine")
    found = connection.execute(sa.select(t.teams.c.id).where(t.teams.c.name == team)).scalar()
    need_one(found, "team", team)
    if connection.execute(sa.select(t.experts.c.name).where(t.experts.c.name == name)).scalar():
        raise conflict("known-expert", f"there is an expert {name!r} already")
    facts = {"name": name, "display": display, "active": True}
    connection.execute(sa.insert(t.experts).values(**facts, team_id=found, created_at=at))
    ledger.record(connection, "expert added", at, who, None, None, name, team=team)
    return {**facts, "team": team}


@router.get("/experts")
def list_experts(here: Here, who: Lead) -> dict[str, Any]:
    """Everyone, by name."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        query = sa.select(*t.experts.c["name", "display", "active"], t.teams.c.name.label("team")).join_from(
            t.experts, t.teams
        )
        rows = connection.execute(query.order_by(t.experts.c.name)).mappings().all()
        return {"items": [dict(row) for row in rows]}

    return here.read(look)


@router.patch("/experts/{name}")
async def change_expert(
    name: MakerPath, wish: ExpertChange, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Rename a person, or put them out of use."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        values = {k: v for k, v in wish.model_dump().items() if v is not None}
        c = t.experts.c
        need_one(connection.execute(sa.select(c.name).where(c.name == name)).scalar(), "expert", name)
        if values:
            connection.execute(sa.update(t.experts).where(c.name == name).values(**values))
            ledger.record(connection, "expert changed", at, who, None, None, name, **values)
        row = connection.execute(sa.select(*c["name", "display", "active"]).where(c.name == name)).one()
        return {"name": row.name, "display": row.display, "active": row.active}

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/keys", status_code=201)
async def add_key(wish: NewKey, request: Request, here: Here, who: Lead) -> Response:
    """A new key. The secret is shown in this answer only, so the answer is never kept for a replay."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        made, secret = create_key(connection, wish.name, wish.role, wish.expert, at)
        ledger.record(connection, "key added", at, who, None, None, wish.expert, key=made, role=wish.role)
        return {"id": made, "name": wish.name, "role": wish.role, "expert": wish.expert, "secret": secret}

    return send(await here.change(await call_of(request, who, None), change, 201))


@router.get("/keys")
def list_keys(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All keys, without their secrets, which are stored nowhere."""

    def show(row: Any) -> dict[str, Any]:
        times = {"created_at": as_time(row.created_at), "revoked_at": as_time(row.revoked_at)}
        return {"id": row.id, "name": row.name, "role": row.role, "expert": row.expert, **times}

    query = sa.select(t.keys)
    return here.read(lambda connection: page(connection, query, t.keys.c.id, limit, after, show))


@router.delete("/keys/{key_id}")
async def end_key(
    key_id: Annotated[int, Path(ge=1, le=2**31)],
    request: Request,
    here: Here,
    who: Lead,
    key: IdempotencyKey = None,
) -> Response:
    """Put a key out of use, within two seconds in every process."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        if key_id == who.key_id:
            raise conflict("own-key", "a key cannot revoke itself; use another lead's key")
        revoke_key(connection, key_id, at)
        ledger.record(connection, "key revoked", at, who, key=key_id)
        return {"id": key_id, "revoked": True}

    answer = await here.change(await call_of(request, who, key), change)
    here.keys.forget()
    return send(answer)
