"""Signing in at an OpenID Connect provider, a real one in a process of its own, over real HTTP."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import sqlalchemy as sa
from fastapi.testclient import TestClient

from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.openid.provider import Attempt, Provider
from deccaf.service.openid.settings import read_settings
from deccaf.service.store import tables as t
from deccaf.service.web.app import create_app
from service_databases import free_port
from service_world import EXPERTS, bearer, first_key

DESK = "http://localhost"
SECRET = "a secret of the client"
SETTINGS = """
issuer = "{issuer}"
client_id = "desk"
client_secret_variable = "DECCAF_TEST_SECRET"
address = "http://localhost"
button = "Sign in with your Example account"
person_claim = "email"
role_claim = ["desk", "roles"]

[roles]
lead = ["desk-leads"]
reviewer = ["desk-analysts"]

[people]
"ann@example.com" = "ann"
"cat@example.com" = "cat"
"""


@dataclass
class Desk:
    """A service beside its provider, and accounts there."""

    client: TestClient
    lead: TestClient
    service: Service
    issuer: str

    def account(self, name: str, *roles: str, **claims: Any) -> None:
        held = {"email": f"{name}@example.com", "email_verified": True, "desk": {"roles": list(roles)}}
        held = {k: v for k, v in {**held, **claims}.items() if v is not None}
        assert requests.put(f"{self.issuer}/users/{name}", json=held).status_code == 204

    def spoil(self, **how: str) -> None:
        assert requests.put(f"{self.issuer}/spoil", json=how).status_code == 204

    def away(self, next: str = "") -> str:
        """To the provider: its address, as the browser gets it."""
        answer = self.client.get("/sign-in/openid", params={"next": next} if next else {})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def consent(self, address: str, name: str) -> str:
        """Sign in there: the path that the provider sends the browser back to."""
        answer = requests.post(address, data={"sub": name}, allow_redirects=False)
        back = str(answer.headers["location"])
        assert back.startswith(f"{DESK}/sign-in/openid/back?"), back
        return back.removeprefix(DESK)

    def sign_in(self, name: str, next: str = "") -> Any:
        self.client.cookies.clear()
        return self.client.get(self.consent(self.away(next), name))


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("openid_provider.py")), str(port), SECRET],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address, until = f"http://localhost:{port}", time.monotonic() + 60
    try:
        while True:
            try:
                requests.get(f"{address}/jwks", timeout=5).raise_for_status()
                break
            except requests.ConnectionError:
                assert process.poll() is None
                assert time.monotonic() < until
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def settings_file(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("openid") / "openid.toml"
    path.write_text(SETTINGS.format(issuer=issuer))
    return path


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def desk(
    request: pytest.FixtureRequest,
    settings_file: Path,
    issuer: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    url = f"sqlite:///{tmp_path_factory.mktemp('desk') / 'desk.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database(f"openid{uuid.uuid4().hex[:12]}")
    secret = first_key(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DECCAF_TEST_SECRET", SECRET)
        provider = Provider(read_settings(settings_file), settings_file.parent)
    service = Service(url, housekeeping=False)
    app = create_app(service, provider)
    with TestClient(app, base_url=DESK, follow_redirects=False, raise_server_exceptions=False) as client:
        lead = TestClient(app, headers=bearer(secret))
        lead.portal = client.portal
        lead.post("/v1/teams", json={"name": "desk"})
        for name in EXPERTS:
            lead.post("/v1/experts", json={"name": name, "team": "desk"})
        yield Desk(client, lead, service, issuer)


@pytest.fixture(autouse=True)
def honest(desk: Desk) -> None:
    desk.spoil()
    desk.client.cookies.clear()
    desk.client.app.state.refusals._seen.clear()  # type: ignore[attr-defined]


def test_a_reviewer_signs_in_and_has_a_session_like_any_other(desk: Desk) -> None:
    desk.account("ann", "desk-analysts", "something-else")
    sign_in = desk.client.get("/cases/a%2F1?x=1", headers={"accept": "text/html"})
    assert sign_in.status_code == 401
    (link,) = re.findall(r'href="(/sign-in/openid[^"]*)"', sign_in.text)
    assert "Sign in with your Example account" in sign_in.text
    away = desk.client.get(link)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(away.headers["location"]).query).items()}
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{DESK}/sign-in/openid/back"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    back = desk.client.get(desk.consent(away.headers["location"], "ann"))
    assert back.status_code == 200
    # a page of ours goes on: a redirect would still be the provider's, and a strict cookie stay away from it
    assert 'http-equiv="refresh" content="0;url=/cases/a/1?x=1"' in back.text
    cookie = next(c for c in back.headers.get_list("set-cookie") if c.startswith("deccaf_session="))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "deccaf_openid" not in desk.client.cookies
    assert desk.client.get("/session").status_code == 204
    assert "ann" in desk.client.get("/queue").text
    assert desk.client.get("/people").status_code == 403
    trail = [(e["kind"], e["maker"]) for e in desk.lead.get("/v1/reports/trail").json()["items"]]
    assert ("signed in", "ann") in trail


def test_a_lead_needs_no_place_in_the_team_and_both_roles_make_a_lead(desk: Desk) -> None:
    desk.account("boss", "desk-leads", "desk-analysts")
    answer = desk.sign_in("boss")
    assert 'content="0;url=/"' in answer.text
    assert "boss@example.com" in desk.client.get("/people").text
    keys = [key for key in desk.lead.get("/v1/keys").json()["items"] if key["name"] == "boss@example.com"]
    assert [(key["role"], key["expert"]) for key in keys] == [("lead", None)]
    desk.sign_in("boss")
    again = [
        key["id"] for key in desk.lead.get("/v1/keys").json()["items"] if key["name"] == "boss@example.com"
    ]
    assert again == [keys[0]["id"]]
    marks = desk.service.read(lambda c: c.execute(sa.select(t.keys.c.hash)).scalars().all())
    for mark in [mark for mark in marks if mark.startswith("openid:")]:  # what is on record opens nothing
        assert desk.client.get("/v1/keys", headers=bearer(mark)).status_code == 401


@pytest.mark.parametrize(
    ("name", "roles", "claims", "says"),
    [
        ("zoe", ["desk-analysts"], {}, "nobody at this desk is called &#39;zoe@example.com&#39;"),
        ("cat", [], {}, "has no role at this desk"),
        ("cat", ["desk-lead"], {}, "has no role at this desk"),
        ("cat", [], {"desk": "desk-leads"}, "has no role at this desk"),
        ("cat", [], {"desk": {"roles": [["desk-leads"], 7]}}, "has no role at this desk"),
        ("cat", ["desk-analysts"], {"email_verified": False}, "no claim &#39;email&#39; with email_verified"),
        (
            "cat",
            ["desk-analysts"],
            {"email_verified": "true"},
            "no claim &#39;email&#39; with email_verified",
        ),
        ("cat", ["desk-analysts"], {"email": None}, "no claim &#39;email&#39;"),
    ],
)
def test_whom_the_desk_does_not_know_is_refused_and_not_made_up(
    desk: Desk, name: str, roles: list[str], claims: dict[str, Any], says: str
) -> None:
    before = desk.service.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(t.keys)).scalar())
    desk.account(name, *roles, **claims)
    answer = desk.sign_in(name)
    assert answer.status_code == 403
    assert says in answer.text
    assert desk.client.get("/session").status_code == 401
    after = desk.service.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(t.keys)).scalar())
    assert after == before
    assert {one["name"] for one in desk.lead.get("/v1/experts").json()["items"]} == set(EXPERTS)


@pytest.mark.parametrize(
    "how",
    [
        {"claims": "nonce"},
        {"claims": "no nonce"},
        {"claims": "expired"},
        {"claims": "audience"},
        {"claims": "issuer"},
        {"claims": "nobody"},
        {"key": "foreign"},
        {"algorithm": "none"},
        {"algorithm": "HS256"},
    ],
    ids=lambda how: "-".join(how.values()),
)
def test_an_id_token_that_does_not_hold_is_refused(desk: Desk, how: dict[str, str]) -> None:
    desk.account("boss", "desk-leads")
    desk.spoil(claims="nothing")
    assert desk.sign_in("boss").status_code == 200  # what is signed anew by the right key holds
    desk.spoil(**how)
    answer = desk.sign_in("boss")
    assert answer.status_code == 403
    assert "does not hold" in answer.text
    assert "deccaf_session" not in desk.client.cookies


def test_only_the_browser_that_began_comes_back_and_only_once(desk: Desk) -> None:
    desk.account("boss", "desk-leads")
    back = desk.consent(desk.away(), "boss")
    cookie = desk.client.cookies["deccaf_openid"]
    desk.client.cookies.clear()
    for other in (
        "",
        "x",
        "x.y",
        Attempt.begin("").cookie,
        replace(Attempt.from_cookie(cookie), wanted="/x").cookie,
    ):
        refused = desk.client.get(back, headers={"cookie": f"deccaf_openid={other}"})
        assert refused.status_code == 403
        assert "not begun in this browser" in refused.text
    mine = {"cookie": f"deccaf_openid={cookie}"}
    assert desk.client.get(re.sub("state=[^&]*", "state=x", back), headers=mine).status_code == 403
    assert desk.client.get(f"{back}&iss=https://elsewhere.example", headers=mine).status_code == 403
    assert desk.client.get(re.sub("code=[^&]*", "error=access_denied", back), headers=mine).status_code == 403
    stolen = Attempt.begin("")  # a code of another sign-in: its verifier (PKCE) is not this one's
    given = re.sub("state=[^&]*", f"state={stolen.state}", back)
    assert desk.client.get(given, headers={"cookie": f"deccaf_openid={stolen.cookie}"}).status_code == 403
    assert desk.client.get(back, headers=mine).status_code == 200
    desk.client.cookies.clear()
    assert desk.client.get(back, headers=mine).status_code == 403
    assert "deccaf_session" not in desk.client.cookies


@pytest.mark.parametrize(
    "next", ["https://evil.example/", "//evil.example", "/\\evil.example", "/sign-in/openid"]
)
def test_nobody_is_sent_elsewhere_after_signing_in(desk: Desk, next: str) -> None:
    desk.account("boss", "desk-leads")
    answer = desk.sign_in("boss", next)
    assert answer.status_code == 200
    assert 'content="0;url=/"' in answer.text
    assert "evil" not in answer.text


def test_what_changes_at_the_provider_counts_at_the_next_sign_in(desk: Desk) -> None:
    desk.account("cat", "desk-leads")
    assert desk.sign_in("cat").status_code == 200
    as_lead = dict(desk.client.cookies)
    desk.account("cat", "desk-analysts")
    assert 'content="0;url=/queue"' in desk.sign_in("cat").text
    assert desk.client.get("/people").status_code == 403
    desk.client.cookies.clear()
    assert desk.client.get("/session", cookies=as_lead).status_code == 401
    desk.client.cookies.clear()
    desk.lead.patch("/v1/experts/cat", json={"active": False})
    assert "out of use" in desk.sign_in("cat").text
    desk.lead.patch("/v1/experts/cat", json={"active": True})
    assert desk.sign_in("cat").status_code == 200
    (key,) = [k["id"] for k in desk.lead.get("/v1/keys").json()["items"] if k["expert"] == "cat"]
    assert desk.lead.delete(f"/v1/keys/{key}").status_code in (200, 204)
    assert desk.client.get("/session").status_code == 401
    assert "revoked the access" in desk.sign_in("cat").text


def test_a_provider_that_is_away_is_said_and_keys_still_work(
    desk: Desk, settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECCAF_TEST_SECRET", SECRET)
    away = read_settings(settings_file).model_copy(update={"issuer": f"http://localhost:{free_port()}"})
    wrong = read_settings(settings_file).model_copy(update={"issuer": desk.issuer + "/"})
    app = desk.client.app
    was = app.state.openid  # type: ignore[attr-defined]
    try:
        for settings, status, says in ((away, 503, "does not answer"), (wrong, 403, "does not hold")):
            app.state.openid = Provider(settings, Path())  # type: ignore[attr-defined]
            answer = desk.client.get("/sign-in/openid")
            assert answer.status_code == status
            assert says in answer.text
        app.state.openid = None  # type: ignore[attr-defined]
        assert desk.client.get("/sign-in/openid").status_code == 404
        assert "openid" not in desk.client.get("/", headers={"accept": "text/html"}).text
    finally:
        app.state.openid = was  # type: ignore[attr-defined]


def test_the_file_in_the_documentation_can_be_used(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "service.md").read_text()
    (example,) = [block for block in re.findall(r"```toml\n(.*?)```", text, re.S) if "issuer" in block]
    (tmp_path / "openid.toml").write_text(example)
    settings = read_settings(tmp_path / "openid.toml")
    claims = {"preferred_username": "maria.rossi", "realm_access": {"roles": ["desk-analysts"]}}
    assert (settings.role_of(claims), settings.person_of(claims)) == ("reviewer", "analyst_1")
    assert settings.back == "https://desk.example.com/sign-in/openid/back"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"http://localhost"', '"http://desk.example"', "[address]: expected https://"),
        ("issuer = ", 'scopes = ["email"]\nissuer = ', 'without the scope "openid"'),
        ("client_secret_variable", "secret", "unknown key"),
        (
            'client_secret_variable = "DECCAF_TEST_SECRET"',
            "",
            "give client_secret_file or client_secret_variable",
        ),
        (
            "client_secret_variable = ",
            'client_secret_file = "x"\nclient_secret_variable = ',
            "one says where",
        ),
        ('["desk-analysts"]', '["desk-leads"]', "both lead and reviewer"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    settings_file: Path, tmp_path: Path, before: str, after: str, says: str
) -> None:
    text = settings_file.read_text()
    assert before in text
    (tmp_path / "openid.toml").write_text(text.replace(before, after))
    with pytest.raises(ConfigError, match=re.escape(says)):
        read_settings(tmp_path / "openid.toml")


def test_the_secret_comes_from_a_file_or_the_environment(
    settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_settings(settings_file)
    monkeypatch.setenv("DECCAF_TEST_SECRET", " ")
    with pytest.raises(ConfigError, match="DECCAF_TEST_SECRET is not set"):
        Provider(settings, tmp_path)
    by_file = settings.model_copy(update={"client_secret_variable": None, "client_secret_file": "secret"})
    with pytest.raises(ConfigError, match="No such file"):
        Provider(by_file, tmp_path)
    (tmp_path / "secret").write_text("hush\n")
    assert by_file.client_secret(tmp_path) == "hush", "beside the file that names it"
