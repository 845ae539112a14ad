"""A client that checks every answer of the API against the model that its route documents, to the last field."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from starlette.routing import Match


@cache
def adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def routes(app: FastAPI) -> list[APIRoute]:
    """All routes of the API, also those of routers that are included lazily."""

    def within(found: Any) -> Any:
        for route in found:
            if isinstance(route, APIRoute):
                yield route
            elif getattr(route, "original_router", None) is not None:
                yield from within(route.original_router.routes)

    return [route for route in within(app.router.routes) if route.path.startswith("/v1")]


def model_of(app: FastAPI, method: str, path: str, status: int) -> Any:
    """What the route of an address documents for a status, or None where it is no JSON."""
    scope = {"type": "http", "path": path, "method": method, "headers": []}
    for route in routes(app):
        if route.matches(scope)[0] is Match.FULL:
            return route.responses.get(status, {}).get("model")
    return None


def wrong_fields(model: Any, body: Any) -> str | None:
    """Why a body is not what a model says: a value, or a field that the model does not have."""
    known = adapter(model).validate_python(body)
    said = adapter(model).dump_python(known, mode="json", by_alias=True, exclude_unset=True)
    return _unlike(said, body, "")


def _unlike(said: Any, body: Any, where: str) -> str | None:
    if isinstance(body, dict) and isinstance(said, dict):
        if body.keys() != said.keys():
            return f"{where}: fields {sorted(map(str, body.keys() ^ said.keys()))}"
        return next((bad for key in body if (bad := _unlike(said[key], body[key], f"{where}.{key}"))), None)
    if isinstance(body, list) and isinstance(said, list):
        return next(
            (bad for a, b in zip(said, body, strict=True) if (bad := _unlike(a, b, f"{where}[]"))), None
        )
    return None if said == body else f"{where}: {body!r} came back as {said!r}"


class CheckedClient(TestClient):
    """Every answer that went well is what the OpenAPI document says."""

    def request(self, method: str, url: Any, **more: Any) -> Any:  # type: ignore[override]
        answer = super().request(method, url, **more)
        path = answer.request.url.path
        if path.startswith("/v1") and answer.is_success and answer.content:
            model = model_of(self.app, method, path, answer.status_code)  # type: ignore[arg-type]
            if model is not None:
                wrong = wrong_fields(model, answer.json())
                assert wrong is None, f"{method} {path}: {wrong}"
            else:
                kind = answer.headers["content-type"]
                assert "json" not in kind or path.endswith("/person-data"), f"{method} {path} has no model"
        return answer
