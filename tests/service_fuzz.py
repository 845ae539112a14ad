"""Requests that nobody would write by hand, generated from the OpenAPI document, valid and not."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from deccaf.service import run
from service_databases import free_port

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The application on a real port of this process."""
    port = free_port()
    options = {"http": run.PatientProtocol, "log_level": "error", "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(app, port=port, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def fuzz(base: str, secret: str, document: dict[str, Any], examples: int) -> tuple[Counter[str], list[str]]:
    """`examples` requests of every kind for every operation: how many by status, and what went wrong."""
    schema = schemathesis.openapi.from_dict(document)
    session = requests.Session()
    headers = {"Authorization": f"Bearer {secret}"}
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def one(case: Any) -> None:
                answer = case.call(base_url=base, session=session, headers=headers)
                seen[str(answer.status_code)] += 1
                case.validate_response(answer, checks=CHECKS)

            try:
                one()
            except Exception as error:
                if type(error).__name__ == "Unsatisfiable":  # nothing about this operation can be wrong
                    continue
                wrong.append(f"{operation.label} ({mode.value}): {str(error)[:1500]}")
    return seen, wrong
