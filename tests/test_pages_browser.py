"""The pages in real headless Chromium: a lead's morning, a reviewer's queue, hostile values, accessibility."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from deccaf.service.core import Service
from deccaf.service.web.app import create_app
from service_databases import free_port
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


PAGES = (
    "/",
    "/queue",
    "/opinions",
    "/cases",
    "/cases/c40",
    "/cases?person=ann&sort=highest",
    "/team",
    "/people",
    "/person?name=ann",
    "/absence?maker=ann",
    "/models",
    "/models/1",
    "/watch",
    "/audit?person=ann",
    "/setup",
    "/setup/display",
)


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
    disagree(found)
    found.plan()
    yield found
    found.close()


def disagree(desk: Desk) -> None:
    """Two people answer a case differently, so that the lead's list is not empty."""
    put(desk, "/v1/second-opinions", {"disagreement": "lead"})
    losses = {"machine": 90.0, "bob": 0.1, "cat": 2.0}
    case = {"case_id": "disputed", "losses": losses, "machine_decision": 0, "features": {"amount": 3.5}}
    desk._post("/v1/cases", case)
    desk._post("/v1/second-opinions/wanted", {"case_ids": ["disputed"]})
    for name, said in (("bob", 0), ("cat", 1)):
        desk._post("/v1/cases/disputed/decision", {"decision": said, "expert": name})


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


def press_key(page: Page, key: str) -> None:
    """A key of the desk; keys work once the page has loaded, which may be later than what it shows."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


def heading(page: Page) -> Any:
    """Of what a queue shows first."""
    return page.locator("main h2").first


def put(desk: Desk, path: str, body: Any, method: str = "PUT") -> Any:
    headers = {"Content-Type": "application/json", **bearer(desk.secret)}
    data = json.dumps(body).encode()
    request = urllib.request.Request(desk.address + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def get(desk: Desk, path: str) -> Any:
    request = urllib.request.Request(desk.address + path, headers=bearer(desk.secret))
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def check_accessible(page: Page, colours: bool = False) -> None:
    """No violation at all by axe-core's rules, the order of headings among them; or by those about colours."""
    page.evaluate(AXE.read_text())  # not a script element: the policy of the page would refuse it
    only = {"runOnly": ["color-contrast", "link-in-text-block"]} if colours else {}
    found = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **only})
    bad = [
        (item["id"], item["nodes"][0]["html"][:200], item["nodes"][0].get("failureSummary", "")[:300])
        for item in found["violations"]
    ]
    assert bad == [], page.url


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


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_accessible(browser: Browser, desk: Desk, width: int) -> None:
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    page = sign_in(browser, desk, desk.secret, **(phone if width == 390 else {}))
    for path in PAGES:
        page.goto(desk.address + path)
        page.wait_for_load_state("networkidle") if path != "/" else page.wait_for_selector("#what-if :not(p)")
        check_accessible(page)
        if width == 1280:
            page.emulate_media(color_scheme="dark")
            check_accessible(page, colours=True)
            page.emulate_media(color_scheme="light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
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
    held: list[Route] = []
    page.route("**/setup/cases", lambda route: held.append(route))  # a file that takes its time
    page.locator("#cases").get_by_text("Preview").click()
    expect(page.locator("#cases .under-way")).to_contain_text(
        re.compile("(Sending|Reading) the file … [1-9]")
    )
    held.pop().continue_()
    page.unroute("**/setup/cases")
    preview = page.locator("#cases-preview")
    expect(page.locator("#cases .under-way")).to_have_count(0)
    expect(preview).to_contain_text("20 rows: 19 can be entered, 1 cannot")
    expect(preview).to_contain_text("'<b>lots</b>' is no number")
    page.check("#cases input[name=skip]")
    page.locator("#cases").get_by_text("Enter the rows").click()
    expect(page.locator("#plan")).to_have_text("Plan 19 cases")
    assert page.wrong == []  # type: ignore[attr-defined]
    page.context.close()
