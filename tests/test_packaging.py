"""What is shipped, and that the project's habits are written down once."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deccaf import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without network and without an environment of its own."""
    folder = tmp_path_factory.mktemp("dist")
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    assert path.name == f"deccaf-{__version__}-py3-none-any.whl"
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"deccaf-{__version__}.dist-info/METADATA").decode())


def test_the_wheel_holds_the_whole_package(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "deccaf").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    profiles = {f"deccaf/{path.relative_to(ROOT)}" for path in (ROOT / "experiments").rglob("*.toml")}
    assert shipped == source | profiles
    assert "deccaf/py.typed" in shipped


def test_heavy_packages_that_only_some_need_come_with_extras(metadata: Message) -> None:
    needs = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    always = {need.name for need in needs if need.marker is None}
    assert not always & {"matplotlib", "optuna", "dask", "distributed", "fastapi", "sqlalchemy", "uvicorn"}
    assert set(metadata.get_all("Provides-Extra")) == {
        "report",
        "search",
        "excel",
        "dask",
        "service",
        "bench",
        "dev",
    }
    assert metadata["Project-URL"] is None


def test_the_lock_has_every_dependency_and_extra() -> None:
    lines = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.M)
    locked = {canonicalize_name(name): version for name, version in lines}
    for line in [*PROJECT["dependencies"], *(line for extra in OPTIONAL.values() for line in extra)]:
        need = Requirement(line)
        assert need.specifier.contains(locked[canonicalize_name(need.name)]), f"{line}: run make lock"


def test_every_extra_that_the_code_names_exists() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"\bextra\(\"(\w+)\"", source)) | set(
        re.findall(r"\[(\w+)\]' in deccaf's", source)
    )
    assert named == {"report", "search", "dask", "service"}
    assert named < set(OPTIONAL)


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    local = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    assert commands == local == ["make lint", "make test", "make wheel"]
    supported = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert job["strategy"]["matrix"]["python"] == supported


def test_hooks_are_local_and_call_make() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    for hook in repository["hooks"]:
        make, target = hook["entry"].split()
        assert make == "make"
        assert target in targets


def test_the_version_is_dated_in_the_changelog_and_cited() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)} - \d{{4}}-\d\d-\d\d$", changes, re.M)
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
