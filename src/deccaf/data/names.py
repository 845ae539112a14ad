"""Names of cases, people, batches and groups: text, exactly as it was given, in every file and table.

`7` is one name whether a file holds it as a whole number, as 7.0 beside a missing value, or as text; `007` is
another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deccaf.data.schema import no_missing
from deccaf.errors import DataError, show, warn

Codes = NDArray[np.int64]

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What an empty cell of a text file may say; in a column of names only the empty text is no name."""

_SUMMARIES = {
    "total", "totals", "grand total", "subtotal", "sum", "summe", "gesamt", "gesamtsumme", "insgesamt",
    "somme", "total général", "totale", "totaal", "suma", "soma", "average", "mean", "mittelwert",
    "durchschnitt", "moyenne", "media",
}  # fmt: skip
_EXACT = 2.0**53
"""Beyond, floating-point numbers have lost their last digits."""


def names_of(values: pd.Series) -> pd.Series:
    """A column of names as text; a missing name is a `DataError`."""
    values = no_missing(values)
    if values.dtype == "str":
        return values
    return pd.Series(_text(values), values.index, dtype="str", name=values.name)


def positions_of(index: pd.Index, ids: pd.Series | pd.Index) -> Codes:
    """Where each id stands in the index, compared as names; -1 where it does not."""
    wanted = pd.Index(ids)
    if not (_whole(index) and _whole(wanted)):
        index, wanted = pd.Index(_text(index), dtype="str"), pd.Index(_text(wanted), dtype="str")
    return index.get_indexer(wanted).astype(np.int64)


def note_odd_names(values: pd.Series) -> None:
    """Say what is odd about names, and that they are taken as they are: blanks around them, `NA`."""
    if values.dtype != "str" or not len(values):
        return
    names = pa.chunked_array(values.array.__arrow_array__())
    blank = pc.not_equal(pc.utf8_trim_whitespace(names), names)
    _note(values, blank, "begin or end with a blank, which is part of the name")
    empty = pc.is_in(names, value_set=pa.array(MISSING[1:]).cast(names.type))
    _note(values, empty, "are taken as names; where they mean that nothing is known, leave the cell empty")


def refuse_summary(values: pd.Series | pd.Index, what: str) -> None:
    """Refuse a row that sums the others up, as spreadsheets have at their end."""
    if not pd.api.types.is_string_dtype(values.dtype):
        return
    for place in {0, len(values) - 1} if len(values) > 1 else ():
        name = str(values.iloc[place] if isinstance(values, pd.Series) else values[place])
        if name.strip().rstrip(":").casefold() in _SUMMARIES:
            raise DataError(
                f"column {values.name!r}: row {place + 1} is called {name!r}: a summary, not {what}; "
                "take that row out"
            )


def two_spellings(wanted: Iterable[Any], known: Iterable[Any]) -> tuple[str, str] | None:
    """The first wanted name that is a known one but for blanks, case, leading zeros or a `.0`; both."""
    spelled = {_loose(name): str(name) for name in known}
    for name in wanted:
        other = spelled.get(_loose(name))
        if other is not None and other != str(name):
            return str(name), other
    return None


def compared(wanted: pd.Series | pd.Index, known: pd.Index, where: str) -> str:
    """Two spellings side by side, for a message about names that were not found among the known."""
    pair = two_spellings(wanted[:10_000], known[:1_000_000])
    if pair is not None:
        return f"; {show(pair[0])} here and {show(pair[1])} {where} are two spellings: use one of them"
    some = ", ".join(show(name) for name in known[:3])
    return f"; {where} are {some}{', ...' if len(known) > 3 else ''}" if len(known) else ""


def as_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A column of any plain type as the text that a person would write for it."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_text(column.cast(kind.value_type), name)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_floating(kind):
        return _float_text(column.cast(pa.float64()), name)
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "True", "False")
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise DataError(f"column {name!r}: holds {kind}; names are numbers, or text in UTF-8")
    text = column.cast(pa.string())
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return pc.replace_substring_regex(text, r"\.?0+$", "")
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring_regex(text, r"\.0+(Z?)$", r"\1")
        return pc.replace_substring_regex(text, r" 00:00:00$", "")
    return text


def one_as_text(value: Any) -> str:
    """One value by the same rule."""
    if isinstance(value, str):
        return value
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value)
    return text.removesuffix(" 00:00:00") if hasattr(value, "year") else text


def _float_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    column = pc.if_else(pc.is_nan(column), None, column)
    largest = pc.max(pc.abs(column)).as_py() or 0.0
    if largest > _EXACT:
        raise DataError(
            f"column {name!r}: holds floating-point numbers up to {largest:.4g}, whose last digits are lost; "
            "store names as text"
        )
    whole = pc.equal(pc.trunc(column), column)
    if pc.all(whole).as_py() is not False:
        return column.cast(pa.int64()).cast(pa.string())
    as_whole = pc.if_else(whole, column, 0.0).cast(pa.int64()).cast(pa.string())
    return pc.if_else(whole, as_whole, column.cast(pa.string()))


def _text(values: pd.Series | pd.Index) -> Any:
    """Names as text: an array that pandas takes as `str`."""
    if values.dtype == "str":
        return values
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype)
    try:
        column = pa.chunked_array([pa.array(values, from_pandas=True)])
        return as_text(column, str(values.name)).to_pandas().array
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return [None if value is None or value is pd.NA else one_as_text(value) for value in values]


def _whole(index: pd.Index) -> bool:
    return pd.api.types.is_integer_dtype(index.dtype)


def _loose(name: Any) -> str:
    text = str(name).strip().casefold().removesuffix(".0")
    return text.lstrip("0") or text


def _note(values: pd.Series, odd: pa.ChunkedArray, said: str) -> None:
    count = pc.sum(odd).as_py()
    if count:
        first = pc.index(odd, pa.scalar(True)).as_py()
        warn(f"column {values.name!r}: {count:,} value(s) {said}, first: {show(values.iloc[first])}")
