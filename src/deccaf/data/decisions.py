"""Decisions: who decided what; one row per decision, one or more decisions per case."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from deccaf.data.cases import Cases
from deccaf.data.costs import MACHINE, Class
from deccaf.data.files import about, read_frame
from deccaf.data.frames import as_pandas
from deccaf.data.headers import check_spelling
from deccaf.data.marks import note_two_spellings
from deccaf.data.names import (
    MISSING,
    compared,
    names_of,
    note_odd_names,
    positions_of,
    refuse_summary,
)
from deccaf.data.schema import Columns, no_missing
from deccaf.data.times import parse_times
from deccaf.data.values import Codes, class_codes, number_in
from deccaf.data.wide import long_decisions
from deccaf.errors import DataError, did_you_mean


@dataclass(frozen=True, eq=False)
class Decisions:
    """Who decided what: one row per decision."""

    case: pd.Series
    expert: pd.Series
    decision: Codes
    """Positions in `classes`."""
    classes: tuple[Class, ...]
    propensity: pd.Series | None = None
    """The chance that this expert got this case when it was assigned; NaN where it was not kept."""
    time: pd.Series | None = None
    seconds: pd.Series | None = None

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        classes: Sequence[Class] = (0, 1),
        cases: Cases | None = None,
        roster: Collection[str] | None = None,
        columns: Columns | None = None,
        time_format: str | None = None,
    ) -> Decisions:
        """Read a file of decisions; the options are those of `from_frame`."""
        columns = columns or Columns()
        text = list(dict.fromkeys(["case_id", "expert_id", columns.case, columns.expert]))
        category = ["time"] if time_format is not None else []
        if all(isinstance(name, str) for name in classes):
            (text if set(classes) & set(MISSING) else category).append(columns.decision)
        with about(path):
            frame = read_frame(path, text=text, category=category)
            if frame.empty:
                raise DataError("no rows")
            return cls.from_frame(
                frame, classes=classes, cases=cases, roster=roster, columns=columns, time_format=time_format
            )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        classes: Sequence[Class] = (0, 1),
        cases: Cases | None = None,
        roster: Collection[str] | None = None,
        columns: Columns | None = None,
        time_format: str | None = None,
    ) -> Self:
        """Check a table with `case_id`, `expert_id`, `decision`; optional `propensity`, `time`, `seconds`.

        `columns` says what the first three are called. A table with `case_id` and a column of decisions for
        each person is read too, with a note.
        `cases` closes the set of cases and `roster` the set of experts: anything else is a `DataError`.
        Times written as text are read as `parse_times` does.
        """
        frame = long_decisions(_in_our_words(as_pandas(frame), columns or Columns()), classes)
        parts: dict[str, str | None] = {"case_id": "case", "expert_id": "expert", "decision": "decision"}
        check_spelling(frame.columns, parts | dict.fromkeys(("propensity", "time", "seconds")))
        for name, part in parts.items():
            if name not in frame:
                raise DataError(
                    f"column {name!r}: missing; decisions need case_id, expert_id and decision: name the "
                    f"column so, or say [columns] {part}" + did_you_mean(name, map(str, frame.columns))
                )
        frame = frame.reset_index(drop=True)
        case = no_missing(frame["case_id"])
        note_odd_names(case)
        refuse_summary(case, "a case")
        if cases is not None:
            cases.positions(case)
        expert = names_of(frame["expert_id"])
        note_odd_names(expert)
        note_two_spellings(sorted(expert.unique()), "expert_id")
        _check_experts(expert, roster)
        decision = class_codes(frame["decision"], classes, case)
        no_missing(frame["decision"], case)
        return cls(
            case=case,
            expert=expert,
            decision=decision,
            classes=tuple(classes),
            propensity=number_in(frame, "propensity", case, 0.0, 1.0, open_below=True, blanks=True),
            time=_times(frame, case, time_format, cases),
            seconds=number_in(frame, "seconds", case, 0.0, np.inf),
        )

    @classmethod
    def none(cls, classes: Sequence[Class]) -> Decisions:
        """A log without a row."""
        nobody = pd.Series([], dtype=str)
        return Decisions(nobody, nobody, np.zeros(0, np.int64), tuple(classes))

    def __len__(self) -> int:
        return len(self.case)

    def of(self, cases: Cases) -> Decisions:
        """The decisions on these cases only."""
        return self.take(positions_of(cases.ids, self.case) >= 0)

    def take(self, rows: ArrayLike) -> Decisions:
        """Some of the decisions, by a boolean mask or by positions."""
        picked = np.asarray(rows)
        picked = np.flatnonzero(picked) if picked.dtype == bool else picked

        def part(values: pd.Series | None) -> pd.Series | None:
            return None if values is None else values.iloc[picked].reset_index(drop=True)

        case, expert = part(self.case), part(self.expert)
        assert case is not None
        assert expert is not None
        return Decisions(
            case,
            expert,
            self.decision[picked],
            self.classes,
            part(self.propensity),
            part(self.time),
            part(self.seconds),
        )

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """The experts' names, sorted."""
        return tuple(sorted(self.expert.unique()))


def _in_our_words(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """A log whose columns have the names that they have everywhere in deccaf."""
    told = columns.known_after
    names = {}
    for ours, theirs in columns.log.items():
        if theirs == ours or theirs not in frame:
            continue
        if ours not in frame or theirs in told:
            names[theirs] = ours
    if not names:
        return frame
    return frame.drop(columns=[ours for ours in names.values() if ours in frame]).rename(columns=names)


def _times(
    frame: pd.DataFrame, case: pd.Series, time_format: str | None, cases: Cases | None
) -> pd.Series | None:
    if "time" not in frame:
        return None
    like = None if cases is None else cases.time_format
    return parse_times(no_missing(frame["time"], case), time_format, like).values


def _check_experts(expert: pd.Series, roster: Collection[str] | None) -> None:
    if (expert == MACHINE).any():
        raise DataError(f"column 'expert_id': {MACHINE!r} is the name of the machine; rename that person")
    if roster is not None:
        unknown = ~expert.isin(list(roster)).to_numpy()
        if unknown.any():
            lost = expert[unknown]
            hint = did_you_mean(lost.iloc[0], roster) or compared(lost, pd.Index(roster), "on the roster")
            raise DataError(
                f"column 'expert_id': {unknown.sum()} value(s) name nobody on the roster of {len(roster)}, "
                f"first: {lost.iloc[0]!r}{hint}"
            )
