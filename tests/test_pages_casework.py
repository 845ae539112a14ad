"""Casework in real headless Chromium: how a case is shown, pages that stay alive, nothing that is cut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from test_pages_browser import (
    Desk,
    browser,
    check_accessible,
    get,
    heading,
    press_key,
    put,
    pytestmark,
    sign_in,
)

__all__ = ["browser", "pytestmark"]  # a fixture, and the mark of the other file

ODD = "Åse/ß 1"
"""An id with an umlaut, a slash and a space."""
DISPLAY: dict[str, Any] = {
    "guidelines": "Look at the amount first.",
    "classes": {"0": "OK", "1": "Fraud"},
    "field": [
        {"name": "channel", "label": "Came by", "group": "Where from"},
        {"name": "amount", "label": "Amount", "unit": "EUR", "digits": 2},
        {"name": "note", "format": "long"},
    ],
    "link": [{"label": "Customer file", "url": "https://crm.example/{case_id}?by={channel}"}],
    "image": [{"label": "Document", "url": "https://scans.example/{case_id}.png"}],
    "machine": {"people": {"ann": "after"}},
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    found = Desk(tmp_path_factory.mktemp("casework"))
    found.plan()
    for k in range(3):
        body = {"case_id": f"{ODD}{k}", "losses": {"machine": 9.0, "bob": 0.1}, "machine_decision": 1}
        features = {"amount": 1234.567891234567, "channel": "web", "note": "a long note " * 20}
        found._post("/v1/cases", {**body, "features": features})
    yield found
    found.close()


def test_a_case_is_shown_as_the_lead_says(browser: Browser, desk: Desk) -> None:
    put(desk, "/v1/display", DISPLAY)
    page = sign_in(browser, desk, desk.secret)
    page.goto(f"{desk.address}/queue?expert=bob")
    press_key(page, "n")
    expect(heading(page)).to_contain_text("Case ")
    expect(page.locator("main")).to_contain_text("Look at the amount first.")
    expect(page.locator(".decide button").nth(1)).to_have_text("Fraud 1")
    expect(page.locator("h3.group")).to_have_text("Where from")
    page.goto(f"{desk.address}/cases/%C3%85se%2F%C3%9F%201{0}")
    expect(page.locator("h1")).to_have_text(f"Case {ODD}0")
    expect(page.locator(".features").first).to_contain_text("1,234.57 EUR")
    expect(page.locator(".odd-line")).to_contain_text("higher than in any past case")
    link = page.get_by_text("Customer file")
    assert link.get_attribute("href") == "https://crm.example/%C3%85se%2F%C3%9F%2010?by=web"
    assert page.locator("main img").get_attribute("src") == "https://scans.example/%C3%85se%2F%C3%9F%2010.png"
    check_accessible(page)
    page.goto(f"{desk.address}/setup/display")
    check_accessible(page)
    page.fill(
        "#toml", '[display]\nguidelines = "New ones"\n[[display.link]]\nlabel = "x"\nurl = "javascript:1"\n'
    )
    page.click("text=Keep this")
    expect(page.locator("main .alert.bad")).to_contain_text("must begin with http:// or https://")
    page.fill("#toml", '[display]\nguidelines = "New ones"\n')
    page.click("text=Keep this")
    expect(page.locator(".alert.good")).to_contain_text("shown so from now on")
    assert get(desk, "/v1/display")["guidelines"] == "New ones"
    assert get(desk, "/v1/display")["machine"]["people"] == {"ann": "after"}
    assert page.wrong == []  # type: ignore[attr-defined]
    page.context.close()


def test_the_machine_is_shown_after_the_first_answer(browser: Browser, desk: Desk) -> None:
    put(desk, "/v1/display", DISPLAY)
    page = sign_in(browser, desk, desk.ann)
    if page.locator(".decide").count() == 0:
        press_key(page, "n")
    expect(page.locator("main")).to_contain_text("Answer first; then you see what the machine thinks")
    case = heading(page).inner_text().removeprefix("Case ")
    press_key(page, "1")
    expect(page.locator(".machine-says")).to_contain_text("Your first answer was Fraud; now decide.")
    expect(page.locator(".machine-says")).to_contain_text("The machine would decide")
    press_key(page, "0")
    expect(page.locator(".undo")).to_contain_text(f"Case {case}: you decided OK")
    decided = next(e for e in get(desk, f"/v1/cases/{case}")["history"] if e["kind"] == "decided")
    assert decided["data"] == {"decision": 0, "machine": "after", "first": 1}
    page.context.close()


def test_the_focus_stays_while_today_renews_itself(browser: Browser, desk: Desk) -> None:
    page = sign_in(browser, desk, desk.secret)
    renewals: list[float] = []
    page.on("response", lambda answer: renewals.append(time.time()) if "numbers" in answer.url else None)
    button = page.locator("td a.button").first  # Away
    button.focus()
    name = page.evaluate("document.activeElement.innerText")
    began, seen = time.monotonic(), set()
    while time.monotonic() < began + 10 or len(renewals) < 2:  # it renews itself every 3 s
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.tagName"))
        page.keyboard.press("Shift+Tab")
        page.wait_for_timeout(250)
        assert page.evaluate("document.activeElement.innerText") == name
    assert len(renewals) >= 2
    assert "BODY" not in seen
    page.context.close()


def test_a_server_that_is_away_is_said_and_unknown_addresses_are_pages(browser: Browser, desk: Desk) -> None:
    page = sign_in(browser, desk, desk.secret, timezone_id="Asia/Kolkata")
    expect(page.locator("#zone")).to_have_text("in Asia/Calcutta (UTC+5:30)")
    expect(page.locator("#away")).to_be_hidden()
    page.route("**/today/numbers", lambda route: route.abort())
    expect(page.locator("#away")).to_contain_text("No connection since ")
    page.unroute("**/today/numbers")
    expect(page.locator("#away")).to_be_hidden()
    page.goto(f"{desk.address}/no/such/page")
    expect(page.locator("main")).to_contain_text("There is no such page")
    expect(page.locator("nav a")).not_to_have_count(0)
    check_accessible(page)
    page.goto(f"{desk.address}/cases/missing")
    expect(page.locator("nav a")).not_to_have_count(0)
    page.context.close()


def test_a_link_survives_the_sign_in_and_a_queue_finds_new_cases(browser: Browser, desk: Desk) -> None:
    page = browser.new_context().new_page()
    page.set_default_timeout(30_000)
    page.goto(f"{desk.address}/cases/c40?from=mail")
    page.fill("#key", desk.secret)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Case c40")
    desk._post("/v1/experts", {"name": "Ünal Ö/2", "display": "Ünal", "team": "desk"})
    put(desk, f"/v1/shifts/{desk.shift}/roster/%C3%9Cnal%20%C3%96%2F2", {"capacity": 3})
    page.goto(f"{desk.address}/queue")
    page.click("text=Ünal")
    expect(page.locator("h1")).to_have_text("Queue of Ünal")
    expect(page.locator("#waiting")).to_contain_text("Your queue is empty")
    body = {"case_id": "for/Ü", "losses": {"machine": 9.0, "Ünal Ö/2": 0.1}, "machine_decision": 0}
    desk._post("/v1/cases", body)
    expect(page.locator("#waiting")).to_contain_text("1 case is waiting for you")
    page.click("text=Take the next case")
    expect(heading(page)).to_have_text("Case for/Ü")
    page.context.close()


@pytest.mark.parametrize("width", [390, 1024])
def test_nothing_is_cut_or_runs_into_each_other(browser: Browser, desk: Desk, width: int) -> None:
    put(desk, "/v1/display", DISPLAY)
    page = sign_in(browser, desk, desk.secret, viewport={"width": width, "height": 844}, color_scheme="dark")
    odd = "%C3%85se%2F%C3%9F%2010"
    for path in ("/", "/team", "/watch", "/queue?expert=bob", f"/cases/{odd}", "/setup/display"):
        page.goto(desk.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        check_accessible(page)
        over = page.evaluate(
            """() => [...document.querySelectorAll('.bar')].filter(row => {
                const name = row.querySelector('.bar-name').getBoundingClientRect();
                const track = row.querySelector('svg').getBoundingClientRect();
                return name.right > track.left + 1 && name.bottom > track.top + 1 && name.width > 0;
            }).length"""
        )
        assert over == 0, path
        broken = page.evaluate(
            """() => [...document.querySelectorAll('.num, .big, .bar-value, .features dd')].filter(e => {
                const text = e.firstChild, range = document.createRange();
                if (!text || text.nodeType !== 3 || !/^[\\s]*[0-9.,]+[\\s]*$/.test(text.nodeValue)) return false;
                range.selectNodeContents(text);
                const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
                return lines.size > 1;
            }).map(e => e.textContent.trim())"""
        )
        assert broken == [], path
    page.context.close()
