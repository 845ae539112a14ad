"""The documentation keeps up with the code."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import deccaf
from deccaf import errors
from deccaf.cli.api_reference import MODULES, api_page, public_names
from deccaf.cli.reference import commands, commands_page
from deccaf.data.config import Config

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


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


def test_the_reference_of_python_is_up_to_date() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert page == api_page(), "run: python -m deccaf.cli.api_reference docs/api.md"


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_in_python_is_described(name: str) -> None:
    page = (ROOT / "docs" / "api.md").read_text()  # up to date, as another test sees to
    section = re.search(rf"^## {re.escape(name)}$(.*?)(?=^## |\Z)", page, re.S | re.M)[1]
    for public in public_names(import_module(name)):
        assert f"### {public}\n" in section or f"`{public}`" in section
    assert not re.search(r"^(### .*|```)\n\n+(?=#)", section, re.M), "something has no docstring"


def test_every_package_with_public_names_is_in_the_reference() -> None:
    inner = {"deccaf.cli", "deccaf.service", "deccaf.benchmark"}  # reached by commands, not by imports
    packages = {
        f"deccaf.{found.name}"
        for found in pkgutil.iter_modules(import_module("deccaf").__path__)
        if found.ispkg
    }
    assert packages - inner <= set(MODULES)


def test_every_name_on_the_page_of_the_paper_exists() -> None:
    """Functions and classes by import; policies, and what the report writes, by the code that writes it."""
    page = (ROOT / "docs" / "paper.md").read_text()
    names = set(re.findall(r"`(deccaf(?:\.\w+)+)`", page))
    assert len(names) > 20
    for name in names:
        assert _found(name), f"docs/paper.md names {name}, which is not there"
    code = "\n".join(path.read_text() for path in (ROOT / "src" / "deccaf" / "benchmark").rglob("*.py"))
    rows = re.findall(r"^\| \d \| [^|]+ \| (`[a-z].*) \|$", page, re.M)
    written = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert len(written) > 8
    for name in written:
        stem = name.removesuffix("-deccaf").removesuffix("-deccaf-paper")
        assert f'"{stem}' in code, f"docs/paper.md: no part of a report is called {name}"


def _found(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found is not None
    return False


HOW_TO = ("Try it", "My team's data", "Run it for a desk")


def navigation() -> dict[str, list[str]]:
    """The pages of the site, by visitor."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return {
        name: [path for page in pages for path in page.values()]
        for part in site["nav"]
        for name, pages in part.items()
    }


def test_every_page_has_its_place_in_the_site() -> None:
    listed = [path for pages in navigation().values() for path in pages]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize(
    "page", [page for part in HOW_TO for page in navigation()[part] if page != "glossary.md"]
)
def test_every_how_to_begins_with_a_question_that_somebody_has(page: str) -> None:
    opening = (ROOT / "docs" / page).read_text().split("\n\n")[1].replace("\n", " ")
    assert re.fullmatch(r'\*".+\?"\*', opening), opening


def test_the_glossary_has_all_our_words() -> None:
    ours = re.search(
        r"^## Our words\n(.*?)^## ", (ROOT / "docs" / "architecture.md").read_text(), re.S | re.M
    )[1]
    words = [word for word in re.findall(r"^\| ([a-z ]+) \|", ours, re.M) if word != "word"]
    glossary = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    assert len(words) > 10
    assert set(words) <= set(glossary)
    assert glossary[2:] == sorted(glossary[2:])


def test_the_site_can_be_built_and_asks_nobody_else(tmp_path: Path) -> None:
    for needed in ("material", "mkdocstrings"):
        pytest.importorskip(needed, reason="the site needs the extra docs: pip install '.[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text()
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+', page)
    assert f"deccaf {deccaf.__version__}" in page
    python = (tmp_path / "api.html").read_text()
    for module in MODULES:
        for public in public_names(import_module(module)):
            assert re.search(rf'id="{re.escape(module)}\.{public}"|<code>{public}</code>', python), (
                f"{module}.{public} is not in the reference of the site"
            )
