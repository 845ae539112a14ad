"""The trials of the classifier that were made with the budgets of the paper's appendix, to go on from.

    python benchmarks/paper_trials.py put bench-paper     # into a folder of results, then:
    deccaf bench run --profile paper --alert-rates 0.05 --ratios 0.057 --shares 1 --seeds 0 --out bench-paper
    python benchmarks/paper_trials.py keep bench-paper    # what is finished there, into paper_trials.parquet

5 % alerts, ratio 0.057, all data, the embedded world. The next trial depends only on the seed and on those
before it, so a run that begins with these trials finds what it would have found alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from deccaf.benchmark.scenario import Scenario
from deccaf.benchmark.search import Wanted, wanted
from deccaf.benchmark.store import Found, Store
from deccaf.models.paper.searching import with_offset
from deccaf.models.paper.spaces import SEARCHES

TRIALS = Path(__file__).with_suffix(".parquet")
WHERE = Scenario(0.05, 0.057, 1.0)
SEED = 0


def searches() -> list[Wanted]:
    """Those of the classifier: two spaces, eleven initial scores."""
    return wanted("paper", "none", 1, apart=True, experts=1)[0]


def put(store: Store) -> None:
    """Write the kept trials as parts of a run, or as whole searches where they are all."""
    kept = pd.read_parquet(TRIALS)
    for what in searches():
        trials = kept[kept["search"] == what.name].drop(columns="search").reset_index(drop=True)
        space = with_offset(SEARCHES[what.space], what.offset).space
        trials = trials[[name for name in trials if trials[name].notna().all()]]
        trials = trials.astype(
            {n: int for n, v in space.items() if n in trials and getattr(v, "whole", False)}
        )
        fixed = {name: value for name, value in space.items() if name not in trials}
        best = trials["loss"].idxmin()
        found = {**fixed, **{name: trials[name].loc[best].item() for name in space if name in trials}}
        report = {
            "shortlist": [found],
            "losses": [float(trials["loss"].min())],
            "trials": len(trials),
            "seconds": float(trials["seconds"].sum()),
        }
        store.write(WHERE.search(what, SEED, len(trials)), Found(report, {"trials": trials}))
        print(f"{what.name}: {len(trials):,} of {what.trials.trials:,} trials")


def keep(store: Store) -> None:
    """The longest part of every search in a folder of results."""
    tables = []
    for what in searches():
        keys = [WHERE.search(what, SEED, end) for end in what.ends]
        done = [key for key in keys if store.done(key)]
        if done:
            tables.append(store.table(done[-1], "trials").assign(search=what.name))
    pd.concat(tables).to_parquet(TRIALS, index=False, compression="zstd")
    print(f"{TRIALS}: {sum(map(len, tables)):,} trials")


def main() -> None:
    """Put the kept trials into a folder, or keep those of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["put", "keep"])
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    {"put": put, "keep": keep}[asked.what](Store(asked.folder))


if __name__ == "__main__":
    main()
