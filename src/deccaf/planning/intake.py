"""New cases on their way to a model: from a file, a table or checked `Cases`, some rows at a time.

Every feature is cast once, and what is odd about the cases is counted on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.data.frames import CASE, Input, read_input
from deccaf.data.schema import Columns, Schema
from deccaf.data.sources import shown
from deccaf.errors import DataError, did_you_mean, show
from deccaf.evaluate.drift import Comparison, Unlike, is_complete


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some cases, ready for a model."""

    features: pd.DataFrame
    amounts: pd.DataFrame
    ids: pd.Index
    batch: pd.Series | None
    columns: pd.DataFrame
    """The columns that constraints and `[waiting]` name, and those of due times and waiting costs."""
    wide: pd.DataFrame
    """Texts and vectors as they came, as far as they are there."""

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: slice) -> Chunk:
        """Some of its cases."""
        return Chunk(
            self.features.iloc[rows],
            self.amounts.iloc[rows],
            self.ids[rows],
            None if self.batch is None else self.batch.iloc[rows],
            self.columns.iloc[rows],
            self.wide.iloc[rows],
        )


@dataclass
class Oddities:
    """What is odd about the cases, added up over the chunks."""

    missing: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    earlier: int = 0
    first_earlier: str = ""

    def notes(self, known_until: Any) -> list[str]:
        """Sentences for people."""
        notes = []
        if self.missing:
            worst = ", ".join(f"{name} {count:,}" for name, count in self.missing.most_common(3))
            total = self.missing.total()
            notes.append(f"missing features: {total:,} values in {len(self.missing)} columns ({worst})")
        if self.unseen:
            worst = ", ".join(f"{name} {count:,}" for name, count in self.unseen.most_common(3))
            notes.append(f"category levels never seen, taken as missing: {worst}")
        if self.earlier:
            notes.append(
                f"time runs backwards: {self.earlier:,} cases are from before {known_until}, the end of the "
                f"history that the model learned from, first: {self.first_earlier}"
            )
        return notes


@dataclass(eq=False)
class Intake:
    """Reads new cases as a fitted model needs them."""

    schema: Schema
    costs: Costs
    columns: Columns
    """The parts that columns play in files of cases."""
    names: Sequence[str]
    """Names for the columns of an array."""
    known_until: Any = None
    """The latest time of the history, a number or a date; None where there were no times."""
    extra: tuple[str, ...] = ()
    """Further columns to keep, for constraints and for what waiting costs."""
    optional: tuple[str, ...] = ()
    """Columns to keep where they are there."""
    profiles: Mapping[str, Mapping[str, Any]] | None = None
    """What is remembered of each feature of the history; None in model files from before that was kept."""
    odd: Oddities = field(default_factory=Oddities)
    named: bool = False
    """Whether the cases have names, which then must differ."""

    def __post_init__(self) -> None:
        self.comparison = Comparison(self.profiles or {})

    def chunks(self, X: Any, most: int) -> Iterator[Chunk]:
        """At most `most` cases at a time."""
        for chunk in self._whole(X, most):
            for start in range(0, len(chunk), most):
                yield chunk.take(slice(start, start + most)) if len(chunk) > most else chunk

    def find(self, X: Any, case: Any) -> Chunk:
        """The one case of this name; without a name, the only case that X holds."""
        if case is None:
            chunks = list(self.chunks(X, 2))
            total = sum(map(len, chunks))
            if total != 1:
                raise DataError(f"explain: X holds {total} cases; say which one with case=")
            return chunks[0]
        for chunk in self.chunks(X, 65_536):
            found = np.flatnonzero((chunk.ids == case) | (chunk.ids.astype(str) == str(case)))
            if len(found):
                return chunk.take(slice(int(found[0]), int(found[0]) + 1))
        raise DataError(f"explain: no case is called {show(case)}")

    def notes(self) -> list[str]:
        """What is odd about the cases that were read."""
        notes = self.odd.notes(self.known_until)
        if self.profiles is None or not all(is_complete(known) for known in self.profiles.values()):
            notes.append(
                "the model file is from before ranges of features were kept: whether the cases are like "
                "those that it learned from was not fully checked; fit again to have that"
            )
        return notes

    def unlike(self) -> list[Unlike]:
        """How the cases that were read are unlike those that the model learned from."""
        return self.comparison.found()

    def _whole(self, X: Any, most: int) -> Iterator[Chunk]:
        if isinstance(X, Cases):
            yield self._of_cases(X, None)
        elif isinstance(X, str | Path):
            yield from self._of_file(X, max(most, 1))
        else:
            table = X if isinstance(X, Input) else read_input(X, self.costs, self.names)
            self.named = table.named
            for start in range(0, max(len(table), 1), most):
                yield self._of_table(table, slice(start, start + most))

    def _of_file(self, path: str | Path, most: int) -> Iterator[Chunk]:
        self.named, rows = True, 0
        roles = self.columns
        part = [roles.case, roles.time, roles.label, *self.extra]
        needed = [*self.schema.names, *self.costs.columns, CASE, "batch", *part, *self.optional]
        known: dict[str, Any] = {"columns": roles, "costs": self.costs, "schema": self.schema}
        for cases, frame in Cases.read_chunks(path, needed, **known, group=self.extra):
            rows += len(cases)
            yield self._of_cases(cases, frame)
        if not rows:
            raise DataError(f"{shown(path)}: the cases file holds no rows")

    def _of_cases(self, cases: Cases, frame: pd.DataFrame | None) -> Chunk:
        features = cases.features if cases.schema == self.schema else self.schema.cast(cases.features)
        if frame is None:
            frame = cases.features
        else:
            self._look_at_times(cases)
        frame = frame.set_axis(features.index)
        self._count(frame, features)
        known = pd.concat([cases.groups, cases.features], axis=1)
        known = known.loc[:, ~known.columns.duplicated()]  # a group that is also a feature
        waiting = cases.waiting
        if waiting is not None:
            known = pd.concat([known, waiting[[name for name in waiting if name not in known]]], axis=1)
        return Chunk(features, cases.amounts, cases.ids, cases.batch, self._kept(known), self._wide(frame))

    def _of_table(self, table: Input, rows: slice) -> Chunk:
        frame = table.frame.iloc[rows]
        features = self.schema.cast(frame)
        self._count(frame, features)
        ids, amounts = table.ids[rows], table.amounts.iloc[rows]
        return Chunk(features, amounts, ids, None, self._kept(frame), self._wide(frame))

    def _wide(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[[feature.name for feature in self.schema.wide if feature.name in frame]]

    def _kept(self, frame: pd.DataFrame) -> pd.DataFrame:
        missing = [name for name in self.extra if name not in frame]
        if missing:
            hint = did_you_mean(missing[0], [str(name) for name in frame])
            raise DataError(
                f"column {missing[0]!r}: missing; [constraints], [waiting] or a review cost asks for it{hint}"
            )
        there = [name for name in self.optional if name in frame and name not in self.extra]
        return frame[[*self.extra, *there]]

    def _count(self, frame: pd.DataFrame, features: pd.DataFrame) -> None:
        missing = frame[[name for name in self.schema.needed if name in frame]].isna().sum()
        self.odd.missing.update({str(name): int(count) for name, count in missing.items() if count})
        self.odd.unseen.update(self.schema.unseen(frame, features))
        self.comparison.add(frame, features)

    def _look_at_times(self, cases: Cases) -> None:
        until = self.known_until
        if cases.time is None or until is None:
            return
        if pd.api.types.is_datetime64_any_dtype(cases.time.dtype) != isinstance(until, pd.Timestamp):
            kinds = "dates" if isinstance(until, pd.Timestamp) else "numbers"
            raise DataError(f"column {cases.time.name!r}: holds {cases.time.dtype}, the model knows {kinds}")
        earlier = (cases.time < until).to_numpy()
        if earlier.any() and not self.odd.earlier:
            first = int(earlier.argmax())
            self.odd.first_earlier = f"{cases.time.iloc[first]} in case {show(cases.ids[first])}"
        self.odd.earlier += int(earlier.sum())


def joined(parts: Sequence[pd.Index], named: bool) -> pd.Index:
    """The ids of all chunks; names must differ."""
    index = parts[0].append(list(parts[1:])) if len(parts) > 1 else parts[0]
    # of a series: an index would keep what it is looked up by, a Python string for every name
    twice = pd.Series(index).duplicated().to_numpy() if named else np.zeros(len(index), bool)
    if twice.any():
        first = index[int(twice.argmax())]
        raise DataError(
            f"column {index.name!r}: {twice.sum()} value(s) stand for more than one case, "
            f"first: {show(first)}"
        )
    return index


def stacked(parts: list[np.ndarray]) -> np.ndarray:
    """Chunks of rows as one array; each is let go once it is copied."""
    if len(parts) == 1:
        return parts.pop()
    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    start = 0
    while parts:
        part = parts.pop(0)
        whole[start : start + len(part)] = part
        start += len(part)
    return whole
