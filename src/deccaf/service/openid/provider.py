"""An OpenID Connect provider, seen from the desk: the code flow with PKCE, and what an id token must be.

What belongs to one sign-in comes from one secret of 256 random bits, which only the browser keeps (in a
cookie for ten minutes): the state, the nonce and the verifier of PKCE are made from it, so that any process
of the service can take up what another began, and nothing is stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deccaf.errors import DeccafError
from deccaf.optional import extra
from deccaf.service.openid.settings import OpenIdSettings, is_safe

with extra("oidc", "signing in by OpenID Connect"):
    import requests
    from authlib.common.errors import AuthlibBaseError
    from authlib.integrations.requests_client import OAuth2Session
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

ANSWER_SECONDS = 10.0
LEEWAY_SECONDS = 30
"""How far the provider's clock may be from ours."""
KNOWN_SECONDS = 3600.0
"""How long what the provider says of itself, and its keys, are taken as known."""
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signed with a key that only the provider has: neither "none" nor with a secret that others know."""


class ProviderError(DeccafError):
    """The provider is away, or speaks another protocol; `is_away` where it may pass by itself."""

    def __init__(self, detail: str, *, is_away: bool = False) -> None:
        super().__init__(detail)
        self.is_away = is_away


@dataclass(frozen=True)
class Attempt:
    """One sign-in under way: a secret of the browser, and the page that was asked for."""

    secret: str
    wanted: str = ""

    @classmethod
    def begin(cls, wanted: str) -> Attempt:
        """A new one."""
        return cls(secrets.token_urlsafe(32), wanted)

    @classmethod
    def from_cookie(cls, text: str) -> Attempt | None:
        """The one that a browser remembers; None: it is none of ours."""
        secret, _, wanted = text.partition(".")
        try:
            page = base64.b64decode(wanted.encode(), altchars=b"-_", validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return cls(secret, page) if len(secret) == 43 else None

    @property
    def cookie(self) -> str:
        """What the browser remembers."""
        return f"{self.secret}.{base64.urlsafe_b64encode(self.wanted.encode()).decode()}"

    @property
    def state(self) -> str:
        """What comes back with the code, made for this browser and this page."""
        return self._derived(f"state {self.wanted}")

    @property
    def nonce(self) -> str:
        """What the id token must hold."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """What the code can be redeemed with, and nothing else (PKCE)."""
        return self._derived("verifier")

    def _derived(self, use: str) -> str:
        mixed = hmac.new(self.secret.encode(), use.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mixed).decode().rstrip("=")


class Provider:
    """One provider; asked for its addresses and keys when the first person signs in, and every hour."""

    def __init__(self, settings: OpenIdSettings, folder: Path) -> None:
        self.settings = settings
        self._secret = settings.client_secret(folder)
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    def address(self, attempt: Attempt) -> str:
        """Where the browser goes to sign in."""
        where = self._endpoint("authorization_endpoint")
        with self._session() as session:
            found, _ = session.create_authorization_url(
                where, state=attempt.state, nonce=attempt.nonce, code_verifier=attempt.verifier
            )
        return str(found)

    def claims(self, code: str, attempt: Attempt) -> dict[str, Any]:
        """What the provider says of whoever came back with this code, once all of it is proved."""
        where = self._endpoint("token_endpoint")
        try:
            with self._session() as session:
                token = session.fetch_token(
                    where,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=attempt.verifier,
                    timeout=ANSWER_SECONDS,
                    allow_redirects=False,
                )
        except AuthlibBaseError as error:
            raise ProviderError(f"the provider did not take the code: {error.error}") from error
        except (requests.RequestException, ValueError) as error:
            raise ProviderError(f"the provider does not answer: {error}", is_away=True) from error
        if not isinstance(token.get("id_token"), str):
            raise ProviderError("the provider sent no id token")
        return self._proved(token["id_token"], token.get("access_token"), attempt)

    def _proved(self, token: str, access_token: str | None, attempt: Attempt) -> dict[str, Any]:
        """The claims of an id token: signed by the provider, for us, for this sign-in, and in time."""
        settings = self.settings
        expected = {
            "iss": {"essential": True, "value": settings.issuer},
            "aud": {"essential": True, "value": settings.client_id},
            "sub": {"essential": True},
            "nonce": {"essential": True, "value": attempt.nonce},
        }
        given = {"nonce": attempt.nonce, "client_id": settings.client_id, "access_token": access_token}
        try:
            found = self._decoded(token)
            claims = CodeIDToken(found.claims, found.header, expected, given)
            claims.validate(leeway=LEEWAY_SECONDS)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise ProviderError(f"the id token does not hold: {error}") from error
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise ProviderError("the id token does not hold: it names nobody")
        return dict(claims)

    def _decoded(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, self._keys(), algorithms=ALGORITHMS)
        except JoseError:  # perhaps the provider has new keys
            return jwt.decode(token, self._keys(renew=True), algorithms=ALGORITHMS)

    def _keys(self, *, renew: bool = False) -> KeySet:
        where = self._endpoint("jwks_uri")
        # whoever sends bad tokens must not make us ask the provider again and again
        found = self._read(where, known_seconds=60.0 if renew else KNOWN_SECONDS)
        return KeySet.import_key_set(found)  # type: ignore[arg-type]

    def _endpoint(self, name: str) -> str:
        issuer = self.settings.issuer
        found = self._read(f"{issuer.rstrip('/')}/.well-known/openid-configuration", KNOWN_SECONDS)
        if found.get("issuer") != issuer:
            raise ProviderError(
                f"{issuer} calls itself {found.get('issuer')!r}; issuer must be that, letter by letter"
            )
        where = found.get(name)
        if not isinstance(where, str) or not is_safe(where.partition("?")[0]):
            raise ProviderError(f"{issuer} has no {name} that begins with https://")
        return where

    def _read(self, address: str, known_seconds: float) -> dict[str, Any]:
        with self._lock:
            at, known = self._known.get(address, (0.0, None))
        if known is not None and time.monotonic() < at + known_seconds:
            return known
        try:
            answer = requests.get(address, timeout=ANSWER_SECONDS, allow_redirects=False)
            answer.raise_for_status()
            found = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise ProviderError(f"the provider does not answer: {error}", is_away=True) from error
        if not isinstance(found, dict):
            raise ProviderError(f"{address} holds no JSON object")
        with self._lock:
            self._known[address] = (time.monotonic(), found)
        return found

    def _session(self) -> OAuth2Session:
        settings = self.settings
        return OAuth2Session(
            settings.client_id,
            self._secret,
            scope=" ".join(settings.scopes),
            redirect_uri=settings.back,
            code_challenge_method="S256",
        )
