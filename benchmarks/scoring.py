"""All experts at once against one LightGBM predict per expert: time, memory, growth with the experts.

    python benchmarks/scoring.py [--cases 100000] [--threads 2] [--calls 6] [--all-calls] [--experts 10 50]

The model is like an expertise model of the `standard` budget: dart, 200 trees up to depth 8, 30 features,
five of them categories, and the expert as a category. A predict call takes about the same time for every
expert, so J calls are reckoned from `--calls` of them, half made before and half after; `--all-calls` makes
all of them for 50 experts. Memory is measured in a fresh process, from before the scorer is built. Exit code
1 if a bar fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from deccaf.models.trees.expert_scorer import ExpertScorer

Array = NDArray[np.float64]
NUMBERS, CATEGORIES, DECISIONS, TREES = 25, 5, 21_000, 200
EXPERT = NUMBERS + CATEGORIES
COUNTS = (10, 50, 200, 1_000)
MAIN, FASTER, MEMORY, EXACT = 50, 5.0, 2.0, 1e-9

MEASURE = """
import json, sys
sys.path.insert(0, sys.argv[4])
import lightgbm as lgb, numpy as np
from scoring import ExpertScorer, cases
n, experts, threads = map(int, sys.argv[1:4])
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) / 1024
booster, matrix = lgb.Booster(model_str=sys.stdin.read()), cases(n, 9)
ExpertScorer(booster, matrix.shape[1], np.arange(2), threads=threads).raw(matrix[:3000])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
out = ExpertScorer(booster, matrix.shape[1], np.arange(experts), threads=threads).raw(matrix)
print(json.dumps({"peak": status("VmHWM") - before, "output": out.nbytes / 2**20}))
"""


def main() -> int:
    """Print the table; 0 if every bar holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--all-calls", action="store_true")
    parser.add_argument("--experts", type=int, nargs="+", default=list(COUNTS))
    options = parser.parse_args()
    print(f"{options.cases:,} cases, {TREES} trees, {options.threads} thread(s); seconds, memory in MB\n")
    print("experts  leaves  on expert  one call   J calls   prepare    score   ratio  output    peak  off by")
    rows = {}
    for experts in options.experts:
        calls = experts if options.all_calls and experts == MAIN else options.calls
        rows[experts] = measure(experts, options.cases, options.threads, calls)
        print(LINE.format(experts=experts, **rows[experts]), flush=True)
    if len(rows) > 1:
        seconds = [row["score"] for row in rows.values()]
        growth = np.polyfit(np.log(list(rows)), np.log(seconds), 1)[0]
        print(f"\nscore grows like experts^{growth:.2f}; one call per expert would grow like experts^1")
    return report(rows)


LINE = (
    "{experts:7d} {leaves:7.0f} {asked:10.1f} {call:9.2f} {calls:9.1f} {prepare:9.2f} {score:8.2f}"
    " {ratio:7.1f} {output:7.0f} {peak:7.0f}  {off:.0e}"
)


def measure(experts: int, n: int, threads: int, calls: int) -> dict[str, float]:
    """One line of the table."""
    booster = expertise_model(experts, threads)
    matrix = cases(n, 9)
    scorer_seconds, scorer = clocked(
        lambda: ExpertScorer(booster, EXPERT, np.arange(experts), threads=threads)
    )
    asked = np.linspace(0, experts - 1, calls).astype(int)
    before = [clocked(lambda j=j: one_call(booster, matrix, j, threads)) for j in asked[: calls // 2]]
    score_seconds, scores = clocked(lambda: scorer.raw(matrix))
    after = [clocked(lambda j=j: one_call(booster, matrix, j, threads)) for j in asked[calls // 2 :]]
    off = max(float(np.abs(scores[:, j] - p).max()) for j, (_, p) in zip(asked, before + after, strict=True))
    del scores
    call = float(np.mean([seconds for seconds, _ in before + after]))
    return {
        **shape(booster),
        "call": call,
        "calls": experts * call,
        "prepare": scorer_seconds,
        "score": score_seconds,
        "ratio": experts * call / (scorer_seconds + score_seconds),
        "off": off,
        **memory(booster, n, experts, threads),
    }


def cases(n: int, seed: int) -> Array:
    """Numbers (some rounded, one with gaps) and categories."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, EXPERT))
    x[:, :6] = np.round(2 * x[:, :6]) / 2
    x[rng.random(n) < 0.1, 3] = np.nan
    for k in range(CATEGORIES):
        x[:, NUMBERS + k] = rng.integers(0, 4 + 2 * k, n)
    return x


def expertise_model(experts: int, threads: int) -> lgb.Booster:
    """Correctness of experts who go by different features, fitted on one decision per case."""
    rng = np.random.default_rng(experts)
    x, expert = cases(DECISIONS, 5), rng.integers(0, experts, DECISIONS)
    weights = rng.normal(size=(experts, EXPERT)) * (rng.random((experts, EXPERT)) < 0.3)
    z = np.nan_to_num((x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0))
    length = np.linalg.norm(weights, axis=1).clip(0.5)
    logit = 1 + rng.normal(0, 0.5, experts)[expert] + 1.2 * (z * weights[expert]).sum(axis=1) / length[expert]
    right = rng.random(DECISIONS) < 1 / (1 + np.exp(-logit))
    data = lgb.Dataset(
        np.column_stack([x, expert]), right, categorical_feature=[*range(NUMBERS, EXPERT), EXPERT]
    )
    params = {"objective": "binary", "boosting": "dart", "max_depth": 8, "num_leaves": 256, "verbosity": -1,
              "min_child_samples": 20, "learning_rate": 0.1, "num_threads": threads, "seed": 1}  # fmt: skip
    return lgb.train(params, data, TREES)


def one_call(booster: lgb.Booster, matrix: Array, expert: int, threads: int) -> Array:
    """What the scorer replaces, J times."""
    full = np.column_stack([matrix, np.full(len(matrix), float(expert))])
    return np.asarray(booster.predict(full, raw_score=True, num_threads=threads))


def shape(booster: lgb.Booster) -> dict[str, float]:
    """Leaves, and splits on the expert, per tree."""
    table = booster.trees_to_dataframe()
    splits = table[table["split_feature"].notna()]
    asked = (splits["split_feature"] == f"Column_{EXPERT}").sum()
    return {"leaves": len(splits) / TREES + 1, "asked": asked / TREES}


def memory(booster: lgb.Booster, n: int, experts: int, threads: int) -> dict[str, float]:
    """Output and peak above what the process held before, in MB, in a process of its own."""
    folder = str(__file__).rsplit("/", 1)[0]
    command = [sys.executable, "-c", MEASURE, str(n), str(experts), str(threads), folder]
    done = subprocess.run(
        command, input=booster.model_to_string(), capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def clocked(work):  # type: ignore[no-untyped-def]
    """Seconds and result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def report(rows: dict[int, dict[str, float]]) -> int:
    """The bars."""
    off = max(row["off"] for row in rows.values())
    bars = {f"largest difference from LightGBM {off:.0e} (at most {EXACT:.0e})": off <= EXACT}
    if MAIN in rows:
        ratio, peak = rows[MAIN]["ratio"], rows[MAIN]["peak"] / rows[MAIN]["output"]
        bars[f"{MAIN} experts: {ratio:.1f} times faster than {MAIN} calls (at least {FASTER:.0f})"] = (
            ratio >= FASTER
        )
        bars[f"{MAIN} experts: peak {peak:.2f} times the output (at most {MEMORY:.0f})"] = peak <= MEMORY
    for text, held in bars.items():
        print(("ok    " if held else "FAILS ") + text)
    return 0 if all(bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
