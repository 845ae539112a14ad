"""The commands in one place, and the one place where errors become exit codes.

A command is a row of `COMMANDS` and is imported when it is run: `deccaf --help` would otherwise wait seconds
for libraries that it does not use.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from deccaf import __version__
from deccaf.cli.interrupt import STOPPED, stopped_quietly
from deccaf.errors import DeccafError, DeccafWarning

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

COMMANDS = {
    "demo": "Run the main job end to end on embedded data and write a report to look at.",
    "init": "Read files and write a commented configuration: what every column seems to be, and what may be "
    "a leak.",
    "check": "Check files and say what was understood of them; nothing is written.",
    "fit": "Learn from history how likely each truth is and how each expert decides; write one model file.",
    "show": "Show what a model learned: classes, costs, features, the time span, and how everybody decides.",
    "assign": "Plan new cases: who decides each, within everyone's limits, at the least expected cost of "
    "errors.",
    "explain": "Say why a case goes where the plan sends it.",
    "onboard": "Propose the labelled cases that tell most about a newcomer, and count their answers at once.",
    "backtest": "Test on history what plans would have cost, against the machine, random cases and what "
    "really happened.",
    "staff": "Say how many hours of whom to have next week, by wages and by what their decisions save.",
    "trial": "Plan a trial of a candidate beside today's practice, and read what it has shown so far.",
    "audit": "Draw decisions for a quality audit, and estimate precision and recall from what it found.",
    "stream": "Route cases the moment they arrive, within everyone's limits for the day.",
    "serve": "Run the service: cases in, people at work, nothing lost. The API is described in "
    "docs/service.md.",
    "ledger": "Back up the service's ledger, check whether it is sound, restore a backup.",
    "simulate": "Generate bank-account applications, the alerts of an alert model, and teams of reviewers.",
    "bench": "Run the paper's experiments with fair baselines, and make their tables and pictures.",
}
"""What `deccaf --help` lists: the first sentence of each command's own help, which a test compares."""

_HOMES = {"explain": "assign"}
"""The module of a command in this package, where it is not called like the command."""


class Waiting(TyperCommand):
    """A command that is known by its name and first sentence until it is run."""

    def loaded(self) -> Any:
        """The command itself, or the group of commands."""
        name = str(self.name)
        with stopped_quietly():  # the libraries take seconds
            module = import_module(f"deccaf.cli.{_HOMES.get(name, name)}")
        found = getattr(module, name)
        alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
        alone.callback()(_root)  # makes a group of one
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name)(found)
        return typer.main.get_group(alone).commands[name]

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Called to run the command, or to show its own help."""
        return _literal(self.loaded()).make_context(*arguments, **settings)


_TABLE = re.compile(r"(?<!\\)\[(?=[a-z_]+\])(?!bold\])")


def _literal(command: Any) -> Any:
    """The command with the brackets of its help kept: [costs] is a table of a configuration, not a style."""
    for one in (command, *command.params):
        if getattr(one, "help", None):
            one.help = _TABLE.sub(r"\\[", one.help)
    for child in getattr(command, "commands", {}).values():
        _literal(child)
    return command


class _Commands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, first_sentence in COMMANDS.items():
            self.add_command(Waiting(name, help=first_sentence, rich_markup_mode="rich"))


app = typer.Typer(
    name="deccaf",
    cls=_Commands,
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
            _say("stopped")
        return code
    except DeccafError as error:
        _complain("error:", str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("stopped")
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
    from rich.text import Text

    from deccaf.cli.common import err

    with suppress(OSError):
        err.print(Text.assemble((what, "red"), " ", message), soft_wrap=True)


def _say(message: str) -> None:
    from deccaf.cli.common import say

    say(message)


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
            _say(line)
