"""`deccaf bench`: the paper's experiments, and their report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from deccaf.cli.common import JsonOption, err, say, show_table, warnings_said

if TYPE_CHECKING:
    from deccaf.benchmark.profile import Profile

bench = typer.Typer(
    help="Run the paper's experiments with fair baselines, and make their tables and pictures.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_T = TypeVar("_T", int, float, str)


def _list(help: str) -> Any:
    return typer.Option(
        metavar="LIST", help=help + " Values are separated by commas.", show_default="profile's"
    )


@bench.command(epilog="Example: deccaf bench run --profile quick --out bench-quick")
def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run; started again, it goes on.")],
    profile: Annotated[
        str, typer.Option(help="quick, standard, paper, own-alerts, fifar, or a .toml file.")
    ] = "quick",
    applications: Annotated[
        Path | None, typer.Option(help="BAF's Base.csv or a file like it; without it they are generated.")
    ] = None,
    alerts: Annotated[Path | None, typer.Option(help="A ready set of alerts with the model's score.")] = None,
    decisions: Annotated[
        Path | None,
        typer.Option(help="Decisions of real reviewers (case_id, expert_id, decision), not simulated ones."),
    ] = None,
    capacity: Annotated[
        Path | None,
        typer.Option(help="A roster for the test month (also FiFAR's capacity.csv) for the profile's."),
    ] = None,
    batches: Annotated[
        Path | None, typer.Option(help="The batch of each test case (case_id, batch), for --capacity.")
    ] = None,
    team_size: Annotated[
        int | None, typer.Option(min=1, help="How many reviewers; from --decisions each seed draws a team.")
    ] = None,
    team_seed: Annotated[int | None, typer.Option(min=0, help="Seed of the teams.")] = None,
    ratios: Annotated[
        str | None, _list("Cost of a false positive / of a false negative; threshold: the alert model's.")
    ] = None,
    alert_rates: Annotated[str | None, _list("False-positive rates of the alert model.")] = None,
    shares: Annotated[str | None, _list("Shares of the past cases to learn from.")] = None,
    seeds: Annotated[str | None, _list("Seeds of the histories.")] = None,
    capacities: Annotated[str | None, _list("Capacity settings, 0 (all alike) to 4.")] = None,
    policies: Annotated[str | None, _list("Names of policies.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask cluster instead: tcp://HOST:PORT, or local:N.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the scenarios of a profile: every policy on every variation, with everybody's limits.

    Each piece of work has a folder, so a run that was stopped goes on where it was, and what is finished is
    not done again. Writes results.parquet and prints the mean cost per 100 cases by policy.
    """
    from deccaf.benchmark.profile import read_profile
    from deccaf.benchmark.run import run_benchmark
    from deccaf.benchmark.tables import cost_table, largest_share, one_batch
    from deccaf.benchmark.world import Source

    settings = read_profile(profile).with_grid(
        {
            "ratios": ratios if ratios == "threshold" else _values(ratios, float, "--ratios"),
            "alert_rates": _values(alert_rates, float, "--alert-rates"),
            "shares": _values(shares, float, "--shares"),
            "seeds": _values(seeds, int, "--seeds"),
            "capacities": _values(capacities, int, "--capacities"),
            "policies": _values(policies, str, "--policies"),
        }
    )
    settings = _one_rate(settings, alerts, alert_rates)
    team = {"size": team_size, "seed": team_seed}
    settings = settings.with_team({name: value for name, value in team.items() if value is not None})
    with _time_left() as (tell, progress):
        found = run_benchmark(
            settings,
            out,
            source=Source(applications, alerts, decisions, capacity, batches),
            jobs=jobs or os.cpu_count() or 1,
            cluster=cluster,
            say=tell,
            progress=progress,
        )
    found = one_batch(found)
    shown = cost_table(found if as_json else largest_share(found))
    show_table(
        shown, title="Mean cost of errors per 100 cases, by alert rate and cost ratio", as_json=as_json
    )
    say(f"Results: {out / 'results.parquet'}. Tables and pictures: deccaf bench report {out}")


@bench.command(epilog="Example: deccaf bench report bench-quick")
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; by default DIR/report.")
    ] = None,
    cost: Annotated[
        Literal["expected", "drawn"],
        typer.Option(help="Cost with the simulated reviewers' true chances, or of the decisions drawn once."),
    ] = "expected",
) -> None:
    """Make the tables and pictures of a run from its stored results alone.

    Writes one self-contained HTML page, every picture as PNG and PDF, and every table as CSV and LaTeX. A run
    that is not finished can be shown too, as far as it is.
    """
    from deccaf.benchmark.report import bench_report

    page = bench_report(folder, drawn=cost == "drawn")
    target = folder / "report" if out is None else out
    with warnings_said():
        path = page.write(target)
        page.write_for_print(target)
    say(f"Report: {path}")


@bench.command(epilog="Example: deccaf bench drift --seeds 0,1,2")
def drift(
    alerts: Annotated[
        Path | None, typer.Option(help="A ready set of alerts with the model's score; else it is generated.")
    ] = None,
    rows: Annotated[int, typer.Option(min=20_000, help="Applications to generate.")] = 1_000_000,
    ratio: Annotated[
        float, typer.Option(min=0.0, help="Cost of a false positive / of a false negative.")
    ] = 0.057,
    seeds: Annotated[str, _list("Seeds of histories and days.")] = "0",
    kinds: Annotated[str | None, _list("steady, lenient, learning, sudden, tired.")] = None,
    team_size: Annotated[int, typer.Option(min=1, help="How many simulated reviewers.")] = 9,
    team_seed: Annotated[int, typer.Option(min=0, help="Seed of the team.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Plan a month day by day while people change: what half-life, updates and the watch save.

    Prints the expected cost per 100 cases by kind of change and way to keep up, with the saving against a fit
    that is kept as it is.
    """
    from deccaf.benchmark.drifting import KINDS, alerts_setting, drift_table, summary

    team = {"size": team_size, "seed": team_seed}
    setting = alerts_setting(rows, alerts, team, say)
    wanted = _values(kinds, str, "--kinds") or list(KINDS)
    numbers = _values(seeds, int, "--seeds") or [0]
    found = drift_table(setting, ratio, numbers, wanted, say=say)
    show_table(
        found if as_json else summary(found),
        title="Expected cost of errors per 100 cases, and what is saved against the fit that is kept",
        as_json=as_json,
    )


def _values(text: str | None, kind: type[_T], option: str) -> list[_T] | None:
    """A comma-separated list."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return [kind(part) for part in parts]
    except ValueError:
        raise typer.BadParameter(f"expected {kind.__name__}s with commas between, got {text!r}",
                                 param_hint=option) from None  # fmt: skip


def _one_rate(settings: Profile, alerts: Path | None, asked: str | None) -> Profile:
    """A file of alerts has one alert rate: the profile's first, unless one was named."""
    if alerts is None or asked is not None:
        return settings
    return settings.with_grid({"alert_rates": settings.grid.alert_rates[:1]})


@contextmanager
def _time_left() -> Iterator[tuple[Any, Any]]:
    """A progress bar with the time left; off a terminal a line for every tenth of the work."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    started, shown = time.monotonic(), 0
    terminal = sys.stderr.isatty()
    with Progress(*columns, console=err, disable=not terminal, transient=True,
                  speed_estimate_period=3600) as bar:  # fmt: skip
        task = bar.add_task("Starting", total=None)

        def tell(message: str) -> None:
            if terminal:
                bar.update(task, description=message)
            say(message)

        def progress(done: float, total: float, what: str) -> None:
            nonlocal shown
            bar.update(task, completed=done, total=total, description=what.split("/")[0])
            if not terminal and int(10 * done / total) > shown:
                shown = int(10 * done / total)
                minutes = (time.monotonic() - started) / 60
                say(f"{done / total:.0%} of the work in {minutes:.1f} minutes, about "
                    f"{minutes * (total - done) / done:.1f} left")  # fmt: skip

        yield tell, progress
