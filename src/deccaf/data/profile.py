"""What a file's columns look like, and a guess at the part of each, for `deccaf init` and `deccaf check`.

Guesses are made from names and values and are meant to be read by a person: every one carries its reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from deccaf.data.costs import Class
from deccaf.data.history import MANY_GROUPS
from deccaf.data.kinds import MAX_LEVELS
from deccaf.data.vectors import holds_vectors
from deccaf.data.words import reads_as_text
from deccaf.errors import DataError

Kind = Literal["cases", "decisions", "roster"]

_LABEL = r"label|target|truth|outcome|fraud|default|diagnosis|cancer|malignant|positive|y"
_TIME = r"time|timestamp|date|datetime|month|week|day|year|arrived|created|opened"
_ID = r"id|ids|no|nr|num|number|key|uuid|guid|ref|reference|code"
_CASE = r"case|ticket|alert|claim|application|transaction|order|item|post|exam|study|incident|document|event"
_MEMBER = r"patient|woman|customer|client|user|account|member|subject|person|merchant|group"
_EXPERT = r"expert|reviewer|analyst|reader|moderator|agent|annotator|rater|radiologist|assignee|decider"
_DECISION = r"decision|decided|verdict|answer|response|ruling|disposition"
_POSITIVE = ("1", "yes", "y", "true", "t", "positive", "pos", "fraud", "bad", "malignant", "reject", "recall")
MOST_CLASSES = 10
_LONGEST = 32


@dataclass(frozen=True)
class ColumnProfile:
    """One column: what it holds, the part it plays, and why."""

    column: str
    part: str
    """`case`, `label`, `time`, `group`, `batch`, `cost`, `feature`, or `-` for none."""
    kind: str
    """`number`, `whole number`, `two values`, `category`, `names`, `text`, `vector`, `date` or `empty`."""
    missing: float
    distinct: int
    example: str
    note: str = ""


@dataclass(frozen=True)
class Guess:
    """The parts that the columns of a file of cases seem to play."""

    case: str | None
    label: str | None
    time: str | None
    group: tuple[str, ...]
    ids: tuple[str, ...]
    """Columns that look like numbers of something, each of which stands once or nearly so."""
    classes: tuple[Class, ...]
    """The classes, the positive one last; empty where there is no label."""
    reasons: dict[str, str]
    log: dict[str, str] = field(default_factory=dict)
    """The columns of the decisions that have names of their own: `expert` and `decision`."""


def recognise(frame: pd.DataFrame) -> Kind:
    """Which file it is, by its columns."""
    names = set(map(str, frame.columns))
    if {"expert_id", "upper"} <= names:
        return "roster"
    log = guess_log(frame)
    if not {"expert", "decision"} <= log.keys():
        return "cases"
    rest = names - {*log.values(), "case_id", "propensity", "time", "seconds"}
    rest -= {name for name in rest if _named(name, _ID) or _named(name, _TIME)}
    return "cases" if rest else "decisions"


def profile_columns(frame: pd.DataFrame) -> list[ColumnProfile]:
    """What every column holds; no part is given yet."""
    return [_profile(str(name), frame[name]) for name in frame.columns]


def guess_parts(frame: pd.DataFrame, decided: Sequence[Any] = ()) -> Guess:
    """A guess at the parts of columns; `decided` are the values of the decisions, which labels share."""
    profiles = {one.column: one for one in profile_columns(frame)}
    why: dict[str, str] = {}
    case = _case(profiles, len(frame), why)
    left = {name: one for name, one in profiles.items() if name != case}
    label = _label(frame, left, set(map(str, decided)), why)
    left.pop(label or "", None)
    time = _time(frame, left, why)
    left.pop(time or "", None)
    group, ids = _members(left, len(frame), why)
    classes = () if label is None else classes_of(frame[label], decided)
    return Guess(case, label, time, group, ids, classes, why)


def classes_of(label: pd.Series, decided: Sequence[Any] = ()) -> tuple[Class, ...]:
    """The classes that labels and decisions name, the positive one last."""
    counts = label.value_counts()
    values = list(dict.fromkeys([*counts.index, *decided]))
    plain = [_plain(value) for value in values if not pd.isna(value)]
    plain = list(dict.fromkeys(plain))
    if len(plain) > MOST_CLASSES:
        raise DataError(
            f"column {label.name!r}: {len(plain)} different values, at most {MOST_CLASSES} classes"
        )
    known = [value for value in plain if str(value).lower() in _POSITIVE]
    ordered = sorted(plain, key=str)
    if len(plain) == 2:
        shares = {_plain(value): int(count) for value, count in counts.items()}
        last = known[0] if len(known) == 1 else min(ordered, key=lambda value: shares.get(value, 0))
        ordered = [*[value for value in ordered if value != last], last]
    return tuple(ordered)


def unlike_classes(label: pd.Series, decided: Sequence[Any]) -> str | None:
    """Why decisions and labels cannot be of the same classes: no common value, or two spellings."""
    labels, said = _texts(label), {str(_plain(value)) for value in decided}
    loose = {name.strip().casefold(): name for name in labels}
    for name in sorted(said - labels):
        other = loose.get(name.strip().casefold())
        if other is not None:
            return f"decisions say {name!r} where the label {label.name!r} says {other!r}; spell them alike"
    if said and labels and (not said & labels or (len(labels) == 2 and said - labels)):
        ours, theirs = (", ".join(map(repr, sorted(names)[:4])) for names in (said, labels))
        return f"decisions say {ours}, the label {label.name!r} says {theirs}; use one set of classes"
    return None


def guess_log(frame: pd.DataFrame) -> dict[str, str]:
    """Which columns of a table of decisions say who decided, and what; by their names, exact ones first."""
    found = {}
    sizes = {"expert": max(len(frame) // 2, MOST_CLASSES), "decision": MOST_CLASSES}
    for part, exact, pattern in (("expert", "expert_id", _EXPERT), ("decision", "decision", _DECISION)):
        names = [str(name) for name in frame.columns if _named(str(name), pattern)]
        few = [name for name in names if 1 <= int(frame[name].nunique()) <= sizes[part]]
        if exact in frame or few:
            found[part] = exact if exact in frame else few[0]
    exact_names = {"decided_at": "decided_at", "labelled_at": "labelled_at", "seconds": "seconds"}
    return found | {part: name for part, name in exact_names.items() if name in frame}


def _profile(name: str, values: pd.Series) -> ColumnProfile:
    present = values.dropna()
    missing = float(values.isna().mean()) if len(values) else 0.0
    if holds_vectors(values):
        example = (
            f"{len(present.iloc[0])} numbers" if not isinstance(present.iloc[0], str) else present.iloc[0]
        )
        shown = example if len(example) <= _LONGEST else f"{example[: _LONGEST - 3]}..."
        return ColumnProfile(name, "-", "vector", missing, len(present), shown)
    distinct = int(present.nunique())
    example = "" if present.empty else " ".join(str(present.iloc[0]).removesuffix(" 00:00:00").split())
    shown = example if len(example) <= _LONGEST else f"{example[: _LONGEST - 3]}..."
    return ColumnProfile(name, "-", _kind(present, distinct), missing, distinct, shown)


def _kind(present: pd.Series, distinct: int) -> str:
    if present.empty:
        return "empty"
    if distinct == 2:
        return "two values"
    dtype = present.dtype
    if pd.api.types.is_datetime64_any_dtype(dtype) or _is_date_text(present):
        return "date"
    if pd.api.types.is_bool_dtype(dtype):
        return "two values"
    if pd.api.types.is_numeric_dtype(dtype):
        return "whole number" if (present.astype("float64") % 1 == 0).all() else "number"
    if reads_as_text(present, MAX_LEVELS):
        return "text"
    return "category" if distinct <= max(MANY_GROUPS, len(present) // 2) else "names"


def _is_date_text(present: pd.Series) -> bool:
    """Whether text looks like days: 31/03/2024, 31.3.24 or 2024-03-31, with or without a time of day."""
    if pd.api.types.is_numeric_dtype(present.dtype):
        return False
    text = present.iloc[:1000].astype(str).str.strip()
    return bool(text.str.match(r"(\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./-]\d{1,2}([./-]\d{1,2})?)\b").all())


def _words(name: str) -> set[str]:
    """The words of a column's name: patientNumber and patient_number have the same."""
    return set(
        re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower().replace("_", " ").replace("-", " ").split()
    )


def _named(name: str, pattern: str) -> bool:
    return any(re.fullmatch(pattern, word) for word in _words(name))


def _case(profiles: dict[str, ColumnProfile], rows: int, why: dict[str, str]) -> str | None:
    if "case_id" in profiles:
        why["case_id"] = "its name"
        return "case_id"
    unique = [
        one
        for one in profiles.values()
        if one.distinct == rows and one.missing == 0 and one.kind not in ("number", "text", "vector")
    ]
    found = next((one.column for words in (_ID, _CASE) for one in unique if _named(one.column, words)), None)
    if found is not None:
        why[found] = "no value stands twice, and its name"
    return found


def _label(
    frame: pd.DataFrame, profiles: dict[str, ColumnProfile], decided: set[str], why: dict[str, str]
) -> str | None:
    few = [one for one in profiles.values() if 2 <= one.distinct <= MOST_CLASSES and one.kind != "vector"]
    named = [one.column for one in few if _named(one.column, _LABEL)]
    alike = [one.column for one in few if decided and _texts(frame[one.column]) == decided]
    exact = [name for name in ("label", *[n for n in named if n in alike]) if name in named]
    if exact or named:
        found = (exact or named)[0]
        why[found] = f"its name and {profiles[found].distinct} values"
        return found
    if len(alike) == 1:
        why[alike[0]] = "it has the same values as the decisions"
        return alike[0]
    return None


def _time(frame: pd.DataFrame, profiles: dict[str, ColumnProfile], why: dict[str, str]) -> str | None:
    complete = [one for one in profiles.values() if one.missing == 0 and one.distinct > 1]
    dates = [one.column for one in complete if one.kind == "date"]
    numbers = [
        one.column
        for one in complete
        if one.kind in ("whole number", "number", "two values")
        and pd.api.types.is_numeric_dtype(frame[one.column].dtype)
        and _named(one.column, _TIME)
    ]
    ordered = sorted(dates, key=lambda name: not _named(name, _TIME)) + numbers
    found = "time" if "time" in ordered else next(iter(ordered), None)
    if found is not None:
        why[found] = "it holds dates" if found in dates else "its name"
    return found


def _members(
    profiles: dict[str, ColumnProfile], rows: int, why: dict[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns whose values belong together (a patient's number), and columns that only number rows."""
    group, ids = [], []
    for name, one in profiles.items():
        if one.kind in ("number", "date", "empty", "text", "vector") or not (
            _named(name, _ID) or _named(name, _MEMBER)
        ):
            continue
        if one.distinct < MANY_GROUPS:
            continue
        if one.distinct <= 0.9 * rows * (1 - one.missing):
            group.append(name)
            why[name] = f"its name, and {one.distinct:,} values that stand for several rows each"
        else:
            ids.append(name)
            why[name] = (
                f"its name, and {one.distinct:,} different values in {rows:,} rows: a number, not a fact"
            )
    return tuple(group[:1]), (*ids, *group[1:])


def _texts(values: pd.Series) -> set[str]:
    return {str(_plain(value)) for value in values.dropna().unique()}


def _plain(value: Any) -> Class:
    """A class as the configuration names it: a whole number or text."""
    if isinstance(value, str):
        return value
    number = float(value)
    return int(number) if number.is_integer() else str(value)
