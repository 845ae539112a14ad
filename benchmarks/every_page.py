"""Pictures of every page, with few people and with many, at three widths, light and dark, to be looked at.

    .venv/bin/python benchmarks/every_page.py --out /tmp/pages          # 9 and 50 people: 252 pictures
    .venv/bin/python benchmarks/every_page.py --out /tmp/pages --people 50 --widths 390 --only queue opinions

The ledger is that of `benchmarks/pages.py`, in a temporary folder. Pages that are wider than the window, and
errors of scripts, are named at the end, with exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pages
from deccaf.service.core import Service
from deccaf.service.web.app import create_app
from service_databases import free_port
from service_world import first_key
from test_pages_browser import ARGUMENTS, CHROMIUM

PAGES = {
    "today": "/",
    "queues": "/queue",
    "queue": "/queue?expert=p00",
    "opinions": "/opinions",
    "cases": "/cases",
    "case": "/cases/c100",
    "disputed": "/cases/d1",
    "team": "/team",
    "people": "/people",
    "person": "/person?name=p01",
    "absence": "/absence?maker=p01",
    "models": "/models",
    "candidate": "/models/2",
    "watch": "/watch",
    "audit": "/audit",
    "setup": "/setup",
    "display": "/setup/display",
    "trial": "/trial",
    "week": "/next-week",
    "webhooks": "/webhooks",
    "api": "/docs",
}
WAIT = 1_500
"""Milliseconds for the parts of a page that are fetched after it."""


def serve(folder: Path, people: int, cases: int) -> tuple[str, str]:
    """A service with that many people, in a thread of its own; its address, and a lead's key."""
    url = f"sqlite:///{folder}/{people}.db"
    secret, service = first_key(url), Service(url, housekeeping=False)
    pages.fill(service, [f"p{k:02}" for k in range(people)], cases, folder)
    service.monitor.check_now(time.time())
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(service), port=port, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{port}", secret


def take(
    browser: Browser, address: str, secret: str, look: str, width: int, args: Any, start: str
) -> list[str]:
    """Pictures at one width in one look; what is wrong with the pages."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=look)
    page, wrong = context.new_page(), list[str]()
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.goto(address)
    page.fill("#key", secret)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav")
    for name in args.only or PAGES:
        page.goto(address + PAGES[name])
        page.wait_for_timeout(WAIT)
        page.screenshot(path=str(args.out / f"{start}-{name}-{width}-{look}.png"), full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth")
        wrong += [f"{name} is {wide} px wide at {width}"] if wide > width else []
    context.close()
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--people", type=int, nargs="+", default=[9, 50])
    parser.add_argument("--widths", type=int, nargs="+", default=[1440, 1024, 390])
    parser.add_argument("--looks", nargs="+", choices=("light", "dark"), default=["light", "dark"])
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--only", nargs="+", choices=tuple(PAGES))
    args = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("no Chromium found; `sh tools/test-packages` installs it on Debian")
    args.out.mkdir(parents=True, exist_ok=True)
    wrong = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for people in args.people:
            address, secret = serve(Path(folder), people, args.cases)
            for look in args.looks:
                for width in args.widths:
                    found = take(browser, address, secret, look, width, args, f"{people:02}")
                    wrong += [f"{people} people, {look}: {one}" for one in found]
        browser.close()
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
