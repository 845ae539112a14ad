"""The Bank Account Fraud dataset (BAF, Jesus et al., NeurIPS 2022): its schema and its loader.

The schema below is the only one in the package: the generator writes it, the loader reads it, the
alert model takes its features from it. The data itself is licensed CC BY-NC-ND 4.0 and is not
shipped; a user who has ``Base.csv`` (or a variant, or a parquet copy) loads it with :func:`load_baf`.

Columns come as pandas reads the published CSV, ``int64`` and ``float64``, except that the five string
columns are categories with fixed levels: a tenth of the memory, and the same codes in every table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from deccaf.errors import DataError

LABEL: Final = "fraud_bool"
MONTH: Final = "month"
MONTHS: Final = 8
"""Months are numbered 0 to 7, as in the files; the paper counts from 1."""

CATEGORIES: Final[dict[str, tuple[str, ...]]] = {
    "payment_type": ("AA", "AB", "AC", "AD", "AE"),
    "employment_status": ("CA", "CB", "CC", "CD", "CE", "CF", "CG"),
    "housing_status": ("BA", "BB", "BC", "BD", "BE", "BF", "BG"),
    "source": ("INTERNET", "TELEAPP"),
    "device_os": ("linux", "macintosh", "other", "windows", "x11"),
}

_KINDS: Final[dict[str, str]] = {
    "fraud_bool": "int",
    "income": "float",
    "name_email_similarity": "float",
    "prev_address_months_count": "int",
    "current_address_months_count": "int",
    "customer_age": "int",
    "days_since_request": "float",
    "intended_balcon_amount": "float",
    "payment_type": "category",
    "zip_count_4w": "int",
    "velocity_6h": "float",
    "velocity_24h": "float",
    "velocity_4w": "float",
    "bank_branch_count_8w": "int",
    "date_of_birth_distinct_emails_4w": "int",
    "employment_status": "category",
    "credit_risk_score": "int",
    "email_is_free": "int",
    "housing_status": "category",
    "phone_home_valid": "int",
    "phone_mobile_valid": "int",
    "bank_months_count": "int",
    "has_other_cards": "int",
    "proposed_credit_limit": "float",
    "foreign_request": "int",
    "source": "category",
    "session_length_in_minutes": "float",
    "device_os": "category",
    "keep_alive_session": "int",
    "device_distinct_emails_8w": "int",
    "device_fraud_count": "int",
    "month": "int",
}

COLUMNS: Final[tuple[str, ...]] = tuple(_KINDS)
FEATURES: Final[tuple[str, ...]] = tuple(c for c in COLUMNS if c not in (LABEL, MONTH))
INTEGERS: Final[tuple[str, ...]] = tuple(c for c in COLUMNS if _KINDS[c] == "int")


def load_baf(path: str | Path) -> pd.DataFrame:
    """Read BAF's ``Base.csv``, one of its variants' files with the same columns, or a parquet copy.

    The kind is told by the extension: ``.parquet`` or anything else as CSV. All rows are kept, in order,
    and columns come in BAF's order with the types that `generate_applications` gives.

    Raises
    ------
    DataError
        If the file cannot be read, or is not in BAF's layout; the message names the column, the count and
        the first offender.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    table = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    if table.num_rows == 0:
        raise DataError(f"{path}: the file has a header and no rows")
    frame = pd.DataFrame({name: _column(path, name, table[name]) for name in COLUMNS}, copy=False)
    _check_range(path, frame[LABEL], 0, 1)
    _check_range(path, frame[MONTH], 0, MONTHS - 1)
    return frame


def _read_csv(path: Path) -> pa.Table:
    """Read with the types of the schema, which is faster than guessing and refuses mixed columns."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # utf-8-sig drops a BOM
        header = file.readline().rstrip("\r\n").replace('"', "").split(",")
    _check_header(path, header)
    types = {"int": pa.int64(), "float": pa.float64(), "category": pa.dictionary(pa.int32(), pa.string())}
    convert = pyarrow.csv.ConvertOptions(
        column_types={name: types[kind] for name, kind in _KINDS.items()}, strings_can_be_null=True
    )
    try:
        return pyarrow.csv.read_csv(path, convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        _explain(path, header, error)
        raise DataError(f"{path}: not a CSV in BAF's layout: {error}") from None


def _explain(path: Path, header: Sequence[str], error: Exception) -> None:
    """Arrow says which column, by number, and one value; say its name, how many values, and where."""
    place = re.search(r"CSV column #(\d+)", str(error))
    if place is None:
        return
    name = header[int(place[1])]
    convert = pyarrow.csv.ConvertOptions(include_columns=[name], column_types={name: pa.string()})
    column = pyarrow.csv.read_csv(path, convert_options=convert)[name].to_pandas().rename(name)
    numbers = pd.to_numeric(column, errors="coerce")
    bad = numbers.isna() & (column != "")
    if _KINDS[name] == "int":
        bad |= numbers % 1 > 0
    if bad.any():
        _refuse(path, column, bad.to_numpy(), f"that are not of kind {_KINDS[name]}")


def _read_parquet(path: Path) -> pa.Table:
    try:
        file = pyarrow.parquet.ParquetFile(path)
        _check_header(path, file.schema_arrow.names)
        return file.read(columns=list(COLUMNS))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a parquet file: {error}") from None


def _check_header(path: Path, names: Sequence[str]) -> None:
    for what, odd in (
        ("missing", [c for c in COLUMNS if c not in set(names)]),
        ("unknown", [c for c in names if c not in _KINDS]),
        ("repeated", [c for c, n in Counter(names).items() if n > 1]),
    ):
        if odd:
            raise DataError(
                f"{path}: {len(odd)} columns {what}, first: {odd[0][:60]!r}; {len(names)} in the file"
            )


def _column(path: Path, name: str, values: pa.ChunkedArray) -> pd.Series:
    """One column in its final type; nothing is filled in or dropped."""
    if values.null_count:
        first = int(np.argmax(values.is_null().to_numpy()))
        raise DataError(f"{path}: column {name!r}: {values.null_count} values missing, first in row {first}")
    if _KINDS[name] == "category":
        return _category(path, name, values)
    try:
        kind = pa.int64() if _KINDS[name] == "int" else pa.float64()
        numbers = np.require(values.cast(kind).to_numpy(), requirements="W")  # Arrow's memory is read-only
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{path}: column {name!r}: not numbers of kind {_KINDS[name]}: {error}") from None
    if _KINDS[name] == "float" and not np.isfinite(numbers).all():
        _refuse(path, pd.Series(numbers, name=name), ~np.isfinite(numbers), "not finite")
    return pd.Series(numbers, name=name)


def _category(path: Path, name: str, values: pa.ChunkedArray) -> pd.Series:
    levels = list(CATEGORIES[name])
    column: pd.Series = values.to_pandas().astype("category")
    strange = [level for level in column.cat.categories if level not in levels]
    if strange:
        _refuse(path, column.rename(name), column.isin(strange).to_numpy(), f"outside {levels}")
    return column.cat.set_categories(levels)


def _check_range(path: Path, column: pd.Series, low: int, high: int) -> None:
    outside = ((column < low) | (column > high)).to_numpy()
    if outside.any():
        _refuse(path, column, outside, f"outside {low}..{high}")


def _refuse(path: Path, column: pd.Series, bad: npt.NDArray[np.bool_], why: str) -> None:
    first = int(bad.argmax())
    where = f"first: {column.iloc[first]!r} in row {first}"
    raise DataError(f"{path}: column {column.name!r}: {int(bad.sum())} values {why}, {where}")
