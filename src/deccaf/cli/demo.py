"""`deccaf demo`: the whole job without any data of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deccaf.cli.common import JsonOption, SeedOption, say, show_table, steps, warnings_said


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and its pictures.")] = Path(
        "deccaf-demo"
    ),
    rows: Annotated[int, typer.Option(min=20_000, help="How many applications to generate.")] = 400_000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Run the main job end to end on embedded data and write a report to look at.

    Generates bank-account applications, trains an alert model, simulates a team of nine analysts, learns from
    one decision per alert of months 3-6, decides month 7 within everybody's capacity by deccaf and by the
    alternatives (one scenario of `deccaf bench run`), plans every day of it, and writes one HTML page with
    the pictures. Nothing is downloaded and no data is needed.
    """
    from deccaf.benchmark.demo import STEPS, run_demo

    with steps(STEPS) as step, warnings_said():
        found = run_demo(out, rows=rows, seed=seed, jobs=os.cpu_count() or 1, step=step)
    show_table(found.table, title="Month 7: what errors cost, by who decides", as_json=as_json)
    say(f"Report: {found.page}")
