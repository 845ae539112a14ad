"""The whole way, and the engine alone: processor seconds and memory, of two versions in one run.

    python benchmarks/scale.py --sizes 100x50 100000x50 100000x200    # from files to a plan: fit, assign
    python benchmarks/scale.py --before OTHER/src                     # another version's source tree too
    python benchmarks/scale.py --sizes --engine --before OTHER/src    # the solver on hard losses, the flow
    python benchmarks/scale.py --sizes --chained 1000                 # chains of makers: how many are refused
    python benchmarks/scale.py --sizes --start                        # what starting up takes, and its floor

A simulated team decides cases of 20 numbers and 4 categories; every version fits a model on the same history
and plans the same cases. Seconds are the processor's, of a process of its own each, start-up included;
sources are compiled before, as they are where deccaf is installed.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import subprocess
import sys
import tempfile
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
import assignment

HERE = Path(__file__).resolve().parents[1] / "src"
NUMBERS, CATEGORIES, LEVELS = 20, 4, 8
SHARE = 0.6
"""Of the cases, that people have room for together."""
COSTS = "[costs]\nfalse_positive = 0.2\nfalse_negative = 1.0\n"


ENGINE = {
    "fitted": 3.0,
    "two traits": 3.0,
    "two traits (more)": 3.0,
    "roomy machine": 3.0,
    "rank 1": 1.0,
    "many makers": None,
    "few cases each": None,
    "fewer cases": None,
    "fewer cases (tied)": None,
}
"""Instances of `benchmarks/assignment.py`, and how many times as fast as the flow they should be solved."""
PATIENCE = 400.0
STARTS = {
    "Python": "pass",
    "NumPy, pandas, PyArrow": "import numpy, pandas, pyarrow.parquet",
    "the same, SciPy's functions, typer, pydantic": (
        "import pandas, pyarrow.parquet, scipy.special, scipy.sparse, typer, pydantic, rich.table"
    ),
    "pandas, PyArrow, LightGBM (which imports scikit-learn)": "import pandas, pyarrow.parquet, lightgbm",
}
"""What a plan cannot do without, and what it can."""


class Spent(NamedTuple):
    """What a command took."""

    seconds: float
    gigabytes: float


def cases(count: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A table of cases, its numbers, and the truth."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, NUMBERS))
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(NUMBERS)])
    for k in range(CATEGORIES):
        frame[f"c{k}"] = np.array(list("abcdefgh"))[rng.integers(0, LEVELS, count)]
    frame.insert(0, "case_id", [f"n{i}" for i in range(count)])
    score = 1.2 * x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] - 1.5
    return frame, x, (rng.random(count) < 1.0 / (1.0 + np.exp(-score))).astype(np.int64)


def write_world(folder: Path, count: int, people: int, past: int) -> None:
    """A history, its decisions, new cases and a roster."""
    frame, x, truth = cases(past, 0)
    rng = np.random.default_rng(1)
    names = np.array([f"e{j:04d}" for j in range(people)])
    skill = rng.normal(0, 0.5, people)
    taste = rng.normal(0, 0.5, (people, NUMBERS)) * (rng.random((people, NUMBERS)) < 0.3)
    who = rng.integers(0, people, past)
    odds = (2 * truth - 1) * (1.5 + skill[who] + 0.3 * x[:, 4]) + 0.6 * (taste[who] * x).sum(axis=1)
    decision = (rng.random(past) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int64)
    frame.assign(label=truth, time=np.arange(past)).to_parquet(folder / "past.parquet")
    log = pd.DataFrame({"case_id": frame["case_id"], "expert_id": names[who], "decision": decision})
    log.to_parquet(folder / "log.parquet")
    new = cases(count, 2)[0].assign(case_id=[f"m{i}" for i in range(count)])
    new.to_parquet(folder / "cases.parquet")
    room = max(1, int(SHARE * count / people))
    pd.DataFrame({"expert_id": names, "upper": room}).to_csv(folder / "roster.csv", index=False)
    (folder / "deccaf.toml").write_text(COSTS, encoding="utf-8")


def run(source: Path, folder: Path, *command: str) -> Spent:
    """Processor seconds and peak memory of a `deccaf` command of one source tree."""
    spent = _spent([sys.executable, "-c", "from deccaf.cli import main; main()", *command], folder, source)
    if spent is None:
        raise SystemExit(f"deccaf {command[0]} of {source} did not end well")
    return spent


def _spent(inner: list[str], folder: Path, source: Path) -> Spent | None:
    """What a command took, in a process whose only child it is; None if it failed."""
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    env = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", script, *inner]
    found = subprocess.run(command, cwd=folder, env=env, check=True, text=True, stdout=subprocess.PIPE)
    code, seconds, kilobytes = found.stdout.split()
    return Spent(float(seconds), float(kilobytes) / 1e6) if code == "0" else None


def fit_and_plan(source: Path, folder: Path) -> tuple[Spent, Spent]:
    """What learning took, and planning."""
    out = folder / source.parent.name
    out.mkdir()
    model, plan = str(out / "team.deccaf"), str(out / "plan.parquet")
    past = ["--cases", "past.parquet", "--decisions", "log.parquet", "--config", "deccaf.toml"]
    new = ["--model", model, "--cases", "cases.parquet", "--capacity", "roster.csv"]
    learning = run(source, folder, "fit", *past, "--out", model)
    return learning, run(source, folder, "assign", *new, "--out", plan)


def engine(trees: list[Path], only: list[str]) -> None:
    """The solver on losses that are hard for it: every version, and the flow on all arcs."""
    print(f"{'losses':36} {'seconds':>18} {'+ GB':>14} {'flow, s':>8} {'x faster':>9} {'wanted':>7}  gap")
    for name, wanted in ENGINE.items():
        if only and name not in only:
            continue
        case = assignment.FULL[name]
        found = [assignment.measure(case, "ours", PATIENCE, tree) for tree in trees]
        flow = assignment.measure(case, "flow", PATIENCE) if wanted else {}
        seconds = " -> ".join(f"{one['seconds']:.1f}" if "seconds" in one else one["note"] for one in found)
        memory = " -> ".join(f"{one['more'] / 1e9:.2f}" if "more" in one else "?" for one in found)
        ratio = (
            flow["seconds"] / found[-1]["seconds"] if "seconds" in flow and "seconds" in found[-1] else nan
        )
        gap = found[-1]["gap"] / abs(found[-1]["objective"]) if "gap" in found[-1] else nan
        line = f"{name + f': {case.n:,} x {case.makers:,}':36} {seconds:>18} {memory:>14}"
        line += f" {flow.get('seconds', nan):8.1f} {ratio:9.1f} {wanted or nan:7.1f}  {gap:.1e}"
        print(line, flush=True)


CHAINED = """
import sys
import numpy as np
from assign_instances import ADVERSARIAL
from deccaf.assign import solve
from deccaf.errors import SolverError

refused = 0
for seed in range(int(sys.argv[1])):
    rng = np.random.default_rng(seed)
    made = ADVERSARIAL["chained"](rng, int(rng.integers(200, 2000)), 50)
    try:
        solve(made.loss, made.upper, made.lower, made.eligible)
    except SolverError:
        refused += 1
print(refused)
"""


def chained(trees: list[Path], count: int) -> None:
    """Every case can go to maker k or k + 1: how many of these problems, all feasible, are refused."""
    tests = Path(__file__).resolve().parents[1] / "tests"
    for tree in trees:
        env = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tests}"}
        command = [sys.executable, "-c", CHAINED, str(count)]
        refused = subprocess.run(command, env=env, check=True, text=True, stdout=subprocess.PIPE).stdout
        print(f"{tree}: {refused.strip()} of {count:,} chained problems are refused", flush=True)


def start(times: int = 3) -> None:
    """What a process takes that imports what a plan needs, and nothing else."""
    for what, code in STARTS.items():
        taken = [_spent([sys.executable, "-c", code], Path.cwd(), HERE) for _ in range(times)]
        spent = [one for one in taken if one is not None]
        print(f"{min(one.seconds for one in spent):6.2f} s  {what}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Print a row for every size, and the tables that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="*", default=["100x50", "100000x50", "100000x200", "1000000x50"])
    parser.add_argument("--past", type=int, default=40_000, help="decisions to learn from")
    parser.add_argument("--before", type=Path, help="the src folder of another version")
    parser.add_argument("--engine", nargs="*", help="instances of the engine's table; without names, all")
    parser.add_argument("--chained", type=int, default=0, help="how many chained problems to solve")
    parser.add_argument("--start", action="store_true", help="what starting up takes")
    asked = parser.parse_args(arguments)
    trees = [HERE] if asked.before is None else [asked.before.resolve(), HERE]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for tree in trees:
        compileall.compile_dir(tree, quiet=1)
    if asked.start:
        start()
    if asked.engine is not None:
        engine(trees, asked.engine)
    if asked.chained:
        chained(trees, asked.chained)
    if asked.sizes:
        whole_way(trees, asked.sizes, asked.past)
    return 0


def whole_way(trees: list[Path], sizes: list[str], past: int) -> None:
    """Learn and plan: a row for every size."""
    print(f"{'cases x people':>16s}  {'fit: s, GB':>24s}  {'assign: s, GB':>24s}")
    for size in sizes:
        count, people = (int(part) for part in size.split("x"))
        with tempfile.TemporaryDirectory() as name:
            write_world(Path(name), count, people, past)
            found = [fit_and_plan(tree, Path(name)) for tree in trees]
        cells = [
            " -> ".join(f"{one.seconds:.1f}, {one.gigabytes:.2f}" for one in kind)
            for kind in zip(*found, strict=True)
        ]
        print(f"{count:>10,d} x {people:<4d} {cells[0]:>24s}  {cells[1]:>24s}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
