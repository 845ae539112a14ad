"""Whatever is sent: no 5xx, and only answers that the OpenAPI document promises."""

from __future__ import annotations

import pytest

from deccaf.service.imports import reading
from deccaf.service.ledger.check import check
from service_fuzz import fuzz, listening
from service_world import first_key, world


@pytest.mark.long
def test_generated_requests_find_no_fault(database_url: str) -> None:
    examples = 3 if "sqlite" in database_url else 2
    reading.warm_up()  # as `deccaf serve` does: the first file would wait for it, longer than the client
    with world(database_url, housekeeping=False) as desk, listening(desk.nobody.app) as base:
        secret = first_key(database_url)
        seen, wrong = fuzz(base, secret, desk.nobody.app.openapi(), examples)
        assert wrong == []
        assert sum(seen.values()) > 150
        assert seen["201"] + seen["200"] > 20
        assert desk.service.read(check) == []
