"""The demo: the main job on embedded data, small enough to watch and whole enough to believe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deccaf.benchmark import figures
from deccaf.benchmark.first_plan import MonthOfPlans, plan_month, plan_sections
from deccaf.benchmark.report import Report, Section
from deccaf.benchmark.team_report import TeamStudy, study_team, team_sections
from deccaf.costs import Costs
from deccaf.schema import Columns
from deccaf.simulate import (
    AlertSets,
    SyntheticTeam,
    build_alert_sets,
    generate_applications,
    paper_group,
    threshold_cost,
)
from deccaf.tables import Cases

STEPS = 5
RATES = (0.05, 0.15)


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where the page is."""

    table: pd.DataFrame
    page: Path


def run_demo(out: Path, *, rows: int, seed: int, step: Callable[[str], None]) -> Demo:
    """Generate applications, raise alerts, write the report; `step` hears what is being done."""
    step("Generating applications")
    applications = generate_applications(rows, seed=seed)
    step("Training the alert model, raising alerts")
    alerts = build_alert_sets(applications, RATES, seed=seed)
    table = alerts.months[RATES[0]]
    step("Simulating a team of nine analysts")
    costs = Costs.binary(false_positive=alerts.cost_ratio(RATES[0]), false_negative=1.0)
    columns = Columns(label="fraud_bool", time="month")
    cases = Cases.from_frame(alerts.sets[RATES[0]], columns=columns, costs=costs)
    study = _team_on(cases, costs, seed)
    step("Learning from months 3-6, planning every day of month 7")
    plans = plan_month(cases.between(stop=7), cases.between(start=7), study.team, costs, seed)
    step("Writing the report")
    report = Report(
        title="A review team's problem, in one page",
        lead=f"{rows:,} bank-account applications over eight months, {applications['fraud_bool'].mean():.1%} "
        "of them fraud. An alert model screens them; what it flags must be reviewed. All data is generated.",
        figures=_headline(table, plans),
        sections=(
            *plan_sections(plans),
            _alerts_section(table),
            _roc_section(alerts),
            *team_sections(study),
        ),
        footer=f"deccaf demo, {rows:,} applications, seed {seed}. The same command gives the same page.",
    )
    found = plans.costs.rename_axis("who decides").rename("expected cost per 100 cases")
    return Demo(found.reset_index(), report.write(out))


def _team_on(cases: Cases, costs: Costs, seed: int) -> TeamStudy:
    """The paper's nine analysts, fitted on month 6 and deciding the alerts of all months."""
    fit = cases.between(6, 7)
    best = threshold_cost(fit, costs)
    team = SyntheticTeam.sample([paper_group()], fit, costs, seed, classifier_cost=best)
    return study_team(
        team, cases, costs, seed, fit=fit, classifier_cost=best, classifier="the best threshold on the score"
    )


def _headline(table: pd.DataFrame, plans: MonthOfPlans) -> tuple[tuple[str, str], ...]:
    alerts = table["alerts"].sum()
    saved = 1 - plans.costs["deccaf"] / plans.costs["analysts at random"]
    return (
        (f"{alerts:,.0f}", "alerts to review in five months"),
        (f"{(table['alerts'] * table['fraud_share']).sum() / alerts:.1%}", "of the alerts are fraud"),
        (f"{saved:.0%}", "less cost of errors than with random cases for analysts"),
    )


def _alerts_section(table: pd.DataFrame) -> Section:
    shown = pd.DataFrame(
        {
            "Month": table.index,
            "Applications": table["applications"].map("{:,}".format),
            "Alerts": table["alerts"].map("{:,}".format),
            "Honest applicants alerted": table["fpr"].map("{:.2%}".format),
            "Fraud caught": table["tpr"].map("{:.1%}".format),
            "Fraud among alerts": table["fraud_share"].map("{:.1%}".format),
        }
    )
    return Section(
        title="The alerts of each month",
        text="Most alerts are honest applicants. Rejecting them all would catch the fraud and lose the "
        "customers; reviewing them all takes more hours than the team has.",
        table=shown,
        pictures={"alerts-by-month": figures.alerts_by_month(table)},
        note="The threshold is set on month 3; later months drift away from it.",
    )


def _roc_section(alerts: AlertSets) -> Section:
    rate = RATES[0]
    curve, threshold = alerts.roc, alerts.thresholds[rate]
    marked = {f"the {name:.0%} threshold": curve.at(level) for name, level in alerts.thresholds.items()}
    return Section(
        title="How good the alert model is",
        text=f"The threshold {threshold:.4f} alerts {rate:.0%} of the honest applicants of month 3. Whoever "
        f"chooses it says that a lost customer costs {alerts.cost_ratio(rate):.3f} of a missed fraud: that "
        "is the price ratio which decides, from here on, who should look at which case.",
        pictures={"alert-model-roc": figures.roc(curve.fpr, curve.tpr, marked, "months 3-7")},
    )
