"""Traces: nothing while they are off, and the whole way of a case, at a real OTLP receiver, while they are on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from deccaf import tracing
from deccaf.errors import ConfigError
from service_world import model_file, world

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

OFF = """
import sys
import deccaf.fitted
from deccaf import tracing

assert tracing.start() is False
assert tracing.span("a") is tracing.span("b", cases=2)
assert tracing.carried(len) is len
assert tracing.under_way() is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
import deccaf.service.run  # FastAPI imports the interface of OpenTelemetry by itself, and nothing that does anything

print(sorted(name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))))
"""


def test_while_off_nothing_is_imported_and_nothing_is_wrapped() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", OFF], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "desk"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_say_whether(environment: dict[str, str], expected: bool) -> None:
    assert tracing.wanted(environment) is expected


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin: expected otlp"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: traces go over http/protobuf",
        ),
    ],
)
def test_what_is_not_spoken_is_refused(environment: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        tracing.start(environment)
    assert not tracing.is_on()


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The spans that arrived at a collector."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                held = {one.key: one.value.string_value for one in resource.resource.attributes}
                assert (self.path, held["service.name"]) == ("/v1/traces", "deccaf")
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("localhost", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://localhost:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    assert tracing.start()
    try:
        yield spans
    finally:
        tracing.stop()
        server.shutdown()
        server.server_close()


def test_a_case_is_followed_from_http_to_the_database(received: list[Any], tmp_path: Path) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with world(f"sqlite:///{tmp_path / 'desk.db'}", housekeeping=False) as desk:
        made = desk.lead.post("/v1/models", content=model_file(tmp_path))
        assert made.status_code == 201, made.text
        assert desk.lead.post(f"/v1/models/{made.json()['id']}/activate").status_code == 200
        case = {"case_id": "secret-7", "features": {"amount": 0.731, "channel": "web"}}
        header = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        assert desk.machine.post("/v1/cases", json=case, headers=header).status_code == 201
        assert desk.lead.get("/v1/cases/secret-7").status_code == 200
    tracing.stop()
    ours = [span for span in received if span.trace_id.hex() == trace]
    by_name = {span.name: span for span in ours}
    parent = {span.span_id: span for span in ours}

    def way(span: Any) -> list[str]:
        return [span.name, *(way(parent[span.parent_span_id]) if span.parent_span_id in parent else [])]

    assert by_name["POST /v1/cases"].parent_span_id.hex() == "b7ad6b7169203331"
    assert way(by_name["deccaf.score"]) == ["deccaf.score", "deccaf.arrivals", "POST /v1/cases"]
    assert way(by_name["deccaf.route"]) == ["deccaf.route", "deccaf.arrivals", "POST /v1/cases"]
    writes = [way(span) for span in ours if span.name == "INSERT"]
    assert ["INSERT", "deccaf.route", "deccaf.arrivals", "POST /v1/cases"] in writes
    status = {one.key: one.value.int_value for one in by_name["POST /v1/cases"].attributes}
    assert status["http.response.status_code"] == 201
    assert "GET /v1/cases/{case_id:path}" in {span.name for span in received}
    said = "".join(map(str, received))
    assert [text for text in ("secret-7", "0.731", "deccaf_") if text in said] == []
