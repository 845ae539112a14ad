"""The demo: the benchmark on one small scenario, and a month of daily plans with what it learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deccaf.benchmark.cells import beliefs
from deccaf.benchmark.first_plan import MonthOfPlans, plan_month
from deccaf.benchmark.profile import GridTable, Profile, TeamTable, WorldTable
from deccaf.benchmark.report import bench_sections
from deccaf.benchmark.run import run_benchmark
from deccaf.benchmark.scenario import Scenario, settled
from deccaf.benchmark.sections.month import month_headline, month_lead, month_sections
from deccaf.benchmark.store import Store
from deccaf.benchmark.tables import closed
from deccaf.benchmark.world import Source, settings
from deccaf.data.costs import Costs
from deccaf.planning.comparing import compared
from deccaf.report.page import Report, Section

STEPS = 5
RATE, RATIO, SEED = 0.05, 0.057, 0
CAPACITIES = [0, 1]
PAPERS = "the paper's method"
POLICIES = {
    "full-rejection": "everything is rejected, nobody decides",
    "only-classifier": "the machine decides everything",
    "random": "cases are dealt out at random, within everybody's capacity",
    "ova": "one-vs-all models of the experts, case by case in order of arrival",
    "ova-optimal": "the same models, with the exact plan",
    "deccaf-paper": "the paper's method: one joint model of the experts, the exact plan",
    "deccaf": "this package",
    "oracle": "knows every expert's chance of error; the same classifier and limits",
    "oracle-without-limits": "the same, and nobody's capacity is limited",
}


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
            alert_rates=[RATE], ratios=[RATIO], seeds=[SEED], capacities=CAPACITIES, policies=list(POLICIES)
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
        title="Who should decide? A month of a review team, in one page",
        lead=month_lead(plans, rows),
        figures=month_headline(plans),
        sections=(*month_sections(plans), _for_the_papers_reader(results), *bench_sections(store, results)),
        footer=f"deccaf demo, {rows:,} applications, seed {seed}. The same command gives the same figures, "
        "but for times.",
    )
    found = plans.per_100.rename_axis("who decides").rename("expected cost per 100 cases")
    return Demo(found.reset_index(), report.write(out))


def _plans(store: Store, profile: Profile, seed: int) -> MonthOfPlans:
    """A plan for each day of the test month, with what the benchmark has learned."""
    where = Scenario(RATE, RATIO, 1.0)
    setting = settled(store, settings(store, profile, Source(), lambda _: None)[RATE], where)
    crew = setting.crew(RATIO, SEED)
    folders = {"cases": where.cases, "paper": where.paper, "experts": where.experts(SEED)}
    kept = {name: store.table(key, "predictions") for name, key in folders.items()}
    known = beliefs(crew, Costs.binary(RATIO), kept)
    return plan_month(setting.scene().test, crew.team, known, RATIO, seed)


def _for_the_papers_reader(results: pd.DataFrame) -> Section:
    """Where the page turns to those who know the paper: what is compared, and by which names."""
    gap = closed(results).iloc[-1]
    return Section(
        title="For readers of the paper",
        text="From here on the same month as one scenario of the paper: "
        f"{RATE:.0%} alerts, a false alarm costs {RATIO:g}, {len(CAPACITIES)} draws of everybody's capacity, "
        "and everybody decides as many cases as they have capacity for. There deccaf costs "
        f"{compared(gap['saved_paper'], PAPERS)} and closes {gap['closed']:.0%} of the gap from it to "
        "knowing every expert's chances of error (with the same classifier). One scenario with one "
        "history is an example; the command deccaf bench run compares in all of them.",
        table=pd.DataFrame(POLICIES.items(), columns=["Policy", "Who decides"]),
        note="docs/paper.md says which part of the paper is where; docs/benchmark.md has the whole "
        "comparison.",
    )
