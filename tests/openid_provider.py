"""An OpenID Connect provider in a process of its own: `python tests/openid_provider.py PORT SECRET`.

The protocol is `oidc_provider_mock`'s; added are PKCE, which it does not check, a client secret, and a hand that
spoils id tokens on request (`PUT /spoil`), to see that they are refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import werkzeug.serving
from joserfc import jwt
from joserfc.jwk import RSAKey
from oidc_provider_mock import app as provider_app


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(content: dict[str, Any]) -> str:
    return _base64(json.dumps(content).encode())


def main(port: int, secret: str) -> None:
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    app, challenges, spoil = provider_app(require_nonce=True), dict[str, str](), dict[str, str]()
    foreign = RSAKey.generate_key(2048, {"kid": "foreign"})

    @app.put("/spoil")
    def set_spoil() -> Any:
        spoil.clear()
        spoil.update(flask.request.get_json())
        return "", 204

    @app.before_request
    def check_client() -> Any:
        if flask.request.path != "/oauth2/token":
            return None
        form, sign = flask.request.form, flask.request.authorization
        given = _base64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if challenges.get(form.get("code", "")) != given or sign is None or sign.password != secret:
            return flask.jsonify({"error": "invalid_grant"}), 400
        return None

    @app.after_request
    def add(answer: flask.Response) -> flask.Response:
        code = parse_qs(urlsplit(answer.headers.get("location", "")).query).get("code")
        if code and flask.request.args.get("code_challenge_method") == "S256":
            challenges[code[0]] = flask.request.args["code_challenge"]
        if flask.request.path == "/oauth2/token" and answer.status_code == 200 and spoil:
            token = answer.get_json()
            token["id_token"] = spoilt(token["id_token"])
            answer.data = json.dumps(token)
        return answer

    def spoilt(token: str) -> str:
        own = flask.g.oidc_provider_mock_storage.jwk
        key = RSAKey.import_key(own.as_dict(is_private=True))
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        header = {"alg": "RS256", "kid": own.as_dict().get("kid") or own.thumbprint()}
        now = int(time.time())
        if spoil.get("key") == "foreign":
            key = foreign
        claims.update(
            {
                "nonce": {"nonce": "another"},
                "no nonce": {"nonce": None},
                "expired": {"exp": now - 120, "iat": now - 600},
                "audience": {"aud": "another-client", "azp": "desk"},
                "issuer": {"iss": "http://localhost:1"},
                "nobody": {"sub": ""},
            }.get(spoil.get("claims", ""), {})
        )
        claims = {name: value for name, value in claims.items() if value is not None}
        if spoil.get("algorithm") == "none":
            return ".".join([_part({"alg": "none"}), _part(claims), ""])
        if spoil.get("algorithm") == "HS256":  # signed with what everybody knows: the public key
            parts = [_part({"alg": "HS256"}), _part(claims)]
            signed = hmac.digest(key.as_pem(private=False), ".".join(parts).encode(), "sha256")
            return ".".join([*parts, _base64(signed)])
        return jwt.encode(header, claims, key)

    werkzeug.serving.make_server("localhost", port, app, threaded=True).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
