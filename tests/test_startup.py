"""What is imported when: nothing heavy before it is used, and nothing that only some need."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf.benchmark.cluster import cluster_of
from deccaf.cli.app import COMMANDS
from deccaf.cli.reference import commands
from deccaf.errors import ConfigError
from deccaf.report import Report, Section, canvas

ROOT = Path(__file__).parents[1]
HEAVY = {
    "numpy", "pandas", "scipy", "pyarrow", "sklearn", "lightgbm", "ortools", "joblib", "optuna", "matplotlib",
    "fairlearn", "dask", "distributed", "fastapi", "sqlalchemy", "pydantic",
}  # fmt: skip
LEARNING = {"sklearn", "lightgbm", "ortools", "optuna", "matplotlib", "fairlearn", "fastapi", "sqlalchemy"}
LEARN = ["--cases", "a.csv", "--decisions", "b.csv", "--config", "c.toml"]
SLOW_PARTS = {"scipy.stats", "scipy.optimize"}
LITTLE = {"scipy.version"}
"""What `import scipy` brings; its parts take longer than a plan of few cases."""
FOR_SOME = {"optuna", "matplotlib", "fairlearn", "dask", "distributed", "fastapi", "sqlalchemy", "alembic"}

RUN = """
import json, sys
report, blocked, sys.argv = sys.argv[1], json.loads(sys.argv[2]), ["deccaf", *sys.argv[3:]]
sys.modules.update(dict.fromkeys(blocked))
try:
    from deccaf.cli import main
    main()
finally:
    with open(report, "w") as file:
        json.dump([name for name, found in sys.modules.items() if found is not None and name.count(".") < 2], file)
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    modules: set[str]


def deccaf(folder: Path, *arguments: object, blocked: set[str] = frozenset()) -> Ran:
    """Run the command line in a process of its own; packages in `blocked` cannot be imported."""
    report = folder / "modules.json"
    line = [sys.executable, "-c", RUN, str(report), json.dumps(sorted(blocked)), *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder, timeout=300)
    return Ran(done.returncode, done.stdout, done.stderr, set(json.loads(report.read_text())))


def extras() -> set[str]:
    """Modules that only extras bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = {_name(line) for extra in set(optional) - {"dev"} for line in optional[extra]}
    return {
        module
        for module, homes in packages_distributions().items()
        if {_name(home) for home in homes} & wanted
    }


def _name(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small history with groups, a roster, and a model fitted without anything that only extras bring."""
    folder, rng = tmp_path_factory.mktemp("desk"), np.random.default_rng(0)
    n = 400
    x, label = rng.normal(size=n), rng.random(n)
    truth = (label < 1 / (1 + np.exp(-x))).astype(int)
    cases = pd.DataFrame(
        {
            "case_id": [f"a{k}" for k in range(n)], "x": x, "label": truth, "time": np.arange(n),
            "region": rng.choice(["north", "south"], n),
        }
    )  # fmt: skip
    decided = np.where(rng.random(n) < 0.8, truth, 1 - truth)
    log = pd.DataFrame(
        {"case_id": cases["case_id"], "expert_id": rng.choice(["ann", "bob"], n), "decision": decided}
    )
    cases.to_csv(folder / "cases.csv", index=False)
    cases.head(20).drop(columns="label").to_csv(folder / "new.csv", index=False)
    log.to_csv(folder / "decisions.csv", index=False)
    (folder / "roster.csv").write_text("expert_id,upper\nann,5\nbob,5\n")
    (folder / "deccaf.toml").write_text(
        '[columns]\ntime = "time"\ngroup = ["region"]\n[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n'
    )
    fitted = deccaf(
        folder, "fit", "--cases", "cases.csv", "--decisions", "decisions.csv", "--config", "deccaf.toml",
        "--out", "m.deccaf", blocked=extras(),
    )  # fmt: skip
    assert fitted.code == 0, fitted.err
    assert not fitted.modules & FOR_SOME
    return folder


def test_the_package_itself_imports_nothing_heavy() -> None:
    script = "import deccaf, sys; assert dir(deccaf); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []], ids=["version", "help", "nothing"])
def test_version_and_help_import_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    ran = deccaf(tmp_path, *arguments)
    assert not HEAVY & ran.modules
    if arguments != ["--version"]:
        listed = re.findall(r"^│ ([a-z]+) {2,}\w", ran.out, re.M)
        assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_the_help_of_a_command_imports_no_models(tmp_path: Path, command: str) -> None:
    ran = deccaf(tmp_path, *command.split()[1:], "--help")
    assert ran.code == 0
    assert "Usage: " + command in ran.out
    assert not LEARNING & ran.modules
    raw = dict(commands())[command]
    texts = " ".join([raw.help or "", *(getattr(one, "help", None) or "" for one in raw.params)])
    for table in set(re.findall(r"\[[a-z_]+\]", texts)) - {"[bold]"}:  # names of tables are not styles
        assert table in ran.out


def test_help_lists_the_first_sentence_of_each_command() -> None:
    from deccaf.cli.app import Waiting

    for name, first_sentence in COMMANDS.items():
        own = Waiting(name).loaded().help.split("\n\n")[0]
        assert " ".join(own.split()) == first_sentence


def test_a_wrong_command_is_answered_with_the_right_one(run) -> None:
    code, _, err = run("asign")
    assert code == 2
    assert "'assign'" in err


def test_planning_imports_only_what_it_needs(desk: Path) -> None:
    ran = deccaf(
        desk, "assign", "--model", "m.deccaf", "--cases", "new.csv", "--capacity", "roster.csv", "-o", "plan.csv",
        blocked=extras(),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert len(pd.read_csv(desk / "plan.csv")) == 20
    assert not ran.modules & (FOR_SOME | {"sklearn", "lightgbm", "joblib", "narwhals"} | SLOW_PARTS)
    assert not {name for name in ran.modules if name.startswith("scipy.") and "._" not in name} - LITTLE


def test_the_service_starts_without_what_only_learns(tmp_path: Path) -> None:
    """And the process that files are read in imports neither the service nor its pages."""
    line = "import json, sys, deccaf.{}; print(json.dumps(list(sys.modules)))"
    found = {}
    for name in ("service.run", "service.imports.case_import"):
        done = subprocess.run([sys.executable, "-c", line.format(name)], capture_output=True, check=True)
        found[name] = set(json.loads(done.stdout))
    learning = {"sklearn", "lightgbm", "ortools", "optuna", "matplotlib", "scipy.stats", "deccaf.estimator"}
    assert not found["service.run"] & learning
    assert not found["service.imports.case_import"] & (learning | {"fastapi", "deccaf.service.core"})


def test_a_backtest_without_matplotlib_has_its_tables_and_says_what_is_missing(desk: Path) -> None:
    ran = deccaf(
        desk, "backtest", "--cases", "cases.csv", "--decisions", "decisions.csv", "--config", "deccaf.toml",
        "--policies", "machine,deccaf", "--out", "report", blocked=extras(),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "note: Pictures are left out: they need matplotlib, which comes with deccaf[report]" in ran.err
    page = (desk / "report" / "report.html").read_text()
    assert "deccaf[report]" in page
    assert "By region" in page
    assert "<img" not in page
    assert not list((desk / "report").glob("*.png"))


@pytest.mark.parametrize(
    ("extra", "missing", "arguments"),
    [
        ("service", "fastapi", ["serve"]),
        ("service", "sqlalchemy", ["serve", "--init"]),
        ("search", "optuna", ["bench", "run", "--profile", "standard", "--out", "bench"]),
        ("dask", "distributed", ["bench", "run", "--cluster", "local:2", "--out", "bench"]),
        ("dask", "distributed", ["fit", *LEARN, "-o", "m.deccaf", "--cluster", "local:2"]),
        ("dask", "distributed", ["backtest", *LEARN, "--cluster", "local:2"]),
    ],
)
def test_a_missing_extra_is_named_before_any_work(
    tmp_path: Path, extra: str, missing: str, arguments: list[str]
) -> None:
    ran = deccaf(tmp_path, *arguments, blocked={missing})
    assert ran.code == 2
    assert f"needs {missing}, which comes with deccaf[{extra}]" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["modules.json"]


def test_the_library_names_the_extra_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"a picture needs matplotlib.*deccaf\[report\]"):
        canvas("A finding")
    with pytest.raises(ConfigError, match=r"deccaf\[dask\]"), cluster_of("local:1", 1):
        pass
    page = Report("Title", "Lead", (Section("Section", "Text", pictures={"one": lambda: canvas("x")[0]}),))
    with pytest.warns(UserWarning, match="Pictures are left out"):
        assert "Section" in page.write(tmp_path).read_text()


def test_pictures_are_drawn_once_and_when_the_page_is_written(tmp_path: Path) -> None:
    drawn = []

    def draw():
        drawn.append(1)
        return canvas("A finding")[0]

    page = Report("Title", "Lead", (Section("Section", "Text", pictures={"one": draw}),))
    assert not drawn
    page.write(tmp_path)
    page.write_for_print(tmp_path)
    assert drawn == [1]
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "one.png", "one.pdf"}


LAZY = ["deccaf", "deccaf.data", "deccaf.evaluate", "deccaf.report", "deccaf.backtest"]


@pytest.mark.parametrize("name", LAZY)
def test_lazy_names_are_those_of_the_package_and_hide_no_module(name: str) -> None:
    package = import_module(name)
    assert sorted({*dir(package)} | {"__version__"}) == sorted({*package.__all__} | {"__version__"})
    for public in package.__all__:
        assert getattr(package, public) is not None
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_python_can_run_the_package() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "deccaf", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("deccaf ")
