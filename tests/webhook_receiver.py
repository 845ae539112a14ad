"""A program that webhooks tell what happens: a real HTTP server for tests."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from machine_server import Server


class Receiver:
    """Somebody's program: keeps what it is told, and answers as the test says."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        self.answer = 200
        self.pause = 0.0
        self.changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(receiver.pause)
                with receiver.changed:
                    receiver.got.append(json.loads(body))
                    receiver.raw.append(body)
                    receiver.headers.append(dict(self.headers.items()))
                    answer = receiver.answer
                    receiver.changed.notify_all()
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/told"

    def wait_for(self, condition: Any, seconds: float = 60.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.got), seconds), self.got

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
