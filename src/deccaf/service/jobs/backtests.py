"""A backtest on the ledger's own history: what plans would have cost, against what really happened.

It is `deccaf backtest`, run as a command: the benchmark stands beside the service, not below it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from deccaf.data.config import Config
from deccaf.data.costs import Costs
from deccaf.data.files import write_frame, write_text
from deccaf.errors import DataError

_COMMAND = (sys.executable, "-c", "from deccaf.cli import main; main()", "backtest")
_LONGEST = 3600.0


def backtest(
    cases: pd.DataFrame, decisions: pd.DataFrame, config: Config | None, costs: Costs | None
) -> tuple[dict[str, Any], bytes]:
    """The verdict in sentences, the notes, the costs per 100 cases by policy; and the report as a page."""
    if config is None and costs is None:
        raise DataError("nobody said what errors cost: do it under Set-up, or activate a model that knows it")
    with tempfile.TemporaryDirectory(prefix="deccaf-backtest-") as name:
        folder = Path(name)
        write_frame(cases, folder / "cases.parquet")
        write_frame(decisions, folder / "decisions.parquet")
        write_text(_toml(config, costs), folder / "config.toml")
        files = ("--cases", "cases.parquet", "--decisions", "decisions.parquet", "--config", "config.toml")
        done = subprocess.run(
            [*_COMMAND, *files, "--out", "report", "--json"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
        if done.returncode:
            raise DataError(done.stderr.strip()[-1000:] or "the backtest failed")
        found: dict[str, Any] = json.loads(done.stdout)
        found["verdict"] = found["verdict"]["sentences"]
        return found, (folder / "report" / "report.html").read_bytes()


def _toml(config: Config | None, costs: Costs | None) -> str:
    """A configuration file; JSON's scalars and lists are TOML's too."""
    tables: dict[str, Any] = {}
    if config is not None:
        tables = config.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    elif costs is not None:
        tables = {"costs": costs.to_dict()}
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"
