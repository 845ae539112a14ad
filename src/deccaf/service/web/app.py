"""The application: routes, and the one place where errors become problem documents."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.types import Scope

from deccaf import __version__, tracing
from deccaf.errors import CapacityError, DeccafError, SolverError
from deccaf.service.core import Service
from deccaf.service.errors import RefusedError
from deccaf.service.web.admission import Doorman, Refusals
from deccaf.service.web.api import (
    cases,
    health,
    history,
    models,
    moving,
    people,
    plans,
    queue,
    record,
    reports,
    shifts,
    watch,
)
from deccaf.service.web.api.common import Problem
from deccaf.service.web.api.programs import webhooks
from deccaf.service.web.api.quality import golden, trials
from deccaf.service.web.api.review import second
from deccaf.service.web.middleware import RETRY_SECONDS, LimitsMiddleware, problem
from deccaf.service.web.pages import routers
from deccaf.service.web.pages.access import find_visitor
from deccaf.service.web.pages.render import sorry, wants_page
from deccaf.service.web.traced import TracedMiddleware

if TYPE_CHECKING:
    from deccaf.service.openid.provider import Provider

log = logging.getLogger("deccaf.service")

PUBLIC = ("/healthz", "/readyz", "/openapi.json")
"""All paths that answer without a key, beside /docs, the files under /static and the ways to sign in."""


def create_app(service: Service, openid: Provider | None = None) -> FastAPI:
    """The API on a service, which is closed when the application ends; people may sign in at `openid`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="deccaf",
        version=__version__,
        description="Who decides which case: intake, plans, queues, labels, models.",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.openid = openid
    app.state.refusals = Refusals()
    desk = (people, shifts, cases, history, plans, queue, second, moving)
    for part in (health, *desk, models, reports, record, watch, golden, trials, webhooks):
        app.include_router(part.router)
    for pages in routers:
        app.include_router(pages)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)

    def observe(scope: Scope, status: int, seconds: float) -> None:
        service.metrics.observe(scope, status, seconds)

    doorman = Doorman(service)
    app.add_middleware(LimitsMiddleware, limits=service.limits, admits=doorman.admits, observe=observe)
    if tracing.is_on():
        app.add_middleware(TracedMiddleware)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        parts = schema.setdefault("components", {}).setdefault("schemas", {})
        parts["Problem"] = Problem.model_json_schema()
        for name in ("HTTPValidationError", "ValidationError"):
            parts.pop(name, None)
        for operations in schema["paths"].values():
            for operation in operations.values():
                _only_named(operation["responses"])
        app.openapi_schema = schema
    return app.openapi_schema


def _only_named(responses: dict[str, Any]) -> None:
    """Of an answer that has a model, the model alone: FastAPI leaves the type of the function beside it."""
    for response in responses.values():
        for content in response.get("content", {}).values():
            reference = content.get("schema", {}).get("$ref")
            if reference is not None:
                content["schema"] = {"$ref": reference}


def _answer(
    status: int, kind: str, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    return Response(problem(status, kind, detail, **more), status, headers, "application/problem+json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    if error.status == 503:
        headers = {"Retry-After": RETRY_SECONDS}
        if wants_page(request):
            answer = sorry(request, 503, error.detail)
            answer.headers.update(headers)
            return answer
    return _answer(error.status, error.kind, error.detail, headers, **error.more)


async def _deccaf(request: Request, error: Exception) -> Response:
    if isinstance(error, CapacityError):
        return _answer(409, "no-feasible-plan", str(error))
    if isinstance(error, SolverError):
        return _answer(503, "solver-gave-up", str(error), {"Retry-After": RETRY_SECONDS})
    return _answer(422, "unusable-data", str(error))


async def _not_valid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        {"where": ".".join(str(part) for part in item["loc"]), "message": item["msg"]}
        for item in error.errors()[:20]
    ]
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return _answer(400, "not-json", "the body is not JSON", errors=found)
    first = found[0]
    return _answer(422, "not-valid", f"{first['where']}: {first['message']}", errors=found)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if wants_page(request) and error.status_code in _LOST:
        with suppress(sa.exc.SQLAlchemyError):  # without the database it is a page without a name on it
            await find_visitor(request)
        return sorry(request, error.status_code, _LOST[error.status_code])
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "refused")
    headers = dict(error.headers) if error.headers else None
    return _answer(error.status_code, kind, str(error.detail), headers)


async def _database(request: Request, error: Exception) -> Response:
    service: Service = request.app.state.service
    refusal = service.condition.refusal(error)
    if refusal is not None:
        return await _refused(request, refusal)
    if isinstance(error, sa.exc.IntegrityError):
        return _answer(
            409, "changed-meanwhile", "somebody changed the same thing at the same moment; look again"
        )
    return await _unexpected(request, error)


async def _unexpected(request: Request, error: Exception) -> Response:
    request_id = getattr(request.state, "request_id", "")
    log.error("request %s failed", request_id, exc_info=error)
    detail = f"an error of the service; its log names request {request_id}"
    if wants_page(request):
        return sorry(request, 500, detail)
    return _answer(500, "unexpected", detail)


_LOST = {
    404: "There is no such page. Perhaps the address was cut off; the menu leads to everything there is.",
    405: "This address takes a form, and cannot be opened by itself.",
}


_HANDLERS: dict[type[Exception], Any] = {
    RefusedError: _refused,
    DeccafError: _deccaf,
    RequestValidationError: _not_valid,
    HTTPException: _http,
    sa.exc.SQLAlchemyError: _database,
    Exception: _unexpected,
}
