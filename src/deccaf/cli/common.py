"""What every command shares: consoles, the progress display, tables."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from deccaf.errors import ConfigError, DeccafWarning
from deccaf.progress import Step

if TYPE_CHECKING:
    import pandas as pd

out = Console()
err = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the table as JSON on stdout.")]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key-file", help="File with the key that signs the model."),
]
SeedOption = Annotated[int, typer.Option(min=0, help="The same seed gives the same output.")]


_SOON = 0.02
"""Share of the work below which nobody can say how long it takes."""


class TimeLeft(ProgressColumn):
    """How long it has taken, and how long it will take at this pace."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        elapsed, done = task.elapsed or 0.0, task.percentage / 100
        left = f", about {_clock(elapsed * (1 - done) / done)} left" if done > _SOON else ""
        return Text(f"{_clock(elapsed)}{left}", style="dim")


@contextmanager
def steps(total: int, weights: Sequence[float] = (), console: Console = err) -> Iterator[Step]:
    """A progress bar of `total` named stages on a terminal; nothing at all elsewhere.

    `weights` say how the stages share the time, where they do not share it alike; further calls within a
    stage tell how much of it is done.
    """
    spans = list(weights) or [1.0] * total
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeft())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=sum(spans))
        seen: list[str] = []

        def step(stage: str, /, done: float = 0, of: float = 0) -> None:
            if stage not in seen:
                seen.append(stage)
            place = min(seen.index(stage), len(spans) - 1)
            within = spans[place] * min(done / of, 1.0) if of else 0.0
            count = f" ({done:,.0f})" if done and not of else ""
            progress.update(task, completed=sum(spans[:place]) + within, description=stage + count)

        yield step


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_table(table: pd.DataFrame, *, title: str, as_json: bool) -> None:
    """Print a table for people, or with `as_json` its records for programs."""
    if as_json:
        print(json.dumps(json.loads(table.to_json(orient="records")), indent=2))
        return
    from pandas.api.types import is_numeric_dtype

    grid = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for name in table.columns:
        # fold: what a cell holds is never cut off
        number = is_numeric_dtype(table[name])
        grid.add_column(str(name), justify="right" if number else "left", overflow="fold")
    for row in table.itertuples(index=False):
        grid.add_row(*[Text(_cell(value)) for value in row])  # not read as markup: [columns] is a word
    out.print(grid)


def read_key(path: Path | None) -> bytes | None:
    """The key of model files, without the newline that editors add."""
    if path is None:
        return None
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"--key-file {path}: cannot be read: {error.strerror}") from error
    if len(key) < 16:
        raise ConfigError(f"--key-file {path}: holds {len(key)} bytes; a key needs at least 16")
    return key


@contextmanager
def warnings_said(print_them: bool = True) -> Iterator[list[str]]:
    """Warnings of deccaf as lines for people, each once; the list holds them after the block."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeccafWarning)
        yield said
    said += dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, DeccafWarning))
    for text in said if print_them else ():
        say(f"note: {text}")


@contextmanager
def c_output_on_stderr() -> Iterator[None]:
    """Send what C libraries print (HiGHS, now and then) to stderr, so that stdout holds data only."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no stdout: nothing can go there
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def say(message: str) -> None:
    """A line for people, on stderr; never broken, so that a path in it can be copied."""
    err.print(message, soft_wrap=True, highlight=False, markup=False)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
