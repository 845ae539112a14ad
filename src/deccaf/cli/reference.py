"""The reference of all commands as one page, generated from the commands themselves.

`python -m deccaf.cli.reference docs/commands.md` writes it; a test keeps it up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from deccaf.cli.app import Waiting, app
from deccaf.data.files import write_text

_HEAD = """# Commands

Generated from the code by `python -m deccaf.cli.reference docs/commands.md`. Data goes to stdout or `--out`,
everything else to stderr; the exit codes are in [files](files.md#exit-codes).
"""


def commands_page() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *(_section(name, command) for name, command in commands())])


def commands() -> Iterator[tuple[str, Any]]:
    """All commands with their full names, those in groups too."""
    yield from _leaves("deccaf", typer.main.get_command(app))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    command = command.loaded() if isinstance(command, Waiting) else command
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part, child in inner.items():
        yield from _leaves(f"{name} {part}", child)


def _section(name: str, command: Any) -> str:
    options = [param for param in command.params if param.name != "help"]
    required = " ".join(_wanted(param) for param in options if param.required)
    lines = [f"## {name}", "", "```", f"{name} {required}".strip() + " [options]", "```", ""]
    lines += [_plain(command.help or ""), ""]
    if options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_flag(param)}` | {_meaning(param)} |" for param in options]
        lines.append("")
    if command.epilog:
        lines += [_plain(command.epilog), ""]
    return "\n".join(lines)


def _flag(param: Any) -> str:
    named = [name for name in param.opts if name.startswith("--")]
    return str(named[0] if named else param.opts[0])


def _wanted(param: Any) -> str:
    """A required option with its value, or a file that is named without an option."""
    kind = _kind(param)
    if not _flag(param).startswith("--"):
        return f"{kind}..." if param.nargs == -1 else kind
    return f"{_flag(param)} {kind}"


def _kind(param: Any) -> str:
    """The placeholder of a required value: the option's own name."""
    return str(param.name).upper()


def _meaning(param: Any) -> str:
    words = _plain(getattr(param, "help", None) or "").replace("|", "\\|")
    default = param.default
    if param.required:
        return f"{words} Required."
    if default in (None, False, ()) or callable(default):
        return words
    return f"{words} Default: `{default}`."


def _plain(text: str) -> str:
    """Without the markup of the terminal."""
    return re.sub(r"\[/?(?:bold|dim|red)\]", "", text).strip()


if __name__ == "__main__":
    write_text(commands_page(), Path(sys.argv[1]))
