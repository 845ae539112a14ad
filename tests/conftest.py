from __future__ import annotations

import io
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf.cli import main
from service_databases import Postgres, postgres_server

_SHARED = Path(os.environ.get("DECCAF_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real data, which is not part of the project."""
    if not (_SHARED / "baf_facts").is_dir():
        pytest.skip("the real data is absent; set DECCAF_SHARED_DATA to its folder")
    return _SHARED


@pytest.fixture
def cases_frame() -> pd.DataFrame:
    """Eight loan applications over two months: small enough to check by hand."""
    return pd.DataFrame(
        {
            "case_id": [f"a{k}" for k in range(8)],
            "amount": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, np.nan],
            "channel": ["web", "web", "branch", None, "phone", "web", "web", "branch"],
            "label": [0, 1, 0, 0, 1, 0, 0, 1],
            "time": [1, 1, 1, 1, 2, 2, 2, 2],
        }
    )


@pytest.fixture
def decisions_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "case_id": [f"a{k}" for k in range(8)],
            "expert_id": ["ann", "bob"] * 4,
            "decision": [0, 1, 1, 0, 1, 0, 0, 0],
        }
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL for this session."""
    with postgres_server() as server:
        if server is None:
            pytest.skip("no PostgreSQL server programs; `sh tools/test-packages` installs them")
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deccaf.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database(f"t{uuid.uuid4().hex[:12]}")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run the command line in this process; gives (exit code, stdout, stderr)."""

    def runner(*arguments: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["deccaf", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner
