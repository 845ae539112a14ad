"""Numbers and dates that stand for "missing": -999 where everybody else is between 0 and 80.

A model takes them for what they look like. Suspected is a value that is commonly written for "not known",
that occurs more than once, and that lies farther from all others than these lie from each other. Nothing is
changed: only somebody who knows the data can tell, and empties the cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.history import History

NUMBERS = tuple(sign * number for number in (99.0, 999.0, 9999.0, 99999.0, 999999.0) for sign in (-1, 1))
"""Numbers that are written for "not known"..."""
DATES = ("0001-01-01", "1899-12-30", "1900-01-01", "1901-01-01", "1970-01-01", "2999-12-31", "9999-12-31")
"""...and dates."""
FEWEST = 20
"""Other values below which a column does not say what is far."""
REPEATED = 2
"""Times that such a value must occur: one may be a large number."""


@dataclass(frozen=True)
class Sentinel:
    """A value that seems to stand for "missing"."""

    column: str
    value: str
    count: int

    def said(self) -> str:
        """A sentence for people."""
        return (
            f"column {self.column!r}: {self.value} in {self.count:,} case(s), far outside all other values; "
            "if it stands for a missing value, leave these cells empty"
        )


def find_sentinels(history: History) -> tuple[Sentinel, ...]:
    """Look at every column of numbers, and at the times."""
    features, found = history.features, []
    for name in features:
        if pd.api.types.is_numeric_dtype(features[name].dtype):
            found += _in(str(name), features[name].to_numpy(np.float64, na_value=np.nan), NUMBERS)
    time = history.cases.time
    if time is not None and len(time):
        name = str(time.name or "time")
        if pd.api.types.is_datetime64_any_dtype(time.dtype):
            found += _in_dates(name, time)
        elif pd.api.types.is_numeric_dtype(time.dtype):
            found += _in(name, time.to_numpy(np.float64, na_value=np.nan), NUMBERS)
    return tuple(found)


def _in_dates(name: str, time: pd.Series) -> list[Sentinel]:
    days = time.dt.tz_localize(None).to_numpy("datetime64[D]")
    known = np.array(DATES, "datetime64[D]")
    numbers = np.where(np.isnat(days), np.nan, days.astype(np.int64).astype(np.float64))
    found = _in(name, numbers, tuple(known.astype(np.int64).astype(np.float64).tolist()))
    return [Sentinel(name, str(np.datetime64(int(float(one.value)), "D")), one.count) for one in found]


def _in(name: str, values: NDArray[np.float64], known: tuple[float, ...]) -> list[Sentinel]:
    """Which of the known values lie farther from all others than these lie from each other."""
    values = values[np.isfinite(values)]
    odd = np.isin(values, known)
    if not odd.any():
        return []
    others, counts = values[~odd], {value: int((values == value).sum()) for value in known}
    if len(others) < FEWEST:
        return []
    low, high = float(others.min()), float(others.max())
    far = [value for value in known if max(low - value, value - high) > max(high - low, 1.0)]
    return [Sentinel(name, f"{value:.0f}", counts[value]) for value in far if counts[value] >= REPEATED]
