"""`deccaf backtest`: what plans would have cost on one's own history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from deccaf.cli.common import JsonOption, say, show_table, steps, warnings_said
from deccaf.cluster import check_installed, workers_of
from deccaf.data.config import Config
from deccaf.data.files import check_output
from deccaf.data.sources import pipes_kept, short_name


@pipes_kept()
def backtest(
    cases: Annotated[str, typer.Option(help="Past cases: case_id, features, label, optional time, groups.")],
    decisions: Annotated[str, typer.Option(help="Decision log: case_id, expert_id, decision.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables columns, costs and model.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for report.html, backtest.json and plan.parquet."),
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help="A roster (expert_id, upper, optional batch and lower) to plan with.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(help="Plan batch by batch: a column (batch, time or a group), or day, week, month."),
    ] = None,
    capacity_share: Annotated[
        float | None,
        typer.Option(help="Everybody's room as a share of what they really decided; by default the team can "
                          "review half of the cases."),
    ] = None,
    split: Annotated[
        Literal["auto", "time", "group", "random"],
        typer.Option(help="Test on later cases, on whole groups, or on random cases."),
    ] = "auto",
    folds: Annotated[int | None, typer.Option(min=1, help="Refits; 5 for groups and random splits.")] = None,
    test_share: Annotated[float, typer.Option(help="Share of the cases to test on, for time splits.")] = 0.25,
    draws: Annotated[int, typer.Option(min=1, help="Draws of one decision per case, if it has more.")] = 3,
    policies: Annotated[str, typer.Option(help="Policies to compare, with commas between.")] = "",
    worth: Annotated[float, typer.Option(help="Least gain worth having, as a share of the cost.")] = 0.02,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the seed of the configuration.")] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Keep what the models of each split and draw said in this folder: stopped and "
                          "started again, it goes on where it was."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Work on splits and draws on a Dask cluster: tcp://HOST:8786, or local:N for N "
                          "worker processes here. All workers must see a --scratch folder."),
    ] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Test on history what plans would have cost, against the machine, random cases and what really happened.

    Where several experts decided the same cases, every outcome is known. Where one did, costs are estimated
    from the log, with intervals, and what makes the estimates doubtful is said. The verdict is a gain, no
    gain, or that these data cannot tell.

    Tables are files, folders, patterns, or addresses of tables in DuckDB and PostgreSQL (docs/files.md).
    """
    check_installed(cluster)
    from deccaf.backtest.options import DEFAULT, Options
    from deccaf.backtest.report import cost_table, write_backtest
    from deccaf.backtest.run import backtest as run
    from deccaf.backtest.run import steps_of
    from deccaf.data.capacity import Capacity
    from deccaf.data.history import History

    if out is not None:
        check_output(out, [], ())
    settings = Config.read(config)
    chosen = tuple(name.strip() for name in policies.split(",") if name.strip()) or DEFAULT
    options = Options(
        policies=chosen,
        capacity_share=capacity_share,
        capacity=None if capacity is None else Capacity.read(capacity),
        batch=batch,
        worth=worth,
        split=split,
        folds=folds,
        test_share=test_share,
        draws=draws,
        seed=settings.model.seed if seed is None else seed,
    )
    with warnings_said():
        history = History.read(cases, decisions, settings)
        with steps(steps_of(history, options, settings.labels)) as step, workers_of(cluster):
            found = run(history, settings, options, step, scratch)
        page = None if out is None else write_backtest(found, out, f"Backtest on {short_name(cases)}")
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        show_table(cost_table(found), title=f"{found.test_cases:,} test cases", as_json=False)
        for line in [*found.verdict.sentences, found.split, *(f"note: {note}" for note in found.notes)]:
            print(line)
    if page is not None:
        say(f"Report: {page}")
