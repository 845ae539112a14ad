"""What there is to know about a synthetic team, as tables and as sections of a page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd

from deccaf.benchmark.sections import team_figures as figures
from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.evaluate.agreement import agreement_table, complementarity, error_by_group, outcome_table
from deccaf.report.page import Report, Section
from deccaf.simulate.seeds import Seed
from deccaf.simulate.teams.features import truth_of
from deccaf.simulate.teams.targets import Stakes
from deccaf.simulate.teams.team import SyntheticTeam


@dataclass(frozen=True, eq=False)
class TeamStudy:
    """A team on labelled cases; build it with `study_team`."""

    team: SyntheticTeam
    cases: int
    decisions: pd.DataFrame
    """Cases x experts, positions in the classes."""
    performance: pd.DataFrame
    """One row per expert: group, expected rates, expected cost per 100 cases."""
    fitted: pd.DataFrame
    """Expected rates on the fitting cases, where they meet their targets."""
    outcomes: pd.DataFrame
    """Shares of fp, fn, tp, tn of each expert's decisions."""
    complementarity: pd.DataFrame
    agreement: pd.DataFrame
    """Cohen's kappa between experts; on the diagonal of two judgements by one expert."""
    by_group: dict[str, pd.DataFrame]
    """Errors by protected attribute."""
    stakes: Stakes
    """What errors cost on the fitting cases, and what the classifier costs there."""
    classifier: str = "the classifier"


def study_team(
    team: SyntheticTeam,
    cases: Cases,
    costs: Costs,
    seed: Seed,
    *,
    fit: Cases | None = None,
    groups: pd.DataFrame | None = None,
    classifier_cost: float | None = None,
    classifier: str = "the classifier",
) -> TeamStudy:
    """Let the team decide all cases twice, and measure.

    `fit` are the fitting cases (all, where not given) and `classifier_cost` is a cost per case on them;
    `groups` names each case's protected groups.
    """
    fit = cases if fit is None else fit
    truth = truth_of(cases)
    first, again = team.judgements(cases, seed, 2)
    errors = team.error_probabilities(cases)
    performance = team.rates(cases).assign(
        expected_cost_per_100=100 * team.expected_cost(cases, costs), group=list(team.groups)
    )
    attributes = {} if groups is None else {str(name): groups[name] for name in groups}
    return TeamStudy(
        team=team,
        cases=len(cases),
        decisions=first,
        performance=performance,
        fitted=team.rates(fit),
        outcomes=outcome_table(truth, first, team.classes),
        complementarity=complementarity(truth, first),
        agreement=agreement_table(first, again, len(team.classes)),
        by_group={
            name: error_by_group(truth, errors, member, team.classes) for name, member in attributes.items()
        },
        stakes=Stakes.of(fit, costs, classifier_cost),
        classifier=classifier,
    )


def team_sections(study: TeamStudy) -> tuple[Section, ...]:
    """The sections of a page about the team, for this report and for others."""
    sections = [_weights_section(study), _performance_section(study), _agreement_section(study)]
    sections += [_group_section(name, table) for name, table in study.by_group.items()]
    return tuple(sections)


def team_report(study: TeamStudy, footer: str) -> Report:
    """One page about the team."""
    cost = study.performance["expected_cost_per_100"]
    return Report(
        title=f"A team of {len(study.team)} synthetic experts",
        lead=f"Simulated people who decided {study.cases:,} cases. Each goes by features of its own and errs "
        "with a chance that depends on the case; these chances are known exactly.",
        figures=(
            (f"{len(study.team)}", "experts"),
            (f"{cost.mean():.2f}", "mean expected cost per 100 cases of an expert"),
            (f"{100 * study.stakes.rejecting:.2f}", "cost per 100 of rejecting everything, fitting cases"),
        ),
        sections=team_sections(study),
        footer=footer,
    )


def _weights_section(study: TeamStudy) -> Section:
    hidden = max(0, len(study.team) - figures.MOST)
    return Section(
        title="What each expert goes by",
        text="Where a red feature is high the expert leans towards accepting, where a blue one is high "
        "towards rejecting: each has blind spots of its own.",
        pictures={"team-weights": partial(figures.weight_heatmap, study.team)},
        note=f"The first {figures.MOST} experts; {hidden} more are in parameters.parquet." if hidden else "",
    )


def _performance_section(study: TeamStudy) -> Section:
    table, two = study.performance, len(study.team.classes) == 2
    shown = pd.DataFrame({"Expert": table.index, "Group": table["group"].to_numpy()})
    for name in study.fitted.columns:
        title = str(name).upper() if two else f"Rate {name}"
        shown[title] = table[name].map("{:.1%}".format).to_numpy()
    shown["Cost per 100"] = table["expected_cost_per_100"].map("{:.2f}".format).to_numpy()
    for name in study.outcomes.columns:
        shown[name if two else f"Share {name}"] = study.outcomes[name].map("{:.1%}".format).to_numpy()
    pictures = {}
    if two:
        lines = {"rejecting everything": study.stakes.rejecting}
        if study.stakes.classifier_cost is not None:
            lines = {study.classifier: study.stakes.classifier_cost, **lines}
        at_stake = study.stakes.at_stake
        pictures["team-rates"] = partial(
            figures.rates,
            study.fitted,
            study.team.groups,
            lines,
            (float(at_stake[0, 1]), float(at_stake[1, 0])),
        )
    return Section(
        title="How good they are",
        text="Everyone on a line costs the same; below and left is better. The picture shows the fitting "
        "cases, the table all cases: rates and cost are expected values, outcomes those of one decision per "
        "case.",
        table=shown,
        pictures=pictures,
    )


def _agreement_section(study: TeamStudy) -> Section:
    return Section(
        title="How they differ from each other, and from themselves",
        text="If the same people were right on the same cases, it would not matter who gets which case.",
        pictures={
            "team-complementarity": partial(figures.complementarity_heatmap, study.complementarity),
            "team-agreement": partial(figures.agreement_heatmap, study.agreement),
        },
    )


def _group_section(attribute: str, table: pd.DataFrame) -> Section:
    parts = table.groupby(["truth", "group"], sort=False)
    found = parts.agg(
        cases=("cases", "first"),
        mean=("error_rate", "mean"),
        least=("error_rate", "min"),
        most=("error_rate", "max"),
    ).reset_index()
    shown = pd.DataFrame(
        {
            "Truth": found["truth"],
            "Group": found["group"],
            "Cases": found["cases"].map("{:,}".format),
            "Mean error of the team": found["mean"].map("{:.1%}".format),
            "Least": found["least"].map("{:.1%}".format),
            "Most": found["most"].map("{:.1%}".format),
        }
    )
    return Section(
        title=f"Errors by {attribute}",
        text="The true chance of an error in each group: what a fair assignment has to make up for.",
        table=shown,
        pictures={f"team-errors-by-{attribute}": partial(figures.error_by_group_dots, table, attribute)},
    )
