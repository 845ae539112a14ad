"""A service to test: its app on a database, keys for every role, and a small fitted model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from fastapi.testclient import TestClient

from deccaf import Costs
from deccaf.estimator import DeCCaF
from deccaf.service.core import Service
from deccaf.service.store import database
from deccaf.service.store.keys import create_key
from deccaf.service.web.app import create_app
from service_answers import CheckedClient

EXPERTS = ("ann", "bob", "cat")


@dataclass
class World:
    """A client for every role."""

    service: Service
    lead: TestClient
    machine: TestClient
    ann: TestClient
    nobody: TestClient
    shift: int

    def case(self, case_id: str, **losses: float) -> dict[str, Any]:
        return {"case_id": case_id, "losses": losses, "machine_decision": 0}

    def roster(self) -> dict[str, dict[str, Any]]:
        found = self.lead.get(f"/v1/shifts/{self.shift}").json()["roster"]
        return {place["maker"]: place for place in found}

    def assert_sound(self) -> None:
        assert self.lead.get("/v1/reports/ledger").json() == {"sound": True, "wrong": []}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@cache
def _migrated() -> bytes:
    """An SQLite database with all tables and nothing in them."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "deccaf.db")
        engine = database.connect(f"sqlite:///{path}")
        database.migrate(engine)
        engine.dispose()
        return path.read_bytes()


def first_key(url: str, role: str = "lead", expert: str | None = None) -> str:
    """A key of an installation, which is made where there is none yet."""
    file = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite") and file.parent.is_dir() and not file.exists():
        file.write_bytes(_migrated())
        file.chmod(0o600)
    engine = database.connect(url)
    database.migrate(engine)
    with database.writing(engine) as connection:
        _, secret = create_key(connection, f"a {role}", role, expert, 0.0)
    engine.dispose()
    return secret


def shift_body(capacity: dict[str, int], name: str = "today", **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "name": name,
        "team": "desk",
        "starts_at": (now - timedelta(hours=1)).isoformat(),
        "ends_at": (now + timedelta(hours=7)).isoformat(),
        "roster": [{"maker": maker, "capacity": units} for maker, units in capacity.items()],
        **more,
    }


@contextmanager
def world(url: str, capacity: dict[str, int] | None = None, **more: Any) -> Iterator[World]:
    """A service with a team of three and a running shift."""
    secret = first_key(url)
    service = Service(url, **more)
    app = create_app(service)
    with TestClient(app, raise_server_exceptions=False) as nobody:

        def client(key: str) -> TestClient:
            other = CheckedClient(app, raise_server_exceptions=False, headers=bearer(key))
            other.portal = nobody.portal
            return other

        lead = client(secret)
        assert lead.post("/v1/teams", json={"name": "desk"}).status_code == 201
        for name in EXPERTS:
            assert lead.post("/v1/experts", json={"name": name, "team": "desk"}).status_code == 201
        made = lead.post("/v1/shifts", json=shift_body(capacity or {"ann": 2, "bob": 2}))
        assert made.status_code == 201, made.text
        keys = {
            role: lead.post("/v1/keys", json={"name": role, "role": role, "expert": expert}).json()["secret"]
            for role, expert in (("machine", None), ("reviewer", "ann"))
        }
        yield World(
            service, lead, client(keys["machine"]), client(keys["reviewer"]), nobody, made.json()["id"]
        )


def history(rows: int, seed: int = 0) -> pd.DataFrame:
    """Cases with a truth that depends on two features, each decided by one of three experts of unlike skill."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "case_id": [f"h{k}" for k in range(rows)],
            "amount": rng.normal(size=rows).round(3),
            "channel": rng.choice(["web", "phone", "branch"], rows),
        }
    )
    risk = 1 / (1 + np.exp(-(1.5 * frame["amount"] + (frame["channel"] == "web") - 1.5)))
    frame["label"] = (rng.random(rows) < risk).astype(int)
    frame["expert"] = rng.choice(EXPERTS, rows)
    skill = frame["expert"].map({"ann": 0.95, "bob": 0.85, "cat": 0.7})
    frame["decision"] = np.where(rng.random(rows) < skill, frame["label"], 1 - frame["label"])
    return frame


@cache
def small_model(seed: int = 0) -> DeCCaF:
    past = history(600, seed)
    model = DeCCaF(
        Costs.binary(0.2, 1.0), case_parts=("logistic",), decision_parts=("rates", "pooled"), seed=seed
    )
    return model.fit(
        past[["case_id", "amount", "channel"]],
        past["label"],
        expert=past["expert"],
        decision=past["decision"],
    )


def model_file(folder: Path, seed: int = 0) -> bytes:
    path = folder / f"model-{seed}.deccaf"
    small_model(seed).save(path)
    return path.read_bytes()
