"""`deccaf simulate`: a world to try things in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deccaf.cli.common import JsonOption, SeedOption, say, show_table, steps
from deccaf.cli.simulate_team import team
from deccaf.data.files import check_output, write_frame

simulate = typer.Typer(
    help="Generate bank-account applications, the alerts of an alert model, and teams of reviewers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

RowsOption = Annotated[int, typer.Option(min=1, help="How many applications, over eight months.")]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="File to write: .parquet or .csv.")]


@simulate.command(epilog="Example: deccaf simulate applications --rows 100000 --out applications.parquet")
def applications(out: OutOption, rows: RowsOption = 1_000_000, seed: SeedOption = 0) -> None:
    """Write bank-account applications with the columns of the BAF dataset (Base.csv).

    Eight months with drift, 1.1 % fraud, missing codes (-1) and heavy tails, made from published summaries;
    no row is taken from the real data.
    """
    from deccaf.simulate import generate_applications

    check_output(out, [])
    with steps(2) as step:
        step("Generating applications")
        frame = generate_applications(rows, seed=seed)
        step("Writing")
        write_frame(frame, out)
    say(f"{len(frame):,} applications, {frame['fraud_bool'].sum():,} of them fraud: {out}")


@simulate.command(epilog="Example: deccaf simulate alerts --rate 0.05 --out alerts.parquet")
def alerts(
    out: OutOption,
    applications: Annotated[
        Path | None, typer.Option(help="BAF's Base.csv, or a file made by `simulate applications`.")
    ] = None,
    rows: RowsOption = 1_000_000,
    rate: Annotated[float, typer.Option(help="False-positive rate of the alert model on month 3.")] = 0.05,
    search: Annotated[
        int,
        typer.Option(min=0, help="Trials of a search for the model's settings; 0: those the paper selected."),
    ] = 0,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train an alert model on months 0-2 and write the alerts that it raises in months 3-7.

    The threshold gives the wanted false-positive rate on month 3. The file has one row per alert: case_id,
    the features, fraud_bool, model_score and month.
    """
    from deccaf.simulate import build_alert_sets, generate_applications, load_baf
    from deccaf.simulate.alerts import AlertModel, tune_alert_model

    check_output(out, [applications])
    with steps(3 + bool(search)) as step:
        step("Reading applications" if applications else "Generating applications")
        world = load_baf(applications) if applications else generate_applications(rows, seed=seed)
        model = None
        if search:
            step(f"Searching the alert model's settings: {search} trials")
            tuned = tune_alert_model(world, trials=search, fpr=rate, seed=seed)
            model = AlertModel(tuned.params, seed=seed).fit(world)
        step("Training the alert model and raising alerts")
        raised = build_alert_sets(world, (rate,), seed=seed, model=model)
        step("Writing")
        write_frame(raised.sets[rate].reset_index(), out)
    show_table(
        raised.months[rate].reset_index(),
        title=f"Alerts at a {rate:.0%} false-positive rate (threshold {raised.thresholds[rate]:.4f}): {out}",
        as_json=as_json,
    )


simulate.command(
    epilog="Example: deccaf simulate team --cases alerts.parquet --config experiments/teams/paper.toml -o t"
)(team)
