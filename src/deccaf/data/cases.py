"""Cases: what is known of each, as one table that has been checked once; later stages trust it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.costs import Class, Costs
from deccaf.data.files import check_header, read_frame
from deccaf.data.schema import Columns, Schema, no_missing, require_columns
from deccaf.data.values import Codes, class_codes, names_of, positions_of
from deccaf.errors import ConfigError, DataError, show


@dataclass(frozen=True, eq=False)
class Cases:
    """What is known of each case; all tables share the index of case ids."""

    features: pd.DataFrame
    schema: Schema
    classes: tuple[Class, ...]
    label: Codes | None
    """Positions in `classes`, -1 where the truth is not known yet; None without a label column."""
    time: pd.Series | None
    batch: pd.Series | None
    groups: pd.DataFrame
    amounts: pd.DataFrame
    """The per-case cost columns."""

    @classmethod
    def read(cls, path: str | Path, **options: Any) -> Cases:
        """Read a parquet or CSV file; the options are those of `from_frame`."""
        frame = read_frame(path)
        if frame.empty:
            raise DataError(f"{path}: no rows")
        return cls.from_frame(frame, **options)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        columns: Columns | None = None,
        costs: Costs | None = None,
        schema: Schema | None = None,
        require: Collection[Literal["label", "time", "batch"]] = (),
        optional: Collection[Literal["label", "time"]] = (),
    ) -> Cases:
        """Check a table and give each column its part; the table itself is not changed.

        Without a case column the frame's index names the cases. `schema` casts new cases to what a model
        was fitted on. A label that is `require`d must be there for every case. Columns that `columns` was
        told of must be there, except for the `optional` ones.
        """
        columns = columns or Columns()
        check_header([str(name) for name in frame.columns], "cases")
        if schema is None:
            columns.check([*frame.columns, frame.index.name], optional)
        frame = _indexed_by_case(frame, columns.case)
        amounts = _amounts(frame, costs)
        classes = costs.classes if costs else (0, 1)
        roles = {"label": columns.label, "time": columns.time, "batch": "batch"}
        require_columns(frame, [*[roles[part] for part in require], *columns.group])
        if schema is None:
            reserved = {*roles.values(), *columns.group, *amounts.columns}
            schema = Schema.infer(frame, columns, reserved)
        return cls(
            features=schema.cast(frame),
            schema=schema,
            classes=classes,
            label=_labels(frame, columns.label, classes, "label" in require),
            time=_complete(frame, columns.time, as_names=False),
            batch=_complete(frame, "batch", as_names=True),
            groups=frame[list(columns.group)],
            amounts=amounts,
        )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def ids(self) -> pd.Index:
        """The case ids."""
        return self.features.index

    def take(self, rows: ArrayLike) -> Cases:
        """Some of the cases, by a boolean mask or by positions."""
        picked = np.asarray(rows)
        picked = np.flatnonzero(picked) if picked.dtype == bool else picked
        return Cases(
            features=self.features.iloc[picked],
            schema=self.schema,
            classes=self.classes,
            label=None if self.label is None else self.label[picked],
            time=None if self.time is None else self.time.iloc[picked],
            batch=None if self.batch is None else self.batch.iloc[picked],
            groups=self.groups.iloc[picked],
            amounts=self.amounts.iloc[picked],
        )

    def between(self, start: Any = None, stop: Any = None) -> Cases:
        """The cases with start <= time < stop; an open end is None."""
        if self.time is None:
            raise DataError("cases have no time column; name it under [columns] time")
        inside = np.ones(len(self), bool)
        if start is not None:
            inside &= (self.time >= start).to_numpy()
        if stop is not None:
            inside &= (self.time < stop).to_numpy()
        return self.take(inside)

    def positions(self, ids: pd.Series, column: str = "case_id") -> Codes:
        """Where each id stands among the cases; an id that is none of them is a `DataError`."""
        found = positions_of(self.ids, ids)
        unknown = found < 0
        if unknown.any():
            first = ids.iloc[int(unknown.argmax())]
            raise DataError(
                f"column {column!r}: {unknown.sum()} value(s) name no known case, first: {show(first)}"
            )
        return found


def latest_share(time: pd.Series, share: float) -> NDArray[np.bool_]:
    """Mark the latest cases, about `share` of them, for validation; equal times are never split.

    Raises `DataError` where that would leave one side empty (one single time, say).
    """
    if not 0 < share < 1:
        raise ConfigError(f"share must lie between 0 and 1, got {share}")
    times, counts = np.unique(time.to_numpy(), return_counts=True)
    if len(times) < 2:
        raise DataError(
            f"column {time.name!r}: all {len(time)} cases have one time, so none is later to validate on"
        )
    later = counts[::-1].cumsum()[::-1][1:]  # cases from times[1], times[2], ... on
    start = times[1:][np.abs(later - share * len(time)).argmin()]
    return np.asarray(time.to_numpy() >= start)


def _indexed_by_case(frame: pd.DataFrame, case: str) -> pd.DataFrame:
    if case in frame.columns:
        no_missing(frame[case])
        frame = frame.set_index(case)
    elif isinstance(frame.index, pd.MultiIndex):
        raise DataError(f"column {case!r}: missing, and the index has {frame.index.nlevels} levels")
    elif frame.index.name != case and not frame.index.is_unique:
        raise DataError(f"column {case!r}: missing, and the index repeats itself")
    repeated = frame.index.duplicated()
    if repeated.any():
        first = frame.index[int(repeated.argmax())]
        raise DataError(
            f"column {case!r}: {repeated.sum()} value(s) stand for more than one case, first: {show(first)}"
        )
    return frame


def _amounts(frame: pd.DataFrame, costs: Costs | None) -> pd.DataFrame:
    if costs is None:
        return frame[[]]
    costs.check_amounts(frame)
    return frame[list(costs.columns)].astype("float64")


def _labels(frame: pd.DataFrame, name: str, classes: Sequence[Class], required: bool) -> Codes | None:
    if name not in frame:
        return None
    codes = class_codes(frame[name], classes, frame.index)
    if required and (codes < 0).any():
        first = int((codes < 0).argmax())
        raise DataError(
            f"column {name!r}: {(codes < 0).sum()} label(s) missing, first: in case "
            f"{show(frame.index[first])}; training needs the truth of every case"
        )
    return codes


def _complete(frame: pd.DataFrame, name: str, *, as_names: bool) -> pd.Series | None:
    if name not in frame:
        return None
    return names_of(frame[name]) if as_names else no_missing(frame[name])
