"""Templates to answers: everything is escaped, no script runs but our own files, errors are pages too."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deccaf import __version__
from deccaf.data import amounts
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


def _clock(value: float | str | None) -> Markup:
    """A time of the ledger as hours and minutes, with the day where it is not today.

    In UTC; the script of the pages puts it into the reader's time zone.
    """
    if value is None:
        return Markup("–")
    when = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    today = datetime.now(UTC).date()
    shown = when.strftime("%H:%M" if when.date() == today else "%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(timespec="seconds"), shown)


def _ago(value: float | None) -> str:
    return "–" if value is None else words.span(max(time.time() - value, 0.0)) + " ago"


def segment(value: str) -> str:
    """An id or a name as a part of an address, slashes and all."""
    return quote(value, safe="")


environment = Environment(
    loader=PackageLoader("deccaf.service.web.pages"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
environment.filters.update(
    amount=amounts.amount,
    percent=words.percent,
    clock=_clock,
    ago=_ago,
    span=words.span,
    count=words.count,
    fact=words.fact,
    is_long=words.is_long,
    segment=segment,
)
environment.globals.update(
    charts=charts, words=words, cost=amounts.cost, version=__version__, htmx_config=HTMX
)


def page(
    template: str, visitor: Visitor | None, code: int = 200, images: Sequence[str] = (), **values: Any
) -> Response:
    """A page, or a part of one; pictures may come from the hosts `images` too."""
    text = environment.get_template(template).render(visitor=visitor, **values)
    policy = POLICY.replace("img-src 'self'", " ".join(["img-src 'self'", *images]))
    return HTMLResponse(text, code, {"Content-Security-Policy": policy, "X-Frame-Options": "DENY"})


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
                return sorry(request, 422, "The address or the form holds something that cannot be used.")
            except RefusedError as error:
                return sorry(request, error.status, error.detail)
            except DeccafError as error:
                return sorry(request, 409 if isinstance(error, CapacityError) else 422, str(error))

        return handled


def sorry(request: Request, status: int, detail: str) -> Response:
    """What went wrong, as a page with its navigation, or as a part of one."""
    part = "hx-request" in request.headers
    if status == 401:
        answer = sign_in_page(request, 401, next=_asked_for(request))
        if part:
            answer.headers["HX-Refresh"] = "true"
        return answer
    visitor = getattr(request.state, "visitor", None)
    return page("sorry_part.html" if part else "sorry.html", visitor, status, detail=detail)


def sign_in_page(request: Request, code: int = 200, wrong: str | None = None, next: str = "") -> Response:
    """The ways to sign in: with a key, and with an account of the house where there is a provider."""
    provider = request.app.state.openid
    button = None if provider is None else provider.settings.button
    return page("sign_in.html", None, code, wrong=wrong, next=next, button=button)


def wants_page(request: Request) -> bool:
    """Whether a person asks, with a browser: programs take JSON."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1/")


def _asked_for(request: Request) -> str:
    """Where to go on after signing in: the page that was asked for."""
    if request.method != "GET" or "hx-request" in request.headers:
        return ""
    path, query = quote(request.scope["path"]), request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def own_path(given: str) -> str | None:
    """An address of ours to go to, or None: whatever a browser could take for another site is refused."""
    odd = any(ord(char) < 32 or char == "\\" for char in given)
    if odd or not given.startswith("/") or given.startswith("//") or len(given) > 2000:
        return None
    parts = urlsplit(given)
    if parts.scheme or parts.netloc or f"{parts.path}/".startswith(("/sign-in/", "/sign-out/")):
        return None
    return given
