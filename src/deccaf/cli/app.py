"""The commands in one place, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Annotated

import typer
from rich.text import Text

from deccaf import __version__
from deccaf.cli.assign import assign, explain
from deccaf.cli.backtest import backtest
from deccaf.cli.bench import bench
from deccaf.cli.check import check
from deccaf.cli.common import err, say
from deccaf.cli.demo import demo
from deccaf.cli.fit import fit
from deccaf.cli.interrupt import STOPPED
from deccaf.cli.serve import serve
from deccaf.cli.simulate import simulate
from deccaf.cli.stream import stream
from deccaf.errors import DeccafError, DeccafWarning

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

app = typer.Typer(
    name="deccaf",
    help="Decide who decides: learn how each reviewer decides, and assign every case to the person or the "
    "machine so that errors cost least and no capacity is exceeded.\n\n"
    "Start with [bold]deccaf demo[/bold]: it needs no data.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage or configuration, 3 invalid data, 4 no feasible plan, "
    "5 solver gave up, 6 bad model file.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(check)
app.command()(fit)
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
    for channel in (sys.stdout, sys.stderr):
        if isinstance(channel, io.TextIOWrapper):  # a name that the terminal cannot write is spelled out
            channel.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("always", DeccafWarning)
        warnings.showwarning = _Notes()
        code = _exit_code()
    sys.exit(_flushed(code))


def _exit_code() -> int:
    try:
        app()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code == STOPPED:
            say("stopped")
        return code
    except DeccafError as error:
        _complain("error:", str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("stopped")
        return STOPPED
    except BrokenPipeError:
        return 0  # the reader of a pipe (head, say) has seen enough
    except OSError as error:
        if error.filename is None and error.errno in _NO_ROOM:
            return _not_written(error)
        return _unexpected()
    except Exception:
        return _unexpected()
    return 0


def _flushed(code: int) -> int:
    """The code, once all output has arrived; what cannot arrive is not tried again at the end."""
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return code
    except OSError as error:
        code = _not_written(error)
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


def _not_written(error: OSError) -> int:
    _complain("error:", f"standard output cannot be written: {error.strerror}")
    return DeccafError.exit_code


def _unexpected() -> int:
    traceback.print_exc()
    _complain("unexpected error:", "this is a bug in deccaf; please report the lines above")
    return DeccafError.exit_code


def _complain(what: str, message: str) -> None:
    with suppress(OSError):
        err.print(Text.assemble((what, "red"), " ", message), soft_wrap=True)


class _Notes:
    """Warnings as lines for people, each once, without the source file that they came from."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(
        self, message: Warning | str, category: type[Warning], *where: object, **more: object
    ) -> None:
        del where, more
        line = f"{'note' if issubclass(category, DeccafWarning) else 'warning'}: {message}"
        if line not in self._said:
            self._said.add(line)
            say(line)
