"""Hostile bodies: a 4xx soon, memory bounded, nothing executed, and the service goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service_hostile import attack, attacks
from service_processes import Client, Server
from service_world import first_key, shift_body

SCRIPTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "${7*7}",
    "'; DROP TABLE cases; --",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    folder = tmp_path_factory.mktemp("hostile")
    url = f"sqlite:///{folder}/deccaf.db"
    secret = first_key(url)
    server = Server(url, folder / "log")
    server.start(wait=180)
    attack(server.port, secret, "truncated parquet")  # the first reader waits for its imports
    yield server, secret
    server.kill()


@pytest.mark.parametrize("name", attacks())
def test_an_attack_is_refused(server: tuple[Server, str], name: str) -> None:
    process, secret = server
    before = process.resident()
    process.forget_peak()
    found = attack(process.port, secret, name, large=32 << 20)
    assert 400 <= found.status < 500, found
    assert found.kind == "application/problem+json"
    assert process.peak() - before < 50 << 20
    assert Client(process.port, secret).call("GET", "/healthz")[0] == 200


def test_values_stay_values(server: tuple[Server, str]) -> None:
    process, secret = server
    client = Client(process.port, secret)
    client.call("POST", "/v1/teams", {"name": "desk"})
    client.call("POST", "/v1/shifts", shift_body({}))
    for number, text in enumerate(SCRIPTS):
        body = {"case_id": f"x{number}", "features": {"note": text, text: 1}, "losses": {"machine": 0.1}}
        assert client.call("POST", "/v1/cases", body)[0] == 201
        status, headers, found = client.call("GET", f"/v1/cases/x{number}")
        assert (status, headers["content-type"], headers["x-content-type-options"]) == (
            200,
            "application/json",
            "nosniff",
        )
        assert found["features"] == {"note": text, text: 1}
    assert client.call("GET", "/v1/reports/ledger")[2]["sound"]
