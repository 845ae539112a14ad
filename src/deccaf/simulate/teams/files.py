"""A team as two plain files, parameters.parquet and team.json; loaded, it decides as when it was saved."""

from __future__ import annotations

import json
from pathlib import Path

from deccaf.data.files import read_frame, write_frame, write_text
from deccaf.errors import DataError
from deccaf.simulate.teams.features import TeamFeatures
from deccaf.simulate.teams.team import SyntheticTeam

_FORMAT = 1


def save_team(team: SyntheticTeam, folder: str | Path) -> None:
    """Write parameters.parquet (one row per expert) and team.json (classes, and how features are encoded)."""
    folder = Path(folder)
    about = {"format": _FORMAT, "classes": list(team.classes), "features": team.features.to_dict()}
    write_frame(team.parameters(), folder / "parameters.parquet")
    write_text(json.dumps(about, indent=1) + "\n", folder / "team.json")


def load_team(folder: str | Path) -> SyntheticTeam:
    """Read what `save_team` wrote; whatever is wrong with the files is a `DataError`."""
    path = Path(folder) / "team.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not isinstance(about, dict) or about.get("format") != _FORMAT or "classes" not in about:
        raise DataError(f"{path}: not a team of format {_FORMAT}")
    features = TeamFeatures.from_dict(about.get("features", {}))
    table = read_frame(path.with_name("parameters.parquet"))
    return SyntheticTeam.from_parameters(table, features, classes=about["classes"])
