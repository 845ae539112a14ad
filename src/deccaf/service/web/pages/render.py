"""Templates to answers: everything is escaped, no script runs but our own files, errors are pages too."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from deccaf import __version__
from deccaf.errors import CapacityError, DeccafError
from deccaf.service.errors import RefusedError
from deccaf.service.web.pages import charts, words
from deccaf.service.web.pages.access import Visitor

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy: files of this service only, nothing inline, nobody frames us."""
HTMX = json.dumps(
    {
        "allowEval": False,
        "includeIndicatorStyles": False,
        "selfRequestsOnly": True,
        "historyCacheSize": 0,
        "responseHandling": [
            {"code": "204", "swap": False},
            {"code": "[23]..", "swap": True},
            {"code": "[45]..", "swap": True, "error": True},
        ],
    }
)


def _clock(value: float | str | None) -> str:
    """A time of the ledger as hours and minutes, with the day where it is not today (UTC)."""
    if value is None:
        return "–"
    when = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    today = datetime.now(UTC).date()
    return when.strftime("%H:%M" if when.date() == today else "%Y-%m-%d %H:%M")


def _ago(value: float | None) -> str:
    return "–" if value is None else words.span(max(time.time() - value, 0.0)) + " ago"


environment = Environment(
    loader=PackageLoader("deccaf.service.web.pages"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
environment.filters.update(
    amount=words.amount,
    percent=words.percent,
    clock=_clock,
    ago=_ago,
    span=words.span,
    count=words.count,
    fact=words.fact,
    is_long=words.is_long,
)
environment.globals.update(charts=charts, words=words, version=__version__, htmx_config=HTMX)


def page(template: str, visitor: Visitor | None, code: int = 200, **values: Any) -> Response:
    """A page, or a part of one."""
    text = environment.get_template(template).render(visitor=visitor, **values)
    return HTMLResponse(text, code, {"Content-Security-Policy": POLICY, "X-Frame-Options": "DENY"})


def go(path: str) -> Response:
    """After a form: on to another page."""
    return RedirectResponse(path, 303)


class PageRoute(APIRoute):
    """A route whose errors are pages that say what happened and what to do."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, with errors turned into pages."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError:
                return _sorry(request, 422, "The address or the form holds something that cannot be used.")
            except RefusedError as error:
                return _sorry(request, error.status, error.detail)
            except DeccafError as error:
                return _sorry(request, 409 if isinstance(error, CapacityError) else 422, str(error))

        return handled


def _sorry(request: Request, status: int, detail: str) -> Response:
    part = "hx-request" in request.headers
    if status == 401:
        answer = page("sign_in.html", None, 401, wrong=None)
        if part:
            answer.headers["HX-Refresh"] = "true"
        return answer
    return page("sorry_part.html" if part else "sorry.html", None, status, detail=detail)
