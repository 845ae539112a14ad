"""Plans of losses that lie in files: processor seconds and peak memory of the solver and its check, by size.

    python benchmarks/large.py --sizes 1000000x200 10000000x200
    python benchmarks/large.py --sizes 200000x50 --compare     # and in memory: the same plan, to the last bit

Losses are cheap to make and like a fitted model's: people differ in two traits, the machine has no limit and
people have room for 60 % of the cases. Every size runs in a process of its own; making the files is left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROWS = 20_000


def write_losses(folder: Path, cases: int, makers: int) -> list[Path]:
    """One file for every block of cases."""
    rng = np.random.default_rng(1)
    skill, taste = rng.normal(size=(2, makers))
    parts = []
    for start in range(0, cases, ROWS):
        count = min(ROWS, cases - start)
        p, x = rng.beta(0.5, 2, size=(count, 1)), rng.normal(size=(count, 1))
        missed = 1 / (1 + np.exp(1.5 + 0.4 * skill + 0.5 * taste * x))
        alarmed = 1 / (1 + np.exp(1 + 0.4 * skill - 0.5 * taste * x))
        loss = p * missed + (1 - p) * 0.2 * alarmed
        loss[:, 0] = np.minimum(p, 0.2 * (1 - p))[:, 0]
        parts.append(folder / f"{start:09d}.f64")
        loss.tofile(parts[-1])
    return parts


def solved(folder: Path, cases: int, makers: int, compare: bool) -> dict[str, float]:
    """What one size took."""
    from deccaf.assign import AssignmentProblem, solve_problem, verify
    from deccaf.assign.stored import StoredMatrix

    matrix = StoredMatrix.of(sorted(folder.glob("*.f64")), makers)
    upper = np.full(makers, int(0.6 * cases / (makers - 1)))
    upper[0] = cases
    problem = AssignmentProblem(matrix, upper, np.zeros(makers, np.int64))
    begun, clock = time.process_time(), time.perf_counter()
    plan = solve_problem(problem, time_limit=36_000)
    found = {"solve": time.process_time() - begun, "wall": time.perf_counter() - clock}
    begun = time.process_time()
    verify(problem, plan)
    found |= {"verify": time.process_time() - begun, "gap": plan.gap / plan.objective}
    found["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if compare:
        begun = time.process_time()
        other = solve_problem(AssignmentProblem(matrix[:], upper, problem.lower), time_limit=36_000)
        found["memory"] = time.process_time() - begun
        found["moved"] = float(np.count_nonzero(other.maker != plan.maker))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print a row for every size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", default=["1000000x200"])
    parser.add_argument("--compare", action="store_true", help="solve in memory too")
    parser.add_argument("--folder", type=Path, help="where the files are made; 8 bytes a loss")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    for size in asked.sizes:
        cases, makers = (int(part) for part in size.split("x"))
        if asked.inside:
            print(json.dumps(solved(Path(asked.inside), cases, makers, asked.compare)))
            continue
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            write_losses(Path(name), cases, makers)
            command = [sys.executable, __file__, "--inside", name, "--sizes", size]
            command += ["--compare"] if asked.compare else []
            found = json.loads(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout)
        line = f"{cases:>12,d} x {makers:<5,d} solve {found['solve']:.1f} s, check {found['verify']:.1f} s,"
        line += f" peak {found['gigabytes']:.2f} GB, proved gap {found['gap']:.1e}"
        if asked.compare:
            line += f"; in memory {found['memory']:.1f} s, {found['moved']:.0f} cases elsewhere"
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
