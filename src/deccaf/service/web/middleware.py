"""What a request may be, checked before anything of it is parsed: sender, size, depth, pace; and its id.

Pure ASGI, so that a body that is too large is refused while it arrives, not after it was read, and that the
body of somebody unknown is not read at all.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deccaf.service.core import Limits
from deccaf.service.errors import RefusedError

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1
_BLOCK = 1 << 18
_SCANNED_AT_ONCE = 1 << 16
"""A body of so many bytes is scanned on the spot; a larger one by a thread, so that nobody waits for it."""

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"referrer-policy": b"no-referrer",
}
"""Sent with every answer."""


RETRY_SECONDS = "1"
"""After which it is worth to try again, where the database is away."""
LINGER_SECONDS = 3.0
"""How long the rest of a refused body is let in and dropped: many senders read no answer before they have
sent everything, and a connection that is closed under them would be all they see."""


class _TooLargeError(Exception):
    pass


class _TooSlowError(Exception):
    pass


class LimitsMiddleware:
    """Refuses what is too large, too deep, packed or too slow; names every request; counts."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        admits: Callable[[Scope], Awaitable[bool]],
        observe: Callable[[Scope, int, float], None],
    ) -> None:
        self.app, self.limits, self.admits, self.observe = app, limits, admits, observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, started = time.perf_counter(), 500, False
        headers = dict(scope["headers"])
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id

        async def named(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                extra = [(b"x-request-id", request_id.encode()), *HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            async with _within(self.limits.part_seconds):
                await send(message)

        try:
            await self._limited(scope, headers, receive, named)
        except _TooSlowError:  # whoever does not take the answer is left alone; uvicorn ends the connection
            if not started:
                await refuse(named, 408, "too-slow", "the body came too slowly; try again")
        finally:
            self.observe(scope, status, time.perf_counter() - began)

    async def _limited(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        length = headers.get(b"content-length", b"")
        if not length.strip(b"0") and b"transfer-encoding" not in headers:
            await self.app(scope, receive, send)  # nothing will come
            return
        upload = scope["path"] in self.limits.upload_paths
        most = self.limits.upload_bytes if upload else self.limits.json_bytes
        if headers.get(b"content-encoding", b"identity") != b"identity":
            rest = _rest(headers, receive)
            detail = "send the body as it is; compressed bodies are not read"
            await refuse(send, 415, "packed-body", detail, rest)
            return
        if length.isdigit() and int(length) > most:
            await _too_large(send, most, _rest(headers, receive))
            return
        try:
            admitted = await self.admits(scope)
        except RefusedError as error:
            await refuse(send, error.status, error.kind, error.detail, _rest(headers, receive))
            return
        if not admitted:
            await self.app(scope, _nothing, send)  # which says what is missing: the key, or to sign in
            return
        if upload:
            await self._stream(scope, receive, send, most)
            return
        async with _within(self.limits.body_seconds):
            body = await _whole(receive, most)
        if body is None:
            await _too_large(send, most, receive)
        elif (problem := await self._shape(body)) is not None:
            await refuse(send, 400, *problem)
        else:
            await self.app(scope, _replay(body, receive), send)

    async def _shape(self, body: bytes) -> tuple[str, str] | None:
        """What is wrong with the shape of a JSON document: its kind and a sentence; None: nothing."""
        if len(body) <= _SCANNED_AT_ONCE:
            depth, parts, values = shape(body)
        else:
            depth, parts, values = await to_thread.run_sync(shape, body)
        if depth > self.limits.depth:
            return "too-deep", f"the JSON is nested more than {self.limits.depth} levels deep"
        if parts > self.limits.parts:
            return (
                "too-many-parts",
                f"the JSON has {parts:,} lists and objects; at most {self.limits.parts:,}",
            )
        if values > self.limits.values:
            detail = f"the JSON has {values:,} values; at most {self.limits.values:,}: send it in parts"
            return "too-many-parts", detail
        return None

    async def _stream(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        size, started, deadline = 0, False, time.monotonic() + self.limits.upload_seconds

        async def counted() -> Message:
            nonlocal size
            async with _within(min(self.limits.part_seconds, deadline - time.monotonic())):
                message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise _TooLargeError
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, counted, watched)
        except _TooLargeError:
            if not started:
                await _too_large(send, most, receive)


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise _TooSlowError from error


def shape(body: bytes) -> tuple[int, int, int]:
    """How deep brackets outside strings are nested, how many are opened, and how many values commas part.

    Block by block, with operations that let other threads run. Backslashes outside strings are no JSON: what
    stands behind one is never parsed.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    deepest = depth = opened = quotes = commas = 0
    for start in range(0, len(body), _BLOCK):
        part = np.frombuffer(body, np.uint8, min(_BLOCK, len(body) - start), start)
        within = np.cumsum(part == ord('"'), dtype=np.int32)
        outside = (within + quotes) % 2 == 0
        steps = np.where(outside, _STEP[part], 0)
        levels = np.cumsum(steps, dtype=np.int32)
        deepest = max(deepest, depth + int(levels.max()))
        depth, quotes = depth + int(levels[-1]), quotes + int(within[-1])
        opened += int(np.count_nonzero(steps == 1))
        commas += int(np.count_nonzero(outside & (part == ord(","))))
    return deepest, opened, commas + 1


def problem(status: int, kind: str, detail: str, **more: Any) -> bytes:
    """An RFC 9457 problem document."""
    content = {
        "type": f"urn:deccaf:problem:{kind}",
        "title": _title(kind),
        "status": status,
        "detail": detail,
    }
    return json.dumps({**content, **more}, allow_nan=False, default=str).encode()


async def refuse(send: Send, status: int, kind: str, detail: str, rest: Receive | None = None) -> None:
    """Answer with a problem and close the connection, after dropping for a while what is still coming."""
    body = problem(status, kind, detail)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 503:
        headers.append((b"retry-after", RETRY_SECONDS.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if rest is not None:
        await send({"type": "http.response.body", "body": body, "more_body": True})  # whole, and on its way
        with suppress(TimeoutError):
            await asyncio.wait_for(_drop(rest), LINGER_SECONDS)
        body = b""
    await send({"type": "http.response.body", "body": body})


async def _too_large(send: Send, most: int, rest: Receive | None) -> None:
    await refuse(send, 413, "too-large", f"the body is larger than {most:,} bytes; send it in parts", rest)


def _rest(headers: dict[bytes, bytes], receive: Receive) -> Receive | None:
    """What is still coming; nothing if the sender waits to be told to go on, which it is not."""
    return None if headers.get(b"expect", b"").lower() == b"100-continue" else receive


async def _whole(receive: Receive, most: int) -> bytes | None:
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


async def _drop(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _title(kind: str) -> str:
    return kind.replace("-", " ").capitalize()
