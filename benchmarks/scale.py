"""From files to a plan: processor seconds and memory of `deccaf fit` and `deccaf assign`, by size.

    python benchmarks/scale.py --sizes 100x50 100000x50 100000x200
    python benchmarks/scale.py --before OTHER/src     # another version's source tree too, in the same run

A simulated team decides cases of 20 numbers and 4 categories; every version fits a model on the same history
and plans the same cases. Seconds are the processor's, of a process of its own each, start-up included.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parents[1] / "src"
NUMBERS, CATEGORIES, LEVELS = 20, 4, 8
SHARE = 0.6
"""Of the cases, that people have room for together."""
COSTS = "[costs]\nfalse_positive = 0.2\nfalse_negative = 1.0\n"


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
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    inner = [sys.executable, "-c", "from deccaf.cli import main; main()", *command]
    found = subprocess.run(
        [sys.executable, "-c", script, *inner],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    code, seconds, kilobytes = found.stdout.split()
    if code != "0":
        raise SystemExit(f"deccaf {command[0]} of {source} ended with exit code {code}")
    return Spent(float(seconds), float(kilobytes) / 1e6)


def fit_and_plan(source: Path, folder: Path) -> tuple[Spent, Spent]:
    """What learning took, and planning."""
    out = folder / source.parent.name
    out.mkdir()
    model, plan = str(out / "team.deccaf"), str(out / "plan.parquet")
    past = ["--cases", "past.parquet", "--decisions", "log.parquet", "--config", "deccaf.toml"]
    new = ["--model", model, "--cases", "cases.parquet", "--capacity", "roster.csv"]
    learning = run(source, folder, "fit", *past, "--out", model)
    return learning, run(source, folder, "assign", *new, "--out", plan)


def main(arguments: list[str] | None = None) -> int:
    """Print a row for every size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", default=["100x50", "100000x50", "100000x200", "1000000x50"])
    parser.add_argument("--past", type=int, default=40_000, help="decisions to learn from")
    parser.add_argument("--before", type=Path, help="the src folder of another version")
    asked = parser.parse_args(arguments)
    trees = [HERE] if asked.before is None else [asked.before.resolve(), HERE]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"{'cases x people':>16s}  {'fit: s, GB':>24s}  {'assign: s, GB':>24s}")
    for size in asked.sizes:
        count, people = (int(part) for part in size.split("x"))
        with tempfile.TemporaryDirectory() as name:
            write_world(Path(name), count, people, asked.past)
            found = [fit_and_plan(tree, Path(name)) for tree in trees]
        cells = [
            " -> ".join(f"{one.seconds:.1f}, {one.gigabytes:.2f}" for one in kind)
            for kind in zip(*found, strict=True)
        ]
        print(f"{count:>10,d} x {people:<4d} {cells[0]:>24s}  {cells[1]:>24s}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
