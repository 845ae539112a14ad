"""Teams, experts and keys."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import Field

from deccaf.client.answers import All, ExpertChanged, KeyEnded, KeyMade, Page, Person, Team
from deccaf.client.answers import Key as KeyAnswer
from deccaf.service.errors import conflict
from deccaf.service.ledger import people, roster, trail
from deccaf.service.store import keys
from deccaf.service.store.fields import Maker, Name, Strict, Time
from deccaf.service.store.keys import Key
from deccaf.service.store.listing import Cut
from deccaf.service.web.api.common import (
    After,
    IdempotencyKey,
    Lead,
    Limit,
    call_of,
    gives,
    page_json,
    problems,
    secret_of,
    send,
)
from deccaf.service.web.common import Here, Id, MakerPath, as_time

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
    expires_at: Time | None = None
    """From when on it is refused; never, unless said."""


@router.post("/teams", status_code=201, responses=gives(Team, 201))
async def add_team(
    team: NewTeam, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Add a team."""
    call = await call_of(request, who, key)
    return send(await here.change(call, lambda c, at: asdict(people.add_team(c, team.name, who, at)), 201))


@router.get("/teams", responses=gives(Page[Team]))
def list_teams(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All teams."""
    return page_json(here.read(lambda c: people.list_teams(c, Cut(limit, after))), asdict)


@router.post("/experts", status_code=201, responses=gives(Person, 201))
async def add_expert(
    expert: NewExpert, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Add a person to a team."""
    call, display = await call_of(request, who, key), expert.display or expert.name

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return asdict(people.add_expert(connection, expert.name, expert.team, display, who, at))

    return send(await here.change(call, change, 201))


@router.get("/experts", responses=gives(All[Person]))
def list_experts(here: Here, who: Lead) -> dict[str, Any]:
    """Everyone, by name."""
    return {"items": [asdict(expert) for expert in here.read(people.list_experts)]}


@router.patch("/experts/{name:path}", responses=gives(ExpertChanged))
async def change_expert(
    name: MakerPath, wanted: ExpertChange, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Rename a person, put them out of use, or back.

    Out of use: they get nothing new, their open cases go to others, and their keys are refused, within two
    seconds in every process. What they decided stays on record.
    """

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        found, released = roster.change_expert(
            connection, name, wanted.display, wanted.active, who, at, here.rng
        )
        facts = {"name": found.name, "display": found.display, "active": found.active}
        return {**facts, "released": released}

    answer = await here.change(await call_of(request, who, key), change)
    here.keys.forget()
    return send(answer)


@router.post("/keys", status_code=201, responses=gives(KeyMade, 201))
async def add_key(
    wanted: NewKey, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """A new key. Its secret is in this answer only, and in a replay of it to the same key."""
    own, salt = secret_of(request), secrets.token_hex(32)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        secret = keys.derived_secret(own, salt)
        until = None if wanted.expires_at is None else wanted.expires_at.timestamp()
        made, _ = keys.create_key(connection, wanted.name, wanted.role, wanted.expert, at, secret, until)
        trail.record(connection, "key added", at, who, None, None, wanted.expert, key=made, role=wanted.role)
        facts = {"id": made, "name": wanted.name, "role": wanted.role, "expert": wanted.expert}
        return {**facts, "expires_at": as_time(until), "salt": salt}

    answer = await here.change(await call_of(request, who, key), change, 201)
    content = json.loads(answer.body)
    content["secret"] = keys.derived_secret(own, content.pop("salt"))
    return send(replace(answer, body=json.dumps(content)))


@router.get("/keys", responses=gives(Page[KeyAnswer]))
def list_keys(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All keys, without their secrets, which are stored nowhere."""
    return page_json(here.read(lambda c: keys.list_keys(c, Cut(limit, after))), _key)


@router.delete("/keys/{key_id}", responses=gives(KeyEnded))
async def end_key(
    key_id: Id,
    request: Request,
    here: Here,
    who: Lead,
    key: IdempotencyKey = None,
) -> Response:
    """Put a key out of use, within two seconds in every process."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        if key_id == who.key_id:
            raise conflict("own-key", "a key cannot revoke itself; use another lead's key")
        keys.revoke_key(connection, key_id, at)
        trail.record(connection, "key revoked", at, who, key=key_id)
        return {"id": key_id, "revoked": True}

    answer = await here.change(await call_of(request, who, key), change)
    here.keys.forget()
    return send(answer)


def _key(key: Key) -> dict[str, Any]:
    times = {name: as_time(getattr(key, name)) for name in ("created_at", "revoked_at", "expires_at")}
    return {"id": key.id, "name": key.name, "role": key.role, "expert": key.expert, **times}
