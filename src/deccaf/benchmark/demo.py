"""The demo: the benchmark on one small scenario, and a month of daily plans with what it learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deccaf.benchmark.cells import beliefs
from deccaf.benchmark.first_plan import MonthOfPlans, plan_month, plan_sections
from deccaf.benchmark.profile import GridTable, Profile, TeamTable, WorldTable
from deccaf.benchmark.report import bench_sections
from deccaf.benchmark.run import run_benchmark
from deccaf.benchmark.scenario import Scenario, settled
from deccaf.benchmark.store import Store
from deccaf.benchmark.tables import closed
from deccaf.benchmark.world import Source, settings
from deccaf.data.costs import Costs
from deccaf.planning.comparing import direction
from deccaf.report.page import Report

STEPS = 5
RATE, RATIO, SEED = 0.05, 0.057, 0
POLICIES = [
    "full-rejection", "only-classifier", "random", "ova", "ova-optimal", "deccaf-paper", "deccaf", "oracle",
    "oracle-without-limits",
]  # fmt: skip


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where the page is."""

    table: pd.DataFrame
    page: Path


def run_demo(out: Path, *, rows: int, seed: int, jobs: int, step: Callable[[str], None]) -> Demo:
    """Generate, raise alerts, learn, decide, compare, plan; `step` hears what is being done."""
    profile = Profile(
        world=WorldTable(rows=rows, seed=seed),
        grid=GridTable(
            alert_rates=[RATE], ratios=[RATIO], seeds=[SEED], capacities=[0, 1], policies=POLICIES
        ),
        team=TeamTable(seed=seed, around="threshold"),  # a small world's classifier is a poor yardstick
    )
    store, learning = Store(out / "run" / f"rows-{rows}_seed-{seed}"), False

    def progress(done: float, total: float, what: str) -> None:
        nonlocal learning
        if not learning:
            step("Learning from months 3-6, deciding month 7")
        learning = True

    results = run_benchmark(profile, store.folder, jobs=jobs, say=step, progress=progress)
    step("Planning every day of month 7")
    plans = _plans(store, profile, seed)
    step("Writing the report")
    report = Report(
        title="A review team's problem, in one page",
        lead=f"{rows:,} bank-account applications over eight months. An alert model screens them; what it "
        "flags must be reviewed by nine analysts and a machine. All data is generated.",
        figures=_headline(plans, results),
        sections=(*plan_sections(plans), *bench_sections(store, results)),
        footer=f"deccaf demo, {rows:,} applications, seed {seed}. The same command gives the same figures, "
        "but for times.",
    )
    found = plans.costs.rename_axis("who decides").rename("expected cost per 100 cases")
    return Demo(found.reset_index(), report.write(out))


def _plans(store: Store, profile: Profile, seed: int) -> MonthOfPlans:
    """A plan for each day of the test month, with what the benchmark has learned."""
    where, costs = Scenario(RATE, RATIO, 1.0), Costs.binary(RATIO)
    setting = settled(store, settings(store, profile, Source(), lambda _: None)[RATE], where)
    crew = setting.crew(RATIO, SEED)
    folders = {"cases": where.cases, "paper": where.paper, "experts": where.experts(SEED)}
    kept = {name: store.table(key, "predictions") for name, key in folders.items()}
    return plan_month(setting.scene().test, crew.team, beliefs(crew, costs, kept), costs, seed)


def _headline(plans: MonthOfPlans, results: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    saved = 1 - plans.costs["deccaf"] / plans.costs["analysts at random"]
    gap = closed(results).iloc[-1]
    return (
        (f"{results['n'].iloc[0]:,}", "alerts to review in month 7"),
        (f"{abs(saved):.0%}", f"{direction(saved)} cost of errors than with random cases for analysts"),
        (
            f"{abs(gap['saved_paper']):.0%}",
            f"{direction(gap['saved_paper'])} than the paper's method where loads are fixed",
        ),
        (f"{gap['closed']:.0%}", "of the gap to knowing every expert, same classifier"),
    )
