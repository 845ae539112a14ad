"""The OpenAPI document has every field, and the client is what the document says; against a real server."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import uvicorn

from deccaf.client import ApiError, Client
from deccaf.errors import ConfigError, DeccafError
from deccaf.service.core import Service
from deccaf.service.web.app import create_app
from service_databases import free_port
from service_world import first_key, model_file

DOCS = Path(__file__).parents[1] / "docs" / "service.md"


@contextmanager
def serving(url: str) -> Iterator[tuple[str, Any]]:
    """A service behind a real socket."""
    app = create_app(Service(url))
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        Client(f"http://127.0.0.1:{port}", attempts=12).health()
        yield f"http://127.0.0.1:{port}", app
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any, str]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('client')}/deccaf.db"
    secret = first_key(url)
    with serving(url) as (address, app):
        yield address, app, secret


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    found = [
        (operation["operationId"], method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    ids = [one[0] for one in found]
    assert len(set(ids)) == len(ids), "operation ids are unique"
    return {one[0]: one[1:] for one in found}


def schema_of(document: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    name = reference["$ref"].rsplit("/", 1)[1]
    return document["components"]["schemas"][name]


def test_the_document_has_every_field(place: tuple[str, Any, str]) -> None:
    document = place[1].openapi()
    for name, (_, path, operation) in operations(document).items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name), name
        assert operation.get("summary"), path
        for status, answer in operation["responses"].items():
            if not status.startswith("2") or status == "204":
                continue
            content = answer["content"]
            if "application/json" in content and not path.endswith("/person-data"):
                assert schema_of(document, content["application/json"]["schema"])["properties"], path
    for name, schema in document["components"]["schemas"].items():
        assert "__" not in name, f"two models are called {name.rsplit('__', 1)[1]}"
        if "properties" in schema and "_" not in name:
            assert schema.get("description"), name


class Recorded(Exception):  # noqa: N818
    """What a client would have sent."""


SAMPLES: dict[str, Any] = {
    "roster": {"ann": 2},
    "labels": {"a": 1},
    "cases": [{"case_id": "a", "features": {"amount": 1.0}}],
    "starts_at": datetime(2026, 5, 1, tzinfo=UTC),
    "ends_at": datetime(2026, 5, 2, tzinfo=UTC),
    "role": "machine",
    "plan_id": 7,
    "model_id": 7,
    "job_id": 7,
    "decision": 1,
    "costs": {"false_positive": 1.0, "false_negative": 1.0},
    "features": {"amount": 1.0},
}


def test_every_method_is_an_operation_of_the_document(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = place[1].openapi()
    known = operations(document)
    file = tmp_path / "cases.csv"
    file.write_text("case_id\na\n")

    def record(self: Client, *sent: Any) -> bytes:
        raise Recorded(*sent)

    monkeypatch.setattr(Client, "_exchange", record)
    client = Client(place[0])
    methods = {
        name: method for name, method in inspect.getmembers(Client, inspect.isfunction) if name[0] != "_"
    }
    assert len(methods) > 20
    for name, method in methods.items():
        assert name in known, f"{name} is no operation"
        verb, path, operation = known[name]
        wanted = [
            one
            for one in inspect.signature(method).parameters.values()
            if one.name not in ("self", "tables") and one.default is inspect.Parameter.empty
        ]
        given = {one.name: SAMPLES.get(one.name, file if one.name == "path" else "a") for one in wanted}
        with pytest.raises(Recorded) as caught:
            getattr(client, name)(**given)
        sent_verb, sent_path, content, _, asked = caught.value.args
        assert sent_verb.lower() == verb, name
        assert re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", path), sent_path), (name, sent_path)
        parameters = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
        assert set(asked) <= parameters, name
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            schema = schema_of(document, body["schema"])
            keys = set(json.loads(content))
            assert keys <= set(schema["properties"]), name
            assert set(schema.get("required", ())) <= keys, name
        good = next(code for code in operation["responses"] if code.startswith("2"))
        answer = operation["responses"][good]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[
            1
        ]
        hint = re.sub(r"[\[\]]", "_", str(getattr(get_type_hints(method)["return"], "__name__", "")))
        if hint not in ("", "Optional", "Union"):
            assert answer == hint, (name, answer, hint)


def test_a_day_with_the_client(place: tuple[str, Any, str], tmp_path: Path) -> None:
    lead = Client(place[0], place[2])
    now = datetime.now(UTC)
    assert lead.add_team("desk").name == "desk"
    for name in ("ann", "bob", "cat"):
        assert lead.add_expert(name, "desk").team == "desk"
    shift = lead.add_shift(
        "today", "desk", now - timedelta(hours=1), now + timedelta(hours=7), {"ann": 3, "bob": 3}
    )
    assert {seat.maker: seat.capacity for seat in shift.roster}["ann"] == 3
    assert lead.get_current_shift().id == shift.id
    (tmp_path / "m.deccaf").write_bytes(model_file(tmp_path))
    model = lead.upload_model(tmp_path / "m.deccaf", "first")
    assert lead.activate_model(model.id).active == model.id == lead.list_models().active
    machine = Client(place[0], lead.add_key("feed", "machine").secret)
    placed = machine.add_case("a/1", {"amount": 1.0, "channel": "web"})
    assert placed.status in ("assigned", "decided")
    assert machine.get_case("a/1").case_id == "a/1"
    assert (
        machine.add_cases(
            [{"case_id": f"b{k}", "features": {"amount": 0.1 * k, "channel": "web"}} for k in range(4)]
        ).accepted
        == 4
    )
    (tmp_path / "more.csv").write_text("case_id,amount,channel\nc1,0.5,web\nc2,1.5,phone\n")
    assert machine.import_file(tmp_path / "more.csv").accepted == 2
    plan = lead.draft_plan()
    assert plan.cases == 6
    assert len(lead.get_plan_rows(plan.id).items) == 6
    assert lead.commit_plan(plan.id).state == "committed"
    busiest = max(plan.makers, key=lambda one: one.cases if one.maker != "machine" else -1)
    if busiest.cases:
        reviewer = Client(place[0], lead.add_key("hers", "reviewer", busiest.maker).secret)
        case = reviewer.claim_next_case()
        assert case is not None
        assert reviewer.decide_case(case.case_id, 1, seconds=12.5).decision == 1
        assert reviewer.get_queue().decided >= 1
    assert machine.add_labels({"c1": 1, "c2": 0}).accepted == 2
    assert lead.put_settings({"false_positive": 0.2, "false_negative": 1.0}).learning is not None
    with pytest.raises(ApiError, match="404") as refused:
        lead.get_case("nobody")
    assert refused.value.status == 404
    with pytest.raises(ApiError, match="401"):
        Client(place[0], "deccaf_wrong").list_cases()
    assert Client(place[0], lead.add_key("other", "reviewer", "cat").secret).claim_next_case() is None
    with pytest.raises(ConfigError, match="needs its zone"):
        lead.add_shift("x", "desk", datetime(2026, 5, 1), datetime(2026, 5, 2), {})
    for wrong in ("ftp://x", "http://", "http://[::1", "http://x:99999", "http://a b"):
        with pytest.raises(ConfigError, match="http"):
            Client(wrong)


def test_the_example_in_the_documents_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/deccaf.db"
    secret = first_key(url)
    example = next(
        block
        for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if "deccaf.client" in block
    )
    with serving(url) as (address, _):
        exec(example.replace("http://localhost:8080", address), {"LEAD_KEY": secret})
    assert capsys.readouterr().out.splitlines() == ["ann 0.02", "404 urn:deccaf:problem:not-found"]


def test_a_change_is_sent_again_with_the_same_key_where_the_service_is_busy() -> None:
    seen: list[tuple[str, str | None]] = []

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, self.headers["Idempotency-Key"]))
            self.rfile.read(int(self.headers["Content-Length"]))
            if len(seen) == 1:
                return self.connection.close()  # cut off
            status = 503 if len(seen) == 2 else 201
            content = b'{"accepted": 1}' if status == 201 else b"{}"
            self.send_response(status)
            self.send_header("Retry-After", "Mon, 16 Nov 2026 16:00:00 GMT")  # as proxies write it
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        client = Client(f"http://127.0.0.1:{server.server_port}", "deccaf_x")
        assert client.add_labels({"a": 1}).accepted == 1
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert len(seen) == 3
    assert len({key for _, key in seen}) == 1
    assert seen[0][1]
    with pytest.raises(DeccafError, match="does not answer"):
        Client(f"http://127.0.0.1:{free_port()}", attempts=1).health()
