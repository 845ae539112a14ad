"""`deccaf init`: look at a user's files and write the configuration that a person then corrects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated

import pandas as pd
import typer

from deccaf.cli.check import column_table
from deccaf.cli.common import say, show_table
from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.files import read_frame, write_text
from deccaf.data.history import History
from deccaf.data.profile import (
    ColumnProfile,
    Guess,
    Kind,
    guess_log,
    guess_parts,
    recognise,
    unlike_classes,
)
from deccaf.data.schema import Columns
from deccaf.data.sources import pipes_kept, short_name, shown
from deccaf.errors import ConfigError, DataError, DeccafError
from deccaf.evaluate import proposal

_EXAMPLE = """
# What errors cost, in any unit: only their ratio counts. THESE ARE EXAMPLES: put your own, and take the line
# 'example = true' out. A false positive is deciding {positive} where the truth is {negative}, a false
# negative the other way round. A cost may be the name of a column, an amount at risk say. See docs/costs.md.
[costs]
example = true
{prices}
review_cost = 0.0           # what it costs to ask a person, in the same unit; or {{ ann = 0.02, bob = 0.01 }}
"""
_MODEL = """
[model]
method = "deccaf"
budget = "quick"            # or "standard": tries more settings, takes longer
seed = 0

# Where cases lose by waiting, or have due times (columns `due` and `waiting_cost` of new cases):
# [waiting]
# cost = 0.1                # an hour
# late = 1.0                # once, when a case becomes late
"""


@pipes_kept()
def init(
    files: Annotated[
        list[str],
        typer.Argument(help="Files of cases, decisions (or both in one), and a roster."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Configuration to write.")] = Path("deccaf.toml"),
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the configuration if there is one.")
    ] = False,
) -> None:
    """Read files and write a commented configuration: what every column seems to be, and what may be a leak.

    Which file is which is told by the columns. Correct what was guessed wrong, put your own costs, and run
    [bold]deccaf check[/bold].
    """
    if out.exists() and not force:
        raise ConfigError(f"{out}: is there already; give --force to overwrite it, or another --out")
    found = _sorted(files)
    cases = read_frame(found["cases"])
    log, names = _log(found, cases)
    decided = [] if log is None else list(log[names.get("decision", "decision")].dropna().unique())
    guess = _guess(cases, found, names, decided)
    odd = None if log is None or guess.label is None else unlike_classes(cases[guess.label], decided)
    if odd is not None:
        guess = _guess(cases, found, names, [])  # the classes are the label's: what else was said is refused
    draft = _Draft(found, cases, guess)
    trouble: DeccafError | None = None
    try:
        if odd is not None:
            raise DataError(odd)
        draft.look()
    except DeccafError as error:
        trouble = error
    write_text(draft.text(trouble), out)
    columns = column_table(list(draft.proposal.columns))
    show_table(columns, title=f"Columns of {short_name(found['cases'])}", as_json=False)
    say(f"Configuration: {out}. Put your own costs in it, then run: {draft.command('check', out)}")
    if trouble is not None:
        raise type(trouble)(f"{out} was written, but needs a hand: {trouble}") from trouble


def _sorted(files: Sequence[str]) -> dict[Kind, str]:
    """Which file is which, said as it is found."""
    found: dict[Kind, str] = {}
    for path in files:
        frame = read_frame(path)
        kind = recognise(frame)
        if kind in found:
            raise ConfigError(
                f"{shown(path)}: looks like {kind}, and so does {shown(found[kind])}; decisions have "
                "the columns case_id, expert_id, decision, a roster expert_id, upper"
            )
        found[kind] = path
        say(f"{shown(path)}: {kind}, {len(frame):,} rows, {len(frame.columns)} columns")
    if "cases" not in found:
        raise DataError(
            f"no file of cases among {', '.join(map(shown, files))}: none has columns for features"
        )
    return found


def _log(found: dict[Kind, str], cases: pd.DataFrame) -> tuple[pd.DataFrame | None, dict[str, str]]:
    """The decisions, in a file of their own or with the cases, and their columns with names of their own."""
    if "decisions" in found:
        log = read_frame(found["decisions"])
        return log, _own_names(guess_log(log), known=("expert_id", "decision"))
    names = _own_names(guess_log(cases))
    if names.keys() != {"expert", "decision"}:
        return None, {}
    found["decisions"] = found["cases"]
    say(
        f"{shown(found['cases'])}: holds the decisions too: {names['expert']!r} says who decided, "
        f"{names['decision']!r} what"
    )
    return cases, names


def _own_names(looks: dict[str, str], known: Sequence[str] = ()) -> dict[str, str]:
    parts = ("expert", "decision")
    return {part: looks[part] for part in parts if part in looks and looks[part] not in known}


def _guess(
    cases: pd.DataFrame, found: dict[Kind, str], names: dict[str, str], decided: Sequence[object]
) -> Guess:
    if found.get("decisions") == found["cases"]:
        rest = cases.drop(columns=list(names.values()))
        guess = guess_parts(rest.drop_duplicates(), decided)
    else:
        guess = guess_parts(cases, decided)
    return replace(guess, log=names)


class _Draft:
    """A configuration on its way: the guess, and what a first look with it found."""

    def __init__(self, files: dict[Kind, str], cases: pd.DataFrame, guess: Guess) -> None:
        self.files, self.guess, self._frame = files, guess, cases
        self.proposal = proposal.guessed(cases, guess)

    def look(self) -> None:
        """Read the files with the guess, as `check` does, and see what each column turns out to be."""
        self.proposal = proposal.propose(self._frame, self.guess, self._read)

    def _read(self, settings: Config) -> tuple[Cases, History | None]:
        both = self.files.get("decisions") == self.files["cases"]
        costs = settings.costs.build()
        table = Cases.read(self.files["cases"], columns=settings.columns, costs=costs, with_decisions=both)
        if table.label is None:
            return table, None
        if "decisions" in self.files:
            return table, History.read(self.files["cases"], self.files["decisions"], settings)
        return table, History.of(table)

    def text(self, trouble: DeccafError | None) -> str:
        """The file."""
        names = ", ".join(f"{kind}: {short_name(path)}" for kind, path in self.files.items())
        head = [
            f"# Written by `deccaf init` from {names}. Everything here was guessed: read it, correct it.",
            "",
        ]
        if trouble is not None:
            head += [f"# NOT YET RIGHT: {_one_line(str(trouble))}", ""]
        head += [f"# Note: {_one_line(note)}" for note in self.proposal.faults]
        return "\n".join([*head, "[columns]", *self._parts(), *self._features(), ""]) + self._costs() + _MODEL

    def command(self, name: str, out: Path) -> str:
        """A command line for these files."""
        options = {"cases": "--cases", "decisions": "--decisions"}
        files = " ".join(
            f"{options[kind]} {quote(shown(path))}" for kind, path in self.files.items() if kind in options
        )
        return f"deccaf {name} {files} --config {out}"

    def _parts(self) -> list[str]:
        by_name = {one.column: one for one in self.proposal.columns}
        lines = []
        for part, default in (("case", "case_id"), ("label", "label"), ("time", "time")):
            name = proposal.roles_of(self.guess).get(part)
            if name is None:
                lines.append(f"# {part} = {_quoted(default)}   # no column looks like it")
            else:
                lines.append(f"{part} = {_quoted(name)}   # {_facts(by_name[name])}")
        for part, name in self.guess.log.items():
            what = {"expert": "who decided", "decision": "what was decided"}[part]
            lines.append(f"{part} = {_quoted(name)}   # {what}")
        for part, name in Columns().waiting.items():
            if name in by_name:
                lines.append(
                    f"{part} = {_quoted(name)}   # {_facts(by_name[name])}; of new cases, see [waiting]"
                )
        for name in self.guess.group:
            lines.append(f"group = [{_quoted(name)}]   # {_facts(by_name[name])}; its rows are never split")
        return lines

    def _features(self) -> list[str]:
        chosen = [one for one in self.proposal.columns if one.part == "feature"]
        lines = []
        for key, kind in (("text", "text"), ("vectors", "vector")):
            named = [_quoted(one.column) for one in chosen if one.kind == kind]
            lines += [f"{key} = [{', '.join(named)}]"] if named else []
        lines += ["features = ["] + [f"  {_quoted(one.column)},   # {_facts(one)}" for one in chosen]
        left = [one for one in self.proposal.columns if one.part == "-"]
        if left:
            lines.append("  # left out; take the first # of a line away to have the column as a feature:")
            lines += [f"  # {_quoted(one.column)},   # {_facts(one)}" for one in left]
        return [*lines, "]"]

    def _costs(self) -> str:
        classes = self.guess.classes or (0, 1)
        costs = {key: value for key, value in proposal.example_costs(classes).items() if key != "example"}
        prices = "\n".join(f"{key} = {json.dumps(value)}" for key, value in costs.items())
        positive = repr(classes[-1])
        return _EXAMPLE.format(prices=prices, positive=positive, negative=repr(classes[0]))


def _facts(one: ColumnProfile) -> str:
    said = [one.kind]
    if one.missing:
        said.append(f"{one.missing:.1%} missing")
    if one.example:
        said.append(f"e.g. {one.example}")
    if one.note:
        said.append(one.note)
    return _one_line("; ".join(said))


def _one_line(text: str) -> str:
    """Text that a TOML comment may hold."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
