"""What a request may be, checked before anything of it is parsed: size, depth, encoding; and its id.

Pure ASGI, so that a body that is too large is refused while it arrives, not after it was read.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deccaf.service.core import Limits

_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"referrer-policy": b"no-referrer",
}
"""Sent with every answer."""


LINGER_SECONDS = 3.0
"""How long the rest of a refused body is let in and dropped: many senders read no answer before they have
sent everything, and a connection that is closed under them would be all they see."""


class _TooLargeError(Exception):
    pass


class LimitsMiddleware:
    """Refuses what is too large, too deep or packed; names every request; counts."""

    def __init__(self, app: ASGIApp, limits: Limits, observe: Callable[[Scope, int, float], None]) -> None:
        self.app, self.limits, self.observe = app, limits, observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        headers = dict(scope["headers"])
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [(b"x-request-id", request_id.encode()), *HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        try:
            await self._limited(scope, headers, receive, named)
        finally:
            self.observe(scope, status, time.perf_counter() - began)

    async def _limited(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        upload = scope["path"] in self.limits.upload_paths
        most = self.limits.upload_bytes if upload else self.limits.json_bytes
        if headers.get(b"content-encoding", b"identity") != b"identity":
            rest = _rest(headers, receive)
            detail = "send the body as it is; compressed bodies are not read"
            await refuse(send, 415, "packed-body", detail, rest)
            return
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > most:
            await _too_large(send, most, _rest(headers, receive))
            return
        if upload:
            await self._stream(scope, receive, send, most)
            return
        if (
            scope["method"] in {"GET", "HEAD", "OPTIONS"}
            and not length
            and b"transfer-encoding" not in headers
        ):
            await self.app(scope, receive, send)
            return
        body = await _whole(receive, most)
        if body is None:
            await _too_large(send, most, receive)
        elif too_deep(body, self.limits.depth):
            await refuse(
                send, 400, "too-deep", f"the JSON is nested more than {self.limits.depth} levels deep"
            )
        else:
            await self.app(scope, _replay(body, receive), send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        size, started = 0, False

        async def counted() -> Message:
            nonlocal size
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


def too_deep(body: bytes, depth: int) -> bool:
    """Whether brackets outside strings are nested deeper than `depth`."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    steps = _STEP[np.frombuffer(_STRINGS.sub(b"", body), np.uint8)]
    return bool(steps.size and np.cumsum(steps, dtype=np.int64).max() > depth)


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
