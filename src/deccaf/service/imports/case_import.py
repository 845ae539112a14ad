"""Files of cases: checked row by row, so that a lead sees what is wrong where, and entered whole.

`read_cases` has a file read and checked where it can do no harm; what it gives is checked and bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.data.kinds import Feature, cast_feature
from deccaf.data.schema import WAITING
from deccaf.data.vectors import holds_vectors
from deccaf.errors import DataError
from deccaf.service.decide.registry import Model
from deccaf.service.errors import invalid, not_found
from deccaf.service.imports import reading
from deccaf.service.ledger import case_records
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.fields import LONGEST_TEXT, NAME_RULE, is_name
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, from_json, read_page
from deccaf.service.store.unfinished import Unfinished

SHOWN_ERRORS = 100
SHOWN_ROWS = 5
_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class RowError:
    """What is wrong with one row; rows count from 1, without the header."""

    row: int
    case_id: str | None
    column: str
    message: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"row": self.row, "case_id": self.case_id, "column": self.column, "message": self.message}


@dataclass(frozen=True)
class Import:
    """A file that was entered."""

    id: int
    filename: str
    rows: int
    accepted: int
    rejected: int
    at: float
    errors: list[dict[str, Any]]


@dataclass(frozen=True)
class Expected:
    """What the model in force asks of a file."""

    features: Mapping[str, Feature] = field(default_factory=dict)
    """By name."""
    costs: tuple[str, ...] = ()
    """Columns that say what errors on a case cost."""
    due: str = "due"
    """The column that says when a case is late."""
    waiting_cost: str = "waiting_cost"
    """The column that says what an hour of waiting costs."""

    @classmethod
    def of(cls, model: Model | None) -> Expected:
        """Nothing without a model."""
        if model is None:
            return cls()
        features = {feature.name: feature for feature in model.system.schema_.features}
        roles = {part: name for part, name in model.system.columns_.waiting.items() if name not in features}
        none = dict.fromkeys(WAITING, "")
        return cls(features, tuple(model.system.costs_.columns), **(none | roles))


@dataclass(frozen=True)
class Checked:
    """A file that was checked: the rows that can be entered, and what is wrong with the others."""

    arrivals: list[Arrival]
    places: list[int]
    """The row of each arrival."""
    errors: list[RowError]
    """The first of them."""
    error_count: int
    rows: int
    rejected: int
    columns: list[str]
    head: list[dict[str, Any]] = field(default_factory=list)
    """The first rows, shortened."""

    @classmethod
    def whole(cls, arrivals: list[Arrival]) -> Checked:
        """Cases that came in a request, every one of which can be entered."""
        return cls(arrivals, list(range(1, len(arrivals) + 1)), [], 0, len(arrivals), 0, [])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rows": self.rows,
            "accepted": len(self.arrivals),
            "rejected": self.rejected,
            "columns": self.columns,
            "errors": [error.to_dict() for error in self.errors],
            "more_errors": self.error_count - len(self.errors),
        }

    def facts(self) -> dict[str, Any]:
        """Everything but the rows, for JSON."""
        plain = {name: getattr(self, name) for name in ("error_count", "rows", "rejected", "columns", "head")}
        return {**plain, "errors": [asdict(error) for error in self.errors]}

    @classmethod
    def of(cls, facts: dict[str, Any], rows: Iterable[tuple[Any, ...]]) -> Checked:
        """From its facts and its rows: place, case, features, due time and waiting cost."""
        places, arrivals = [], []
        for place, case_id, features, due, cost in rows:
            places.append(place)
            arrivals.append(Arrival(case_id, features, due=due, waiting_cost=cost))
        errors = [RowError(**error) for error in facts.pop("errors")]
        return cls(arrivals=arrivals, places=places, errors=errors, **facts)


def read_cases(path: Path, out: Path, size: tuple[int, int], model: Model | None, *, look: bool) -> Checked:
    """Read and check a file of cases with at most `size` rows and columns; `out` is a file to work with.

    Just to have a `look`, features are not handed over.
    """
    facts = reading.confined(_read_cases, path, out, size, Expected.of(model), look)
    return Checked.of(facts, reading.read_rows(out))


def _read_cases(
    path: Path, out: Path, size: tuple[int, int], expected: Expected, look: bool
) -> dict[str, Any]:
    checked = check_frame(reading.read_table(path, *size), expected)
    together = zip(checked.places, checked.arrivals, strict=True)
    rows = ((k, a.case_id, "" if look else a.features, a.due, a.waiting_cost) for k, a in together)
    reading.write_rows(out, rows)
    return checked.facts()


def check_frame(frame: pd.DataFrame, expected: Expected) -> Checked:
    """Check every row; the frame itself must have a `case_id` column, and the model's features."""
    if "case_id" not in frame:
        raise invalid("no-case-column", "the file has no column 'case_id'; name the column of ids so")
    frame = frame.reset_index(drop=True)
    missing = [name for name in expected.features if name not in frame]
    if missing:
        raise invalid(
            "missing-columns",
            f"column {missing[0]!r}: missing ({len(missing)} of the model's features are)",
            columns=missing[:SHOWN_ERRORS],
        )
    for name, feature in expected.features.items():
        if (
            feature.kind != "vector"
            and pd.api.types.is_object_dtype(frame[name])
            and holds_vectors(frame[name])
        ):
            raise invalid(
                "wrong-kind", f"column {name!r}: holds lists of numbers; the model has it as {feature.kind}"
            )
    ids = frame["case_id"].map(id_text)
    errors = id_errors(ids)
    errors += [
        error for name in frame if name != "case_id" for error in _value_errors(frame[name], ids, expected)
    ]
    due, costs, wrong = _waiting(frame, ids, expected)
    errors += wrong
    bad = {error.row - 1 for error in errors}
    good = [row for row in range(len(frame)) if row not in bad]
    features = frame.drop(columns=["case_id", expected.due, expected.waiting_cost], errors="ignore")
    texts = _as_json(features.iloc[good])
    arrivals = [
        Arrival(ids.iloc[row], text, due=_known(due[row]), waiting_cost=_known(costs[row]))
        for row, text in zip(good, texts, strict=True)
    ]
    return Checked(
        arrivals=arrivals,
        places=[row + 1 for row in good],
        errors=first_errors(errors),
        error_count=len(errors),
        rows=len(frame),
        rejected=len(bad),
        columns=[str(name) for name in features],
        head=head_of(frame),
    )


def _waiting(
    frame: pd.DataFrame, ids: pd.Series, expected: Expected
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[RowError]]:
    """When each case is late (seconds since 1970) and what its waiting costs; NaN: nobody says."""
    none, bad = np.full(len(frame), np.nan), []
    due = costs = none
    if expected.waiting_cost in frame:
        values = frame[expected.waiting_cost]
        costs = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        wrong = (np.isnan(costs) & values.notna().to_numpy(bool)) | (costs < 0) | np.isinf(costs)
        bad += [
            (row, expected.waiting_cost, "must be a cost of an hour from 0 on")
            for row in np.flatnonzero(wrong)
        ]
    if expected.due in frame:
        values = frame[expected.due]
        texts = values.astype("str").where(values.notna(), None)  # a bare number is no time
        times = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
        wrong = times.isna().to_numpy(bool) & values.notna().to_numpy(bool)
        bad += [
            (row, expected.due, f"{values.iloc[row]!r:.60} is no time; use 2026-05-04T12:00Z")
            for row in np.flatnonzero(wrong)
        ]
        due = ((times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)).to_numpy(
            np.float64, na_value=np.nan
        )
    return (
        due,
        costs,
        [RowError(int(row) + 1, shortened(ids.iloc[row]), name, said) for row, name, said in bad],
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def first_errors(errors: Iterable[RowError]) -> list[RowError]:
    """Those that are shown: of the first rows."""
    return sorted(errors, key=lambda error: error.row)[:SHOWN_ERRORS]


def without_known(connection: sa.Connection, checked: Checked) -> Checked:
    """The same, with an error for every case that is in the ledger already."""
    return _without(
        checked, case_records.known_cases(connection, [arrival.case_id for arrival in checked.arrivals])
    )


def _without(checked: Checked, known: set[str]) -> Checked:
    if not known:
        return checked
    pairs = list(zip(checked.places, checked.arrivals, strict=True))
    again = [
        RowError(row, arrival.case_id, "case_id", "is in the ledger already")
        for row, arrival in pairs
        if arrival.case_id in known
    ]
    kept = [(row, arrival) for row, arrival in pairs if arrival.case_id not in known]
    return replace(
        checked,
        arrivals=[arrival for _, arrival in kept],
        places=[row for row, _ in kept],
        errors=first_errors([*checked.errors, *again]),
        error_count=checked.error_count + len(again),
        rejected=checked.rejected + len(again),
    )


def enter(connection: sa.Connection, checked: Checked, filename: str, actor: Actor, at: float) -> int:
    """Enter the rows that can be; they wait for the next plan. The import's id."""
    made = _add(connection, checked, filename, actor, at)
    case_records.hold(connection, checked.arrivals, actor, at, made)
    return made


def begin(connection: sa.Connection, checked: Checked, filename: str, actor: Actor, at: float) -> Unfinished:
    """Begin to enter a file in pieces (see `unfinished`); nobody sees its cases before `finish`."""
    last = connection.execute(sa.select(sa.func.coalesce(sa.func.max(t.cases.c.id), 0))).scalar_one()
    made = _add(connection, checked, filename, actor, at)
    return unfinished.begin(connection, at, key_id=actor.key_id, request="", import_id=made, after_id=last)


def write_piece(connection: sa.Connection, change: Unfinished, arrivals: Sequence[Arrival]) -> None:
    """The next cases of a file; those that others have entered since it was checked are left out."""
    known = case_records.known_cases(connection, [arrival.case_id for arrival in arrivals])
    new = [(arrival, "waiting") for arrival in arrivals if arrival.case_id not in known]
    if new:
        case_records.add(connection, new, change.at, change.import_id)
    unfinished.lose(connection, change, len(known))


def without_lost(connection: sa.Connection, change: Unfinished, checked: Checked) -> Checked:
    """The same, with an error for every case that others have entered while the file was."""
    if not unfinished.lost(connection, change):
        return checked
    c = t.cases.c
    ours = sa.select(c.case_id).where(c.id > change.after_id, c.import_id == change.import_id)
    here = set(connection.execute(ours).scalars())
    return _without(checked, {arrival.case_id for arrival in checked.arrivals} - here)


def finish(connection: sa.Connection, change: Unfinished, checked: Checked, actor: Actor) -> int:
    """All of a file is in the ledger: show it to everybody. The import's id."""
    assert change.import_id is not None
    connection.execute(
        sa.update(t.imports).where(t.imports.c.id == change.import_id).values(**_counts(checked))
    )
    case_records.record_import(connection, change.import_id, len(checked.arrivals), actor, change.at)
    unfinished.end(connection, change)
    return change.import_id


def take_out(connection: sa.Connection, change: Unfinished, most: int) -> bool:
    """Take rows out of a file that was not entered whole, and at last the file; whether any may be left."""
    c = t.cases.c
    ours = sa.select(c.id).where(c.id > change.after_id, c.import_id == change.import_id).limit(most)
    if connection.execute(sa.delete(t.cases).where(c.id.in_(ours))).rowcount:
        return True
    if unfinished.end(connection, change):
        connection.execute(sa.delete(t.imports).where(t.imports.c.id == change.import_id))
    return False


def _add(connection: sa.Connection, checked: Checked, filename: str, actor: Actor, at: float) -> int:
    made = connection.execute(
        sa.insert(t.imports)
        .values(at=at, key_id=actor.key_id, filename=filename, **_counts(checked))
        .returning(t.imports.c.id)
    ).scalar_one()
    return int(made)


def _counts(checked: Checked) -> dict[str, Any]:
    return {
        "rows": checked.rows,
        "accepted": len(checked.arrivals),
        "rejected": checked.rejected,
        "errors": json.dumps([error.to_dict() for error in checked.errors]),
    }


def read_import(connection: sa.Connection, import_id: int) -> Import:
    """One file that was entered."""
    row = connection.execute(sa.select(t.imports).where(t.imports.c.id == import_id)).one_or_none()
    if row is None:
        raise not_found("import", import_id)
    return _import(row)


def list_imports(connection: sa.Connection, cut: Cut) -> Page[Import]:
    """All files that were entered."""
    return read_page(connection, sa.select(t.imports), t.imports.c.id, cut, _import)


def _import(row: Any) -> Import:
    errors = from_json(row.errors)
    return Import(row.id, row.filename, row.rows, row.accepted, row.rejected, row.at, errors)


def id_text(value: Any) -> str | None:
    """An id or a name as text; None where it is missing."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def id_errors(ids: pd.Series, once: bool = True) -> list[RowError]:
    """What is wrong with ids; `once` where none may stand twice."""
    errors, seen = [], set()
    for row, case in enumerate(ids, 1):
        if not isinstance(case, str):
            errors.append(RowError(row, None, "case_id", "is empty"))
        elif not is_name(case):
            errors.append(RowError(row, case[:200], "case_id", NAME_RULE.format(most=200)))
        elif once and case in seen:
            errors.append(RowError(row, case, "case_id", "stands twice in the file"))
        else:
            seen.add(case)
    return errors


def _value_errors(values: pd.Series, ids: pd.Series, expected: Expected) -> list[RowError]:
    name = str(values.name)
    feature = expected.features.get(name)
    kind = None if feature is None else feature.kind
    bad: dict[int, str] = {}
    if pd.api.types.is_float_dtype(values.dtype):
        bad = dict.fromkeys(np.flatnonzero(np.isinf(values.to_numpy(np.float64))).tolist(), "is infinite")
    elif feature is not None and kind == "vector":
        bad = _vector_errors(values, feature)
    elif not pd.api.types.is_numeric_dtype(values.dtype) and not holds_vectors(values):
        text = values.astype("str")
        long = (text.str.len() > LONGEST_TEXT).fillna(False).to_numpy(bool)
        bad = dict.fromkeys(np.flatnonzero(long).tolist(), f"is longer than {LONGEST_TEXT:,} characters")
        if kind == "number":
            wrong = pd.to_numeric(text, errors="coerce").isna() & values.notna()
            bad |= {
                k: f"{values.iloc[k]!r:.60} is no number" for k in np.flatnonzero(wrong.to_numpy()).tolist()
            }
    if name in expected.costs:
        number = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        bad |= dict.fromkeys(np.flatnonzero(~(number >= 0)).tolist(), "must be a cost from 0 on")
    return [RowError(row + 1, shortened(ids.iloc[row]), name, message) for row, message in bad.items()]


def shortened(value: Any) -> Any:
    """A value as it is shown: text of a few words at most, None where it is missing."""
    if isinstance(value, list | tuple | np.ndarray):
        return f"{len(value)} numbers"
    if value is None or value is pd.NA or value is pd.NaT or value != value:  # NaN is not itself
        return None
    if isinstance(value, bool | int | float):
        return value
    return value.item() if isinstance(value, np.number) else str(value)[:_LONGEST_SHOWN]


def head_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The first rows, as they are shown."""
    rows = frame.head(SHOWN_ROWS)
    return [
        {str(name): shortened(value) for name, value in zip(rows, row, strict=True)}
        for row in rows.itertuples(index=False, name=None)
    ]


def _vector_errors(values: pd.Series, feature: Feature) -> dict[int, str]:
    """Vectors that the model cannot use, by row."""
    bad: dict[int, str] = {}
    try:
        cast_feature(values, feature)
        return bad
    except DataError:
        pass  # which rows?
    for row in range(len(values)):
        try:
            cast_feature(values.iloc[row : row + 1], feature)
        except DataError as error:
            bad[row] = str(error).partition(") ")[2] or str(error)
    return bad


def _as_json(frame: pd.DataFrame) -> Sequence[str]:
    """One JSON object per row; dates as text, missing as null."""
    if frame.empty:
        return ["{}"] * len(frame)
    text = frame.to_json(orient="records", lines=True, date_format="iso", double_precision=15)
    lines: list[str] = text.rstrip("\n").split("\n")
    if len(lines) != len(frame):
        raise DataError("the file cannot be written row by row")
    return lines
