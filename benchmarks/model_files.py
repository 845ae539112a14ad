"""Damaged and forged model files: none may crash the process, no damaged one may load, nothing may run.

    python benchmarks/model_files.py [--files 10000] [--forged 2000] [--seed 0]

A small model is fitted and saved. `--files` copies of it are damaged (a bit, a byte, a hole, a cut, something
added, lost or swapped) and loaded in a child process, whose death would be noticed. `--forged` more copies
have one member damaged and all sums made right again, as a forger would; these must be refused or load and
predict. Last, a pickle that would create a file is put in every member in turn. Exit code 1 if a bar fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from deccaf import Costs, DeCCaF
from deccaf.errors import ModelFileError
from deccaf.models.model_file import _sealed
from model_damage import damaged, forged, forged_at_random, members, trapped
from models_world import make_world

CHUNK = 500


def main() -> int:
    """Print what happened; 0 if every bar holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--forged", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(Path(options.child[0]), options.child[1], int(options.child[2]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.deccaf"
        fitted().save(path)
        print(f"model file of {path.stat().st_size:,} bytes, {len(members(path.read_bytes()))} members")
        bars = [
            run(path, "damaged", options.files, options.seed),
            run(path, "forged", options.forged, options.seed),
            pickles(path),
        ]
    return 0 if all(bars) else 1


def fitted() -> DeCCaF:
    world = make_world(600, 3)
    return DeCCaF(Costs.binary(0.3)).fit(
        world.features, world.truth, expert=world.expert, decision=world.decision, time=world.time
    )


def run(path: Path, kind: str, files: int, seed: int) -> bool:
    """Load `files` bad files in child processes of 500 each."""
    started, counts, crashes = time.perf_counter(), {"refused": 0, "loaded": 0, "other": 0}, 0
    for number in range(-(-files // CHUNK)):
        command = [sys.executable, __file__, "--child", str(path), kind, str(seed * 100_003 + number)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            crashes += 1
            print(done.stderr[-2000:], file=sys.stderr)
            continue
        for name, count in json.loads(done.stdout.splitlines()[-1]).items():
            counts[name] += count
    seconds = time.perf_counter() - started
    print(f"{kind}: {counts}, {crashes} crashed children, {seconds:.0f} s")
    return not crashes and not counts["other"] and (kind == "forged" or not counts["loaded"])


def child(path: Path, kind: str, seed: int) -> int:
    """Load 500 bad files; a crash ends this process, which the parent notices."""
    rng, data = np.random.default_rng(seed), path.read_bytes()
    counts, cases = {"refused": 0, "loaded": 0, "other": 0}, make_world(50, 3).features
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder) / "bad.deccaf"
        for _ in range(CHUNK):
            bad.write_bytes(damaged(data, rng) if kind == "damaged" else forged_at_random(data, rng))
            try:
                model = DeCCaF.load(bad)
                counts["loaded"] += 1
            except ModelFileError:
                counts["refused"] += 1
                continue
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                counts["other"] += 1
                continue
            try:
                model.expected_loss(cases)
            except Exception as error:  # a forger's numbers may make no sense, but must not crash
                print(f"predicting: {type(error).__name__}: {error}", file=sys.stderr)
    print(json.dumps(counts))
    return 0


def pickles(path: Path) -> bool:
    """A pickle in every member in turn: never executed, never loaded."""
    data, trap = path.read_bytes(), path.with_name("executed")
    refused = 0
    for name in members(data):
        bad = (
            _sealed({**members(data), name: trapped(trap)})
            if name == "manifest.json"
            else forged(data, lambda parts, name=name: parts.update({name: trapped(trap)}))
        )
        path.with_name("bad.deccaf").write_bytes(bad)
        try:
            DeCCaF.load(path.with_name("bad.deccaf"))
        except ModelFileError:
            refused += 1
    print(f"pickles: refused in {refused} of {len(members(data))} members, executed: {trap.exists()}")
    return refused == len(members(data)) and not trap.exists()


if __name__ == "__main__":
    sys.exit(main())
