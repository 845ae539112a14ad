"""What the paper's search budgets would cost: time a sample of trials of each search, and extrapolate.

    python benchmarks/paper_cost.py [--trials 12] [--rows 1000000]

Each search of the `paper` profile is sampled in one scenario (5 % alerts, ratio 0.057, all data) with random
trials of the appendix's spaces; CPU seconds of one process, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

from deccaf.benchmark.kept import read_truth
from deccaf.benchmark.profile import read_profile
from deccaf.benchmark.search import Wanted, run_search
from deccaf.benchmark.store import Store
from deccaf.benchmark.tasks import fit_cases, fit_experts
from deccaf.benchmark.world import Source, build_world, settings
from deccaf.models.paper.paper_classifier import OFFSETS
from deccaf.models.paper.spaces import SEARCHES

SHARE_FACTOR = {1.0: 1.0, 0.5: 0.55, 0.25: 0.33}
"""Work on a part of the data, relative to all of it: a tenth does not depend on the number of cases."""


def main() -> int:
    """Print seconds per trial and core-hours in all."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    profile = read_profile("paper").with_grid({"alert_rates": [0.05]}).with_team({"around": "threshold"})
    profile = profile.model_copy(update={"world": profile.world.model_copy(update={"rows": options.rows})})
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        build_world(store, profile, Source(), print)
        setting = settings(store, profile, Source(), print)[0.05]
    each: dict[str, float] = {}
    for model, space in (
        ("classifier", "classifier"),
        ("classifier", "classifier-depth-2"),
        ("hem", "expertise"),
        ("ova", "expertise"),
    ):
        what = Wanted(model, space, options.trials, 1, offset=0.0 if model == "classifier" else None)
        started = time.process_time()
        run_search(setting, 0.057, 1.0, 0, what)
        each[f"{model}, {space}"] = (time.process_time() - started) / options.trials
    started = time.process_time()
    cases = fit_cases(setting, 1.0)
    p = read_truth(cases.tables["predictions"], "p", setting.cases.classes)
    fit_experts(setting, 0.057, 1.0, 0, {}, p)
    fits = time.process_time() - started
    return report(each, fits, len(read_profile("paper").grid.alert_rates) * len(profile.grid.ratios),
                  len(profile.grid.seeds))  # fmt: skip


def report(each: dict[str, float], fits: float, scenarios: int, histories: int) -> int:
    """The extrapolation, line by line."""
    factor, total, one = sum(SHARE_FACTOR.values()), 0.0, fits / 3600
    for name, seconds in each.items():
        model, space = name.split(", ")
        trials = SEARCHES[space].budgets["paper"].trials
        searches = len(OFFSETS) if model == "classifier" else histories
        hours = seconds * trials * searches * scenarios * factor / 3600
        total += hours
        one += seconds * trials * (len(OFFSETS) if model == "classifier" else 1) / 3600
        print(f"{name}: {seconds:.2f} s a trial x {trials} x {searches} searches x {scenarios} scenarios x "
              f"{factor:.2f} (shares) = {hours:.1f} core-hours")  # fmt: skip
    hours = fits * histories * scenarios * factor / 3600
    print(f"fits: {fits:.1f} s x {histories} x {scenarios} x {factor:.2f} = {hours:.1f} core-hours")
    print(f"in all about {total + hours:.0f} core-hours (one-vs-all: all experts' models count as one trial)")
    print(f"of which one scenario with all data and one history: {one:.1f} core-hours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
