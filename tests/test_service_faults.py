"""Short versions of what `make soak` runs in full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import service_faults as faults
from service_databases import Postgres
from service_processes import Client, Server
from service_world import first_key


@pytest.fixture
def served(database_url: str, tmp_path: Path) -> Iterator[tuple[list[Server], str, str]]:
    """One process on SQLite, two on PostgreSQL."""
    secret = first_key(database_url)
    servers = [
        Server(database_url, tmp_path / f"log{k}") for k in range(2 if "postgres" in database_url else 1)
    ]
    try:
        for server in servers:
            server.start(wait=180)
        yield servers, database_url, secret
    finally:
        for server in servers:
            server.kill()


@pytest.mark.long
def test_races_and_replays(served: tuple[list[Server], str, str]) -> None:
    servers, url, secret = served
    ports = [server.port for server in servers]
    raced = faults.race(
        ports, url, secret, requests=240, clients=16, capacity={"ann": 37, "bob": 21, "machine": 5}
    )
    assert raced.wrong == []
    assert raced.counts["201"] == 63
    Client(ports[0], secret).call("PUT", "/v1/shifts/1/roster/machine", {"unlimited": True})
    replayed = faults.replays(ports[-1], url, secret, requests=20)
    assert replayed.wrong == []
    assert replayed.counts["acknowledged"] == 20


def test_nothing_that_was_answered_is_lost_to_a_kill(database_url: str, tmp_path: Path) -> None:
    found = faults.kills(database_url, tmp_path / "log", count=1)
    assert found.wrong == []
    assert found.counts["imports"] > 0
    assert found.counts["acknowledged"] > 0
    assert found.counts["answers"] > 0


@pytest.mark.long
def test_a_database_that_restarts_breaks_nothing(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.new_database("restarted")
    found = faults.database_restarts(postgres, url, tmp_path / "log", count=2)
    assert found.wrong == []
    assert found.counts["restarts"] == 2
    assert found.counts["201"] > 0
