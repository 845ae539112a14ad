"""What there is to learn from: cases, their truth where it is known, and who decided what about them.

`History` is the one door to learning: the command line and the backtest `read` it from files, the service
makes it `from_frames` of its ledger, `DeCCaF.fit` `from_arrays`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.cases import Cases, let_through_of
from deccaf.data.config import Config
from deccaf.data.costs import Costs
from deccaf.data.decisions import Decisions
from deccaf.data.files import same_file
from deccaf.data.frames import Input, as_pandas
from deccaf.data.names import compared, names_of, positions_of
from deccaf.data.schema import Columns, Schema
from deccaf.data.sources import shown
from deccaf.data.times import parse_time, parse_times
from deccaf.errors import ConfigError, DataError, show

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MANY_GROUPS = 50
"""A group column with at least so many groups names what belongs together; with fewer, a kind of case."""


@dataclass(frozen=True, eq=False)
class History:
    """Cases, decisions on them, and for every decision the position of its case."""

    cases: Cases
    log: Decisions
    case: Ints
    """For every decision, the position of its case."""
    group: pd.Series | None = None
    """What must not be split when something is held out: one value per case."""
    weight: Array | None = None
    """How much each case counts; 0 for one that is not learned from."""
    guess: Array | None = None
    """(cases, K): chance of each truth where nobody could see it because of the decision; NaN elsewhere."""
    stands: Array | None = None
    """How many cases each stands for when costs are counted: 1 / chance for one let through by lot, 0 where
    nobody could see the truth."""

    @classmethod
    def of(cls, cases: Cases, log: Decisions | None = None) -> History:
        """Checked tables; labels from the future and decisions made before their case came are refused."""
        if cases.label is None:
            raise DataError("cases have no label column; name it under [columns] label")
        log = Decisions.none(cases.classes) if log is None else log
        check_times(cases, log)
        return cls(cases, log, cases.positions(log.case), splitting_group(cases))

    @classmethod
    def from_frames(cls, cases: pd.DataFrame, decisions: pd.DataFrame | None, config: Config) -> History:
        """Tables as files have them, with the parts that the configuration gives their columns."""
        costs = config.costs.build()
        table = Cases.from_frame(cases, columns=config.columns, costs=costs)
        if decisions is None:
            return cls.of(table)
        form = config.columns.time_format
        log = Decisions.from_frame(
            decisions, classes=costs.classes, cases=table, columns=config.columns, time_format=form
        )
        return cls.of(table, log)

    @classmethod
    def read(cls, cases: str | Path, decisions: str | Path, config: Config) -> History:
        """Files of cases and of decisions, which may be one file."""
        costs = config.costs.build()
        both = same_file(cases, decisions)
        table = Cases.read(cases, columns=config.columns, costs=costs, with_decisions=both)
        if table.label is None:
            raise DataError(
                f"{shown(cases)}: column {config.columns.label!r}: missing; learning needs the truth: name "
                "its column under [columns] label"
            )
        form = config.columns.time_format
        log = Decisions.read(
            decisions, classes=costs.classes, cases=table, columns=config.columns, time_format=form
        )
        config.check_people(log.experts)
        return cls.of(table, log)

    @classmethod
    def from_arrays(
        cls,
        table: Input,
        label: Ints,
        costs: Costs,
        *,
        columns: Columns | None = None,
        categorical: tuple[str, ...] = (),
        scores: Mapping[str, str] | None = None,
        expert: Any = None,
        decision: Any = None,
        decisions: Decisions | pd.DataFrame | None = None,
        time: Any = None,
        group: Any = None,
        let_through: Any = None,
        weight: ArrayLike | None = None,
    ) -> History:
        """A table of cases with values beside it, as `DeCCaF.fit` takes them.

        With `columns`, columns of the table play the parts that it names; without, all are features but
        machines' own `scores`.
        """
        rows, frame = len(table), table.frame
        reserved = {table.case, *costs.columns}
        groups = frame[[]]
        if columns is not None:
            columns.check(frame.columns, ("label", "case", *(["time"] if time is not None else [])))
            reserved |= {columns.label, columns.time, columns.let_through, "batch", *columns.group}
            reserved |= set(columns.waiting.values())
            groups = frame[[name for name in columns.group if name in frame]]
            time = frame[columns.time] if time is None and columns.time in frame else time
        plain = columns or Columns(categorical=categorical, scores=dict(scores or {}))
        schema = Schema.infer(frame, plain, reserved)
        times, members = per_row(time, rows, "time"), per_row(group, rows, "group")
        if times is not None:
            times = parse_times(times, None if columns is None else columns.time_format).values
        same_length("y", label, rows)
        cases = Cases(
            features=schema.cast(frame).set_axis(table.ids),
            schema=schema,
            classes=costs.classes,
            label=label,
            time=None if times is None else times.set_axis(table.ids),
            batch=None,
            groups=groups.set_axis(table.ids),
            amounts=table.amounts.set_axis(table.ids),
            let_through=_let_through(table, columns, let_through),
        )
        log, case = _decisions(table, costs, expert, decision, decisions)
        weights = None if weight is None else weights_of(weight, rows, "sample_weight")
        if weights is not None and not weights.any():
            raise DataError(f"sample_weight: all {rows} weights are zero; nothing is left to learn from")
        return cls(cases, log, case, splitting_group(cases) if members is None else members, weights)

    @property
    def features(self) -> pd.DataFrame:
        """The features of the cases."""
        return self.cases.features

    @property
    def schema(self) -> Schema:
        """What the features are."""
        return self.cases.schema

    @property
    def label(self) -> Ints:
        """Positions of classes, -1 where the truth is not known yet."""
        assert self.cases.label is not None
        return self.cases.label

    @property
    def amounts(self) -> pd.DataFrame:
        """The per-case cost columns."""
        return self.cases.amounts

    @property
    def time(self) -> pd.Series | None:
        """When each case came."""
        return self.cases.time

    @property
    def expert(self) -> pd.Series:
        """Who made each decision."""
        return self.log.expert

    @property
    def decision(self) -> Ints:
        """What was decided, as positions of classes."""
        return self.log.decision

    @property
    def decision_time(self) -> pd.Series | None:
        """When each decision was made, where the log says."""
        return self.log.time

    @property
    def pace(self) -> dict[str, float]:
        """Decisions an hour, by expert, where the log has seconds."""
        if self.log.seconds is None:
            return {}
        each = self.log.seconds.groupby(self.log.expert.to_numpy()).median()
        return {str(name): 3600.0 / value for name, value in each.items() if value > 0}

    def take(self, rows: ArrayLike, decisions: Ints | None = None) -> History:
        """Some of the cases (a mask or positions) with their decisions, or with these decisions only."""
        picked = np.asarray(rows)
        picked = np.flatnonzero(picked) if picked.dtype == bool else picked
        place = np.full(len(self.cases), -1, np.int64)
        place[picked] = np.arange(len(picked))
        mine = np.flatnonzero(place[self.case] >= 0) if decisions is None else decisions
        return History(
            cases=self.cases.take(picked),
            log=self.log.take(mine),
            case=place[self.case[mine]],
            group=None if self.group is None else self.group.iloc[picked],
            weight=None if self.weight is None else self.weight[picked],
            guess=None if self.guess is None else self.guess[picked],
            stands=None if self.stands is None else self.stands[picked],
        )

    def to_learn_from(self) -> History:
        """Without cases that count nothing; one with guesses stands once for every truth, by its chance."""
        kept = self if self.weight is None else self.take(self.weight > 0)
        if kept.guess is None or not len(kept.cases):
            return kept
        guessed = np.isfinite(kept.guess[:, 0])
        classes, rows = kept.guess.shape[1], np.arange(len(guessed))
        times = np.where(guessed, classes, 1)
        repeated = np.repeat(rows, times)
        nth = np.arange(len(repeated)) - np.repeat(times.cumsum() - times, times)
        weight = np.ones(len(rows)) if kept.weight is None else kept.weight
        chance = np.where(guessed[repeated], kept.guess[repeated, nth], 1.0)
        cases = kept.cases.take(repeated)
        group = pd.Series(rows) if kept.group is None else kept.group
        copies = np.repeat(np.arange(len(kept.case)), times[kept.case])
        first = (times.cumsum() - times)[kept.case[copies]]
        again = np.arange(len(copies)) - np.repeat(
            times[kept.case].cumsum() - times[kept.case], times[kept.case]
        )
        return History(
            cases=replace(cases, label=np.where(guessed[repeated], nth, kept.label[repeated])),
            log=kept.log.take(copies),
            case=first + again,
            group=group.iloc[repeated],
            weight=weight[repeated] * chance,
        )

    def without(self, names: Collection[str]) -> History:
        """The same without some of the features."""
        if not names:
            return self
        schema = Schema(tuple(one for one in self.schema.features if one.name not in names))
        if not schema.features:
            raise DataError(
                f"no feature column is left without {', '.join(map(repr, names))}; name some under "
                "[columns] features"
            )
        cases = replace(self.cases, features=self.features[schema.names], schema=schema)
        return replace(self, cases=cases)

    def before(self, until: str) -> History:
        """The cases before a time, and their decisions."""
        time = self.time
        if time is None:
            raise ConfigError("--until: the cases have no time column; name it under [columns] time")
        stop = parse_time(until, time, self.cases.time_format, "--until")
        past = (time < stop).to_numpy()
        if not past.any():
            raise DataError(f"--until {until}: no case is earlier; the first is from {time.min()}")
        return self.take(past)


def splitting_group(cases: Cases) -> pd.Series | None:
    """The group column whose rows belong together: the first with many groups; None if there is none."""
    for name in cases.groups:
        if cases.groups[name].nunique() >= MANY_GROUPS:
            return cases.groups[name]
    return None


def check_times(cases: Cases, decisions: Decisions | None = None, now: pd.Timestamp | None = None) -> None:
    """Refuse labels from the future, and decisions made before their case was there."""
    if cases.time is None:
        return
    if pd.api.types.is_datetime64_any_dtype(cases.time.dtype) and cases.label is not None:
        today = pd.Timestamp.now(tz=cases.time.dt.tz) if now is None else now
        ahead = (cases.time > today).to_numpy() & (cases.label >= 0)
        if ahead.any():
            first = int(ahead.argmax())
            raise DataError(
                f"column {cases.time.name!r}: {ahead.sum()} labelled case(s) lie in the future, first: "
                f"{cases.time.iloc[first]} in case {show(cases.ids[first])}, and now it is {today:%Y-%m-%d}; "
                "correct the times"
            )
    if decisions is None or decisions.time is None or not len(decisions):
        return
    came = cases.time.iloc[cases.positions(decisions.case)].reset_index(drop=True)
    try:
        backwards = (decisions.time < came).to_numpy()
    except TypeError as error:
        raise DataError(
            f"column 'time': decisions hold {decisions.time.dtype}, cases {came.dtype}; use one kind"
        ) from error
    if backwards.any():
        first = int(backwards.argmax())
        raise DataError(
            f"column 'time': {backwards.sum()} decision(s) were made before their case came, first: "
            f"{decisions.time.iloc[first]} on case {show(decisions.case.iloc[first])}, which came at "
            f"{came.iloc[first]}"
        )


def _let_through(table: Input, columns: Columns | None, given: Any) -> pd.Series | None:
    """The chances of rejects that were let through: given beside the table, or a column of it."""
    chances = per_row(given, len(table), "let_through")
    if chances is not None:
        return let_through_of(chances.to_frame().set_axis(table.ids), "let_through")
    return None if columns is None else let_through_of(table.frame.set_axis(table.ids), columns.let_through)


def per_row(values: Any, rows: int, name: str) -> pd.Series | None:
    """One value per row as a series by position, or None."""
    if values is None:
        return None
    raw = values.to_pandas() if hasattr(values, "to_pandas") else values
    series = raw.reset_index(drop=True) if isinstance(raw, pd.Series) else pd.Series(np.asarray(raw))
    same_length(name, series, rows)
    return series.rename(name)


def weights_of(weight: ArrayLike, rows: int, name: str) -> NDArray[np.float64]:
    """One number from 0 on per row."""
    weights = np.asarray(weight, np.float64)
    if weights.ndim != 1:
        raise DataError(f"{name}: expected one number per row, got an array of shape {weights.shape}")
    same_length(name, weights, rows)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        raise DataError(
            f"{name}: {bad.sum()} value(s) missing, infinite or negative, first: {weights[bad.argmax()]} "
            f"in row {bad.argmax() + 1}"
        )
    return weights


def same_length(name: str, values: Any, rows: int) -> None:
    """Refuse values that are not one per row."""
    if len(values) != rows:
        raise DataError(
            f"{name}: {len(values)} value(s) for {rows} rows of X, inconsistent numbers of samples"
        )


def _decisions(
    table: Input, costs: Costs, expert: Any, decision: Any, decisions: Decisions | pd.DataFrame | None
) -> tuple[Decisions, Ints]:
    """The log, and the position of the case of every decision."""
    if (expert is None) != (decision is None) or (expert is not None and decisions is not None):
        raise ConfigError("give expert and decision, or decisions, or neither")
    if decisions is not None:
        return _from_log(table, costs, decisions)
    if expert is None:
        return Decisions.none(costs.classes), np.zeros(0, np.int64)
    who, what = per_row(expert, len(table), "expert"), per_row(decision, len(table), "decision")
    assert who is not None
    assert what is not None
    made = np.flatnonzero(who.notna())
    who, what = who.iloc[made], what.iloc[made]
    log = Decisions.from_frame(
        pd.DataFrame({"case_id": made, "expert_id": names_of(who), "decision": what}), classes=costs.classes
    )
    return log, made.astype(np.int64)


def _from_log(table: Input, costs: Costs, decisions: Decisions | Any) -> tuple[Decisions, Ints]:
    log = decisions
    if not isinstance(log, Decisions):
        log = Decisions.from_frame(as_pandas(log), classes=costs.classes)
    if not table.ids.is_unique:
        twice = table.ids[table.ids.duplicated()][0]
        raise DataError(f"decisions: {show(twice)} names more than one case of X; give X a unique index")
    found = positions_of(table.ids, log.case)
    if (found < 0).any():
        lost = log.case[found < 0]
        raise DataError(
            f"decisions: {len(lost)} row(s) name no case of X, first: {show(lost.iloc[0])}"
            + compared(lost, table.ids, "in X")
        )
    return log, found
