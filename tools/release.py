"""Build what is released, and check it as somebody gets it who has nothing else of ours.

python tools/release.py [--out dist] [--without-demo]

Builds the source distribution and the wheel, looks into both (no tests, no data; licence and `py.typed`),
installs the wheel with what it needs into a clean virtual environment, imports it without extras, runs
`deccaf demo` there, and writes a bill of materials (CycloneDX) of that environment beside the files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT_OUT = ("tests/", "docs/", "benchmarks/", "notebooks/", "shared/", "site/", ".github/", ".ci/")
"""What the source distribution leaves in the repository."""
TABLES = (".parquet", ".csv", ".db", ".deccaf", ".xlsx")
EXTRAS = ("matplotlib", "fastapi", "sqlalchemy", "optuna", "dask", "pytest")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--without-demo", action="store_true")
    options = parser.parse_args()
    wheel, source = build(options.out)
    for found in (check_wheel(wheel), check_source(source)):
        if found:
            sys.exit("\n".join(f"error: {one}" for one in found))
    with tempfile.TemporaryDirectory(prefix="deccaf-release-") as folder:
        python = installed(wheel, Path(folder))
        say(run(python, "-c", WITHOUT_EXTRAS))
        if not options.without_demo:
            run(python, "-m", "deccaf", "demo", "--out", str(Path(folder) / "demo"), "--rows", "20000")
            if not (Path(folder) / "demo" / "report.html").exists():
                sys.exit("error: deccaf demo wrote no report")
            say("deccaf demo: report written")
        bill = json.loads(run(python, "-c", BILL))
    written = options.out / f"{wheel.stem.split('-py3')[0]}.cdx.json"
    written.write_text(json.dumps(bill_of_materials(bill, [wheel, source]), indent=2) + "\n")
    for path in (wheel, source, written):
        print(f"{digest(path)}  {path.name}")


def build(out: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution, alone in their folder."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("deccaf-*.whl"), *out.glob("deccaf-*.tar.gz"), *out.glob("deccaf-*.cdx.json")):
        old.unlink()
    run(Path(sys.executable), "-m", "hatchling", "build", "-d", str(out))
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, source


def check_wheel(path: Path) -> list[str]:
    """What is wrong with the wheel."""
    names = zipfile.ZipFile(path).namelist()
    needed = ("deccaf/py.typed", "dist-info/licenses/LICENSE", "dist-info/METADATA")
    wrong = [f"{path.name}: {one} is missing" for one in needed if not any(n.endswith(one) for n in names)]
    stray = [name for name in names if not name.startswith("deccaf") or name.endswith(TABLES)]
    return wrong + [f"{path.name}: {name} does not belong there" for name in stray]


def check_source(path: Path) -> list[str]:
    """What is wrong with the source distribution."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    needed = ("LICENSE", "pyproject.toml", "src/deccaf/py.typed", "PKG-INFO")
    wrong = [f"{path.name}: {one} is missing" for one in needed if one not in names]
    stray = [name for name in names if name.startswith(KEPT_OUT) or name.endswith(TABLES)]
    return wrong + [f"{path.name}: {name} does not belong there" for name in stray]


def installed(wheel: Path, folder: Path) -> Path:
    """A clean environment with the wheel and what it needs, at the versions of the lock."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    names = folder / "constraints.txt"
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    names.write_text("\n".join(line.split(" \\")[0] for line in lock if "==" in line) + "\n")
    extras = f"{wheel}[report]"  # the demo draws
    run(python, "-m", "pip", "install", "--quiet", "-c", str(names), str(wheel))
    say(run(python, "-c", IMPORTED))
    run(python, "-m", "pip", "install", "--quiet", "-c", str(names), extras)
    return python


IMPORTED = f"""
import importlib.util, sys, deccaf, deccaf.estimator, deccaf.assign, deccaf.backtest
assert deccaf.__file__.startswith(sys.prefix), f"imported from elsewhere: {{deccaf.__file__}}"
there = [name for name in {EXTRAS!r} if importlib.util.find_spec(name)]
assert not there, f"installed without being asked for: {{there}}"
print(f"deccaf {{deccaf.__version__}} imports without extras")
"""
WITHOUT_EXTRAS = """
from importlib.resources import files
assert (files("deccaf") / "py.typed").is_file()
print("py.typed is there")
"""
BILL = """
import json
from importlib.metadata import distributions
found = [
    {"name": d.metadata["Name"], "version": d.version,
     "license": d.metadata.get("License-Expression") or (d.metadata.get("License") or "").splitlines()[:1]}
    for d in distributions() if d.metadata["Name"] not in ("pip", "setuptools")
]
print(json.dumps(sorted(found, key=lambda one: one["name"].lower())))
"""


def bill_of_materials(found: list[dict[str, object]], files: list[Path]) -> dict[str, object]:
    """CycloneDX 1.6: what is in the environment, and the sums of the files that are released."""
    ours = next(one for one in found if one["name"] == "deccaf")
    parts = [one for one in found if one is not ours]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**component(ours), "type": "application"}},
        "components": [component(one) for one in parts]
        + [
            {"type": "file", "name": path.name, "hashes": [{"alg": "SHA-256", "content": digest(path)}]}
            for path in files
        ],
        "dependencies": [{"ref": purl(ours), "dependsOn": [purl(one) for one in parts]}],
    }


def component(one: dict[str, object]) -> dict[str, object]:
    """A library of the bill."""
    known = one["license"][0] if isinstance(one["license"], list) and one["license"] else one["license"]
    licence = [{"license": {"name": str(known)[:80]}}] if known else []
    more = {"licenses": licence} if licence else {}
    return {
        "type": "library",
        "bom-ref": purl(one),
        "purl": purl(one),
        **{k: one[k] for k in ("name", "version")},
        **more,
    }


def purl(one: dict[str, object]) -> str:
    """Where it comes from, as package URLs say it."""
    return f"pkg:pypi/{str(one['name']).lower().replace('_', '-')}@{one['version']}"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(python: Path, *line: str) -> str:
    """A command's output; what fails ends the release with what it said."""
    # -I: neither PYTHONPATH nor this folder, or what is checked would not be what was built
    done = subprocess.run([str(python), "-I", *line], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"error: {' '.join(line[:4])} ended with {done.returncode}\n"
            f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def say(text: str) -> None:
    print(text.strip(), file=sys.stderr)


if __name__ == "__main__":
    main()
