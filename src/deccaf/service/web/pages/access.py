"""Who looks at a page: signed in once with an API key, then known by a cookie for a working day.

The cookie holds 256 random bits, and the database their hash. Every form carries a token that only somebody
who can read the cookie's page could know, and browsers send the cookie with requests from our own pages only.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
from anyio import to_thread
from fastapi import Depends, Request
from starlette.datastructures import FormData, UploadFile

from deccaf.data.amounts import UNITS
from deccaf.service.core import Service
from deccaf.service.errors import RefusedError
from deccaf.service.ledger import people
from deccaf.service.store import sessions
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import LEARNING, read_setting
from deccaf.service.web.admission import COOKIE, REFUSAL

FORM_FIELDS = 5_000
_COPY = 1 << 20


@dataclass(frozen=True)
class Visitor:
    """Somebody who is signed in: what they may do, their name, and the token of their forms."""

    actor: Actor
    name: str
    token: str
    names: Mapping[str, str] = field(default_factory=dict)
    """What people are called on pages, where that is not the name that models know them by."""
    unit: str = UNITS
    """What costs are counted in."""

    @property
    def csrf(self) -> str:
        """What every form of this visitor carries."""
        return hashlib.sha256(f"form {self.token}".encode()).hexdigest()

    def called(self, maker: str | None) -> str:
        """What a maker is called on pages: one person has one name, wherever they stand."""
        return "" if maker is None else self.names.get(maker, maker)

    @property
    def is_lead(self) -> bool:
        """Whether they see everything."""
        return self.actor.role == "lead"


async def find_visitor(request: Request) -> Visitor | None:
    """Who looks at a page; None: nobody is signed in. Kept with the request, for the page of an error too."""
    service: Service = request.app.state.service
    token = request.cookies.get(COOKIE)
    request.state.visitor = None
    if token:
        request.state.visitor = await to_thread.run_sync(service.read, lambda c: _look_up(c, service, token))
    found: Visitor | None = request.state.visitor
    return found


def _look_up(connection: sa.Connection, service: Service, token: str) -> Visitor | None:
    session = sessions.find_session(connection, token, time.time())
    if session is None:
        return None
    unit = (read_setting(connection, LEARNING) or {}).get("costs", {}).get("unit")
    if not unit and service.models.active is not None:
        unit = service.models.active.system.costs_.unit
    names = people.display_names(connection)
    called = names.get(session.name, session.name) if session.actor.expert else session.name
    return Visitor(session.actor, called, token, names, unit or UNITS)


def _visitor(*roles: str) -> Callable[[Request], Awaitable[Visitor]]:
    async def who(request: Request) -> Visitor:
        refusal: RefusedError | None = request.scope.get(REFUSAL)
        if refusal is not None:
            raise refusal
        visitor = await find_visitor(request)
        if visitor is None:
            raise RefusedError(401, "signed-out", "sign in with your key")
        if visitor.actor.role not in roles:
            raise RefusedError(403, "not-allowed", "this page is for leads; your queue is under Queue")
        return visitor

    return who


LeadHere = Annotated[Visitor, Depends(_visitor("lead"))]
AnyoneHere = Annotated[Visitor, Depends(_visitor("lead", "reviewer"))]


async def checked_form(request: Request, visitor: Visitor | None) -> FormData:
    """The fields of a form that was sent from one of our own pages."""
    came_from = request.headers.get("sec-fetch-site", "same-origin")
    if came_from not in {"same-origin", "none"}:
        raise RefusedError(403, "foreign-form", "this form was sent by another site")
    form = await request.form(max_files=1, max_fields=FORM_FIELDS)
    if visitor is not None and not hmac.compare_digest(
        str(form.get("csrf", "")).encode(), visitor.csrf.encode()
    ):
        raise RefusedError(403, "stale-form", "this form is out of date; load the page again and repeat")
    return form


async def keep_upload(file: UploadFile, folder: Path, suffix: str) -> Path:
    """Write an uploaded file where a reader finds it."""
    path = folder / f"upload{suffix}"
    with path.open("wb") as out:
        while part := await file.read(_COPY):
            out.write(part)
    return path
