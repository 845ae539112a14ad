"""`deccaf staff`: how many hours of whom next week, what less money would mean, and whom to train in what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deccaf.cli.assign import with_costs_of
from deccaf.cli.common import (
    JsonOption,
    KeyOption,
    c_output_on_stderr,
    read_key,
    say,
    show_table,
    steps,
    warnings_said,
)
from deccaf.data.amounts import cost
from deccaf.data.config import Config
from deccaf.data.files import TABLES, check_output, replacing, write_frame
from deccaf.errors import ConfigError

if TYPE_CHECKING:
    from deccaf.planning import Staffing


def staff(
    model: Annotated[Path, typer.Option(help="Model file that `deccaf fit` wrote.")],
    cases: Annotated[
        Path, typer.Option(help="Cases of past weeks, which stand for the next: case_id, features, time.")
    ],
    config: Annotated[
        Path,
        typer.Option(help="TOML whose [staffing] says what hours cost; its [costs] replace the model's."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Roster to write: day, expert_id, hours, upper.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of cost against hours to write: .png (needs deccaf[report]).")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Wages of the week, at most; instead of [staffing] budget.")
    ] = None,
    lessons: Annotated[int, typer.Option(min=0, max=50, help="How many lessons to propose.")] = 5,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many hours of whom to have next week, by wages and by what their decisions save.

    The cases of the past weeks stand for those to come: each past Monday for the next one. The roster is the
    one of least wages and errors together within everybody's hours and the budget, with a proof of how far
    from the best it can be. Beside it: what less money would mean, what everybody saves, what one more hour
    of theirs would save, and which lessons save most: somebody as good as somebody else on one kind of case.

    [staffing] has `wage` (an hour; a number, or by name, and then only these people), `hours` (a day, at
    most), `week`, `step`, `budget`, `minutes` (of a case; else from the log's seconds), `weeks`, `growth`,
    `expected` (cases by weekday), `cases` and `days` where cases have no dates, and `kind` (a column).
    """
    from deccaf.fitted import FittedTeam

    inputs = [model, cases, config, key_file]
    if out is not None:
        check_output(out, inputs, TABLES)
    if plot is not None:
        check_output(plot, inputs, (".png",))
    settings = Config.read(config)
    if settings.staffing is None:
        raise ConfigError(
            f"{config}: has no [staffing]; give at least the wage of an hour, such as wage = 30"
        )
    asked = settings.staffing
    if budget is not None:
        asked = asked.model_copy(update={"budget": budget})
    with steps(4, (4, 6, 6, 3)) as step, c_output_on_stderr(), warnings_said():
        fitted = with_costs_of(FittedTeam.load(model, read_key(key_file)), settings, config, ())
        found = fitted.staff(cases, asked, lessons=lessons, step=step)
    if out is not None:
        write_frame(found.table, out)
    if plot is not None:
        _write_plot(found, plot)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, default=float))
    else:
        _show(found)
    for name, path in (("Roster", out), ("Picture", plot)):
        if path is not None:
            say(f"{name}: {path}")


def _write_plot(found: Staffing, path: Path) -> None:
    from deccaf.report.figures import as_png
    from deccaf.report.staffing import staffing_picture

    picture = as_png(staffing_picture(found))
    with replacing(path) as beside:
        beside.write_bytes(picture)


def _show(found: Staffing) -> None:
    each = "hours a day" if found.times > 1 else "hours"
    hours = found.hours.T.map(lambda value: f"{value:g}" if value else "")
    show_table(hours.reset_index(names="expert"), title=f"Who works when, in {each}", as_json=False)
    show_table(_people(found), title="What everybody costs and saves in the week", as_json=False)
    show_table(_curve(found), title="What less money would mean", as_json=False)
    if len(found.training):
        saves = [cost(value, found.unit, 2) for value in found.training["saves"]]
        title = "Lessons: what it would save a week if somebody were as good as somebody else"
        show_table(found.training.assign(saves=saves), title=title, as_json=False)
    for line in found.lines():
        print(line)


def _people(found: Staffing) -> Any:
    table = found.people.reset_index()
    for name in ("wage", "pace", "hours", "wages", "saves", "next_hour"):
        table[name] = [f"{value:,.{1 if name in ('pace', 'hours') else 2}f}" for value in table[name]]
    names = {"pace": "cases an hour", "saves": "saves beyond wages", "next_hour": "next hour saves"}
    return table.rename(columns=names)


def _curve(found: Staffing) -> Any:
    table = found.curve.drop(columns=["budget", "gap"])
    shown = table.map(lambda value: f"{value:,.1f}")
    names = [*["less"] * (len(table) - 2), "best", "all hours"]
    shown.insert(0, "", names)
    return shown.rename(columns={"cost": "together"})
