"""The commands on files, as a user runs them: seconds, memory, and whether intervals tell the truth.

    python benchmarks/system.py tutorial [--cases 30000]             fit, backtest, assign from files
    python benchmarks/system.py assign [--cases 100000 ...] [--experts 50] [--keep FOLDER]
    python benchmarks/system.py coverage [--repetitions 200] [--cases 20000]

`tutorial`: a world of 30,000 alerts and 9 experts; the bar is 3 minutes for the three commands together.
`assign`: a model of 50 experts is fitted once; each number of cases is planned from a parquet file by a
process of its own, scoring included. The bars are 30 s and 3 GB for 100,000 cases. `--keep` keeps the model
for the next run.
`coverage`: simulated teams whose true chances of error are known decide one case each, drawn at random or
with better experts on harder cases, with known propensities; the share of 95 % intervals that hold the
policy's true cost must be 90 to 99 %. Exit code 1 if a bar fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from deccaf import Cases, Columns, Costs, DeCCaF, Decisions, History
from deccaf.evaluate.off_policy import Estimate, logged, mean_with_interval
from deccaf.policies import Beliefs, Decided, Room, optimal
from deccaf.simulate import build_alert_sets, generate_applications
from deccaf.simulate.history import history, random_history, skilled_propensity
from deccaf.simulate.teams.build import paper_group, threshold_cost
from deccaf.simulate.teams.team import SyntheticTeam

COSTS = Costs.binary(0.057, 1.0)
COLUMNS = Columns(label="fraud_bool", time="month")
CONFIG = """
[columns]
label = "fraud_bool"
time = "month"
[costs]
false_positive = 0.057
false_negative = 1.0
"""


def main() -> int:
    """Run one of the three; 0 if every bar holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    tutorial_options = commands.add_parser("tutorial")
    tutorial_options.add_argument("--cases", type=int, default=30_000)
    assign_options = commands.add_parser("assign")
    assign_options.add_argument("--cases", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    assign_options.add_argument("--experts", type=int, default=50)
    assign_options.add_argument("--keep", type=Path)
    coverage_options = commands.add_parser("coverage")
    coverage_options.add_argument("--repetitions", type=int, default=200)
    coverage_options.add_argument("--cases", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.command == "tutorial":
            return tutorial(Path(folder), options.cases)
        if options.command == "assign":
            return assign(options.keep or Path(folder), options.cases, options.experts)
        return coverage(options.repetitions, options.cases)


def alerts(cases: int, seed: int = 0) -> pd.DataFrame:
    """About so many alerts of the embedded world."""
    world = generate_applications(33 * cases, seed=seed)
    return build_alert_sets(world, (0.05,), seed=seed).sets[0.05].iloc[:cases].reset_index()


def team_of(size: int, cases: Cases, seed: int = 0) -> SyntheticTeam:
    fit = cases.between(6, 7)
    group = paper_group(size)
    return SyntheticTeam.sample([group], fit, COSTS, seed, classifier_cost=threshold_cost(fit, COSTS))


def run(*arguments: object) -> tuple[float, float, float]:
    """Run a command in a process of its own; seconds, seconds of the processors, and its memory in GB."""
    started = time.perf_counter()
    command = [str(Path(sys.executable).with_name("deccaf")), *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"deccaf {arguments[0]} failed")
    seconds = time.perf_counter() - started
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def tutorial(folder: Path, cases: int) -> int:
    frame = alerts(cases)
    table = Cases.from_frame(frame, columns=COLUMNS, costs=COSTS)
    team = team_of(9, table)
    frame.to_parquet(folder / "cases.parquet")
    random_history(team, table, 0).to_parquet(folder / "decisions.parquet")
    frame[frame["month"] == 7].drop(columns="fraud_bool").to_parquet(folder / "today.parquet")
    (folder / "deccaf.toml").write_text(CONFIG)
    roster = pd.DataFrame({"expert_id": team.experts, "upper": (frame["month"] == 7).sum() // 20})
    roster.to_csv(folder / "roster.csv", index=False)
    past = ["--cases", folder / "cases.parquet", "--decisions", folder / "decisions.parquet"]
    past += ["--config", folder / "deccaf.toml"]
    model = folder / "model.deccaf"
    today = ["--model", model, "--cases", folder / "today.parquet", "--capacity", folder / "roster.csv"]
    seconds = {
        "fit": run("fit", *past, "--until", 7, "--out", model)[0],
        "backtest": run("backtest", *past, "--out", folder / "report")[0],
        "assign": run("assign", *today, "--out", folder / "plan.parquet")[0],
    }
    words = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    print(f"{len(frame):,} cases, 9 experts: {words}, together {sum(seconds.values()):.1f} s")
    return 0 if sum(seconds.values()) < 180 else 1


def assign(folder: Path, sizes: list[int], experts: int) -> int:
    model, cases = folder / "model.deccaf", folder / "cases.parquet"
    if not model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        alerts(30_000).to_parquet(cases)
        table = Cases.read(cases, columns=COLUMNS, costs=COSTS)
        log = Decisions.from_frame(random_history(team_of(experts, table), table, 0), cases=table)
        DeCCaF(COSTS, columns=COLUMNS).fit_history(History.of(table, log)).save(model)
    names = DeCCaF.load(model).experts_
    features = pd.read_parquet(cases).drop(columns=["fraud_bool", "case_id"])
    rng, held = np.random.default_rng(0), True
    for size in sizes:
        rows = features.iloc[rng.integers(len(features), size=size)].reset_index(drop=True)
        rows.insert(0, "case_id", np.arange(size))
        rows.to_parquet(folder / "today.parquet")
        roster = pd.DataFrame({"expert_id": names, "upper": size // (2 * experts)})
        roster.to_csv(folder / "roster.csv", index=False)
        command = [
            "assign", "--model", model, "--cases", folder / "today.parquet",
            "--capacity", folder / "roster.csv", "--out", folder / "plan.parquet", "--time-limit", 600,
        ]  # fmt: skip
        _, bare, _ = run(*command, "--no-intervals")
        seconds, work, memory = run(*command)
        print(
            f"{size:,} cases x {len(names)} experts: {seconds:.1f} s ({work:.1f} s of the processors, "
            f"{bare:.1f} s without intervals), {memory:.2f} GB",
            flush=True,
        )
        held &= size > 100_000 or (seconds <= 30 and memory <= 3)
    return 0 if held else 1


class Coverage:
    """A model fitted once, and a future of cases that plans and logs are drawn from again and again."""

    def __init__(self) -> None:
        table = Cases.from_frame(alerts(30_000), columns=COLUMNS, costs=COSTS)
        past = table.between(stop=7)
        self.future = Cases.from_frame(alerts(30_000, seed=1), columns=COLUMNS, costs=COSTS)
        self.team = team_of(9, table)
        log = Decisions.from_frame(random_history(self.team, past, 0), cases=past)
        learned = (
            DeCCaF(COSTS, decision_parts=("rates", "pooled")).fit_history(History.of(past, log)).learned_
        )
        self.p = learned.classifier.predict(self.future.features)
        self.q = learned.decisions.predict(self.future.features, self.team.experts)
        self.truth = np.asarray(self.future.label)
        self.errors = self.team.error_probabilities(self.future).to_numpy()

    def plan(self, rows: np.ndarray, seed: int) -> Decided:
        """The exact plan of some cases; everyone may get a twentieth of them."""
        beliefs = Beliefs(tuple(self.team.experts), COSTS.array(), self.p[rows], self.q[rows])
        upper = np.append(len(rows), np.full(len(self.team), len(rows) // 20))
        return optimal(beliefs.loss(beliefs.q), beliefs.machine_says(), Room(0 * upper, upper), seed)

    def once(self, chance: pd.DataFrame, cases: int, seed: int) -> tuple[float, list[Estimate]]:
        """The plan's true cost on fresh cases, and both estimates of it from a fresh log."""
        rows = np.random.default_rng(seed).integers(len(self.future), size=cases)
        plan, costs, y, here = self.plan(rows, seed), COSTS.array()[0], self.truth[rows], np.arange(cases)
        sample = self.future.take(np.unique(rows))
        drawn = history(self.team, sample, chance.loc[sample.ids], 10_000 + seed).set_index("case_id")
        drawn = drawn.loc[self.future.ids[rows]]
        who = pd.Index(self.team.experts).get_indexer(drawn["expert_id"])
        predicted = np.einsum("ijm,im->ij", self.q[rows][here, :, y], costs[y])
        people, target = plan.maker > 0, np.maximum(plan.maker - 1, 0)
        own = np.where(people, 0.0, costs[y, plan.machine_says])
        both = logged(
            people & (target == who),
            drawn["propensity"],
            costs[y, drawn["decision"].to_numpy(np.int64)],
            own,
            predicted[here, who],
            np.where(people, predicted[here, target], 0.0),
        )
        true = (own + people * self.errors[rows, target] * costs[y].sum(axis=1)).mean()
        # a case drawn twice has one logged decision: its rows are one observation
        terms = (both.inverse_propensity(), both.doubly_robust())
        event = both.event()
        return float(true), [mean_with_interval(t, group=rows, event=event) for t in terms]


def coverage(repetitions: int, cases: int) -> int:
    """How often the intervals hold the policy's cost: the mean of its true costs over all repetitions."""
    world, held = Coverage(), True
    for name, strength in (("random history", 0.0), ("better experts on harder cases", 0.7)):
        chance = skilled_propensity(world.team, world.future, strength=strength)
        runs = [world.once(chance, cases, seed) for seed in range(repetitions)]
        true = float(np.mean([value for value, _ in runs]))
        for place, estimator in enumerate(("inverse propensity", "doubly robust")):
            found = [estimates[place] for _, estimates in runs]
            covered = np.mean([e.low <= true <= e.high for e in found])
            width = 100 * np.mean([e.high - e.low for e in found])
            bias = 100 * (np.mean([e.value for e in found]) - true)
            print(
                f"{name}, {estimator}: {covered:.1%} of {repetitions} intervals hold the true cost "
                f"({100 * true:.3f} per 100; mean width {width:.3f}, bias {bias:+.3f})",
                flush=True,
            )
            held &= 0.90 <= covered <= 0.99
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
