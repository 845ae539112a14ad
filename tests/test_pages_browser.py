"""The pages in real headless Chromium: a lead's morning, a reviewer's queue, hostile values, accessibility."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from deccaf.service.core import Service
from deccaf.service.web.app import create_app
from service_databases import Postgres, free_port
from service_faults import ledger_faults
from service_world import EXPERTS, bearer, first_key, history, model_file, shift_body

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; `sh tools/test-packages` installs it")

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(
    timeout=30_000
)  # as long as a page may take elsewhere: a busy machine is no fault of a page
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAYLOADS = [
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    '"><script>window.hit=1</script>',
    "'><script>window.hit=1</script>",
    '" autofocus onfocus=window.hit=1 x="',
    "' autofocus onfocus=window.hit=1 x='",
    "<body onload=window.hit=1>",
    "<iframe src=javascript:window.top.hit=1></iframe>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "javascript:window.hit=1",
    "<a href=javascript:window.hit=1>x</a>",
    "<details open ontoggle=window.hit=1>",
    "<video><source onerror=window.hit=1></video>",
    "<input autofocus onfocus=window.hit=1>",
    "<marquee onstart=window.hit=1>x</marquee>",
    "<object data=javascript:window.hit=1></object>",
    "<embed src=javascript:window.hit=1>",
    "<meta http-equiv=refresh content='0;url=javascript:window.hit=1'>",
    "<link rel=stylesheet href=data:text/css,*{x:expression(window.hit=1)}>",
    "<math><mtext><img src=x onerror=window.hit=1></mtext></math>",
    "<div hx-get=/cases hx-trigger=load hx-on::after-request=window.hit=1>x</div>",
    "<div hx-on:click=window.hit=1 hx-trigger=load hx-get=/>x</div>",
    "<button data-key=1 onclick=window.hit=1>x</button>",
    "{{ 7*7 }}{% for x in [1] %}hit{% endfor %}",
    "${window.hit=1}`${window.hit=1}`",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "\u003cscript\u003ewindow.hit=1\u003c/script\u003e<!--<script>-->\u2028window.hit=1",
]


class Desk:
    """A service with a model, a shift and cases, listening for a browser."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder}/deccaf.db"
        self.secret = first_key(self.url)
        self.port = free_port()
        app = create_app(Service(self.url))
        self.server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="warning"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)
        self.address = f"http://127.0.0.1:{self.port}"
        self._furnish(folder)

    def _furnish(self, folder: Path) -> None:
        self._post("/v1/teams", {"name": "desk"})
        for name in EXPERTS:
            self._post("/v1/experts", {"name": name, "team": "desk"})
        made = self._post("/v1/models?name=first", model_file(folder))["id"]
        self._post(f"/v1/models/{made}/activate", None)
        self.shift = self._post("/v1/shifts", shift_body(dict.fromkeys(EXPERTS, 20)))["id"]
        bad = dict(enumerate(PAYLOADS))
        frame = history(120, seed=5)
        cases = [
            {
                "case_id": f"c{k}",
                "features": {
                    "amount": row.amount,
                    "channel": row.channel,
                    "note": bad.get(k, "plain"),
                    bad.get(k, "x"): k,
                },
            }
            for k, row in enumerate(frame.itertuples())
        ]
        self._post("/v1/cases/bulk", {"cases": cases})
        key = {"name": "ann", "role": "reviewer", "expert": "ann"}
        self.ann = self._post("/v1/keys", key)["secret"]

    def plan(self) -> None:
        """Give everything out."""
        made = self._post("/v1/plans", {})["id"]
        self._post(f"/v1/plans/{made}/commit", None)

    def _post(self, path: str, body: Any) -> Any:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **bearer(self.secret)}
        request = urllib.request.Request(self.address + path, data, headers, method="POST")
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """After the morning's plan; tests run in any order, and in several processes."""
    found = Desk(tmp_path_factory.mktemp("desk"))
    found.plan()
    yield found
    found.close()


@pytest.fixture
def unplanned(tmp_path: Path) -> Iterator[Desk]:
    """Before it."""
    found = Desk(tmp_path)
    yield found
    found.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


def sign_in(browser: Browser, desk: Desk, secret: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(30_000)
    page.wrong = []  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.wrong.append(str(error)))  # type: ignore[attr-defined]
    page.on("console", lambda said: page.wrong.append(said.text) if "Content Security" in said.text else None)  # type: ignore[attr-defined]
    page.goto(desk.address)
    expect(page.locator("#key")).to_be_focused()  # by itself, a moment after the page has loaded
    page.keyboard.type(secret)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav")
    page.wait_for_load_state("load")
    return page


def check_accessible(page: Page) -> None:
    """No serious or critical violation by axe-core's rules."""
    page.evaluate(AXE.read_text())  # not a script element: the policy of the page would refuse it
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    bad = [
        (item["id"], item["nodes"][0]["html"][:200], item["nodes"][0].get("failureSummary", "")[:300])
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
    ]
    assert bad == []


def test_a_leads_morning(browser: Browser, unplanned: Desk) -> None:
    page = sign_in(browser, unplanned, unplanned.secret)
    expect(page.locator("h1")).to_have_text("Today: today")
    page.click("text=Plan 120 cases")
    expect(page.locator("h1")).to_contain_text("120 cases")
    check_accessible(page)
    page.click("#commit")
    expect(page.locator("text=Nothing waits for a plan")).to_be_visible()
    expect(page.locator("#what-if")).to_contain_text("With today's capacities a day of 120 cases costs")
    check_accessible(page)
    page.focus("#team")
    page.keyboard.press("Home")  # nobody has time
    expect(page.locator("#what-if .finding")).to_contain_text("60 fewer cases of people's time would cost")
    page.click("summary")
    before = page.locator(".finding").inner_text()
    page.focus("input[name='of:ann']")
    page.keyboard.press("End")
    expect(page.locator("input[name='of:ann'] + output")).to_have_text("40 cases")
    expect(page.locator(".finding")).not_to_have_text(before)
    page.click("text=Back to today's")
    expect(page.locator(".finding")).to_contain_text("Move a slider")
    page.focus("input[name='of:ann']")
    page.keyboard.press("End")
    expect(page.locator(".finding")).to_contain_text("20 more cases of people's time would")
    page.click("text=Put these capacities in force")
    expect(page.locator("tr", has_text="ann").locator(".num").first).to_contain_text("of 40")
    assert page.wrong == []  # type: ignore[attr-defined]
    page.context.close()


def test_a_reviewer_needs_no_mouse_and_the_lead_sees_the_numbers_change(browser: Browser, desk: Desk) -> None:
    lead = sign_in(browser, desk, desk.secret)
    given_out = lead.locator(".tile", has_text="Given out").locator(".meaning")
    before = given_out.inner_text()
    page = sign_in(browser, desk, desk.ann)
    expect(page.locator("h1")).to_have_text("Queue of ann")
    expect(page.locator("nav a")).to_have_count(1)
    page.keyboard.press("n")
    expect(page.locator("h2").first).to_contain_text("Case c")
    check_accessible(page)
    for done, key in ((1, "0"), (2, "1"), (3, "0")):
        page.wait_for_load_state("load")
        page.keyboard.press(key)
        expect(page.locator(".title-row .meaning")).to_contain_text(
            f"{done} case{'s' if done > 1 else ''} decided today"
        )
    page.wait_for_load_state("load")
    first = page.locator("h2").first.inner_text()
    page.keyboard.press("b")
    expect(page.locator("h2").first).not_to_have_text(first)
    expect(given_out).not_to_have_text(before)  # the page asks again by itself
    assert page.wrong == lead.wrong == []  # type: ignore[attr-defined]
    page.context.close()
    lead.context.close()


def test_the_same_day_on_postgresql(browser: Browser, postgres: Postgres, tmp_path: Path) -> None:
    desk = Desk(tmp_path, postgres.new_database(f"t{uuid.uuid4().hex[:12]}"))
    test_a_leads_morning(browser, desk)
    test_a_reviewer_needs_no_mouse_and_the_lead_sees_the_numbers_change(browser, desk)
    desk.close()
    assert ledger_faults(desk.url) == []


def test_no_value_of_a_case_runs_as_script(browser: Browser, desk: Desk) -> None:
    assert len(PAYLOADS) == 30
    page = sign_in(browser, desk, desk.secret)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for k, payload in enumerate(PAYLOADS):
        page.goto(f"{desk.address}/cases/c{k}")
        assert page.locator("dd", has_text=re.compile(re.escape(payload[:12]))).count(), payload
        assert page.evaluate("window.hit") is None, payload
    page.goto(f"{desk.address}/cases")
    page.goto(f"{desk.address}/cases?find=%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E")
    assert page.evaluate("window.hit") is None
    assert page.locator("main img, main script, main iframe, main object, main embed").count() == 0
    assert dialogs == []
    page.context.close()


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page_is_accessible(browser: Browser, desk: Desk, look: str) -> None:
    options: dict[str, Any] = {"color_scheme": "dark"} if look == "dark" else {}
    if look == "phone":
        options = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    page = sign_in(browser, desk, desk.secret, **options)
    for path in ("/", "/queue", "/cases", "/cases/c40", "/team", "/models", "/watch", "/setup"):
        page.goto(desk.address + path)
        page.wait_for_load_state("networkidle") if path != "/" else page.wait_for_selector("#what-if :not(p)")
        check_accessible(page)
        if look == "phone":
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.context.close()


def test_everything_on_today_is_reached_with_the_tab_key(browser: Browser, desk: Desk) -> None:
    page = sign_in(browser, desk, desk.secret)
    page.wait_for_selector("#what-if h3, #what-if p")
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], button, summary, input:not([type=hidden])')]"
        ".filter(e => e.checkVisibility()).length"
    )
    page.evaluate("document.querySelector('#numbers').removeAttribute('hx-trigger')")
    reached = set()
    for _ in range(wanted + 10):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.outerHTML.slice(0, 300) + [...document.querySelectorAll(e.tagName)].indexOf(e))(document.activeElement)"
            )
        )
    assert len(reached) >= wanted
    page.context.close()


def test_an_upload_is_previewed_before_it_is_entered(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "today.csv"
    rows = history(20, seed=8)[["case_id", "amount", "channel"]].astype({"amount": "object"})
    rows.loc[3, "amount"] = "<b>lots</b>"
    rows.to_csv(file, index=False)
    page = sign_in(browser, desk, desk.secret)
    page.goto(f"{desk.address}/setup")
    page.set_input_files("#cases-file", str(file))
    page.locator("#cases").get_by_text("Preview").click()
    preview = page.locator("#cases-preview")
    expect(preview).to_contain_text("20 rows: 19 can be entered, 1 cannot")
    expect(preview).to_contain_text("'<b>lots</b>' is no number")
    page.check("#cases input[name=skip]")
    page.locator("#cases").get_by_text("Enter the rows").click()
    expect(page.locator("#plan")).to_have_text("Plan 19 cases")
    assert page.wrong == []  # type: ignore[attr-defined]
    page.context.close()
