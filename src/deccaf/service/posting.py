"""One signed request to a program of others: within its time, with an answer of bounded size.

Webhooks (`sending`) and machines (`dispatching`) go this way. Redirects are not followed, so only addresses
that a lead has set are ever asked; whoever sends an answer byte by byte is cut off when the time is over.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from deccaf import __version__


@dataclass(frozen=True)
class Reply:
    """What an address answered: a status, or why there is none."""

    status: int | None
    said: str
    content: bytes = b""

    @property
    def is_good(self) -> bool:
        """Whether it has taken what it was sent."""
        return self.status is not None and 200 <= self.status < 300


def signature(secret: str, at: int, body: str) -> str:
    """The header `Deccaf-Signature`: HMAC-SHA256 of `TIME.BODY` under the address's secret."""
    signed = hmac.new(secret.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"


def post(
    url: str, body: str, secret: str, headers: Mapping[str, str], seconds: float, most: int = 0
) -> Reply:
    """Send JSON, and read up to `most` bytes of the answer; all of it within some seconds."""
    request = urllib.request.Request(url, data=body.encode(), method="POST")
    own = {
        "Content-Type": "application/json",
        "User-Agent": f"deccaf/{__version__}",
        "Deccaf-Signature": signature(secret, int(time.time()), body),
    }
    for name, value in {**own, **headers}.items():
        request.add_header(name, value)
    clock = _Clock(seconds)
    request.clock = clock  # type: ignore[attr-defined]
    try:
        with clock, _opener.open(request, timeout=seconds) as answer:
            reply = _read(answer, most)
        if clock.is_over:  # what was read ends where the connection was shut
            raise TimeoutError
        return reply
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, f"answered {error.code} {error.reason}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        if clock.is_over or isinstance(getattr(error, "reason", error), TimeoutError):
            return Reply(None, f"does not answer: nothing whole within {seconds:g} s")
        return Reply(None, f"does not answer: {getattr(error, 'reason', error)}")


def _read(answer: http.client.HTTPResponse, most: int) -> Reply:
    if not most:
        return Reply(int(answer.status), "")
    content = b""
    while len(content) <= most and (part := answer.read(most + 1 - len(content))):
        content += part
    if len(content) > most:
        return Reply(None, f"answered with more than {most:,} bytes")
    if answer.length:
        raise http.client.IncompleteRead(content, answer.length)
    return Reply(int(answer.status), "", content)


class _Clock:
    """Shuts a connection when its time is over: timeouts of sockets begin anew with every byte."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self.connection: http.client.HTTPConnection | None = None
        self.sock: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        self.is_over = True
        sock = self.sock or (None if self.connection is None else self.connection.sock)
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Connection(http.client.HTTPConnection):
    def __init__(self, host: str, *, clock: _Clock, **options: Any) -> None:
        super().__init__(host, **options)
        clock.connection, self._clock = self, clock

    def connect(self) -> None:
        super().connect()
        self._clock.sock = self.sock  # the connection lets go of it before the answer is read


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, req: Any) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, clock=req.clock), req)

    def https_open(self, req: Any) -> http.client.HTTPResponse:
        return self.do_open(partial(_SecureConnection, clock=req.clock), req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """An address that sends us elsewhere has not taken it."""


_opener = urllib.request.build_opener(_NoRedirect, _Handler)
