"""Columns of a table as what they mean: classes, numbers within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Class
from deccaf.errors import DataError, show

Codes = NDArray[np.int64]


def class_codes(
    values: pd.Series, classes: Sequence[Class], ids: Sequence[Any] | pd.Series | pd.Index
) -> Codes:
    """Positions of `values` in `classes`, -1 where missing; a value outside the classes is a `DataError`.

    Numbers match numbers however the file spelled them (1, 1.0, True); names match names exactly.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    if pd.api.types.is_bool_dtype(values.dtype):
        values = values.astype("Int64")
    known = values.notna().to_numpy()
    codes = pd.Index(list(classes), dtype=object).get_indexer(
        pd.Index(values.astype(object).where(known, None))
    )
    outside = (codes < 0) & known
    if outside.any():
        first = int(outside.argmax())
        allowed = "{" + ", ".join(map(repr, classes)) + "}"
        raise DataError(
            f"column {values.name!r}: {outside.sum()} value(s) outside {allowed}, "
            f"first: {show(values.iloc[first])} in case {show(_at(ids, first))}"
            f"{_remedy(values.iloc[first], classes)}"
        )
    return codes.astype(np.int64)


def _remedy(value: Any, classes: Sequence[Class]) -> str:
    alike = [name for name in classes if str(name).strip().casefold() == str(value).strip().casefold()]
    if alike:
        return f"; is it {show(alike[0])}? Classes are spelled alike everywhere"
    return "; name the classes under [costs] classes" if list(classes) == [0, 1] else ""


def number_in(
    frame: pd.DataFrame,
    name: str,
    ids: pd.Series,
    low: float,
    high: float,
    *,
    open_below: bool = False,
    blanks: bool = False,
    row: str = "case",
) -> pd.Series | None:
    """A column of numbers within bounds, or None where there is no such column.

    With `blanks` a value may be missing; a column without any value is as good as none. `ids` name the rows,
    each a `row` (in the words of an error).
    """
    if name not in frame or (blanks and frame[name].isna().all()):
        return None
    if not pd.api.types.is_numeric_dtype(frame[name].dtype):
        raise DataError(f"column {name!r}: {_no_numbers(frame[name], ids, row)}")
    values = frame[name].astype("float64")
    inside = (values > low if open_below else values >= low) & (values <= high) & np.isfinite(values)
    inside |= values.isna() & blanks
    if not inside.all():
        first = int((~inside).to_numpy().argmax())
        bounds = f"{'(' if open_below else '['}{low:g}, {high:g}]"
        raise DataError(
            f"column {name!r}: {(~inside).sum()} value(s) outside {bounds}, "
            f"first: {values.iloc[first]} in {row} {show(ids.iloc[first])}"
        )
    return values


def _no_numbers(values: pd.Series, ids: pd.Series, row: str) -> str:
    odd = (pd.to_numeric(values.astype("str"), errors="coerce").isna() & values.notna()).to_numpy()
    if not odd.any():
        return f"holds {values.dtype}, but must be numbers"
    first = int(odd.argmax())
    where = f"{show(values.iloc[first])} in {row} {show(ids.iloc[first])}"
    return f"{odd.sum()} value(s) are no numbers, first: {where}"


def _at(ids: Sequence[Any] | pd.Series | pd.Index, position: int) -> Any:
    return ids.iloc[position] if isinstance(ids, pd.Series) else ids[position]
