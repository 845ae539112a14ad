"""Cases: what is known of each, as one table that has been checked once; later stages trust it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.costs import Class, Costs
from deccaf.data.files import about, read_frame, read_frames
from deccaf.data.frames import as_pandas
from deccaf.data.headers import check_header, check_spelling
from deccaf.data.names import (
    MISSING,
    compared,
    names_of,
    note_odd_names,
    positions_of,
    refuse_summary,
)
from deccaf.data.schema import LOG_COLUMNS, Columns, Schema, no_missing, require_columns
from deccaf.data.times import parse_times
from deccaf.data.values import Codes, class_codes, number_in
from deccaf.errors import ConfigError, DataError, did_you_mean, show

Part = Literal["case", "label", "time", "batch"]


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
    time_format: str | None = None
    """How the times were written, if they were text."""
    let_through: pd.Series | None = None
    """The chance with which a rejected case was let through by lot; NaN for all others."""
    waiting: pd.DataFrame | None = None
    """The columns of due times and waiting costs, as they stand there, where there are any."""

    @classmethod
    def read(cls, path: str | Path, **options: Any) -> Cases:
        """Read a file of cases; the options are those of `from_frame`. A file names its cases in a column."""
        return cls.read_with_rows(path, **options)[0]

    @classmethod
    def read_with_rows(
        cls,
        path: str | Path,
        *,
        columns: Columns | None = None,
        costs: Costs | None = None,
        schema: Schema | None = None,
        require: Sequence[Part] = (),
        optional: Collection[Literal["label", "time"]] = (),
        with_decisions: bool = False,
    ) -> tuple[Cases, pd.DataFrame]:
        """The same, and the rows as they stand in the file; a pipe can be read only once.

        `with_decisions`: the file is the log too, with a row for every decision.
        """
        columns = columns or Columns()
        with about(path):
            frame = read_frame(path, *_kinds(columns, costs, schema))
            if frame.empty:
                raise DataError("no rows")
            table = cls.from_frame(
                _one_row_each(frame, columns, costs) if with_decisions else frame,
                columns=columns,
                costs=costs,
                schema=schema,
                require=("case", *require),
                optional=optional,
            )
            return table, frame

    @classmethod
    def read_chunks(
        cls,
        path: str | Path,
        only: Collection[str],
        *,
        columns: Columns,
        costs: Costs,
        schema: Schema,
        group: Collection[str] = (),
    ) -> Iterator[tuple[Cases, pd.DataFrame]]:
        """New cases some rows at a time, and the rows as they stand in the file; `only` these columns.

        The group columns of a history are not needed; those named here are kept.
        """
        text, category = _kinds(columns, costs, schema)
        roles = columns.model_copy(update={"group": tuple(group)})
        with about(path):
            chunks = read_frames(
                path,
                columns=only,
                text=text,
                category=category,
                time=columns.time,
                time_format=columns.time_format,
            )
            for frame in chunks:
                table = cls.from_frame(frame, columns=roles, costs=costs, schema=schema, require=("case",))
                yield table, frame

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        columns: Columns | None = None,
        costs: Costs | None = None,
        schema: Schema | None = None,
        require: Sequence[Part] = (),
        optional: Collection[Literal["label", "time"]] = (),
    ) -> Cases:
        """Check a table and give each column its part; the table itself is not changed.

        Without a case column the frame's index names the cases, unless it is `require`d. `schema` casts new
        cases to what a model was fitted on. A label that is `require`d must be there for every case.
        Columns that `columns` was told of must be there, except for the `optional` ones.
        """
        columns = columns or Columns()
        frame = as_pandas(frame)
        check_header([str(name) for name in frame.columns], "cases")
        roles = {
            "case": columns.case,
            "label": columns.label,
            "time": columns.time,
            "let_through": columns.let_through,
            "batch": "batch",
        }
        check_spelling(
            frame.columns, {name: None if part == "batch" else part for part, name in roles.items()}
        )
        if schema is None:
            columns.check([*frame.columns, frame.index.name], optional)
        for part in require:
            if roles[part] not in frame:
                what = "ids" if part == "case" else f"{part}s"
                hint = did_you_mean(roles[part], map(str, frame.columns))
                raise DataError(
                    f"column {roles[part]!r}: missing; name the column of {what} so, or say [columns] {part}"
                    f"{hint}"
                )
        frame = _indexed_by_case(frame, columns.case)
        amounts = _amounts(frame, costs)
        classes = costs.classes if costs else (0, 1)
        require_columns(frame, columns.group)
        if schema is None:
            reserved = {*roles.values(), *columns.waiting.values(), *columns.group, *amounts.columns}
            schema = Schema.infer(frame, columns, reserved)
        times = None
        if columns.time in frame:
            times = parse_times(no_missing(frame[columns.time]), columns.time_format)
        return cls(
            features=schema.cast(frame),
            schema=schema,
            classes=classes,
            label=_labels(frame, columns.label, classes, "label" in require),
            time=None if times is None else times.values,
            batch=_batches(frame),
            groups=frame[list(columns.group)],
            amounts=amounts,
            time_format=None if times is None else times.format,
            let_through=let_through_of(frame, columns.let_through),
            waiting=_waiting(frame, columns, schema),
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
            time_format=self.time_format,
            let_through=None if self.let_through is None else self.let_through.iloc[picked],
            waiting=None if self.waiting is None else self.waiting.iloc[picked],
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
            lost = ids[unknown]
            raise DataError(
                f"column {column!r}: {unknown.sum()} value(s) name no known case, first: {show(lost.iloc[0])}"
                + compared(lost, self.ids, "among the cases")
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


def let_through_of(frame: pd.DataFrame, name: str) -> pd.Series | None:
    """The chances with which rejects were let through by lot, where a column has any."""
    return number_in(frame, name, frame.index.to_series(), 0.0, 1.0, open_below=True, blanks=True)


def _waiting(frame: pd.DataFrame, columns: Columns, schema: Schema) -> pd.DataFrame | None:
    names = [name for name in columns.waiting.values() if name in frame and name not in schema.names]
    return frame[names] if names else None


def _indexed_by_case(frame: pd.DataFrame, case: str) -> pd.DataFrame:
    if case in frame.columns:
        note_odd_names(no_missing(frame[case]))
        refuse_summary(frame[case], "a case")
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


def _one_row_each(frame: pd.DataFrame, columns: Columns, costs: Costs | None) -> pd.DataFrame:
    """The cases of a file with a row for every decision: what the rows of a case say of it must agree."""
    log = {columns.expert, columns.decision, *LOG_COLUMNS, *columns.ignore} - {columns.case}
    if columns.case not in frame or not frame[columns.case].duplicated().any():
        return frame
    if columns.features is None:
        used = [name for name in frame if name not in log]
    else:
        parts = {columns.case, columns.label, columns.time, columns.let_through, "batch", *columns.group}
        parts |= {*columns.features, *(costs.columns if costs else ())}
        used = [name for name in frame if name in parts]
    again = frame[columns.case].duplicated()
    alike = frame[used].duplicated()
    if (again & ~alike).any():
        case = frame[columns.case][again & ~alike].iloc[0]
        rows = frame.loc[frame[columns.case] == case, used]
        odd = next((name for name in used if rows[name].nunique(dropna=False) > 1), used[0])
        values = [show(value) for value in rows[odd].drop_duplicates().iloc[:2]]
        raise DataError(
            f"column {odd!r}: the rows of case {show(case)} differ ({' and '.join(values)}); a case has one "
            "value: correct it, or name the column under [columns] ignore if it belongs to the decision"
        )
    return frame[~again].reset_index(drop=True)


def _batches(frame: pd.DataFrame) -> pd.Series | None:
    if "batch" not in frame:
        return None
    batches = names_of(frame["batch"])
    note_odd_names(batches)
    return batches


def _kinds(columns: Columns, costs: Costs | None, schema: Schema | None) -> tuple[list[str], list[str]]:
    """Which columns of a file of cases are text whatever they look like: names, and categories."""
    typed = {*(columns.features or ()), columns.label, columns.time, *(costs.columns if costs else ())}
    names = [columns.case, "batch", *[name for name in columns.group if name not in typed]]
    category = [*columns.categorical, *columns.text]
    if schema is not None:
        category += [feature.name for feature in schema.features if feature.kind in ("category", "text")]
    if columns.time_format is not None:
        category.append(columns.time)
    if costs is not None and all(isinstance(name, str) for name in costs.classes):
        (names if set(costs.classes) & set(MISSING) else category).append(columns.label)
    return names, category
