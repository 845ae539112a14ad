"""Imports point one way; each large dependency has one home."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "deccaf"

# Each room may import from the rooms on the levels before its own, and from itself.
LEVELS = [
    {"errors", "progress"},
    {"optional", "plugins"},
    {"data"},
    {"models", "assign", "evaluate", "simulate"},
    {"planning"},
    {"policies"},
    {"estimator"},
    {"report"},
    {"backtest"},
    {"benchmark", "service"},
    {"cli"},
]
HOMES = {
    "ortools": {"assign"},
    "lightgbm": {"models", "simulate"},
    "optuna": {"models", "simulate"},
    "matplotlib": {"report", "backtest", "benchmark"},
    "fastapi": {"service"},
    "sqlalchemy": {"service"},
    "alembic": {"service"},
}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found += [f"deccaf.{alias.name}" for alias in node.names] if module == "deccaf" else [module]
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    level = {name: k for k, names in enumerate(LEVELS) for name in names}
    here = room(path)
    assert here in level, f"{here} has no place in the map"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "deccaf" and len(parts) > 1 and parts[1] in level and parts[1] != here:
            assert level[parts[1]] < level[here], f"{path.name} imports {name}, which stands above it"
        assert here in HOMES.get(parts[0], {here}), f"{path.name}: {parts[0]} lives in {HOMES.get(parts[0])}"


def test_the_map_has_no_empty_rule() -> None:
    assert {room(path) for path in FILES} >= {"errors", "data", "planning", "estimator"}
