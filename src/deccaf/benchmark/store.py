"""Results on disk: one folder per piece of work, with `DONE` written last.

A folder without `DONE` counts for nothing and is written anew. Everything is plain: JSON for what was found,
and parquet tables for predictions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from deccaf.data.files import read_frame, write_frame, write_text
from deccaf.errors import ConfigError, DataError

_MARK = "DONE"


@dataclass(frozen=True, eq=False)
class Found:
    """What a piece of work found."""

    report: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)


class Store:
    """The folder of a benchmark."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def done(self, key: str) -> bool:
        """Whether this piece of work was finished."""
        return (self.folder / key / _MARK).is_file()

    def write(self, key: str, found: Found) -> None:
        """Keep what was found, whole or not at all."""
        folder = self.folder / key
        (folder / _MARK).unlink(missing_ok=True)
        for name, table in found.tables.items():
            write_frame(table, folder / f"{name}.parquet")
        write_text(json.dumps(found.report, indent=1) + "\n", folder / "report.json")
        write_text("", folder / _MARK)

    def report(self, key: str) -> dict[str, Any]:
        """What was found."""
        path = self.folder / key / "report.json"
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {error}; delete its folder and run again") from error
        return data

    def table(self, key: str, name: str) -> pd.DataFrame:
        """One of its tables."""
        return read_frame(self.folder / key / f"{name}.parquet")

    def finished(self, kind: str) -> list[str]:
        """The keys of all finished work of a kind, sorted."""
        folder = self.folder / kind
        return sorted(f"{kind}/{mark.parent.name}" for mark in folder.glob(f"*/{_MARK}"))

    def identity(self) -> dict[str, Any]:
        """What this folder is about, as `settle` noted it; empty where it did not."""
        path = self.folder / "bench.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found

    def settle(self, identity: Mapping[str, Any]) -> None:
        """Note what this folder is about; another run must be about the same, or go elsewhere."""
        path, text = self.folder / "bench.json", json.dumps(identity, indent=1, sort_keys=True) + "\n"
        if not path.exists():
            write_text(text, path)
            return
        before = self.identity()
        now = json.loads(text)
        odd = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        if odd:
            raise ConfigError(
                f"{self.folder}: holds a run with another {odd[0]} ({before.get(odd[0])!r}, now "
                f"{now.get(odd[0])!r}); give another --out, or delete the folder"
            )
