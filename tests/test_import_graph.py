"""Imports point one way; each large dependency has one home."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "deccaf"

# Each room may import from the rooms on the levels before its own, and from itself.
LEVELS = [
    {"errors", "progress", "threads"},
    {"addresses"},
    {"optional", "plugins", "client"},
    {"cluster", "tracing"},
    {"data"},
    {"models", "assign", "evaluate", "simulate"},
    {"planning"},
    {"policies"},
    {"fitted"},
    {"estimator"},
    {"report", "mlflow"},
    {"backtest"},
    {"benchmark", "service"},
    {"cli"},
    {"__main__"},
]
HOMES = {
    "ortools": {"assign"},
    "lightgbm": {"models", "simulate"},
    "optuna": {"models", "simulate"},
    "matplotlib": {"report", "backtest", "benchmark"},
    "fastapi": {"service"},
    "sqlalchemy": {"service"},
    "alembic": {"service"},
    "authlib": {"service"},
    "mlflow": {"mlflow"},
    "opentelemetry": {"tracing"},
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


# The floors of the service, as its docstring names them; a name of two parts is a room of its own inside a floor.
FLOORS = [
    {"errors"},
    {"store"},
    {"ledger"},
    {"decide"},
    {"imports"},
    {"jobs", "large_changes", "posting", "openid"},
    {"sending"},
    {"dispatching"},
    {"monitor", "backup"},
    {"reports"},
    {"core"},
    {"web.middleware", "web.common", "web.admission", "web.traced"},
    {"web.questions"},
    {"web.api", "web.pages"},
    {"web.app"},
    {"demo"},
    {"run"},
    {"__main__"},
]
SERVICE = [path for path in FILES if room(path) == "service"]


def floor(name: str) -> str | None:
    """The floor of a module of the service, by its name below `deccaf.service`."""
    parts = name.split(".")
    known = {each for names in FLOORS for each in names}
    return next((each for each in (".".join(parts[:2]), parts[0]) if each in known), None)


def module(path: Path) -> str:
    parts = path.relative_to(PACKAGE / "service").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("path", SERVICE, ids=module)
def test_the_service_is_built_in_floors(path: Path) -> None:
    level = {name: k for k, names in enumerate(FLOORS) for name in names}
    here = floor(module(path))
    if here is None:
        assert path.name == "__init__.py", f"{path} is on no floor"
        return
    for name in full_imports(path):
        if name.startswith("deccaf.service."):
            there = floor(name.removeprefix("deccaf.service."))
            assert there is not None, f"{path.name}: {name} is on no floor"
            assert there == here or level[there] < level[here], f"{path.name} imports {name} from above"


def full_imports(path: Path) -> list[str]:
    """What a file imports, with the names of the modules: `from a import b` is `a.b`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", [p for p in SERVICE if module(p).startswith("web")], ids=module)
def test_http_does_not_know_the_tables(path: Path) -> None:
    assert "deccaf.service.store.tables" not in full_imports(path)


def test_one_module_inserts_assignments() -> None:
    ways = ("insert(t.assignments)", "add(connection, t.assignments,")
    found = {module(p) for p in SERVICE if any(way in p.read_text() for way in ways)}
    assert found == {"ledger.assignments"}


def test_the_service_names_no_module_three_times() -> None:
    names = [path.stem for path in SERVICE if path.stem != "__init__" and "migrations" not in path.parts]
    assert [name for name in sorted(set(names)) if names.count(name) > 2] == []


def test_folders_of_the_service_are_small_and_say_what_belongs_there() -> None:
    for folder in {path.parent for path in SERVICE if "migrations" not in path.parts}:
        assert len(list(folder.glob("*.py"))) <= 15, folder
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder
