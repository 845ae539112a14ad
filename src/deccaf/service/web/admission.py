"""Who may send a body at all: the key comes first, then the body is read.

Keys are 256 random bits, so nobody guesses one; but whoever tries makes work. Refused keys are written to the
log, and an address that keeps trying is answered more and more slowly. Keys that are known are never slowed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict

import sqlalchemy as sa
from anyio import to_thread
from starlette.requests import HTTPConnection
from starlette.types import Scope

from deccaf.service.core import Service
from deccaf.service.errors import RefusedError
from deccaf.service.store import sessions

log = logging.getLogger("deccaf.service")

COOKIE = "deccaf_session"
SIGN_IN = "/sign-in"
REFUSAL = "deccaf.refusal"
"""In the scope of a request whose sender was not known: why. Its body was not read, so it stays refused,
also if somebody puts its sender back in use meanwhile."""
WINDOW_SECONDS = 300.0
FREE_TRIES = 5
"""So many refused keys of one address within the window are answered at once."""
FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
MOST_WAITING = 100
MOST_ADDRESSES = 10_000


class Refusals:
    """Keys that were refused lately, by address."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._waiting = 0

    def note(self, address: str, at: float) -> float:
        """Count one more, and give the seconds that its answer waits."""
        began, count = self._seen.pop(address, (at, 0))
        if at - began > WINDOW_SECONDS:
            began, count = at, 0
        self._seen[address] = (began, count + 1)
        while len(self._seen) > MOST_ADDRESSES:
            self._seen.popitem(last=False)
        beyond = count - FREE_TRIES
        return 0.0 if beyond < 0 else min(FIRST_WAIT * 2.0 ** min(beyond, 30), LONGEST_WAIT)

    async def slow_down(self, request: HTTPConnection) -> None:
        """After a key was refused: write it down, and let the answer wait."""
        address = request.client.host if request.client else "an unknown address"
        seconds = self.note(address, time.monotonic())
        log.warning(
            "a key was refused: %s, from %s, answered after %.2f s", request.url.path, address, seconds
        )
        if self._waiting >= MOST_WAITING:
            raise RefusedError(429, "too-many-tries", "too many keys were refused; try again in a minute")
        self._waiting += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._waiting -= 1


class Doorman:
    """Whether the sender of a body is known, found out before anything of the body is read."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def admits(self, scope: Scope) -> bool:
        """Programs by their key, people by their session; anybody may try to sign in.

        Without the database nobody is known, which is no fault of theirs: 503.
        """
        try:
            return await self._knows(scope)
        except sa.exc.SQLAlchemyError as error:
            refusal = self._service.condition.refusal(error)
            if refusal is None:
                raise
            raise refusal from error

    async def _knows(self, scope: Scope) -> bool:
        request = HTTPConnection(scope)
        if scope["path"] == SIGN_IN:
            return True
        if scope["path"].startswith("/v1/"):
            return await self._knows_key(scope, request.headers.get("authorization", ""))
        token = request.cookies.get(COOKIE)
        known = token is not None and await to_thread.run_sync(self._knows_session, token)
        if not known:
            scope[REFUSAL] = RefusedError(401, "signed-out", "sign in with your key")
        return known

    async def _knows_key(self, scope: Scope, header: str) -> bool:
        kind, _, secret = header.partition(" ")
        if kind.lower() != "bearer" or not secret:
            return False
        keys = self._service.keys
        if keys.remembered(secret) is not None:
            return True
        try:
            await to_thread.run_sync(keys.look_up, secret)
        except RefusedError as error:
            scope[REFUSAL] = error
            return False
        return True

    def _knows_session(self, token: str) -> bool:
        found = self._service.read(lambda connection: sessions.find_session(connection, token, time.time()))
        return found is not None
