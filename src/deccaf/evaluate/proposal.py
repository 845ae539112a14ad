"""A first proposal of what every column of a history is: by its look, and by what the look at leaks says.

`deccaf init` writes it into a configuration, the service's Set-up shows it to be corrected: both go through
`propose`, so that a file means the same wherever it comes in.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.history import History
from deccaf.data.profile import ColumnProfile, Guess, profile_columns
from deccaf.errors import DeccafWarning

if TYPE_CHECKING:
    from deccaf.evaluate.audit import Audit

Reader = Callable[[Config], tuple[Cases, History | None]]
"""Reads the cases, and their history where labels are known, with a configuration."""


@dataclass(frozen=True)
class Proposal:
    """Every column with its part, its kind and what is to be said of it; and what is wrong beside columns."""

    columns: tuple[ColumnProfile, ...]
    faults: tuple[str, ...] = ()


def guessed(frame: pd.DataFrame, guess: Guess) -> Proposal:
    """The guess alone, before anybody has looked at what the columns hold."""
    parts = dict.fromkeys(guess.group, "group") | dict.fromkeys(guess.ids, "-")
    parts |= {name: part for part, name in (roles_of(guess) | guess.log).items()}
    return Proposal(
        tuple(
            replace(one, part=parts.get(one.column, "feature"), note=guess.reasons.get(one.column, ""))
            for one in profile_columns(frame)
        )
    )


def propose(frame: pd.DataFrame, guess: Guess, read: Reader) -> Proposal:
    """Read with the guess, as `deccaf check` does, and see what each column turns out to be.

    A column that looks like a leak has no part, for a person to decide.
    """
    from deccaf.evaluate.audit import audit  # takes long to import, and `deccaf init --help` needs none of it

    settings = guessed_config(guess)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeccafWarning)
        table, history = read(settings)
        looked = None if history is None else audit(history, settings.columns)
    said = [str(one.message) for one in caught if issubclass(one.category, DeccafWarning)]
    why = guess.reasons
    found = [
        replace(one, note=one.note.replace("ignored", "") or why.get(one.column, ""))
        for one in described(frame, settings, table, looked, list(dict.fromkeys(said)))
    ]
    faults = () if looked is None else looked.faults
    return Proposal(
        tuple(_suspects_apart(one) for one in found),
        tuple(note for note in faults if not note.startswith("column ")),
    )


def roles_of(guess: Guess) -> dict[str, str]:
    """The parts that one column each plays."""
    named = {"case": guess.case, "label": guess.label, "time": guess.time}
    return {part: name for part, name in named.items() if name is not None}


def guessed_config(guess: Guess) -> Config:
    """The guess as a configuration, with example costs."""
    columns = {**roles_of(guess), **guess.log, "group": list(guess.group), "ignore": list(guess.ids)}
    return Config.model_validate({"columns": columns, "costs": example_costs(guess.classes)})


def example_costs(classes: tuple[Any, ...]) -> dict[str, Any]:
    """Costs for these classes that nobody has thought about yet."""
    if len(classes) > 2:
        matrix = [[0 if truth == said else 1 for said in classes] for truth in classes]
        return {"example": True, "classes": list(classes), "matrix": matrix}
    named = {} if classes in ((), (0, 1)) else {"classes": list(classes)}
    return {"example": True, **named, "false_positive": 1.0, "false_negative": 5.0}


def described(
    frame: pd.DataFrame, settings: Config, cases: Cases, looked: Audit | None, said: list[str]
) -> list[ColumnProfile]:
    """Every column of a table of cases with its part, and what is to be said of it."""
    roles, features = settings.columns, set(cases.schema.names)
    parts = {roles.case: "case", roles.label: "label", roles.time: "time", "batch": "batch"}
    parts |= {roles.let_through: "let through", **dict.fromkeys(roles.known_after, "decisions")}
    parts |= {name: part.replace("_", " ") for part, name in roles.waiting.items()}
    parts |= dict.fromkeys(cases.amounts.columns, "cost") | dict.fromkeys(roles.group, "group")
    kept = set(roles.features or ())
    leaks = {} if looked is None else {leak.column: leak for leak in looked.leaks.found}
    kinds = {feature.name: feature.kind for feature in cases.schema.features}
    own = {column: maker for maker, column in cases.schema.own.items()}
    found = []
    for one in profile_columns(frame):
        name = one.column
        part = "feature" if name in features else parts.get(name, "-")
        part = f"score of {own[name]}" if name in own else part
        note = next((text.partition(": ")[2] for text in said if text.startswith(f"column {name!r} ")), "")
        if name in roles.ignore:
            note = "ignored"
        if name in leaks:
            leak = leaks[name]
            part = "-" if leak.certain and name not in kept else part
            note = f"{'leak' if leak.certain else 'leak?'}: {leak.why}"
        kind = one.kind
        if part == "feature" and kinds.get(name) in ("category", "text", "vector"):
            kind = kinds[name]
        found.append(replace(one, part=part, note=note, kind=kind))
    return found


def _suspects_apart(one: ColumnProfile) -> ColumnProfile:
    return replace(one, part="-") if one.part == "feature" and one.note.startswith("leak") else one
