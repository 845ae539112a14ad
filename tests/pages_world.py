"""A signed-in browser, without a browser: forms are filled in as a person would."""

from __future__ import annotations

import re
from typing import Any

from fastapi.testclient import TestClient

from service_world import World


class Person:
    """Somebody who is signed in; every form gets the token that its page carried."""

    def __init__(self, world: World, secret: str) -> None:
        self.client = TestClient(
            world.nobody.app,
            raise_server_exceptions=False,
            follow_redirects=False,
            base_url="http://testserver",
        )
        self.client.portal = world.nobody.portal
        self.answer = self.client.post("/sign-in", data={"key": secret})
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.client.get(self.home).text)
        self.csrf = found.group(1) if found else ""

    @property
    def home(self) -> str:
        return self.answer.headers.get("location", "/")

    def get(self, path: str, **more: Any) -> Any:
        return self.client.get(path, **more)

    def post(self, path: str, data: dict[str, Any] | None = None, **more: Any) -> Any:
        return self.client.post(path, data={"csrf": self.csrf, **(data or {})}, **more)


def new_key(world: World, role: str, expert: str | None = None) -> str:
    body = {"name": f"{role} of pages", "role": role, "expert": expert}
    return str(world.lead.post("/v1/keys", json=body).json()["secret"])
