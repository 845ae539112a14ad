"""What all models ask of the rows they learn from: codes of classes, weights, ages, one value per row."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data import history
from deccaf.errors import ConfigError, DataError, DeccafWarning, show

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def codes(values: ArrayLike, rows: int, classes: int, name: str) -> Ints:
    """Positions of classes, -1 where missing; anything else is a `DataError`."""
    raw = np.asarray(values)
    same_length(raw, rows, name)
    if raw.dtype.kind not in "iub":
        raise DataError(f"{name}: holds {raw.dtype}, but must be positions of classes (whole numbers)")
    found = raw.astype(np.int64)
    bad = (found < -1) | (found >= classes)
    if bad.any():
        raise DataError(
            f"{name}: {bad.sum()} value(s) outside 0 .. {classes - 1}, first: {show(found[bad.argmax()])}"
        )
    return found


def weights_of(weight: ArrayLike | None, rows: int) -> Array:
    """Weights as numbers from 0 on; 1 where none are given."""
    if weight is None:
        return np.ones(rows)
    return history.weights_of(weight, rows, "weight")


def known_rows(
    truth: Ints, weight: Array, note: str = "cases have no truth yet: they teach nothing about the truth"
) -> NDArray[np.bool_]:
    """The rows to learn from: the truth is known and the weight is not 0. `note` is for others."""
    unknown = truth < 0
    if not (~unknown & (weight > 0)).any():
        raise DataError(f"nothing to learn from: {len(truth)} rows, {unknown.sum()} of them without a truth")
    if unknown.any():
        warnings.warn(
            f"{unknown.sum()} of {len(truth)} {note}",
            DeccafWarning,
            stacklevel=3,
        )
    return np.asarray(~unknown & (weight > 0))


def rows_by(code: Ints) -> Iterator[tuple[int, Ints]]:
    """The rows of each code, in order."""
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(code)]):
        yield int(code[order[start]]), order[start:end]


def column(values: Sequence[Any] | pd.Series | None, rows: int, name: str) -> pd.Series | None:
    """A column by position, or None."""
    if values is None:
        return None
    series = pd.Series(values, name=name).reset_index(drop=True)
    same_length(series, rows, name)
    if series.isna().any():
        raise DataError(f"{name}: {series.isna().sum()} value(s) missing")
    return series


def aged(weight: Array, time: pd.Series | None, half_life: Any) -> Array:
    """Weights that halve with every `half_life` before the latest time (for dates, a length of time)."""
    if half_life is None:
        return weight
    if time is None:
        raise ConfigError("half_life: the decisions have no time")
    dates = pd.api.types.is_datetime64_any_dtype(time.dtype)
    age = time.max() - time
    try:
        unit = pd.Timedelta(half_life).total_seconds() if dates else float(half_life)
    except (TypeError, ValueError):
        unit = float("nan")
    if not unit > 0:
        kind = "a length of time" if dates else "a number"
        raise ConfigError(f"half_life: expected {kind} above 0, got {half_life!r}")
    passed = age.dt.total_seconds() if dates else age
    return np.asarray(weight * 0.5 ** (passed.to_numpy(np.float64) / unit))


def same_length(values: Any, rows: int, name: str) -> None:
    """Refuse values that do not fit the rows."""
    if len(values) != rows:
        raise DataError(f"{name}: {len(values)} value(s) for {rows} rows of features")
