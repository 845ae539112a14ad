"""The pages without a browser: who may see what, forms, escaping, and the numbers behind them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from deccaf.service.core import Service
from deccaf.service.reports.shift_report import MakerLoad
from deccaf.service.store.sessions import SESSION_SECONDS
from deccaf.service.web.app import create_app
from deccaf.service.web.pages import routers, today
from deccaf.service.web.pages.access import COOKIE
from pages_world import Person, new_key
from service_world import EXPERTS, World, bearer, first_key, history, model_file, world


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 6, "bob": 6}) as found:
        yield found


@pytest.fixture
def lead(desk: World) -> Person:
    return Person(desk, new_key(desk, "lead"))


def test_the_session_cookie_is_out_of_reach_of_scripts_and_other_sites(desk: World, lead: Person) -> None:
    cookie = lead.answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert f"Max-Age={int(SESSION_SECONDS)}" in cookie
    secret = new_key(desk, "lead")
    assert secret not in Person(desk, secret).answer.headers["set-cookie"]


def test_every_page_asks_strangers_to_sign_in(desk: World) -> None:
    for path in ("/", "/queue", "/cases", "/cases/a1", "/what-if", "/next-week", "/setup", "/plans/1"):
        answer = desk.nobody.get(path)
        assert answer.status_code == 401, path
        assert 'action="/sign-in"' in answer.text


def test_no_route_of_the_pages_answers_strangers(desk: World) -> None:
    routes = [route for router in routers for route in router.routes]
    asked = 0
    for route in routes:
        path = re.sub(r"{\w+(:path)?}", "1", route.path)
        for method in route.methods - {"HEAD"}:
            if route.path.startswith("/static") or route.path == "/docs":  # of the API, as /openapi.json
                continue
            answer = desk.nobody.request(method, path, follow_redirects=False)
            expected = 404 if path.startswith("/sign-in/openid") else 401  # there is no provider
            assert answer.status_code == expected, (method, route.path)
            asked += 1
    assert asked > 30
    assert desk.nobody.get("/static/htmx.min.js").status_code == 200
    assert desk.nobody.get("/static/..%2Frender.py").status_code == 404


def test_pages_allow_no_inline_script_and_no_frame(lead: Person) -> None:
    policy = lead.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_wrong_keys_programs_and_ended_sessions_do_not_get_in(desk: World, lead: Person) -> None:
    assert desk.nobody.post("/sign-in", data={"key": "deccaf_wrong"}).status_code == 401
    assert 'action="/sign-in"' in desk.nobody.get("/sign-in").text  # where somebody has kept the address
    assert desk.nobody.post("/sign-in", data={"key": new_key(desk, "machine")}).status_code == 403
    assert lead.get("/").status_code == 200
    token = lead.client.cookies[COOKIE]
    assert lead.post("/sign-out").status_code == 200
    lead.client.cookies.set(COOKIE, token)
    assert lead.get("/").status_code == 401


def test_a_revoked_key_ends_its_sessions(desk: World, lead: Person) -> None:
    other = Person(desk, new_key(desk, "lead"))
    assert other.get("/").status_code == 200
    key = desk.lead.get("/v1/keys").json()["items"][-1]["id"]
    assert desk.lead.delete(f"/v1/keys/{key}").status_code == 200
    assert other.get("/").status_code == 401
    assert lead.get("/").status_code == 200


def test_forms_without_their_token_or_from_another_site_change_nothing(desk: World, lead: Person) -> None:
    for path in ("/plans", "/capacity", "/absence", "/queue/next", "/queue/decide", "/sign-out"):
        assert lead.client.post(path, data={"csrf": "0" * 64}).status_code == 403, path
        assert lead.client.post(path, data={}).status_code == 403, path
        assert lead.post(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403, path


def test_a_reviewer_sees_their_own_queue_only(desk: World) -> None:
    ann = Person(desk, new_key(desk, "reviewer", "ann"))
    assert ann.home == "/queue"
    assert ann.get("/").headers["location"] == "/queue"
    for path in ("/cases", "/what-if", "/setup", "/plans/1", "/today/numbers"):
        assert ann.get(path).status_code == 403, path
    assert ann.get("/queue?expert=bob").status_code == 403
    desk.lead.post("/v1/cases", json=desk.case("of-bob", machine=9, bob=1))
    assert ann.get("/cases/of-bob").status_code == 404
    assert ann.post("/plans").status_code == 403


def test_a_reviewer_works_through_their_queue(desk: World) -> None:
    for k in range(3):
        desk.lead.post("/v1/cases", json=desk.case(f"a{k}", machine=9, ann=1, bob=5))
    ann = Person(desk, new_key(desk, "reviewer", "ann"))
    assert "3 cases are waiting for you" in ann.get("/queue").text
    assert ann.post("/queue/next").headers["location"] == "/queue"
    assert "Case a0" in ann.get("/queue").text
    ann.post("/queue/decide", {"case": "a0", "decision": "1", "shown": str(time.time() - 20)})
    page = ann.get("/queue").text
    assert "Case a1" in page
    assert "1 case decided today, 2 to go" in page
    ann.post("/queue/decide", {"case": "a1", "back": "yes", "reason": "I know her"})
    assert [
        e["data"]["reason"]
        for e in desk.lead.get("/v1/cases/a1").json()["history"]
        if e["kind"] == "returned"
    ] == ["I know her"]
    assert "Case a2" in ann.get("/queue").text
    assert desk.lead.get("/v1/cases/a0").json()["decision"]["decision"] == 1
    assert desk.lead.get("/v1/cases/a1").json()["assignment"]["maker"] == "bob"
    assert ann.post("/queue/decide", {"case": "a0", "decision": "0"}).status_code == 409
    assert ann.post("/queue/decide", {"case": "a2", "decision": "7"}).status_code == 422
    desk.assert_sound()


def test_a_plan_is_seen_before_it_is_committed(desk: World, lead: Person) -> None:
    many = [desk.case(f"p{k}", machine=2.0, ann=1.0 + k / 10, bob=1.5) for k in range(5)]
    assert desk.lead.post("/v1/cases/bulk", json={"cases": many}).status_code == 201
    assert "Plan 5 cases" in lead.get("/").text
    where = lead.post("/plans").headers["location"]
    preview = lead.get(where).text
    assert "nobody is bound by it yet" in preview
    assert "p0" in preview
    assert desk.roster()["ann"]["used"] == 0
    assert lead.post(f"{where}/commit").headers["location"] == "/"
    assert desk.roster()["ann"]["used"] + desk.roster()["bob"]["used"] == 5
    assert lead.post(f"{where}/commit").status_code == 409
    assert "Nothing waits for a plan" in lead.get("/").text
    desk.assert_sound()


def test_the_what_if_solves_the_day_again(desk: World, lead: Person) -> None:
    assert "Too few cases" in lead.get("/what-if").text
    many = [desk.case(f"w{k:02}", machine=1.0, ann=0.25, bob=0.5) for k in range(40)]
    desk.lead.post("/v1/cases/bulk", json={"cases": many})
    lead.post(lead.post("/plans").headers["location"] + "/commit")
    # 6 cases cost 0.25, 6 cost 0.5, 28 cost 1
    assert "costs 32.50 units at best" in lead.get("/what-if").text
    # ann takes 10: four machine cases become 0.25
    assert (
        "save 3.00 units: a day of 40 cases would cost 29.50 instead of 32.50 units"
        in lead.get("/what-if?of:ann=10").text
    )
    # nobody works
    assert "cost 7.50 units more" in lead.get("/what-if?team=0").text
    assert lead.get("/what-if?of:ann=many").status_code == 422
    # next week: 40 cases a day; ann (0.25) and bob (0.5) save 0.75 and 0.5 a case, ten of them an hour
    assert "What an hour costs" in lead.get("/next-week").text
    found = lead.get("/next-week?wage=6&hours=2&minutes=6").text
    assert (
        "10.0 hours of people pay next week" in found
    )  # ann's two hours a day; bob's cost more than they save
    assert "ann" in found
    assert "as good as ann on all cases" not in found  # bob has no hours to use a lesson in
    assert "the log had no seconds" in lead.get("/next-week?wage=6").text
    assert lead.get("/next-week?wage=x").status_code == 422
    assert lead.get("/next-week?wage=-1").status_code == 422


def test_a_lead_changes_capacity_and_absence(desk: World, lead: Person) -> None:
    for k in range(4):
        desk.lead.post("/v1/cases", json=desk.case(f"c{k}", machine=9, ann=1, bob=2))
    assert desk.roster()["ann"]["used"] == 4
    lead.post("/capacity", {"team": "100", "of:ann": "2", "was:ann": "6", "of:bob": "6", "was:bob": "6"})
    roster = desk.roster()
    assert (roster["ann"]["capacity"], roster["ann"]["used"], roster["bob"]["used"]) == (2, 2, 2)
    lead.post("/absence", {"maker": "ann", "away": "yes"})
    assert desk.roster()["ann"] | {"used": 0, "absent": True} == desk.roster()["ann"]
    assert "away today" in lead.get("/").text
    assert lead.post("/absence", {"maker": "nobody", "away": "yes"}).status_code == 404
    desk.assert_sound()


def test_the_page_says_what_an_hour_is_worth(desk: World, lead: Person) -> None:
    many = [desk.case(f"h{k:02}", machine=1.0, ann=0.25, bob=1.5) for k in range(30)]
    desk.lead.post("/v1/cases/bulk", json={"cases": many})
    lead.post(lead.post("/plans").headers["location"] + "/commit")
    page = lead.get("/").text
    # ann: 6 cases in 8 hours, each worth 0.75
    assert page.count("One more hour would save up to, units</th>") == 1
    assert ">0.56</td>" in page
    assert "nothing: time to spare" in page


def test_a_case_says_who_was_chosen_and_why(desk: World, lead: Person, tmp_path: Path) -> None:
    desk.lead.post("/v1/cases", json=desk.case("why", machine=0.9, ann=0.2, bob=0.4))
    page = lead.get("/cases/why").text
    assert "ann has the least expected loss, 0.2000; next is bob with 0.4000." in page
    made = desk.lead.post("/v1/models?name=m", content=model_file(tmp_path)).json()["id"]
    desk.lead.post(f"/v1/models/{made}/activate")
    desk.lead.post("/v1/cases", json={"case_id": "scored", "features": {"amount": 2.0, "channel": "web"}})
    page = lead.get("/cases/scored").text
    assert "moved the estimate most" in page
    assert "amount = 2" in page
    assert lead.get("/cases?find=scored").headers["location"] == "/cases/scored"
    assert "No case fits" in lead.get("/cases?find=missing").text
    assert lead.get("/cases/missing").status_code == 404


def test_every_page_renders_on_both_databases(database_url: str, tmp_path: Path) -> None:
    with world(database_url, {"ann": 6, "bob": 6}) as desk:
        lead = Person(desk, new_key(desk, "lead"))
        made = desk.lead.post("/v1/models?name=m", content=model_file(tmp_path)).json()["id"]
        desk.lead.post(f"/v1/models/{made}/activate")
        for row in history(30, seed=3).itertuples():
            features = {"amount": row.amount, "channel": row.channel}
            desk.lead.post("/v1/cases", json={"case_id": row.case_id, "features": features})
        labels = [{"case_id": row.case_id, "label": row.label} for row in history(30, seed=3).itertuples()]
        assert desk.lead.post("/v1/labels", json={"labels": labels}).status_code == 200
        assert lead.post("/watch/now").headers["location"] == "/watch"
        paths = ["/", "/what-if?team=50", "/queue", "/queue?expert=ann", "/cases", "/cases/h3", "/team"]
        for path in [*paths, "/models", "/models/jobs", "/watch", "/setup", "/setup/progress"]:
            answer = lead.get(path)
            assert answer.status_code == 200, (path, answer.text[-500:])
        assert "units a case expected" in lead.get("/models").text
        assert re.search(r"As of <time [^>]+>[\d:]+</time>, \d+ s ago\.", lead.get("/team").text)
        desk.assert_sound()


def test_values_of_cases_are_text_on_every_page(desk: World, lead: Person) -> None:
    bad = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    desk.lead.post("/v1/cases", json={**desk.case("bad", machine=9, ann=1), "features": {bad: bad}})
    desk.lead.post("/v1/queue/next", json={"expert": "ann"})
    for path in ("/cases/bad", "/queue?expert=ann", "/cases", "/"):
        page = lead.get(path)
        assert page.status_code == 200
        assert "<img" not in page.text
        assert "<script>" not in page.text
    assert "&lt;script&gt;" in lead.get("/cases/bad").text
    assert "&lt;script&gt;" in lead.get("/queue?expert=ann").text


@contextmanager
def _empty(url: str, secret: str) -> Iterator[World]:
    """A service on which nobody has done anything yet."""
    app = create_app(Service(url))
    with TestClient(app, raise_server_exceptions=False) as nobody:
        lead = TestClient(app, raise_server_exceptions=False, headers=bearer(secret))
        lead.portal = nobody.portal
        yield World(app.state.service, lead, lead, lead, nobody, 0)


def _csv(rows: int, **columns: object) -> bytes:
    frame = history(rows).rename(columns={"expert": "expert_id"})
    return frame.assign(**columns).to_csv(index=False).encode()


def test_an_empty_installation_leads_to_its_first_plan(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    secret = first_key(url)
    with _empty(url, secret) as desk:
        lead = Person(desk, secret)
        assert lead.get("/").headers["location"] == "/setup"
        page = lead.get("/setup")
        assert "4 steps to your first plan" in page.text
        lead.csrf = page.text.split('name="csrf" value="')[1][:64]
        broken = {"file": ("past.csv", _csv(50).replace(b",ann,", b",machine,", 1))}
        preview = lead.post("/setup/history", files=broken).text
        assert "50 rows: 49 cases and 49 decisions of 3 people can be entered, 1 row cannot" in preview
        assert "is no name for a person" in preview
        refused = lead.post("/setup/history", {"do": "enter"}, files=broken)
        assert refused.status_code == 422
        assert "1 of 50 rows cannot be used" in refused.text
        done = lead.post("/setup/history", {"do": "enter"}, files={"file": ("past.csv", _csv(200))})
        assert done.headers["location"] == "/setup?entered=yes#model"
        assert "3 people known, 200 labelled cases" in lead.get("/setup").text
        costs = {"false_positive": "0.2", "false_negative": "1", "name": "first model"}
        lead.post("/setup/model", {**costs, "part:amount": "feature", "part:channel": "category"})
        _wait_for_model(lead)
        _backtest(lead)
        capacity = {f"of:{name}": "5" for name in EXPERTS}
        for odd in ({"hours": "1e300"}, {"hours": "all day"}, {"of:ann": "\u00b2"}):
            assert lead.post("/setup/shift", {"name": "first", "team": "team", **odd}).status_code == 422
        lead.post("/setup/shift", {"name": "first", "team": "team", "hours": "8", "random": "0", **capacity})
        fresh = history(30, seed=9)[["case_id", "amount", "channel"]].assign(
            case_id=lambda f: "n" + f["case_id"]
        )
        file = {"file": ("today.csv", fresh.to_csv(index=False).encode())}
        assert "Every row can be used" in lead.post("/setup/cases", files=file).text
        assert lead.post("/setup/cases", {"do": "enter"}, files=file).headers["location"] == "/"
        assert "Plan 30 cases" in lead.get("/").text
        where = lead.post("/plans").headers["location"]
        assert lead.post(f"{where}/commit").headers["location"] == "/"
        assert "30 cases" not in lead.get("/cases?status=waiting").text
        desk.assert_sound()


def _backtest(lead: Person) -> None:
    assert lead.post("/models/backtest").headers["location"] == "/models"
    assert lead.post("/models/backtest").status_code == 409
    deadline = time.monotonic() + 120
    while "Backtest</strong> is done" not in (page := lead.get("/models/jobs").text):
        assert "Backtest</strong> failed" not in page, page
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert "per 100 cases" in page
    path = page.split('href="/models/backtests/')[1].split('"')[0]
    report = lead.get(f"/models/backtests/{path}")
    assert "default-src 'none'" in report.headers["content-security-policy"]
    assert "data:image/png;base64," in report.text
    assert lead.get("/models/backtests/999").status_code == 404


def _wait_for_model(lead: Person) -> None:
    deadline = time.monotonic() + 90
    while True:
        page = lead.get("/setup/progress").text
        if "first model is in force" in page:
            return
        assert "failed" not in page, page
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_an_hour_saves_no_more_than_is_at_stake() -> None:
    load = MakerLoad("ann", 10, 10, absent=False, active=True, decided=5, expected_loss=1.0, price=2.0)
    assert today.Person(load, per_hour=36_000.0, left=400, at_stake=712.0).hour == 712.0
    assert today.Person(load, per_hour=36_000.0, left=3, at_stake=712.0).hour == 6.0
    assert today.Person(load, per_hour=4.0, left=400, at_stake=712.0).hour == 8.0
