"""Take pictures of the pages with a simulated team at work, for the documentation.

    .venv/bin/python tools/screenshots.py                      # docs/images/today.png
    .venv/bin/python tools/screenshots.py --all --out /tmp/pages --seconds 120

It starts `deccaf serve --demo` on a free port, signs in with the demo's key in headless Chromium, lets the
day go on for a while, and takes the picture.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PAGES = {
    "today": "/",
    "queue": "/queue",
    "cases": "/cases",
    "team": "/team",
    "models": "/models",
    "watch": "/watch",
    "setup": "/setup",
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def take(page: Any, address: str, out: Path, names: list[str], whole: bool) -> None:
    for name in names:
        page.goto(address + PAGES[name])
        page.wait_for_timeout(1500)
        page.screenshot(path=str(out / f"{name}.png"), full_page=whole)
        print(out / f"{name}.png", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument(
        "--seconds", type=float, default=150.0, help="how long the demo runs before the picture"
    )
    parser.add_argument("--all", action="store_true", help="every page, also dark and on a phone")
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium found; `sh tools/test-packages` installs it on Debian")
    args.out.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [str(Path(sys.executable).with_name("deccaf")), "serve", "--demo", "--port", str(port)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert demo.stdout is not None
        secret = demo.stdout.readline().strip()
        time.sleep(args.seconds)
        with sync_playwright() as tool:
            browser = tool.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
            looks = [("", {"viewport": {"width": 1200, "height": 1110}})]
            if args.all:
                looks += [
                    ("dark", {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"}),
                    (
                        "phone",
                        {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
                    ),
                ]
            for look, options in looks:
                page = browser.new_context(**options).new_page()
                page.set_default_timeout(180_000)  # on a busy machine a page takes its time
                address = f"http://127.0.0.1:{port}"
                page.goto(address)
                page.fill("#key", secret)
                page.click("button[type=submit]")
                page.wait_for_selector("#numbers")
                out = args.out / look if look else args.out
                out.mkdir(exist_ok=True)
                take(page, address, out, list(PAGES) if args.all else ["today"], args.all)
            browser.close()
    finally:
        demo.terminate()
        demo.wait(30)


if __name__ == "__main__":
    main()
