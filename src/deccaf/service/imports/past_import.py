"""A history from elsewhere: cases that people have decided and whose truth is known, to learn from.

It enters the ledger as a closed shift, so that models are fitted, and people judged, on one record.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.data.times import parse_times
from deccaf.errors import DataError
from deccaf.service.errors import invalid
from deccaf.service.imports import case_import, reading
from deccaf.service.imports.case_import import Checked, Expected, RowError, shortened
from deccaf.service.ledger import assignments, labels, people, shifts
from deccaf.service.ledger.assignments import NewAssignment, numbers
from deccaf.service.store import tables as t
from deccaf.service.store.fields import LONGEST_CLASS, MAKER, is_name
from deccaf.service.store.keys import Actor

TEAM = "team"
NEEDED = ("case_id", "label", "expert_id", "decision")
_CHUNK = 2_000


@dataclass(frozen=True, eq=False)
class Past:
    """A file of history that was checked."""

    checked: Checked
    labels: list[str]
    experts: list[str]
    decisions: list[str]
    ages: list[int]
    """Rank in time: by the column `time` where there is one, else by the order of the file."""


def read_past(path: Path, out: Path, size: tuple[int, int], *, look: bool) -> Past:
    """Read and check a file of history, as `case_import.read_cases` does a file of cases."""
    facts = reading.confined(_read_past, path, out, size, look)
    rows = list(reading.read_rows(out))
    return Past(
        Checked.of(facts, ((place, case, features) for place, case, features, *_ in rows)),
        *([row[k] for row in rows] for k in range(3, 7)),
    )


def _read_past(path: Path, out: Path, size: tuple[int, int], look: bool) -> dict[str, Any]:
    past = check_past(reading.read_table(path, *size))
    together = zip(
        past.checked.places,
        past.checked.arrivals,
        past.labels,
        past.experts,
        past.decisions,
        past.ages,
        strict=True,
    )
    reading.write_rows(out, ((k, a.case_id, "" if look else a.features, *rest) for k, a, *rest in together))
    return past.checked.facts()


def check_past(frame: pd.DataFrame) -> Past:
    """Check every row; the columns `label`, `expert_id` and `decision` are kept apart from the features."""
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        raise invalid("missing-columns", f"column {missing[0]!r}: missing; a history has {', '.join(NEEDED)}")
    frame = frame.reset_index(drop=True)
    features = frame.drop(columns=["label", "expert_id", "decision", "time"], errors="ignore")
    checked = case_import.check_frame(features, Expected())
    more = _errors(frame)
    bad = {error.row for error in more}
    keep = [k for k, place in enumerate(checked.places) if place not in bad]
    rows = [checked.places[k] - 1 for k in keep]
    part = frame.iloc[rows]
    return Past(
        replace(
            checked,
            arrivals=[checked.arrivals[k] for k in keep],
            places=[checked.places[k] for k in keep],
            errors=case_import.first_errors([*checked.errors, *more]),
            error_count=checked.error_count + len(more),
            rejected=len(frame) - len(keep),
            head=case_import.head_of(frame),
        ),
        [_as_class(value) for value in part["label"]],
        [str(value) for value in part["expert_id"]],
        [_as_class(value) for value in part["decision"]],
        _ranks(frame)[rows].tolist(),
    )


class _Row(NamedTuple):
    """A decided case to be entered."""

    case_id: str
    label: str
    expert: str
    decision: str
    arrived_at: float


def enter_past(connection: sa.Connection, past: Past, filename: str, who: Actor, at: float) -> int:
    """Enter a history; how many cases."""
    checked = case_import.without_known(connection, past.checked)
    rows = _rows(past, {arrival.case_id for arrival in checked.arrivals}, at)
    if not rows:
        raise invalid("nothing-new", "no row of the file can be entered: see the preview")
    import_id = case_import.enter(connection, checked, filename, who, at)
    load = Counter(row.expert for row in rows)
    team = people.add_unknown(connection, sorted(load), TEAM, who, at)
    used = {MACHINE: 0, **{name: load[name] for name in sorted(load)}}
    shift, pricing = shifts.enter_closed_shift(connection, f"history {import_id}", team, used, at)
    unknown = numbers([None] * len(used))
    made = [NewAssignment(r.case_id, r.expert, "decided", "history", unknown, 0.0, 0.0, 1.0) for r in rows]
    assignments.insert(connection, made, shift, pricing, at)
    for start in range(0, len(rows), _CHUNK):
        _settle(connection, rows[start : start + _CHUNK], who, at)
    return len(rows)


def _rows(past: Past, new: set[str], at: float) -> list[_Row]:
    """The rows of cases that are new; they arrived one second apart for every rank in time."""
    latest = max(past.ages, default=0)
    together = zip(past.checked.arrivals, past.labels, past.experts, past.decisions, past.ages, strict=True)
    return [
        _Row(arrival.case_id, label, expert, decision, at - 10.0 - (latest - age))
        for arrival, label, expert, decision, age in together
        if arrival.case_id in new
    ]


def _settle(connection: sa.Connection, rows: list[_Row], who: Actor, at: float) -> None:
    """The decisions and labels of cases, and when the cases arrived."""
    decided = [
        {"case_id": row.case_id, "maker": row.expert, "decision": row.decision, "seconds": None, "at": at}
        for row in rows
    ]
    connection.execute(sa.insert(t.decisions), decided)
    connection.execute(
        sa.update(t.cases)
        .where(t.cases.c.case_id == sa.bindparam("of_case"))
        .values(status="decided", arrived_at=sa.bindparam("came")),
        [{"of_case": row.case_id, "came": row.arrived_at} for row in rows],
    )
    labels.label(connection, [(row.case_id, row.label) for row in rows], who, at)


def _errors(frame: pd.DataFrame) -> list[RowError]:
    errors = []
    ids = frame["case_id"].astype("str")
    for name in ("label", "decision", "expert_id"):
        for row in np.flatnonzero(frame[name].isna().to_numpy()).tolist():
            errors.append(RowError(row + 1, shortened(ids.iloc[row]), name, "is empty"))
        if name != "expert_id" and not pd.api.types.is_numeric_dtype(frame[name].dtype):
            long = frame[name].astype("str").str.len() > LONGEST_CLASS
            for row in np.flatnonzero(long.fillna(False).to_numpy(bool)).tolist():
                message = f"is longer than {LONGEST_CLASS} characters"
                errors.append(RowError(row + 1, shortened(ids.iloc[row]), name, message))
    people = frame["expert_id"].astype("str")
    odd = frame["expert_id"].notna() & ~people.map({name: is_name(name, MAKER) for name in people.unique()})
    odd |= frame["expert_id"].astype("str") == MACHINE
    for row in np.flatnonzero(odd.fillna(False).to_numpy(bool)).tolist():
        errors.append(RowError(row + 1, shortened(ids.iloc[row]), "expert_id", "is no name for a person"))
    return errors


def _ranks(frame: pd.DataFrame) -> np.ndarray:
    """0 for the oldest; cases of one time have one rank."""
    if "time" not in frame:
        return np.arange(len(frame))
    try:
        times = parse_times(frame["time"]).values
    except DataError as error:
        raise invalid("unreadable-times", str(error)) from error
    ranks = times.rank(method="dense", na_option="top").to_numpy(np.float64)
    return np.asarray(ranks, np.int64)


def _as_class(value: Any) -> str:
    """A label or decision as JSON: whole numbers as such, all else as text."""
    if isinstance(value, bool | np.bool_):
        return json.dumps(int(value))
    if isinstance(value, int | np.integer):
        return json.dumps(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return json.dumps(int(value))
    return json.dumps(str(value))
