"""A machine behind an address: a program that the service sends cases to, and that answers with decisions.

    LLM_SECRET=... python examples/machine_server.py 9000

It checks the signature, asks a model (here: a rule on one feature; put a call of yours in its place), and
keeps its answers by id, so that a case that is sent twice is paid once. See docs/machines.md.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Ask = Callable[[dict[str, Any]], dict[str, Any]]
OLDEST_SECONDS = 300


def is_genuine(secret: str, header: str, body: bytes) -> bool:
    """Whether deccaf sent this, and just now."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    at = parts.get("t", "")
    expected = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    fresh = at.isdecimal() and abs(time.time() - int(at)) < OLDEST_SECONDS
    return fresh and hmac.compare_digest(expected, parts.get("v1", ""))


def decide(case: dict[str, Any]) -> dict[str, Any]:
    """What the model says: here, how large the amount is."""
    score = min(max(float(case["features"].get("amount", 0.0)) / 1000.0, 0.0), 1.0)
    classes = case["classes"] or [0, 1]  # a service without a model does not know them
    return {"decision": classes[-1] if score > 0.5 else classes[0], "score": score}


class Server(ThreadingHTTPServer):
    """With places for those that come at once."""

    request_queue_size = 128


def serve(port: int, secret: str, ask: Ask = decide) -> ThreadingHTTPServer:
    """A server on this machine that asks a model; `serve_forever` runs it."""
    answers: dict[str, dict[str, Any]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not is_genuine(secret, self.headers.get("Deccaf-Signature", ""), body):
                self.send_error(401)
                return
            case = json.loads(body)
            if case["id"] not in answers:
                answers[case["id"]] = ask(case)
            content = json.dumps(answers[case["id"]]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Server(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    serve(int(sys.argv[1]), os.environ["LLM_SECRET"]).serve_forever()
