"""A machine behind an HTTP address for tests: it answers well, slowly, wrongly, rudely, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD = b'{"decision": 1, "score": 0.75, "why": "looks odd"}'
RUDE = {
    "slow": "within",
    "dribble": "within",
    "headers": "within",
    "hang up": "does not answer",
    "no http": "does not answer",
    "cut off": "does not answer",
    "500": "answered 500",
    "404": "answered 404",
    "redirect": "answered 302",
    "empty": "something else than a decision",
    "no json": "something else than a decision",
    "list": "something else than a decision",
    "true": "something else than a decision",
    "unknown": "is none of the classes",
    "large": "more than 65,536 bytes",
    "endless": "more than 65,536 bytes",
    "latin": "something else than a decision",
}
"""What the server can do wrong (`features.mode`), and what the trail says of it."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # many come at once: the usual five places would reset some of them


class MachineServer:
    """Keeps what it is asked, and behaves as the case says."""

    def __init__(self, port: int = 0) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        self.elsewhere = 0
        self.go_on = threading.Event()
        """Slow answers, and those that drip, go on when this is set."""
        self.meanwhile: Callable[[], None] = lambda: None
        self.changed = threading.Condition()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.elsewhere += 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked = json.loads(body)
                with server.changed:
                    server.asked.append(asked)
                    server.headers.append(dict(self.headers.items()))
                    server.raw.append(body)
                    server.changed.notify_all()
                with suppress(OSError):
                    server.answer(self, asked["features"].get("mode", "good"))
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/decide"

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= count, 60), self.asked

    def answer(self, to: BaseHTTPRequestHandler, mode: str) -> None:
        wrong = {"empty": b"", "no json": b"fraud, I think", "list": b"[1]", "true": b'{"decision": true}'}
        wrong |= {"unknown": b'{"decision": 7}', "latin": b'{"decision": "\xe9"}'}
        if mode == "meanwhile":
            self.meanwhile()
        if mode == "hang up":
            return
        if mode == "no http":
            to.wfile.write(b"decision = 1\r\n\r\n")
        elif mode == "slow":
            self.go_on.wait(60)
        elif mode in ("headers", "dribble"):
            to.wfile.write(
                b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: 50\r\n\r\n" if mode == "dribble" else b"")
            )
            while not self.go_on.wait(0.2):
                to.wfile.write(b" ")
                to.wfile.flush()
        elif mode == "endless":
            to.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                to.wfile.write(b" " * 65536)
        elif mode == "large":
            self._send(to, 200, b" " * (50 << 20))
        elif mode == "cut off":
            self._send(to, 200, GOOD, len(GOOD) + 10)
        elif mode in ("500", "404"):
            self._send(to, int(mode), GOOD)
        elif mode == "redirect":
            to.send_response(302)
            to.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
            to.end_headers()
        elif mode == "twice":
            self._send(to, 200, GOOD)
            self._send(to, 200, b'{"decision": 0}')
        else:
            self._send(to, 200, wrong.get(mode, GOOD))

    def _send(self, to: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None) -> None:
        to.send_response(status)
        to.send_header("Content-Type", "application/json")
        to.send_header("Content-Length", str(len(body) if length is None else length))
        to.end_headers()
        to.wfile.write(body)

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
