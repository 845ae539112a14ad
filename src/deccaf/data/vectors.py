"""Columns of lists of numbers, all of one length: embeddings from anywhere."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.errors import DataError, show

Array = NDArray[np.float64]
LONGEST_VECTOR = 20_000


def holds_vectors(values: pd.Series) -> bool:
    """Whether a column holds lists of numbers: lists themselves, or such text as "[0.1, 0.2]" throughout."""
    present = values.dropna()
    if present.empty or pd.api.types.is_numeric_dtype(values.dtype):
        return False
    first = present.iloc[0]
    if isinstance(first, list | tuple | np.ndarray):
        return True
    if not isinstance(first, str) or not first.lstrip().startswith("["):
        return False
    found = [_parsed(value) for value in present]
    return all(one is not None and len(one) > 1 for one in found)


def width_of(values: pd.Series) -> int:
    """The length of the lists; where they differ, a `DataError` names the first that is not as most are."""
    lengths = Counter(len(_numbers(value, values, place)) for place, value in _present(values))
    if not lengths:
        raise DataError(f"column {values.name!r}: all vectors are missing")
    width = lengths.most_common(1)[0][0]
    if not 1 <= width <= LONGEST_VECTOR:
        raise DataError(
            f"column {values.name!r}: vectors of {width:,} numbers; from 1 to {LONGEST_VECTOR:,} can be used"
        )
    return width


def as_vectors(values: pd.Series, width: int) -> pd.Series:
    """Every list as an array of `width` finite numbers, None where it is missing; else a `DataError`."""
    found: list[Array | None] = [None] * len(values)
    for place, value in _present(values):
        vector = _numbers(value, values, place)
        if len(vector) != width:
            raise DataError(f"{_where(values, place)} has {len(vector):,} numbers where {width:,} belong")
        if not np.isfinite(vector).all():
            at = int((~np.isfinite(vector)).argmax())
            raise DataError(
                f"{_where(values, place)} holds {vector[at]} at place {at + 1}; leave a vector that is not "
                "known out as a whole"
            )
        found[place] = vector
    column = np.empty(len(found), object)
    column[:] = found
    return pd.Series(column, values.index, name=values.name)


def stacked_vectors(values: pd.Series, width: int) -> tuple[Array, NDArray[np.bool_]]:
    """What `as_vectors` gave as one matrix, 0 where a vector is missing, and which are missing."""
    missing = values.isna().to_numpy()
    matrix = np.zeros((len(values), width))
    if not missing.all():
        matrix[~missing] = np.stack(values[~missing].to_list())
    return matrix, missing


def _present(values: pd.Series) -> list[tuple[int, Any]]:
    missing = values.isna().to_numpy()
    return [(place, value) for place, value in enumerate(values) if not missing[place]]


def _parsed(text: Any) -> list[Any] | None:
    """A list of numbers from its JSON; None if it is none."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    plain = all(one is None or (isinstance(one, int | float) and not isinstance(one, bool)) for one in found)
    return found if plain else None


def _numbers(value: Any, values: pd.Series, place: int) -> Array:
    given = _parsed(value) if isinstance(value, str) else value
    if isinstance(given, list | tuple | np.ndarray):
        try:
            vector = np.asarray([np.nan if one is None else one for one in given], np.float64)
        except (TypeError, ValueError, OverflowError):
            vector = np.empty((0, 0))
        if vector.ndim == 1:
            return vector
    raise DataError(f"{_where(values, place)} is no list of numbers: {str(value)[:60]!r}")


def _where(values: pd.Series, place: int) -> str:
    return f"column {str(values.name)!r}: the vector in row {place + 1} (case {show(values.index[place])})"
