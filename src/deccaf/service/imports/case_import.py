"""Files of cases: checked row by row, so that a lead sees what is wrong where, and entered whole."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.kinds import cast_feature
from deccaf.data.vectors import holds_vectors
from deccaf.errors import DataError
from deccaf.service.decide.registry import Model
from deccaf.service.errors import invalid, not_found
from deccaf.service.ledger import case_records
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.store import tables as t
from deccaf.service.store.fields import CASE_ID, LONGEST_TEXT
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import Cut, Page, from_json, read_page

SHOWN_ERRORS = 100


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
class Checked:
    """A file that was checked: the rows that can be entered, and what is wrong with the others."""

    arrivals: list[Arrival]
    places: list[int]
    """The row of each arrival."""
    errors: list[RowError]
    rows: int
    rejected: int
    columns: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rows": self.rows,
            "accepted": len(self.arrivals),
            "rejected": self.rejected,
            "columns": self.columns,
            "errors": [error.to_dict() for error in self.errors[:SHOWN_ERRORS]],
            "more_errors": max(len(self.errors) - SHOWN_ERRORS, 0),
        }


def check_frame(frame: pd.DataFrame, model: Model | None) -> Checked:
    """Check every row; the frame itself must have a `case_id` column, and the model's features."""
    if "case_id" not in frame:
        raise invalid("no-case-column", "the file has no column 'case_id'; name the column of ids so")
    frame = frame.reset_index(drop=True)
    if model is not None:
        missing = [name for name in model.system.schema_.names if name not in frame]
        if missing:
            raise invalid(
                "missing-columns",
                f"column {missing[0]!r}: missing ({len(missing)} of the model's features are)",
                columns=missing[:SHOWN_ERRORS],
            )
    ids = frame["case_id"].map(_id_text)
    errors = _id_errors(ids)
    errors += [
        error for name in frame if name != "case_id" for error in _value_errors(frame[name], ids, model)
    ]
    errors.sort(key=lambda error: error.row)
    bad = {error.row - 1 for error in errors}
    good = [row for row in range(len(frame)) if row not in bad]
    features = frame.drop(columns="case_id")
    arrivals = [
        Arrival(case, text) for case, text in zip(ids.iloc[good], _as_json(features.iloc[good]), strict=True)
    ]
    places = [row + 1 for row in good]
    return Checked(arrivals, places, errors, len(frame), len(bad), [str(name) for name in features])


def without_known(connection: sa.Connection, checked: Checked) -> Checked:
    """The same, with an error for every case that is in the ledger already."""
    known = case_records.known_cases(connection, [arrival.case_id for arrival in checked.arrivals])
    if not known:
        return checked
    pairs = list(zip(checked.places, checked.arrivals, strict=True))
    again = [
        RowError(row, arrival.case_id, "case_id", "is in the ledger already")
        for row, arrival in pairs
        if arrival.case_id in known
    ]
    kept = [(row, arrival) for row, arrival in pairs if arrival.case_id not in known]
    return Checked(
        arrivals=[arrival for _, arrival in kept],
        places=[row for row, _ in kept],
        errors=sorted([*checked.errors, *again], key=lambda error: error.row),
        rows=checked.rows,
        rejected=checked.rejected + len(again),
        columns=checked.columns,
    )


def enter(connection: sa.Connection, checked: Checked, filename: str, actor: Actor, at: float) -> int:
    """Enter the rows that can be; they wait for the next plan. The import's id."""
    made = connection.execute(
        sa.insert(t.imports)
        .values(
            at=at,
            key_id=actor.key_id,
            filename=filename,
            rows=checked.rows,
            accepted=len(checked.arrivals),
            rejected=checked.rejected,
            errors=json.dumps([error.to_dict() for error in checked.errors[:SHOWN_ERRORS]]),
        )
        .returning(t.imports.c.id)
    ).scalar_one()
    case_records.hold(connection, checked.arrivals, actor, at, int(made))
    return int(made)


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


def _id_text(value: Any) -> str | None:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _id_errors(ids: pd.Series) -> list[RowError]:
    pattern = re.compile(CASE_ID)
    errors, seen = [], set()
    for row, case in enumerate(ids, 1):
        if not isinstance(case, str):
            errors.append(RowError(row, None, "case_id", "is empty"))
        elif not pattern.fullmatch(case):
            message = "may hold letters, digits and _.:@+=~,|- only, at most 200"
            errors.append(RowError(row, case[:200], "case_id", message))
        elif case in seen:
            errors.append(RowError(row, case, "case_id", "stands twice in the file"))
        else:
            seen.add(case)
    return errors


def _value_errors(values: pd.Series, ids: pd.Series, model: Model | None) -> list[RowError]:
    name = str(values.name)
    kinds = {} if model is None else {f.name: f.kind for f in model.system.schema_.features}
    bad: dict[int, str] = {}
    if pd.api.types.is_float_dtype(values.dtype):
        bad = dict.fromkeys(np.flatnonzero(np.isinf(values.to_numpy(np.float64))).tolist(), "is infinite")
    elif kinds.get(name) == "vector":
        bad = _vector_errors(values, model)
    elif not pd.api.types.is_numeric_dtype(values.dtype) and not holds_vectors(values):
        text = values.astype("str")
        long = (text.str.len() > LONGEST_TEXT).fillna(False).to_numpy(bool)
        bad = dict.fromkeys(np.flatnonzero(long).tolist(), f"is longer than {LONGEST_TEXT:,} characters")
        if kinds.get(name) == "number":
            wrong = pd.to_numeric(text, errors="coerce").isna() & values.notna()
            bad |= {
                k: f"{values.iloc[k]!r:.60} is no number" for k in np.flatnonzero(wrong.to_numpy()).tolist()
            }
    if model is not None and name in model.system.costs_.columns:
        number = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        bad |= dict.fromkeys(np.flatnonzero(~(number >= 0)).tolist(), "must be a cost from 0 on")
    return [RowError(row + 1, ids.iloc[row], name, message) for row, message in bad.items()]


def _vector_errors(values: pd.Series, model: Model | None) -> dict[int, str]:
    """Vectors that the model cannot use, by row."""
    bad: dict[int, str] = {}
    if model is None:
        return bad
    feature = next(one for one in model.system.schema_.features if one.name == values.name)
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
