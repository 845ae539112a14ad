"""The lead's pages in headless Chromium: people, moving work, finding, the watch over time, audit; accessibility."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from service_databases import Postgres
from service_faults import ledger_faults
from test_pages_browser import AXE, Desk, browser, pytestmark, sign_in

__all__ = ["browser", "pytestmark"]  # fixtures and the mark of the other file

PAGES = (
    "/people",
    "/person?name=ann",
    "/cases?person=ann&sort=highest",
    "/audit?person=ann",
    "/watch",
    "/absence?maker=ann",
)


@pytest.fixture
def desk(postgres: Postgres, tmp_path: Path) -> Iterator[Desk]:
    """On PostgreSQL: the other browser tests are mostly on SQLite, and `test_lead_desk` is on both."""
    found = Desk(tmp_path, postgres.new_database(f"t{uuid.uuid4().hex[:12]}"))
    found.plan()
    yield found
    found.close()
    assert ledger_faults(found.url) == []


def check_accessible(page: Page, where: str) -> None:
    """No violation at all by axe-core's rules, the order of headings among them."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    bad = [(item["id"], item["nodes"][0]["html"][:200]) for item in found["violations"]]
    assert bad == [], where


def every_page_is_accessible(browser: Browser, desk: Desk) -> None:
    looks: dict[str, dict[str, Any]] = {
        "light": {},
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
    }
    for look, options in looks.items():
        page = sign_in(browser, desk, desk.secret, **options)
        for path in PAGES:
            page.goto(desk.address + path)
            page.wait_for_load_state("load")
            check_accessible(page, f"{path}, {look}")
            assert page.evaluate("document.documentElement.scrollWidth") <= (
                390 if look == "phone" else 1280
            ), path
        page.context.close()


def test_a_leads_day_beyond_today(browser: Browser, desk: Desk) -> None:
    """A person is added and gets a key; cases are found, moved and made urgent; somebody leaves and returns."""
    page = sign_in(browser, desk, desk.secret)
    page.goto(f"{desk.address}/people")
    page.fill("#name", "dora")
    page.fill("#display", "Dora Új")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="Dora Új")).to_be_visible()
    page.select_option("#key-person", "dora")
    page.get_by_role("button", name="Make a key").click()
    secret = page.locator("#secret").inner_text()
    page.get_by_text("I have written it down").click()
    expect(page.locator("#secret")).to_have_count(0)
    hers = sign_in(browser, desk, secret)
    expect(hers.locator("h1")).to_contain_text("Queue of")
    page.goto(f"{desk.address}/person?name=dora")
    page.get_by_role("button", name=re.compile("Revoke key")).click()
    expect(page.locator("text=revoked")).to_be_visible()
    hers.reload()
    expect(hers.locator("#key")).to_be_visible()  # signed out
    hers.context.close()

    page.goto(f"{desk.address}/cases")
    page.select_option("#person", "ann")
    page.select_option("#status", "assigned")
    page.select_option("#sort", "highest")
    page.get_by_role("button", name="Look").click()
    expect(page).to_have_url(re.compile("person=ann"))
    boxes = page.locator("input[name=case]")
    first, second = boxes.nth(0).get_attribute("value"), boxes.nth(1).get_attribute("value")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.select_option("#to", "machine")
    page.get_by_role("button", name="See what it costs").click()
    expect(page.locator("h1")).to_contain_text("Moving 2 cases")
    check_accessible(page, "move")
    page.fill("#reason", "a storm")
    page.click("#do-move")
    expect(page.get_by_role("status")).to_contain_text("2 cases moved")
    expect(page).to_have_url(re.compile("person=ann"))
    third = page.locator("input[name=case]").nth(0)
    urgent = third.get_attribute("value")
    third.check()
    page.select_option("#priority", "urgent")
    page.get_by_role("button", name="Set priority").click()
    expect(page.get_by_role("row", name=re.compile(rf"{urgent} urgent"))).to_be_visible()
    ann = sign_in(browser, desk, desk.ann)
    ann.keyboard.press("n")
    expect(ann.locator("h2").first).to_contain_text(f"Case {urgent}")
    ann.context.close()

    page.goto(desk.address)
    page.get_by_role("link", name="Away bob").click()
    expect(page.locator("h1")).to_contain_text("of bob would go to others")
    page.click("#confirm-away")
    page.get_by_role("link", name="Back bob").click()
    expect(page.locator("h2").first).to_contain_text("would go back")
    check_accessible(page, "back")
    page.click("#with-work, #without-work >> nth=0")
    expect(page.get_by_role("link", name="Away bob")).to_be_visible()

    page.goto(f"{desk.address}/audit")
    page.fill("#case", str(first))
    page.get_by_role("button", name="Look").click()
    expect(page.locator("table")).to_contain_text("a storm")
    with page.expect_download() as got:
        page.get_by_text("CSV of all that match").click()
    text = Path(got.value.path()).read_text()
    assert "a storm" in text
    assert str(second) not in text
    watch_over_time(page, desk)
    every_page_is_accessible(browser, desk)
    erase(page, desk)
    assert page.wrong == []  # type: ignore[attr-defined]
    page.context.close()


def watch_over_time(page: Page, desk: Desk) -> None:
    """A limit is changed, an alert comes up, and it is seen with a note."""
    page.goto(f"{desk.address}/watch")
    page.fill("#limit-drift", "0.001")
    page.get_by_role("button", name="Put in force").click()
    expect(page.locator("#over-time .chart").first).to_be_visible()
    expect(page.locator("#limit-drift")).to_have_value("0.001")
    page.goto(f"{desk.address}/audit?kind=watch+limits+changed")
    expect(page.locator("table")).to_contain_text("drift 0.001")


def erase(page: Page, desk: Desk) -> None:
    """The name is typed once more, and then gone."""
    page.goto(f"{desk.address}/person?name=cat")
    page.fill("#again", "nobody")
    page.get_by_role("button", name="Erase the name").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
    page.goto(f"{desk.address}/person?name=cat")
    page.fill("#again", "cat")
    page.get_by_role("button", name="Erase the name").click()
    expect(page.locator("table")).to_contain_text("person erased")
    page.goto(f"{desk.address}/team")
    expect(page.locator("main")).not_to_contain_text(re.compile(r"\bcat\b"))
