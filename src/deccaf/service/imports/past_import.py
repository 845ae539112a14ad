"""A file of history from elsewhere: one row for every decision, any number of them for a case.

Which column is which is guessed and can be said; every row is checked, and what cannot be entered is listed
with its reason. `past_columns` proposes what the features are, `past_records` keeps what was entered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE
from deccaf.data.profile import MOST_CLASSES, guess_log, guess_parts
from deccaf.data.times import parse_times
from deccaf.errors import DataError
from deccaf.service.errors import invalid
from deccaf.service.imports import case_import, past_columns, reading
from deccaf.service.imports.case_import import Expected, RowError, id_text, shortened
from deccaf.service.imports.past_columns import PARTS, Column
from deccaf.service.store.fields import LONGEST_CLASS, MAKER, is_name

NEEDED = {
    "case": "which case a row is about",
    "expert": "who decided",
    "decision": "what they decided",
    "label": "what the truth turned out to be",
}
SOME = 0.05
"""A column that differs within more than this share of the cases with several rows is no fact about cases."""
_LATE = 60.0

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class PastCase(NamedTuple):
    """A case of the past; label as JSON, times in seconds since 1970 (UTC)."""

    case_id: str
    features: str
    label: str | None
    came_at: float
    """Where the file has no dates (`Past.dated`), the rank in time."""
    labelled_at: float | None
    row: int


class PastDecision(NamedTuple):
    """What somebody decided about a case."""

    case_id: str
    maker: str
    decision: str
    decided_at: float | None
    seconds: float | None
    row: int


@dataclass(frozen=True)
class Past:
    """A file of history that was checked: what can be entered, and what is wrong with the rest."""

    cases: list[PastCase]
    """The oldest first."""
    decisions: list[PastDecision]
    rows: int
    rejected: int
    """Rows that cannot be entered."""
    errors: list[RowError]
    """The first of them."""
    error_count: int
    columns: list[Column]
    classes: list[int | str]
    notes: list[str] = field(default_factory=list)
    trouble: str | None = None
    """Why nothing can be entered: a column that nobody named, say."""
    dated: bool = False

    @property
    def people(self) -> dict[str, int]:
        """Decisions of everybody, by name."""
        found: dict[str, int] = {}
        for one in self.decisions:
            found[one.maker] = found.get(one.maker, 0) + 1
        return dict(sorted(found.items()))

    @property
    def labelled(self) -> int:
        """Cases whose truth is known."""
        return sum(case.label is not None for case in self.cases)

    def facts(self) -> dict[str, Any]:
        """What there is to say of it, for JSON."""
        times = [case.came_at for case in self.cases if self.dated]
        return {
            "rows": self.rows,
            "rejected": self.rejected,
            "cases": len(self.cases),
            "labelled": self.labelled,
            "decisions": len(self.decisions),
            "people": self.people,
            "first_at": min(times, default=None),
            "last_at": max(times, default=None),
            "classes": self.classes,
            "columns": [one.to_dict() for one in self.columns],
            "errors": [error.to_dict() for error in self.errors],
            "more_errors": self.error_count - len(self.errors),
            "notes": self.notes,
        }


def read_past(path: Path, out: Path, size: tuple[int, int], chosen: Mapping[str, str] | None = None) -> Past:
    """Read and check a file, as `case_import.read_cases` does a file of cases.

    `chosen` gives the parts of columns, by column; of the others they are guessed.
    """
    facts = reading.confined(_read_past, path, out, size, dict(chosen or {}))
    cases, decisions = [], []
    for kind, *row in reading.read_rows(out):
        if kind == "case":
            cases.append(PastCase(*row))
        else:
            decisions.append(PastDecision(*row))
    return Past(
        cases=cases,
        decisions=decisions,
        errors=[RowError(**error) for error in facts.pop("errors")],
        columns=[Column(**column) for column in facts.pop("columns")],
        **facts,
    )


def _read_past(path: Path, out: Path, size: tuple[int, int], chosen: dict[str, str]) -> dict[str, Any]:
    names = [name for name, part in chosen.items() if part in ("case", "expert")]
    frame = reading.read_table(path, *size, text=names)
    past = check_past(frame, chosen)
    lines = [("case", *case) for case in past.cases] + [("decision", *one) for one in past.decisions]
    reading.write_rows(out, lines)
    plain = ("rows", "rejected", "error_count", "classes", "notes", "trouble", "dated")
    return {
        **{name: getattr(past, name) for name in plain},
        "errors": [error.to_dict() for error in past.errors],
        "columns": [one.to_dict() for one in past.columns],
    }


def check_past(frame: pd.DataFrame, chosen: Mapping[str, str] | None = None) -> Past:
    """Check every row of a history; see `read_past`."""
    frame, chosen = frame.reset_index(drop=True), chosen or {}
    frame.columns = frame.columns.map(str)
    names = _parts(frame, chosen)
    missing = [part for part in NEEDED if part not in names]
    if missing:
        return _unread(frame, names, missing)
    table = _Table(frame, names, chosen)
    cases, decisions = table.cases(), table.decisions()
    bad = table.bad_rows
    columns, notes, classes = past_columns.proposed(
        table.case_frame(), table.log(), names, table.apart | table.clashes, chosen
    )
    return Past(
        cases=cases,
        decisions=decisions,
        rows=len(frame),
        rejected=len(bad),
        errors=case_import.first_errors(table.errors),
        error_count=len(table.errors),
        columns=columns,
        classes=classes,
        notes=[*table.notes, *notes],
        dated=table.dated,
    )


def _parts(frame: pd.DataFrame, chosen: Mapping[str, str]) -> dict[str, str]:
    """The column of each part: as it was chosen, else as it looks."""
    unknown = next((name for name in chosen if name not in frame), None)
    if unknown is not None:
        raise invalid("unknown-column", f"column {unknown!r}: the file has none of this name")
    said = {part: name for name, part in chosen.items() if part in PARTS}
    twice = [part for part in PARTS if list(chosen.values()).count(part) > 1]
    if twice:
        raise invalid("part-twice", f"two columns are to be the {twice[0]}; choose one")
    free = frame[[name for name in frame if name not in chosen]]
    looks = guess_log(free)
    rest = free.drop(columns=list(looks.values()))
    one_each = rest if "case_id" not in rest else rest.drop_duplicates("case_id")
    who_said = said.get("decision", looks.get("decision"))
    decided = [] if who_said is None else list(frame[who_said].dropna().unique())
    guess = guess_parts(one_each, decided if len(decided) <= MOST_CLASSES else ())
    looks |= {p: n for p, n in (("case", guess.case), ("label", guess.label), ("time", guess.time)) if n}
    return {**{part: name for part, name in looks.items() if part not in said}, **said}


def _unread(frame: pd.DataFrame, names: dict[str, str], missing: list[str]) -> Past:
    what = " and ".join(NEEDED[part] for part in missing)
    trouble = f"no column says {what}: choose it, or name the columns case_id, expert_id, decision and label"
    columns = past_columns.unread(frame, names)
    return Past([], [], len(frame), len(frame), [], 0, columns, [], trouble=trouble)


class _Table:
    """The rows of a file on their way: ids, the first row of every case, and what is wrong so far."""

    def __init__(self, frame: pd.DataFrame, names: dict[str, str], chosen: Mapping[str, str]) -> None:
        self.frame, self.names, self._chosen = frame, names, chosen
        self.errors: list[RowError] = []
        self.notes: list[str] = []
        self._with_bad_case: set[int] = set()
        self.ids = frame[names["case"]].map(id_text)
        self._refuse(case_import.id_errors(self.ids, once=False))
        codes, levels = pd.factorize(self.ids)
        self._code: Ints = codes.astype(np.int64)
        self._first: Ints = np.full(len(levels), -1, np.int64)
        rows = np.flatnonzero(codes >= 0)[::-1]
        self._first[codes[rows]] = rows
        self.apart: dict[str, str] = {}
        """Columns that differ between the rows of a case, and why they are left out."""
        own = set(names.values())
        self.clashes = {
            name: "this name is kept for a part that another column plays; rename it to use it"
            for name in past_columns.RESERVED
            if name in frame and name not in own
        }
        self._features = [str(name) for name in frame if name not in own and name not in self.clashes]
        self._differing()
        self._features = [name for name in self._features if name not in self.apart]
        self._times()
        self._people()

    @property
    def bad_rows(self) -> set[int]:
        """Positions of rows that cannot be entered."""
        return {error.row - 1 for error in self.errors} | self._with_bad_case

    def case_frame(self) -> pd.DataFrame:
        """One row per case: its features, `case_id`, `label`, and `time` where there is one."""
        firsts = self._firsts
        found = self.frame.loc[firsts, self._features].reset_index(drop=True)
        found["case_id"] = self.ids.iloc[firsts].to_numpy()
        found["label"] = self.frame[self.names["label"]].iloc[firsts].to_numpy()
        if "time" in self.names:
            found["time"] = self._came.iloc[firsts].to_numpy()
        return found

    def log(self) -> pd.DataFrame:
        """The decisions that can be entered, as a log has them."""
        rows = self._decided
        return pd.DataFrame(
            {
                "case_id": self.ids.iloc[rows].to_numpy(),
                "expert_id": self._who.iloc[rows].to_numpy(),
                "decision": self.frame[self.names["decision"]].iloc[rows].to_numpy(),
            }
        )

    def cases(self) -> list[PastCase]:
        """The cases that can be entered, in order of time."""
        features = self.frame.loc[self._first, self._features].assign(case_id=self.ids.iloc[self._first])
        checked = case_import.check_frame(features.reset_index(drop=True), Expected())
        bad = set(range(len(self._first))) - {place - 1 for place in checked.places}
        self._refuse(
            [
                RowError(int(self._first[error.row - 1]) + 1, error.case_id, error.column, error.message)
                for error in checked.errors
                if error.column != "case_id"  # said of every row already
            ]
        )
        self._with_bad_case = set(np.flatnonzero(np.isin(self._code, list(bad))).tolist())
        spoiled = self.bad_rows
        good = np.array([row not in spoiled for row in range(len(self.frame))])
        usable = set(self._code[good & (self._code >= 0)].tolist()) - bad
        pairs = zip(checked.places, checked.arrivals, strict=True)
        text = {place - 1: arrival.features for place, arrival in pairs}
        order = [code for code in self._by_time() if code in usable]
        self._firsts: Ints = self._first[order]
        self._good = good
        self._decided = np.flatnonzero(good & self._who.notna().to_numpy() & (self._code >= 0))
        label, known = self.frame[self.names["label"]], self._known_at
        return [
            PastCase(
                case_id=str(self.ids.iloc[row]),
                features=text[code],
                label=None if pd.isna(label.iloc[row]) else as_class(label.iloc[row]),
                came_at=float(self._came_at[row] if self.dated else self._rank[code]),
                labelled_at=None if known is None or np.isnan(known[row]) else float(known[row]),
                row=int(row) + 1,
            )
            for code, row in zip(order, self._firsts, strict=True)
        ]

    def decisions(self) -> list[PastDecision]:
        """The decisions that can be entered."""
        said, when, took = self.frame[self.names["decision"]], self._decided_at, self._seconds
        return [
            PastDecision(
                case_id=str(self.ids.iloc[row]),
                maker=str(self._who.iloc[row]),
                decision=as_class(said.iloc[row]),
                decided_at=None if when is None or np.isnan(when[row]) else float(when[row]),
                seconds=None if took is None or np.isnan(took[row]) else float(took[row]),
                row=int(row) + 1,
            )
            for row in self._decided
        ]

    def _refuse(self, errors: list[RowError]) -> None:
        self.errors += errors

    def _wrong(self, rows: Bools, column: str, message: str) -> None:
        for row in np.flatnonzero(rows).tolist():
            self.errors.append(RowError(row + 1, shortened(self.ids.iloc[row]), column, message))

    def _unlike_first(self, values: pd.Series) -> Bools:
        """Where a row says something else than the first row of its case."""
        plain = values if not pd.api.types.is_object_dtype(values) else values.map(_hashable)
        codes = pd.factorize(plain)[0]
        known = self._code >= 0
        return np.asarray(known & (codes != codes[self._first[np.where(known, self._code, 0)]]))

    def _differing(self) -> None:
        """Columns and labels that differ between rows of one case."""
        several = int((np.bincount(self._code[self._code >= 0], minlength=1) > 1).sum())
        for name in self._features:
            unlike = self._unlike_first(self.frame[name])
            cases = len(np.unique(self._code[unlike]))
            if not cases:
                continue
            part = self._chosen.get(name)
            if part == "-" or (part is None and cases > SOME * several):
                first = self.ids.iloc[int(unlike.argmax())]
                self.apart[name] = (
                    f"it differs between the rows of one case ({cases:,} of {several:,} cases with several, "
                    f"first {str(first)[:40]!r}): it came with the decision, not with the case"
                )
            else:
                self._wrong(unlike, name, "is another value than in the first row of this case")
        label = self.names["label"]
        torn = np.unique(self._code[self._unlike_first(self.frame[label])])
        self._wrong(np.isin(self._code, torn), label, "the rows of this case name different truths")

    def _times(self) -> None:
        """When cases came, were decided and labelled, by their own times."""
        at = self.names.get("time")
        if at and "decided_at" not in self.names and self._unlike_first(self.frame[at]).any():
            self.names = {**self.names, "decided_at": at}
            self.notes.append(
                f"{at} differs between the decisions on one case, so it is taken for when they were made; a "
                "case came with the first of them"
            )
        times = {part: self._read_times(part) for part in ("time", "decided_at", "labelled_at")}
        came = times["time"] if times["time"] is not None else times["decided_at"]
        self.dated = came is not None and pd.api.types.is_datetime64_any_dtype(came.dtype)
        self._came = pd.Series(np.arange(len(self.frame))) if came is None else came
        if "decided_at" in self.names and self.names.get("time") in (None, self.names["decided_at"]):
            self._came = self._came.groupby(self.ids.to_numpy()).transform("min")
        self._came_at = _seconds_of(self._came)
        decided, known = times["decided_at"], times["labelled_at"]
        self._decided_at = None if decided is None or not self.dated else _seconds_of(decided)
        self._known_at = None if known is None or not self.dated else _seconds_of(known)
        if not self.dated:
            return
        at = at or self.names["decided_at"]
        self._wrong(np.isnan(self._came_at) & (self._code >= 0), at, "is empty")
        self._wrong(self._came_at > time.time() + _LATE, at, "lies in the future")
        for part, when in (("decided_at", self._decided_at), ("labelled_at", self._known_at)):
            if when is not None:
                self._wrong(when < self._came_at, self.names[part], "is before the case came")
                self._wrong(when > time.time() + _LATE, self.names[part], "lies in the future")

    def _read_times(self, part: str) -> pd.Series | None:
        if part not in self.names:
            return None
        try:
            return parse_times(self.frame[self.names[part]]).values
        except DataError as error:
            raise invalid("unreadable-times", str(error)) from error

    def _by_time(self) -> list[int]:
        """The cases, the oldest first; those of one time in the order of the file."""
        times = self._came.iloc[self._first].reset_index(drop=True)
        self._rank = times.rank(method="dense", na_option="top").to_numpy(np.float64)
        return [int(code) for code in np.lexsort((self._first, self._rank))]

    def _people(self) -> None:
        """Who decided what; rows without both are cases that nobody decided."""
        expert, decision = self.names["expert"], self.names["decision"]
        self._who = self.frame[expert].map(id_text)
        said = self.frame[decision]
        somebody, something = self._who.notna().to_numpy(), said.notna().to_numpy()
        self._wrong(something & ~somebody, expert, "is empty, and there is a decision")
        self._wrong(somebody & ~something, decision, "is empty, and somebody decided")
        odd = [isinstance(name, str) and (name == MACHINE or not is_name(name, MAKER)) for name in self._who]
        self._wrong(np.array(odd, np.bool_), expert, "is no name for a person")
        for name in (decision, self.names["label"]):
            if not pd.api.types.is_numeric_dtype(self.frame[name].dtype):
                long = (self.frame[name].astype("str").str.len() > LONGEST_CLASS).fillna(False)
                self._wrong(long.to_numpy(bool), name, f"is longer than {LONGEST_CLASS} characters")
        self._seconds = None
        if "seconds" in self.names:
            name = self.names["seconds"]
            number = pd.to_numeric(self.frame[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
            wrong = self.frame[name].notna().to_numpy() & ~(np.isfinite(number) & (number >= 0))
            self._wrong(wrong, name, "is no number of seconds from 0 on")
            self._seconds = number


def as_class(value: Any) -> str:
    """A label or decision as JSON: whole numbers as such, all else as text."""
    if isinstance(value, bool | np.bool_):
        return json.dumps(int(value))
    if isinstance(value, int | np.integer):
        return json.dumps(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return json.dumps(int(value))
    return json.dumps(str(value))


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, list | tuple | np.ndarray) else value


def _seconds_of(times: pd.Series) -> NDArray[np.float64]:
    """Dates as seconds since 1970, as UTC where they name no zone; numbers as they are."""
    if not pd.api.types.is_datetime64_any_dtype(times.dtype):
        return times.to_numpy(np.float64, na_value=np.nan)
    utc = times.dt.tz_localize("UTC") if times.dt.tz is None else times.dt.tz_convert("UTC")
    found = (utc - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    return np.asarray(found.to_numpy(np.float64, na_value=np.nan))
