"""What is shipped, and that the project's habits are written down once."""

from __future__ import annotations

import re
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deccaf import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]


def _release() -> ModuleType:
    spec = spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _release()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source distribution, built without network and without an environment of their own."""
    return release.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> zipfile.ZipFile:
    assert built[0].name == f"deccaf-{__version__}-py3-none-any.whl"
    return zipfile.ZipFile(built[0])


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
        "duckdb",
        "postgresql",
        "oidc",
        "mlflow",
        "otel",
        "docs",
        "dask",
        "service",
        "bench",
        "dev",
    }
    assert metadata["Project-URL"] is None


def test_what_is_released_holds_no_tests_and_no_data(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, source = built
    assert release.check_wheel(wheel) == []
    assert release.check_source(source) == []
    spoilt = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as good, zipfile.ZipFile(spoilt, "w") as bad:
        for name in good.namelist():
            if name != "deccaf/py.typed":
                bad.writestr(name, good.read(name))
        bad.writestr("deccaf/cases.parquet", b"")
        bad.writestr("tests/test_x.py", b"")
    assert [found.partition(": ")[2] for found in release.check_wheel(spoilt)] == [
        "deccaf/py.typed is missing",
        "deccaf/cases.parquet does not belong there",
        "tests/test_x.py does not belong there",
    ]


def test_the_bill_of_materials_names_every_part_with_its_sum(built: tuple[Path, Path]) -> None:
    found = [
        {"name": "deccaf", "version": __version__, "license": "Apache-2.0"},
        {"name": "Typing_Extensions", "version": "4.0", "license": ["PSF-2.0"]},
    ]
    bill = release.bill_of_materials(found, list(built))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/deccaf@{__version__}"
    (library, *files) = bill["components"]
    assert library["purl"] == "pkg:pypi/typing-extensions@4.0"
    assert library["licenses"] == [{"license": {"name": "PSF-2.0"}}]
    assert [one["name"] for one in files] == [path.name for path in built]
    assert all(len(one["hashes"][0]["content"]) == 64 for one in files)


def test_a_tag_publishes_what_make_release_has_checked() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert commands[1:] == ["make lint", "make test-all", "make release"]
    assert "GITHUB_REF_NAME" in commands[0]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert not re.search(r"secrets\.|password", (ROOT / ".github" / "workflows" / "release.yml").read_text())


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
    assert named == {"report", "search", "dask", "service", "duckdb", "postgresql", "oidc", "mlflow", "otel"}
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
