"""Signing in and out, and the files that pages are made with."""

from __future__ import annotations

import time
from pathlib import Path

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from deccaf.service.core import Service
from deccaf.service.errors import RefusedError, not_found
from deccaf.service.ledger import trail
from deccaf.service.store.keys import Actor
from deccaf.service.store.sessions import SESSION_SECONDS, close_session, open_session
from deccaf.service.web.admission import COOKIE, SIGN_IN
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import AnyoneHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, own_path, sign_in_page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

STATIC = Path(__file__).with_name("static")
_FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in {".js", ".css", ".svg"}}


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """A script or a style sheet of ours; the only part of the pages that needs no sign-in."""
    if name not in _FILES:
        raise not_found("file", name)
    return FileResponse(_FILES[name])


@router.post(SIGN_IN)
async def sign_in(request: Request, here: Here) -> Response:
    """A key becomes a session; the key itself is never in a cookie."""
    form = await checked_form(request, None)
    secret = str(form.get("key", "")).strip()[:500]
    wanted = own_path(str(form.get("next", ""))) or ""
    try:
        actor = await to_thread.run_sync(here.keys.look_up, secret)
    except RefusedError as error:
        if error.status != 401:
            raise
        await request.app.state.refusals.slow_down(request)
        return sign_in_page(request, 401, "This key is not known, or was revoked.", wanted)
    if actor.role == "machine":
        wrong = "This key belongs to a program; pages are for people."
        return sign_in_page(request, 403, wrong, wanted)
    answer = go(home_of(actor, wanted))
    return await let_in(here, actor, answer, encrypted=request.url.scheme == "https")


@router.get(SIGN_IN)
def signed_in_already(visitor: AnyoneHere) -> Response:
    """A bookmark of this address: whoever is not signed in is asked to, and others see their first page."""
    return go(home_of(visitor.actor, ""))


def home_of(actor: Actor, wanted: str) -> str:
    """Where somebody goes who has just signed in: to the page that they asked for, or to their own."""
    return wanted if wanted not in ("", "/") else "/" if actor.role == "lead" else "/queue"


async def let_in(here: Service, actor: Actor, answer: Response, *, encrypted: bool) -> Response:
    """A session for whoever has proved who they are, and its cookie with the answer."""
    token = await here.writer.run(lambda connection: _enter(connection, actor))
    answer.set_cookie(
        COOKIE,
        token,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=encrypted,
    )
    return answer


@router.get("/session")
def session(visitor: AnyoneHere) -> Response:
    """Whether this browser is signed in.

    A link from another site comes without the cookie; the page to sign in asks here, and goes on by itself.
    """
    return Response(None, 204)


def _enter(connection: sa.Connection, actor: Actor) -> str:
    at = time.time()
    trail.record(connection, "signed in", at, actor, None, None, actor.expert)
    return open_session(connection, actor, at)


@router.post("/sign-out")
async def sign_out(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """The session ends here and in the database."""
    await checked_form(request, visitor)
    await here.writer.run(lambda connection: close_session(connection, visitor.token))
    answer = sign_in_page(request)
    answer.delete_cookie(COOKIE)
    return answer
