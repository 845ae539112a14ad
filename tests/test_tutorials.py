"""The documents can be typed along: every tutorial's commands and code run, and every public name is there."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from deccaf.cli import app

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
SMALLER = {"--rows 1000000": "--rows 60000"}


@pytest.mark.parametrize(
    "name", ["tutorial.md", pytest.param("tutorial-moderation.md", marks=pytest.mark.long)]
)
def test_a_tutorial_can_be_typed_along(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TOML blocks are files named in their first line, shell blocks commands, Python blocks one session."""
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    ran = 0
    for kind, text in BLOCK.findall((ROOT / "docs" / name).read_text()):
        if kind == "toml":
            Path(text.split("\n", 1)[0].removeprefix("# ")).write_text(text)
        elif kind == "sh":
            for line in filter(None, text.splitlines()):
                for long, short in SMALLER.items():
                    line = line.replace(long, short)
                command, *arguments = shlex.split(line)
                assert command == "deccaf"
                app(arguments, standalone_mode=False)
                ran += 1
        elif kind == "python":
            exec(compile(text, name, "exec"), session)
            ran += 1
    assert ran >= 3
    assert capsys.readouterr().out
    if name == "tutorial.md":
        assert {"model.deccaf", "plan.parquet", "report"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("plan_a_day.py", ["--rows", "30000"]),
        ("worth_of_an_hour.py", ["--cases", "600"]),
        ("price_of_constraints.py", ["--cases", "600"]),
    ],
)
def test_an_example_draws(
    script: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--out", str(tmp_path / "picture.png"), *arguments])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_every_example_is_tested() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    examples = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert len(examples) > 3
    assert [name for name in examples if f'"{name}"' not in text] == []


@pytest.mark.parametrize("module", ["deccaf", "deccaf.models", "deccaf.assign"])
def test_every_public_name_is_documented(module: str) -> None:
    pages = [ROOT / "docs" / "api.md"]
    if module == "deccaf.assign":
        pages.append(ROOT / "docs" / "assignment.md")
    text = "\n".join(path.read_text() for path in pages)
    public = [name for name in importlib.import_module(module).__all__ if not name.startswith("__")]
    assert [name for name in public if not re.search(rf"\b{name}\b", text)] == []
