"""The documents can be typed along: every tutorial's commands and code run, and every public name is there."""

from __future__ import annotations

import contextlib
import importlib
import re
import runpy
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deccaf.cli import app
from deccaf.service.core import Service
from deccaf.service.dispatching import read_machines
from deccaf.service.web.app import create_app
from service_databases import free_port
from service_fuzz import listening
from service_world import first_key

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
SMALLER = {"--rows 1000000": "--rows 60000"}


@pytest.mark.parametrize(
    "name", ["tutorial.md", pytest.param("tutorial-moderation.md", marks=pytest.mark.long)]
)
def test_a_tutorial_can_be_typed_along(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert type_along((ROOT / "docs" / name).read_text(), name, {}) >= 3
    assert capsys.readouterr().out
    if name == "tutorial.md":
        assert {"model.deccaf", "plan.parquet", "report"} <= {path.name for path in tmp_path.iterdir()}


def type_along(document: str, name: str, session: dict[str, Any]) -> int:
    """TOML blocks are files named in their first line, shell blocks commands, Python blocks one session."""
    ran = 0
    for kind, text in BLOCK.findall(document):
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
    return ran


@pytest.mark.long
def test_machines_from_nothing_to_the_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial with its language model behind a real address, and its service on a real port."""
    name, session = "tutorial-machines.md", dict[str, Any]()
    before, at_the_desk = (ROOT / "docs" / name).read_text().split("## At the desk")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.delitem(sys.modules, "machine_server", raising=False)  # the tests have one of this name
    monkeypatch.setenv("LLM_SECRET", "s" * 32)
    assert type_along(before, name, session) >= 8
    without, advised = (
        session["cost_of"](pd.read_csv(plan, dtype={"case_id": str}), asked)
        for plan, asked in (("plan.csv", None), ("final.csv", session["answers"]))
    )
    assert advised < without
    port = free_port()
    url = f"sqlite:///{tmp_path}/deccaf.db"
    monkeypatch.setenv("DECCAF_KEY", first_key(url))
    config = tmp_path / "deccaf.toml"
    config.write_text(config.read_text().replace(":9000/", f":{port}/"))
    with (
        contextlib.closing(Service(url, machines=read_machines(config))) as service,
        listening(create_app(service)) as base,
    ):
        typed = at_the_desk.replace("http://localhost:8080", base).replace("9000", str(port))
        assert type_along(typed, name, session) == 2
        desk, deadline = session["desk"], time.monotonic() + 120
        while True:
            shift = {seat.maker: seat for seat in desk.get_current_shift().roster}
            cases = [desk.get_case(case) for case in session["today"]["case_id"]]
            machines = [one for one in cases if one.assignment.maker in ("llm", "classifier")]
            if all(one.decision is not None for one in machines) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
    session["machine"].shutdown()
    session["machine"].server_close()
    assert sum(one.assignment.maker == "llm" for one in machines) > 5
    for one in machines:
        assert one.decision.decision == session["says"].loc[one.case_id, one.assignment.maker]
    assert shift["analyst_1"].used + shift["analyst_2"].used == 24


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
