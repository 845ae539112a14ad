"""Away to the OpenID Connect provider, and back: what is proved becomes a session like any other."""

from __future__ import annotations

import hmac
import logging
import time
from typing import TYPE_CHECKING, Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from deccaf.service.errors import RefusedError, not_found
from deccaf.service.openid.settings import BACK
from deccaf.service.web.common import Here
from deccaf.service.web.pages.render import PageRoute, go, own_path, page
from deccaf.service.web.pages.signing import home_of, let_in

if TYPE_CHECKING:
    from deccaf.service.openid.provider import Attempt, Provider

log = logging.getLogger("deccaf.service")
router = APIRouter(route_class=PageRoute, include_in_schema=False)

START = "/sign-in/openid"
ATTEMPT = "deccaf_openid"
ATTEMPT_SECONDS = 600
_Text = Annotated[str, Query(max_length=4000)]


@router.get(START)
async def begin(request: Request, next: _Text = "") -> Response:
    """To the provider, with what this browser alone can come back with."""
    provider = _provider(request)
    from deccaf.service.openid.provider import Attempt, ProviderError

    attempt = Attempt.begin(own_path(next) or "")
    try:
        where = await to_thread.run_sync(provider.address, attempt)
    except ProviderError as error:
        raise _refusal(error) from error
    answer = go(where)
    answer.set_cookie(
        ATTEMPT,
        attempt.cookie,
        max_age=ATTEMPT_SECONDS,
        path=START,
        httponly=True,
        samesite="lax",  # the provider sends the browser back: a strict cookie would stay at home
        secure=provider.settings.is_encrypted,
    )
    return answer


@router.get(BACK)
async def back(
    request: Request, here: Here, code: _Text = "", state: _Text = "", iss: _Text = "", error: _Text = ""
) -> Response:
    """From the provider: only to the browser that began, and only with an id token that holds."""
    provider = _provider(request)
    attempt = _attempt(request, state)
    if iss and iss != provider.settings.issuer:
        raise RefusedError(403, "another-provider", "another provider answered than was asked; begin again")
    if error or not code:
        log.warning("sign-in by OpenID Connect: the provider said %r", error[:200])
        raise RefusedError(
            403, "refused-there", "the provider did not sign you in; begin again, or use a key"
        )
    from deccaf.service.openid.identities import admit, identity_of
    from deccaf.service.openid.provider import ProviderError

    try:
        claims = await to_thread.run_sync(provider.claims, code, attempt)
    except ProviderError as wrong:
        if not wrong.is_away:
            await request.app.state.refusals.slow_down(request)
        raise _refusal(wrong) from wrong
    identity = identity_of(claims, provider.settings)
    actor = await here.writer.run(lambda connection: admit(connection, identity, time.time()))
    answer = page("signed_in.html", None, to=home_of(actor, own_path(attempt.wanted) or ""))
    answer.delete_cookie(ATTEMPT, path=START)
    return await let_in(here, actor, answer, encrypted=provider.settings.is_encrypted)


def _provider(request: Request) -> Provider:
    found: Provider | None = request.app.state.openid
    if found is None:
        raise not_found("page", START)
    return found


def _attempt(request: Request, state: str) -> Attempt:
    from deccaf.service.openid.provider import Attempt

    attempt = Attempt.from_cookie(request.cookies.get(ATTEMPT, ""))
    if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
        detail = "this sign-in was not begun in this browser, or longer than ten minutes ago; begin again"
        raise RefusedError(403, "not-begun-here", detail)
    return attempt


def _refusal(error: Exception) -> RefusedError:
    """The page says what to do; what exactly was wrong is for the log."""
    log.warning("sign-in by OpenID Connect: %s", error)
    if getattr(error, "is_away", False):
        return RefusedError(
            503, "provider-away", "the provider does not answer; try again, or sign in with a key"
        )
    detail = "what the provider said of you does not hold; begin again, or have the log of the desk read"
    return RefusedError(403, "not-proved", detail)
