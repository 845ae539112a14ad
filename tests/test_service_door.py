"""The way in: the key comes before the body, whoever is slow or guesses keys holds nobody else up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service import run
from deccaf.service.store import scratch
from deccaf.service.web.admission import FREE_TRIES, LONGEST_WAIT, WINDOW_SECONDS, Refusals
from deccaf.service.web.middleware import shape
from service_fuzz import listening
from service_world import World, world


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path_factory.mktemp('door')}/d.db", housekeeping=False) as made:
        yield made


def ask(app: Any, path: str, headers: dict[str, str], body: list[bytes] | None) -> tuple[int, int]:
    """The status of a POST to the application, and how many parts of its body were read; None: none comes."""
    read, statuses = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal read
        if body is None:
            await asyncio.Event().wait()
        read += 1
        more = body is not None and read < len(body)
        return {"type": "http.request", "body": (body or [b""])[read - 1], "more_body": more}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("192.0.2.7", 1),
        "headers": [(k.lower().encode(), v.encode()) for k, v in {**headers, "content-length": "8"}.items()],
        "app": app,
    }
    asyncio.run(app(scope, receive, send))
    return statuses[0], read


@pytest.mark.parametrize("path", ["/v1/cases", "/v1/imports", "/v1/models", "/v1/cases/bulk", "/v1/labels"])
@pytest.mark.parametrize("key", [None, "deccaf_guessed", ""])
def test_the_body_of_somebody_unknown_is_not_read(desk: World, path: str, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    assert ask(desk.nobody.app, path, headers, [b"[" * 8]) == (401, 0)


@pytest.mark.parametrize("path", ["/setup/history", "/setup/cases", "/models/upload", "/capacity"])
def test_a_form_of_somebody_who_is_signed_out_is_not_read(desk: World, path: str) -> None:
    assert ask(desk.nobody.app, path, {"Cookie": "deccaf_session=guessed"}, [b"[" * 8]) == (401, 0)


def test_a_body_that_does_not_come_is_not_waited_for(desk: World, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = desk.nobody.app.middleware_stack
    while not hasattr(layer, "limits"):
        layer = layer.app
    monkeypatch.setattr(layer, "limits", replace(layer.limits, body_seconds=0.05, part_seconds=0.05))
    headers = {"Authorization": desk.lead.headers["authorization"]}
    assert ask(desk.nobody.app, "/v1/cases", headers, None) == (408, 0)
    assert ask(desk.nobody.app, "/v1/imports", {**headers, "content-type": "text/csv"}, None) == (408, 0)


def test_too_many_parts_are_refused(desk: World) -> None:
    answer = desk.lead.post("/v1/labels", content=b'{"labels":[' + b"{}," * 200_000 + b"{}]}")
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:deccaf:problem:too-many-parts")


def test_the_shape_of_a_large_body_is_that_of_its_blocks() -> None:
    text = b'{"a": "' + b"[" * 300_000 + b'", "b": ' + b"[" * 40 + b"]" * 40 + b', "c": "\\\\\\"{{"' + b"}"
    assert shape(text) == (41, 41, 3)
    assert shape(b"[]," * 400_000) == (1, 400_000, 400_001)
    assert shape(b"") == (0, 0, 1)


def test_refused_keys_of_one_address_are_answered_more_and_more_slowly() -> None:
    refusals = Refusals()
    waits = [refusals.note("192.0.2.1", 0.0) for _ in range(40)]
    assert waits[:FREE_TRIES] == [0.0] * FREE_TRIES
    assert waits[FREE_TRIES:] == sorted(waits[FREE_TRIES:])
    assert waits[FREE_TRIES] > 0
    assert waits[-1] == LONGEST_WAIT
    assert refusals.note("192.0.2.2", 0.0) == 0.0, "others are not slowed"
    assert refusals.note("192.0.2.1", WINDOW_SECONDS + 1) == 0.0


def test_refused_keys_are_logged_and_never_shown(desk: World, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"Authorization": "Bearer deccaf_guessed-key"}
    assert desk.nobody.get("/v1/cases", headers=headers).status_code == 401
    assert desk.nobody.post("/sign-in", data={"key": "deccaf_guessed-key"}).status_code == 401
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert [("/v1/cases" in lines[0], "/sign-in" in lines[1])] == [(True, True)]
    assert "guessed-key" not in str(lines)


def test_a_silent_connection_is_closed(desk: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEADER_SECONDS", 0.2)
    with listening(desk.nobody.app) as base:
        port = int(base.rsplit(":", 1)[1])
        for said in (
            b"",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
                line.sendall(said)
                heard = b""
                while part := line.recv(4096):
                    heard += part
            assert heard.startswith(b"HTTP/1.1 200") == said.endswith(b"GET")


def test_a_process_that_is_slow_to_start_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(run, "check_place", lambda *_: None)
    monkeypatch.setattr(run.uvicorn, "run", lambda *_, **options: asked.update(options))
    run.serve("postgresql://x", "127.0.0.1", 1, processes=2)
    assert asked["timeout_worker_healthcheck"] >= 60
    assert asked["log_level"] == "info", "a process that is replaced is worth a line"


def test_folders_of_uploads_do_not_outlive_their_process(tmp_path: Path) -> None:
    gone, ours, other = (
        tmp_path / f"deccaf-upload-{name}" for name in ("4194305-x", f"{run.os.getpid()}-y", "z")
    )
    for folder in (gone, ours, other):
        folder.mkdir()
        (folder / "upload.csv").write_text("case_id\n")
    assert scratch.sweep(tmp_path) == [gone]
    assert (gone.exists(), ours.exists(), other.exists()) == (False, True, True)


def test_a_database_that_is_away_at_the_door_is_no_fault_of_ours(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(secret: str) -> None:
        raise sa.exc.OperationalError("SELECT", None, Exception("connection refused"))

    monkeypatch.setattr(desk.service.keys, "look_up", away)
    monkeypatch.setattr(desk.service.keys, "remembered", lambda secret: None)
    answer = desk.machine.post("/v1/cases", json={"case_id": "x", "features": {}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"] == "urn:deccaf:problem:database-away"
