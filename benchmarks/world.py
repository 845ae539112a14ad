"""Speed and memory of the embedded world: generate a million applications, write and read them as CSV.

    python benchmarks/world.py [--rows 1000000]

Every step runs in a process of its own, so that its peak memory is its own. Exit code 1 if a bar fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PREAMBLE = """
import json, resource, sys, time
import pandas as pd, pyarrow as pa, pyarrow.csv
from deccaf.simulate import generate_applications, load_baf
rows, path = int(sys.argv[1]), sys.argv[2]
start = time.perf_counter()
"""
STEPS = {
    "generate": "table = generate_applications(rows, jobs=2)",
    "write": (
        "table = generate_applications(rows, jobs=2); start = time.perf_counter()\n"
        "pyarrow.csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), path)"
    ),
    "load_baf": "table = load_baf(path)",
    "pandas.read_csv": "table = pd.read_csv(path)",
}
CLOSING = """
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
print(json.dumps({"seconds": seconds, "gigabytes": peak, "rows": len(table)}))
"""
SECONDS = {"generate": 20.0, "load_baf": 8.0}
GIGABYTES = {"generate": 3.0}


def measure(step: str, rows: int, path: Path) -> dict[str, float]:
    """Run one step in a fresh process; seconds do not count the imports, the peak does."""
    code = PREAMBLE + STEPS[step] + CLOSING
    command = [sys.executable, "-c", code, str(rows), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> int:
    """Print the table; 0 if every bar holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print(f"{rows:,} applications, {os.cpu_count()} cores")
    print(f"{'step':18s} {'seconds':>8s} {'bar':>6s} {'peak GB':>8s} {'bar':>6s}  result")
    failed = 0
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Base.csv"
        for step in STEPS:
            found[step] = measure(step, rows, path)
            seconds, peak = found[step]["seconds"], found[step]["gigabytes"]
            limits = SECONDS.get(step, float("inf")), GIGABYTES.get(step, float("inf"))
            held = seconds <= limits[0] and peak <= limits[1]
            failed += not held
            bars = [f"{limit:6.1f}" if limit < float("inf") else "     -" for limit in limits]
            verdict = ("pass" if held else "FAIL") if step in SECONDS else ""
            print(f"{step:18s} {seconds:8.2f} {bars[0]} {peak:8.2f} {bars[1]}  {verdict}", flush=True)
        size = path.stat().st_size / 1e6
    ratio = found["load_baf"]["seconds"] / found["pandas.read_csv"]["seconds"]
    print(f"CSV of {size:.0f} MB; load_baf takes {ratio:.2f} times as long as pandas.read_csv")
    print("all bars hold" if not failed else f"{failed} bars failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
