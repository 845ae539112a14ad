"""A model file and a ledger of every released version load, migrate and go on working."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from deccaf import DeCCaF, __version__
from deccaf.service.core import Service
from deccaf.service.store import database
from deccaf.service.web.app import create_app
from service_world import bearer, first_key

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
LEDGERS = sorted(FIXTURES.glob("ledger_*.db.gz"))
MODELS = sorted(FIXTURES.glob("*.deccaf"))


def test_every_released_version_is_kept() -> None:
    dated = re.findall(r"^## (\d+\.\d+\.\d+) - ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released = set(dated) - {__version__}
    assert released
    assert released <= {path.name.removeprefix("ledger_").removesuffix(".db.gz") for path in LEDGERS}
    assert released <= {
        json.loads(zipfile.ZipFile(p).read("manifest.json"))["versions"]["deccaf"] for p in MODELS
    }
    assert all(path.stat().st_size < 200_000 for path in (*LEDGERS, *MODELS))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_a_model_of_before_loads(path: Path) -> None:
    model = DeCCaF.load(path)
    assert model.experts_
    assert model.people().table["decisions"].sum() > 0


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.name)
def test_a_ledger_of_before_migrates_and_the_desk_goes_on(path: Path, tmp_path: Path) -> None:
    """Its cases, decisions, keys and model are there, it is sound, and new cases find somebody."""
    ledger = tmp_path / "ledger.db"
    ledger.write_bytes(gzip.decompress(path.read_bytes()))
    url = f"sqlite:///{ledger}"
    secret = first_key(url)  # migrates
    engine = database.connect(url)
    assert len(set(database.schema_state(engine))) == 1
    engine.dispose()
    told = json.loads(path.with_name(path.name.removesuffix(".db.gz") + ".json").read_text())
    with TestClient(create_app(Service(url)), headers=bearer(secret)) as lead:
        assert lead.get("/v1/reports/ledger").json() == {"sound": True, "wrong": []}
        for case, decision in told["decided"].items():
            assert lead.get(f"/v1/cases/{case}").json()["decision"]["decision"] == decision
        assert lead.get(f"/v1/cases/{told['open']}").status_code == 200
        new = {"case_id": "new", "features": told["features"]}
        assert lead.post("/v1/cases", json=new).status_code in (201, 202)
        assert lead.get("/v1/reports/ledger").json()["sound"]
