"""The columns of a history from elsewhere: what each seems to be, and what the look at leaks says of it.

The proposal is that of `deccaf init` (`evaluate.proposal`); people correct it on Set-up, and `[columns]` of
the learning settings holds what they chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.history import History
from deccaf.data.profile import ColumnProfile, Guess, guess_parts, profile_columns, unlike_classes
from deccaf.errors import DeccafError
from deccaf.evaluate.proposal import guessed, propose

PARTS = ("case", "expert", "decision", "label", "time", "decided_at", "labelled_at", "seconds")
"""What a row says beside the case's features."""
CHOICES = ("feature", "category", "text", "vector", "group", "amount", "-")
"""What a feature can be: "-" is left out, "amount" a cost that the case brings along."""
RESERVED = ("case_id", "label", "time", "expert_id", "decision", "batch", "let_through", "propensity")
MOST_CELLS = 2_000_000
"""Cells that the look at leaks goes through; of larger files some cases, drawn by lot, always the same."""


@dataclass(frozen=True)
class Column:
    """A column of a file: its part (of `PARTS` or `CHOICES`), what it holds, and what is said of it."""

    name: str
    part: str
    kind: str
    missing: float
    distinct: int
    example: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def proposed(
    cases: pd.DataFrame,
    log: pd.DataFrame,
    names: Mapping[str, str],
    apart: Mapping[str, str],
    chosen: Mapping[str, str],
) -> tuple[list[Column], list[str], list[int | str]]:
    """Every column with its part, notes on the whole, and the classes, the positive one last.

    `cases` has one row per case under the names of a ledger, `names` the file's own for each part; `apart`
    are columns that are left out, with the reason.
    """
    found, notes, classes = _looked_at(cases, log) if len(cases) else ([], [], [])
    structural = {"case_id": "case", "label": "label", "time": "time"}
    columns = []
    for part, name in names.items():
        own = next((one for one in found if structural.get(one.column) == part), None)
        kind, example = ("", "") if own is None else (own.kind, own.example)
        columns.append(Column(name, part, kind, 0.0, 0 if own is None else own.distinct, example))
    seen = {column.name for column in columns}  # a column may have two parts: the first is shown
    columns = [column for k, column in enumerate(columns) if column.name not in {c.name for c in columns[:k]}]
    for one in found:
        if one.column not in structural and one.column not in seen:
            columns.append(_column(one))
    columns += [Column(name, "-", "", 0.0, 0, "", why) for name, why in apart.items()]
    return [_as_chosen(column, chosen) for column in columns], notes, list(classes)


def unread(frame: pd.DataFrame, names: Mapping[str, str]) -> list[Column]:
    """The columns of a file of which too little is known to look at it."""
    parts = {name: part for part, name in names.items()}
    return [_column(replace(one, part=parts.get(one.column, "-"))) for one in profile_columns(frame)]


def with_part(column: Column, part: str) -> Column:
    """The same column with another part."""
    return replace(column, part=part)


def columns_table(chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """The `[columns]` table of a configuration, for what was chosen for each column."""
    named = {choice: [name for name, part in chosen.items() if part == choice] for choice in CHOICES}
    kinds = {"categorical": "category", "text": "text", "vectors": "vector", "group": "group"}
    features = [name for name, part in chosen.items() if part in ("feature", "category", "text", "vector")]
    table = {key: named[choice] for key, choice in kinds.items() if named[choice]}
    return {**table, "features": features}


def chosen_in(table: Mapping[str, Any], columns: Sequence[Column], amounts: Sequence[str]) -> dict[str, str]:
    """What a `[columns]` table says of columns; where it says nothing, what was proposed."""
    kinds = {"category": "categorical", "text": "text", "vector": "vectors"}
    features, found = table.get("features"), {}
    for column in columns:
        name, part = column.name, column.part
        told = next((kind for kind, key in kinds.items() if name in table.get(key, ())), None)
        if name in amounts:
            part = "amount"
        elif name in table.get("group", ()) and name not in (features or ()):
            part = "group"
        elif name in table.get("ignore", ()):
            part = "-"
        elif features is not None:
            part = (
                (told or ("feature" if part in ("-", "group", "amount") else part))
                if name in features
                else "-"
            )
        found[name] = told or part if part not in ("-", "group", "amount") else part
    return found


def _looked_at(
    cases: pd.DataFrame, log: pd.DataFrame
) -> tuple[list[ColumnProfile], list[str], Sequence[int | str]]:
    said = list(log["decision"].dropna().unique())
    notes: list[str] = []
    guess = Guess("case_id", "label", "time" if "time" in cases else None, (), (), (), {})
    try:
        guess = guess_parts(cases, said)
        guess = replace(guess, case="case_id", label="label", time="time" if "time" in cases else None)
        odd = unlike_classes(cases["label"], said)
        notes += [] if odd is None else [odd]
        sample = _sample(cases)
        rows = log[log["case_id"].isin(sample["case_id"])]

        def read(settings: Config) -> tuple[Cases, History | None]:
            history = History.from_frames(sample, rows, settings)
            return history.cases, history

        found = propose(sample, guess, read)
    except DeccafError as error:
        return (
            list(guessed(cases, guess).columns),
            [*notes, f"not looked at for leaks: {error}"],
            guess.classes,
        )
    whole = {one.column: one for one in profile_columns(cases)} if len(sample) < len(cases) else {}
    columns = [
        replace(whole[one.column], part=one.part, kind=one.kind, note=one.note) if whole else one
        for one in found.columns
    ]
    return columns, [*notes, *found.faults], guess.classes


def _sample(cases: pd.DataFrame) -> pd.DataFrame:
    most = max(MOST_CELLS // max(cases.shape[1], 1), 500)
    if len(cases) <= most:
        return cases
    rows = np.random.default_rng(0).choice(len(cases), most, replace=False)
    return cases.iloc[np.sort(rows)].reset_index(drop=True)


def _column(one: ColumnProfile) -> Column:
    part = one.part
    if part == "feature" and one.kind in ("category", "text", "vector"):
        part = one.kind
    return Column(one.column, part, one.kind, one.missing, one.distinct, one.example, one.note)


def _as_chosen(column: Column, chosen: Mapping[str, str]) -> Column:
    return replace(column, part=chosen[column.name]) if column.name in chosen else column
