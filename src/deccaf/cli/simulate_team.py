"""`deccaf simulate team`: experts who decide the cases of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from deccaf.cli.common import JsonOption, SeedOption, say, show_table, steps, warnings_said
from deccaf.data.cases import Cases
from deccaf.data.files import about, check_output, read_frame, write_frame

if TYPE_CHECKING:
    from deccaf.benchmark.sections.team import TeamStudy
    from deccaf.simulate import SyntheticTeam

_STEPS = 5


def team(
    cases: Annotated[str, typer.Option(help="Labelled cases: .parquet or .csv.")],
    config: Annotated[Path, typer.Option(help="Description of the team: team.toml.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")],
    per_case: Annotated[int, typer.Option(min=1, help="How many random experts decide each case.")] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Add the machines' own scores to the cases (score_<machine>).")
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Simulate a team of experts on labelled cases.

    Groups of kind "machine" are machines: they decide every case of the history, and with `shared` their
    errors go together, given the truth and the case.

    Writes cases, the history (decisions.parquet: one random expert per case, with propensities), what every
    expert says on every case (all_decisions.parquet), the true chances of error (probabilities.parquet), the
    team itself (parameters.parquet, team.json), and report.html with its pictures.
    """
    from deccaf.benchmark.sections.team import study_team, team_report
    from deccaf.simulate import TeamConfig, build_team, random_history, save_team
    from deccaf.simulate.teams.build import fitting_cases, protected_groups, reference_cost

    check_output(out / "cases.parquet", [cases, config])
    described = TeamConfig.read(config)
    costs = described.costs.build()
    with steps(_STEPS) as step, warnings_said():
        step("Reading cases")
        with about(cases):
            frame = read_frame(cases, text=(described.columns.case, "batch"))
            table = Cases.from_frame(frame, columns=described.columns, costs=costs, require=["label"])
        step("Drawing the team")
        members = build_team(described, table, seed)
        step("Deciding")
        fit = fitting_cases(described, table)
        study = study_team(
            members,
            table,
            costs,
            seed,
            fit=fit,
            groups=protected_groups(described.features, table),
            classifier_cost=reference_cost(described, fit, costs),
            classifier="the classifier"
            if described.fit.classifier_cost
            else "the best threshold on the score",
        )
        history = random_history(members, table, seed, per_case=per_case)
        step("Writing tables")
        if scores:
            frame = pd.concat([frame, members.scores(table, seed).set_axis(frame.index)], axis=1)
        write_frame(frame, out / "cases.parquet")
        write_frame(history, out / "decisions.parquet")
        write_frame(_every_decision(study), out / "all_decisions.parquet")
        write_frame(error_table(members, table), out / "probabilities.parquet")
        save_team(members, out)
        step("Drawing pictures")
        page = team_report(study, f"deccaf simulate team, seed {seed}.").write(out)
    show_table(
        study.performance.reset_index(),
        title=f"{len(members)} experts on {len(table):,} cases: expected rates and cost",
        as_json=as_json,
    )
    say(f"Report: {page}")


def error_table(members: SyntheticTeam, cases: Cases) -> pd.DataFrame:
    """True chances of error, one row per case and expert: `error_if_<class>` for each possible truth."""
    wide = {
        f"error_if_{name}": members.error_probabilities(cases, truth=y)
        for y, name in enumerate(members.classes)
    }
    experts = len(members)
    table = pd.DataFrame(
        {
            "case_id": cases.ids.repeat(experts),
            "expert_id": pd.Categorical(list(members.experts) * len(cases), list(members.experts)),
        }
    )
    return table.assign(**{name: chances.to_numpy().ravel() for name, chances in wide.items()})


def _every_decision(study: TeamStudy) -> pd.DataFrame:
    names = pd.Series(list(study.team.classes))
    said = {expert: names.iloc[study.decisions[expert]].to_numpy() for expert in study.team.experts}
    return pd.DataFrame({"case_id": study.decisions.index, **said})
