"""The commands in one place, and the one place where errors become exit codes."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from deccaf import __version__
from deccaf.cli.assign import assign, explain
from deccaf.cli.backtest import backtest
from deccaf.cli.bench import bench
from deccaf.cli.check import check
from deccaf.cli.common import err
from deccaf.cli.demo import demo
from deccaf.cli.fit import fit
from deccaf.cli.serve import serve
from deccaf.cli.show import show
from deccaf.cli.simulate import simulate
from deccaf.cli.stream import stream
from deccaf.errors import DeccafError

app = typer.Typer(
    name="deccaf",
    help="Decide who decides: learn how each reviewer decides, and assign every case to the person or the "
    "machine so that errors cost least and no capacity is exceeded.\n\n"
    "Start with [bold]deccaf demo[/bold]: it needs no data.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage or configuration, 3 invalid data, 4 no feasible plan, "
    "5 solver gave up, 6 bad model file, 7 cases unlike those learned from (--strict).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(check)
app.command()(fit)
app.command()(show)
app.command()(assign)
app.command()(explain)
app.command()(backtest)
app.command()(stream)
app.command()(serve)
app.add_typer(simulate, name="simulate")
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"deccaf {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a `DeccafError` prints its message and exits with its code."""
    try:
        app()
    except DeccafError as error:
        err.print(f"[red]error:[/red] {_escaped(error)}", soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("stopped")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)  # the reader of a pipe (head, say) has seen enough
    except Exception:
        traceback.print_exc()
        err.print("[red]unexpected error[/red]: this is a bug in deccaf; please report the lines above")
        sys.exit(1)


def _escaped(error: DeccafError) -> str:
    return str(error).replace("[", r"\[")
