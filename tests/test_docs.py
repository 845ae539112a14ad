"""The documentation keeps up with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from deccaf import errors
from deccaf.cli.reference import commands, commands_page
from deccaf.data.config import Config

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_every_command_is_documented(command: str) -> None:
    assert any(command in path.read_text() for path in DOCUMENTS), f"{command} stands in no document"


def test_every_exit_code_is_documented() -> None:
    table = dict(re.findall(r"^\| (\d) \| (.+?) \|$", (ROOT / "docs" / "files.md").read_text(), re.M))
    codes = {error.exit_code for error in errors.DeccafError.__subclasses__()}
    assert {str(code) for code in codes | {0, 1}} == set(table)


@pytest.mark.parametrize(
    "block", re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "files.md").read_text(), re.S)
)
def test_the_configurations_in_the_documents_can_be_read(block: str, tmp_path: Path) -> None:
    (tmp_path / "deccaf.toml").write_text(block)
    assert Config.read(tmp_path / "deccaf.toml").costs.build().classes
    assert tomllib.loads(block)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}, which does not exist"


def test_the_reference_of_commands_is_up_to_date() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == commands_page(), "run: python -m deccaf.cli.reference docs/commands.md"
