"""What all routes share: who asks, what an answer looks like, how lists are cut into pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import sqlalchemy as sa
from anyio import to_thread
from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from deccaf.service.core import Service
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.imports.case_import import CASE_ID
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store.idempotency import Answer, Call
from deccaf.service.store.keys import KeyRing

MAKER = r"^[A-Za-z0-9_.:@+=~-]{1,100}$"
MOST_CASES = 10_000_000

CaseId = Annotated[str, Field(pattern=CASE_ID, examples=["a17"])]
Maker = Annotated[str, Field(pattern=MAKER, examples=["analyst_1"])]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@+=~ -]{1,100}$", examples=["desk 1"])]
Count = Annotated[int, Field(ge=0, le=MOST_CASES)]
Class = Annotated[int, Field(ge=-(2**53), le=2**53)] | Annotated[str, Field(min_length=1, max_length=200)]
Time = Annotated[
    AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC))
]
Id = Annotated[int, Path(ge=1, le=2**31)]
CasePath = Annotated[str, Path(pattern=CASE_ID)]
MakerPath = Annotated[str, Path(pattern=MAKER)]

_bearer = HTTPBearer(auto_error=False, description="An API key, from `deccaf serve --init` or POST /v1/keys.")
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Strict(BaseModel):
    """A request's body: no keys but its own."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route documents, beside those that every route has."""
    said = {
        400: "The request cannot be read.",
        401: "No key, or an unknown one.",
        403: "The key's role does not allow it.",
        404: "There is no such thing.",
        409: "The ledger's state does not allow it.",
        413: "The body is too large.",
        415: "The body is packed or of the wrong kind.",
        422: "The request is not usable.",
        503: "The database is away; try again.",
    }
    codes = {400, 401, 403, 413, 415, 422, 503, *more}
    return {code: {"description": said[code], "content": _PROBLEM} for code in sorted(codes)}


async def service_of(request: Request) -> Service:
    """The service behind the app; a coroutine, as others would wait for a thread."""
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(service_of)]


def allow(*roles: str) -> Callable[..., Awaitable[Actor]]:
    """A dependency: whoever asks has one of these roles."""

    async def who(
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> Actor:
        if credentials is None:
            raise RefusedError(401, "no-key", "send an API key: Authorization: Bearer deccaf_...")
        keys: KeyRing = request.app.state.service.keys
        actor = keys.remembered(credentials.credentials)
        if actor is None:
            actor = await to_thread.run_sync(keys.look_up, credentials.credentials)
        if actor.role not in roles:
            raise RefusedError(
                403, "not-allowed", f"a {actor.role}'s key may not do this; it takes a {roles[0]}'s"
            )
        return actor

    return who


Lead = Annotated[Actor, Depends(allow("lead"))]
LeadOrMachine = Annotated[Actor, Depends(allow("lead", "machine"))]
Anyone = Annotated[Actor, Depends(allow("lead", "machine", "reviewer"))]
LeadOrReviewer = Annotated[Actor, Depends(allow("lead", "reviewer"))]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="A request sent again with the same key is done once, and answered as the first time.",
    ),
]


async def call_of(request: Request, actor: Actor, key: str | None) -> Call:
    """The call that a change is remembered under."""
    if key is None:
        return Call(actor)
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    digest.update(await request.body())
    return Call(actor, key, digest.hexdigest())


class JsonResponse(Response):
    """JSON that is text already."""

    media_type = "application/json"


def send(answer: Answer) -> Response:
    """An answer as HTTP."""
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else None
    return JsonResponse(answer.body, answer.status, headers)


def as_time(value: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601."""
    return None if value is None else datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")


def as_json(text: str | None) -> Any:
    """JSON text from the ledger, or None."""
    return None if text is None else json.loads(text)


# --- pages ------------------------------------------------------------------------------------------------


Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]
After = Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before.")]

Row = TypeVar("Row")


def page(
    connection: sa.Connection,
    query: sa.Select[Any],
    column: sa.ColumnElement[int],
    limit: int,
    after: int | None,
    show: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """A part of a list, in order of `column`, with where the next part begins."""
    if after is not None:
        query = query.where(column > after)
    rows = connection.execute(query.order_by(column).limit(limit + 1)).all()
    kept = rows[:limit]
    following = getattr(kept[-1], column.key or "id") if len(rows) > limit else None
    return {"items": [show(row) for row in kept], "next": following}


def need_one(found: Any, what: str, name: object) -> Any:
    """What was found, or 404."""
    if found is None:
        raise RefusedError(404, "not-found", f"there is no {what} {name!r}")
    return found


def known_class(value: int | str, classes: tuple[int | str, ...]) -> str:
    """A decision or a label as JSON, if it is one of the classes; without a model anything may be one."""
    if classes and value not in classes:
        allowed = ", ".join(map(repr, classes))
        raise invalid("unknown-class", f"{value!r} is none of the classes: {allowed}")
    return json.dumps(value)
