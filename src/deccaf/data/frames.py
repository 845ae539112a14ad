"""The door for tables: pandas, polars or arrays come in, the same kind goes out.

Nothing here writes to what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from deccaf.data.costs import Costs
from deccaf.data.files import plain_types
from deccaf.errors import DataError

CASE = "case_id"
"""The column that names the cases where a table has it; without it the index does. Never a feature."""


@dataclass(frozen=True, eq=False)
class Input:
    """A table as pandas, with the part that every column plays."""

    frame: pd.DataFrame
    """Columns by name; the caller's index."""
    amounts: pd.DataFrame
    """The per-case cost columns."""
    ids: pd.Index
    given: Any
    """What the caller gave, whose kind the answer has."""
    case: str = CASE
    """The column that names the cases, if the table has it."""

    @property
    def named(self) -> bool:
        """Whether a column names the cases."""
        return self.case in self.frame

    def __len__(self) -> int:
        return len(self.frame)


def read_input(X: Any, costs: Costs, names: Sequence[str] | None = None, case: str = CASE) -> Input:
    """Any table of cases; arrays get `names`."""
    frame = as_pandas(X, names)
    if costs.columns:
        costs.check_amounts(frame)
    ids = pd.Index(frame[case]) if case in frame else frame.index
    return Input(frame, frame[list(costs.columns)].astype("float64"), ids, X, case)


def as_pandas(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """A table as a pandas frame with names of text; pandas itself is not copied."""
    if isinstance(X, np.ndarray):
        if X.ndim != 2:
            raise DataError(f"X: expected cases x features, got {X.ndim} dimension(s). Reshape your data")
        frame = pd.DataFrame(X, columns=list(names or default_names(X.shape[1])))
        return frame.infer_objects() if X.dtype == object else frame
    if isinstance(X, pd.DataFrame):
        frame = X if all(isinstance(name, str) for name in X.columns) else X.rename(columns=str)
        frame = plain_columns(frame)
    else:
        try:
            import narwhals as nw

            frame = plain_columns(nw.from_native(X, eager_only=True).to_pandas())
        except TypeError as error:
            kind = type(X).__name__
            raise DataError(
                f"X: expected a pandas or polars DataFrame, or a 2-D array, got {kind}"
            ) from error
    if frame.columns.has_duplicates:
        raise DataError(f"X: column {frame.columns[frame.columns.duplicated()][0]!r} stands twice")
    return frame


def plain_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns that pandas keeps in Arrow or with a mask beside them (Float64, boolean) as ordinary ones."""
    held = [place for place, dtype in enumerate(frame.dtypes) if _is_held(dtype)]
    if held:
        frame = frame.copy(deep=False)
        for place in held:
            frame.isetitem(place, _plain_column(frame.iloc[:, place]).array)
    return frame


def _is_held(dtype: Any) -> bool:
    if isinstance(dtype, pd.StringDtype):
        return str(dtype) != "str"
    numbers = pd.api.types.is_extension_array_dtype(dtype) and dtype.kind in "iuf"
    return isinstance(dtype, pd.ArrowDtype | pd.BooleanDtype) or numbers


def _plain_column(values: pd.Series) -> pd.Series:
    if isinstance(values.dtype, pd.StringDtype):
        return values.astype("str")
    table = plain_types(pa.table({str(values.name): pa.array(values, from_pandas=True)}), "X")
    return pd.Series(table.column(0).to_pandas(date_as_object=False).array, values.index, name=values.name)


def default_names(count: int) -> list[str]:
    """Names for the columns of an array."""
    return [f"x{place}" for place in range(count)]


def same_kind(frame: pd.DataFrame, given: Any) -> Any:
    """A pandas answer as the kind of frame that was given; polars has no index, so none is kept."""
    if isinstance(given, pd.DataFrame | np.ndarray):
        return frame
    import narwhals as nw

    backend = nw.get_native_namespace(given)
    return nw.from_arrow(pa.Table.from_pandas(frame, preserve_index=False), backend=backend).to_native()
