"""What all routes of the API share: who asks, what an answer looks like, how lists are cut into pages."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import Depends, Header, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from deccaf.service.errors import RefusedError
from deccaf.service.store.idempotency import Answer, Call
from deccaf.service.store.keys import Actor, KeyRing
from deccaf.service.store.listing import Page
from deccaf.service.web.admission import REFUSAL

_bearer = HTTPBearer(auto_error=False, description="An API key, from `deccaf serve --init` or POST /v1/keys.")
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route documents, beside those that every route has."""
    meanings = {
        400: "The request cannot be read.",
        401: "No key, or an unknown one.",
        403: "The key's role does not allow it.",
        404: "There is no such thing.",
        409: "The ledger's state does not allow it.",
        413: "The body is too large.",
        415: "The body is packed or of the wrong kind.",
        408: "The body came too slowly.",
        422: "The request is not usable.",
        429: "Too many keys were refused.",
        503: "The database is away; try again.",
    }
    codes = {400, 401, 403, 408, 413, 415, 422, 429, 503, *more}
    return {code: {"description": meanings[code], "content": _PROBLEM} for code in sorted(codes)}


def gives(model: Any, status: int = 200, description: str = "Done.") -> dict[int | str, dict[str, Any]]:
    """What a route answers, for the OpenAPI document.

    Answers are not checked against it at run time, which would cost more than some of them take; the tests
    check each that they get (`tests/service_answers.py`).
    """
    return {status: {"model": model, "description": description}}


def allow(*roles: str) -> Callable[..., Awaitable[Actor]]:
    """A dependency: whoever asks has one of these roles."""

    async def who(
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> Actor:
        if credentials is None:
            raise RefusedError(401, "no-key", "send an API key: Authorization: Bearer deccaf_...")
        keys: KeyRing = request.app.state.service.keys
        refusal: RefusedError | None = request.scope.get(REFUSAL)
        actor = keys.remembered(credentials.credentials) if refusal is None else None
        if actor is None:
            try:
                if refusal is not None:
                    raise refusal
                actor = await to_thread.run_sync(keys.look_up, credentials.credentials)
            except RefusedError:
                await request.app.state.refusals.slow_down(request)
                raise
        if actor.role not in roles:
            raise RefusedError(
                403, "not-allowed", f"a {actor.role}'s key may not do this; it takes a {roles[0]}'s"
            )
        return actor

    return who


def secret_of(request: Request) -> str:
    """The key that a request was sent with; `allow` has checked it."""
    return request.headers["authorization"].split(None, 1)[1]


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
    if answer.body == "null":
        return Response(None, 204, headers)
    return JsonResponse(answer.body, answer.status, headers)


# --- lists ------------------------------------------------------------------------------------------------


Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]
After = Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before.")]

Item = TypeVar("Item")


def page_json(page: Page[Item], as_json: Callable[[Item], dict[str, Any]]) -> dict[str, Any]:
    """A page of a list, with where the next one begins."""
    return {"items": [as_json(item) for item in page.items], "next": page.next}


async def receive_file(request: Request, folder: Path, suffix: str) -> tuple[Path, str]:
    """Write the body to a file as it arrives; the path and the content's SHA-256."""
    path, digest = folder / f"upload{suffix}", hashlib.sha256()
    with path.open("wb") as file:
        async for part in request.stream():
            digest.update(part)
            file.write(part)
    return path, digest.hexdigest()


def file_suffix(request: Request) -> str:
    """The ending of a file of the kind that the request says its body is."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    known = {
        "text/csv": ".csv",
        "application/vnd.apache.parquet": ".parquet",
        "application/x-parquet": ".parquet",
    }
    if kind not in known:
        detail = "send text/csv or application/vnd.apache.parquet as Content-Type"
        raise RefusedError(415, "unknown-kind", detail)
    return known[kind]


FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""What a table may be sent as."""
