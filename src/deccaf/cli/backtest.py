"""`deccaf backtest`: what plans would have cost on one's own history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from deccaf.cli.common import JsonOption, say, show_table, steps, warnings_said
from deccaf.data.config import Config


def backtest(
    cases: Annotated[Path, typer.Option(help="Past cases: case_id, features, label, optional time, groups.")],
    decisions: Annotated[Path, typer.Option(help="Decision log: case_id, expert_id, decision.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables columns, costs and model.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the report.")] = None,
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
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the seed of the configuration.")] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Test on history what plans would have cost, against the machine, random cases and what really happened.

    Where several experts decided the same cases, every outcome is known. Where one did, costs are estimated
    from the log, with intervals, and what makes the estimates doubtful is said. The report can say "no gain".
    """
    from deccaf.backtest.report import backtest_report, cost_table
    from deccaf.backtest.run import DEFAULT, Options
    from deccaf.backtest.run import backtest as run
    from deccaf.data.history import History

    settings = Config.read(config)
    chosen = tuple(name.strip() for name in policies.split(",") if name.strip()) or DEFAULT
    options = Options(
        policies=chosen,
        capacity_share=capacity_share,
        split=split,
        folds=folds,
        test_share=test_share,
        draws=draws,
        seed=settings.model.seed if seed is None else seed,
    )
    with steps(30) as step, warnings_said():
        found = run(History.read(cases, decisions, settings), settings, options, step)
        page = None if out is None else backtest_report(found, f"Backtest on {cases.name}").write(out)
    if as_json:
        records = json.loads(cost_table(found).to_json(orient="records"))
        print(json.dumps({"verdict": found.verdict(), "notes": found.notes, "costs": records}, indent=2))
    else:
        show_table(cost_table(found), title=f"{found.test_cases:,} test cases", as_json=False)
        for line in [*found.verdict(), *(f"note: {note}" for note in found.notes)]:
            print(line)
    if page is not None:
        say(f"Report: {page}")
