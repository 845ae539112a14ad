"""Columns that know too much: written down after the truth or the decision, or numbers of cases and people.

A *leak* is a column that will not be there, or will mean something else, when a new case comes. Every feature
is looked at alone:

- *Certain* are copies: one value for each class (or filled for some classes and empty for the others), the
  decision itself, how many decided the case, the id of the case or of the person, a numbering of the rows.
  Chance would bring one about less often than once in 1 / `CHANCE` files. They are left out unless
  `[columns] features` names them.
- *Suspected* is a column that alone ranks the label or the decision almost perfectly (`SUSPECT`, an AUC that
  is cross-fitted over bins), has one value per person, or grows from row to row or with time. They stay and
  are said: only somebody who knows the data can tell a leak from a good score.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import gammaln

from deccaf.data.folds import fold_of
from deccaf.data.history import History
from deccaf.evaluate.measures import roc_auc

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SUSPECT = 0.95
"""The AUC from which on one column alone knows too much."""
FEWEST = 20
"""Cases of a class (or decisions of a kind) below which an AUC says nothing."""
CHANCE = 1e-9
"""How seldom chance may bring about what is called certain."""
LOOK = 200
"""Rows that tell most columns from a copy of the ids."""
MOST_ROWS = 50_000
"""Rows that an AUC looks at; drawn by lot from longer files, always the same."""
_BINS, _FOLDS, _SHRINK = 64, 5, 2.0
_GROWS = 0.99

Kind = Literal["label", "decision", "reviews", "case id", "expert id", "numbering", "one per expert", "order"]


@dataclass(frozen=True)
class Leak:
    """A column that looks like a leak, and why."""

    column: str
    kind: Kind
    certain: bool
    """Whether it is left out unless `[columns] features` names it."""
    why: str

    def said(self, kept: bool) -> str:
        """A sentence for people; `kept` where `[columns] features` names the column."""
        if not self.certain:
            return f"column {self.column!r} looks like a leak: {self.why}"
        if kept:
            return f"column {self.column!r} is a leak, kept because [columns] features names it: {self.why}"
        remedy = "name it under [columns] features to keep it"
        return f"column {self.column!r} is left out as a leak: {self.why}; {remedy}"


@dataclass(frozen=True)
class Alone:
    """How well one column alone ranks the label and the decision: AUCs, NaN where there are too few cases."""

    column: str
    label: float
    decision: float


@dataclass(frozen=True)
class Leaks:
    """What was found in a history: at most one leak for each column, and every column's AUCs."""

    found: tuple[Leak, ...]
    alone: tuple[Alone, ...]

    @property
    def certain(self) -> tuple[str, ...]:
        """The columns that are certainly leaks."""
        return tuple(leak.column for leak in self.found if leak.certain)

    def notes(self, kept: Collection[str] = ()) -> list[str]:
        """Sentences for people; `kept` are the columns that `[columns] features` names."""
        return [leak.said(leak.column in kept) for leak in self.found]


def find_leaks(history: History) -> Leaks:
    """Look at every feature alone."""
    known = _Known(history)
    found, alone = [], []
    wide = {feature.name for feature in history.schema.wide}  # no single value of these says anything
    apart = {*wide, *history.schema.own.values()}  # a machine's own score is known before its decision
    for name in [name for name in map(str, history.features.columns) if name not in apart]:
        column = _Column.of(name, history.features[name])
        scores = Alone(name, known.label.auc(column), known.decision.auc(column))
        alone.append(scores)
        first = next(iter(_suspicions(column, scores, known)), None)
        found += [] if first is None else [first]
    return Leaks(tuple(found), tuple(alone))


def _suspicions(column: _Column, scores: Alone, known: _Known) -> Iterator[Leak]:
    """What is wrong with a column, the worst first."""
    if _count(column.codes) < 2:
        return
    yield from _copies(column, known)
    yield from _numberings(column, known)
    for kind, auc in (("label", scores.label), ("decision", scores.decision)):
        if auc >= SUSPECT:
            question = "is it known when the case comes?" if kind == "label" else "was it written after it?"
            yield Leak(column.name, kind, False, f"alone it tells the {kind} (AUC {auc:.3f}); {question}")  # type: ignore[arg-type]
    if known.expert.decides(column):
        why = f"one value for each of the {known.experts} experts; for a new case nobody has been chosen yet"
        yield Leak(column.name, "one per expert", False, why)
    yield from _order(column, known)


def _copies(column: _Column, known: _Known) -> Iterator[Leak]:
    names = [str(name) for name in known.history.cases.classes]
    if known.label.copied(column):
        yield Leak(
            column.name, "label", True, f"it is the label in other words ({known.label.shown(column)})"
        )
    elif known.label.only_filled(column):
        filled = names[int(known.label.codes[column.codes[known.label.rows] >= 0][0])]
        yield Leak(column.name, "label", True, f"it is filled exactly where the label is {filled!r}")
    for said, target in known.decisions:
        if target.copied(column) or target.only_filled(column):
            yield Leak(column.name, "decision", True, f"it is {said}")
            return
    if known.reviews.copied(column):
        yield Leak(
            column.name, "reviews", True, "it is the number of decisions on the case, known only after"
        )


def _numberings(column: _Column, known: _Known) -> Iterator[Leak]:
    ids = known.history.cases.ids
    if column.repeats_nothing() and column.is_copy_of(pd.Series(ids)):
        yield Leak(column.name, "case id", True, "it is the case's id")
    people = known.history.expert
    if 1 < column.distinct <= known.experts and column.take(known.history.case).is_copy_of(people):
        yield Leak(column.name, "expert id", True, "it is who decided the case")
    span = column.whole_numbers()
    if span is not None:
        count, low, high = span
        # chance of no repetition among `count` numbers drawn between low and high, at most
        if count * (count - 1) / (2.0 * (high - low + 1)) > -np.log(CHANCE):
            why = f"{count:,} whole numbers from {low:,} to {high:,}, none of them twice: it numbers the rows"
            yield Leak(column.name, "numbering", True, why)


def _order(column: _Column, known: _Known) -> Iterator[Leak]:
    from scipy.stats import spearmanr

    values = column.numbers
    if values is None or len(values) < FEWEST or np.isnan(values).any():
        return
    steps = np.diff(values)
    if (steps > 0).all() or (steps < 0).all():
        yield Leak(column.name, "order", False, "it grows (or falls) from row to row through the whole file")
    time = known.time
    if time is None or column.distinct <= 0.9 * len(values):
        return
    if abs(float(spearmanr(values[known.drawn], time[known.drawn]).statistic)) >= _GROWS:
        why = "it grows (or falls) with time, so every new case lies outside what a model has seen"
        yield Leak(column.name, "order", False, why)


@dataclass(frozen=True, eq=False)
class _Column:
    """A feature as codes, -1 where it is missing; numbers keep their order."""

    name: str
    codes: Ints
    numbers: Array | None
    levels: pd.Index

    @classmethod
    def of(cls, name: str, values: pd.Series) -> _Column:
        ordered = pd.api.types.is_numeric_dtype(values.dtype)
        numbers = values.to_numpy(np.float64, na_value=np.nan) if ordered else None
        codes, levels = pd.factorize(values, sort=ordered)
        return cls(name, codes.astype(np.int64), numbers, pd.Index(levels))

    @property
    def distinct(self) -> int:
        """How many different values there are."""
        return len(self.levels)

    def take(self, rows: Ints) -> _Column:
        """Some of the rows, or rows more than once."""
        numbers = None if self.numbers is None else self.numbers[rows]
        return _Column(self.name, self.codes[rows], numbers, self.levels)

    def bins(self) -> Ints:
        """From 0 on, 0 where missing: each level, or for numbers of many values bins of equal counts."""
        if self.numbers is None or self.distinct <= _BINS:
            return self.codes + 1
        filled = self.codes[self.codes >= 0]
        if not len(filled):
            return self.codes + 1
        edges = np.unique(np.quantile(filled, np.arange(1, _BINS) / _BINS))
        return np.where(self.codes < 0, 0, 1 + np.searchsorted(edges, self.codes, side="left"))

    def repeats_nothing(self) -> bool:
        """Whether no value stands twice."""
        return self.distinct == int((self.codes >= 0).sum())

    def whole_numbers(self) -> tuple[int, int, int] | None:
        """Count, least and greatest, where the column holds whole numbers of which none stands twice."""
        if self.numbers is None or not self.repeats_nothing():
            return None
        present = self.numbers[~np.isnan(self.numbers)]
        if len(present) < 2 or (present % 1 != 0).any():
            return None
        return len(present), int(present.min()), int(present.max())

    def is_copy_of(self, ids: pd.Series) -> bool:
        """Whether the column spells the ids, or their digits."""
        filled = np.flatnonzero(self.codes >= 0)
        if not len(filled) or self._spelled(ids, filled[:LOOK]) is None:  # most do not: a few rows tell
            return False
        own = self._spelled(ids, filled)
        return own is not None and _seldom(pd.factorize(own)[0].astype(np.int64))

    def _spelled(self, ids: pd.Series, rows: Ints) -> NDArray[np.object_] | None:
        """The column's values as text, if these are the ids of the rows or the digits of these."""
        codes, place = np.unique(self.codes[rows], return_inverse=True)
        own = pd.Series(self.levels[codes]).map(_plain).to_numpy(dtype=object)[place]
        names = ids.iloc[rows].astype(str)
        spelled = [names, names.str.replace(r"\D", "", regex=True)]
        same = any(bool((text.map(_plain).to_numpy(dtype=object) == own).all()) for text in spelled)
        return own if same else None


@dataclass(frozen=True, eq=False)
class _Target:
    """What a column must not know: codes for some rows of the features (a row may stand more than once)."""

    rows: Ints
    codes: Ints
    fold: Ints
    drawn: Ints = field(init=False)
    """Which of the rows an AUC looks at."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "drawn", _draw(len(self.rows)))

    @property
    def classes(self) -> int:
        """How many different codes there are."""
        return _count(self.codes)

    def auc(self, column: _Column) -> float:
        """The best AUC for one class against the others, cross-fitted; NaN with too few cases."""
        if len(self.rows) < 2 * FEWEST:
            return float("nan")
        codes, fold = self.codes[self.drawn], self.fold[self.drawn]
        bins = column.take(self.rows[self.drawn]).bins()
        found = []
        kinds = np.unique(codes)
        for code in kinds if len(kinds) > 2 else kinds[1:]:
            hit = codes == code
            if min(hit.sum(), (~hit).sum()) >= FEWEST:
                found.append(_cross_fitted_auc(bins, hit.astype(np.float64), fold))
        return max(found, default=float("nan"))

    def copied(self, column: _Column) -> bool:
        """Whether there is one value for each class and one class for each value, where it is filled."""
        values = column.codes[self.rows]
        return _one_for_one(values[values >= 0], self.codes[values >= 0])

    def only_filled(self, column: _Column) -> bool:
        """Whether it is filled for one class of two only."""
        return _one_for_one((column.codes[self.rows] >= 0).astype(np.int64), self.codes)

    def decides(self, column: _Column) -> bool:
        """Whether the code tells the value of the column, by more than chance."""
        values = column.codes[self.rows]
        if not 2 <= _count(values) <= self.classes or self.classes < 3:
            return False
        return _pairs(self.codes, values) == self.classes and _seldom(
            values, self.classes * np.log(_count(values))
        )

    def shown(self, column: _Column) -> str:
        """Which value stands for which class, up to three of them."""
        values = column.codes[self.rows]
        pairs = sorted(set(zip(self.codes[values >= 0].tolist(), values[values >= 0].tolist(), strict=True)))
        return ", ".join(f"{_plain(column.levels[value])} for class {code}" for code, value in pairs[:3])


class _Known:
    """What is known of a history, each computed once for all columns."""

    def __init__(self, history: History) -> None:
        rows = len(history.cases)
        fold = fold_of(rows, _FOLDS, group=history.group)
        label, case = history.label, history.case
        some = np.flatnonzero(label >= 0)
        self.history = history
        self.drawn = _draw(rows)
        self.label = _Target(some, label[some], fold[some])
        self.decision = _Target(case, history.decision, fold[case])
        self.expert = _Target(case, pd.factorize(history.expert)[0].astype(np.int64), fold[case])
        self.experts = self.expert.classes
        self.reviews = _Target(np.arange(rows), np.bincount(case, minlength=rows), fold)
        self.decisions = [("the decision", self.decision)]
        cases, first = np.unique(case, return_index=True)
        if len(cases) < len(case):
            last = len(case) - 1 - np.unique(case[::-1], return_index=True)[1]
            for word, place in (("first", first), ("last", last)):
                one = _Target(cases, history.decision[place], fold[cases])
                self.decisions.append((f"the {word} decision on the case", one))
        times = history.time
        many = times is not None and times.nunique() >= FEWEST
        self.time = times.rank().to_numpy(np.float64) if times is not None and many else None


def _cross_fitted_auc(bins: Ints, hit: Array, fold: Ints) -> float:
    """AUC of the shares of each bin, which come from the other folds, drawn towards the mean."""
    size, score = int(bins.max(initial=0)) + 1, np.empty(len(hit))
    for number in range(_FOLDS):
        inside = fold == number
        learn = bins[~inside]
        count = np.bincount(learn, minlength=size)
        hits = np.bincount(learn, hit[~inside], minlength=size)
        base = hits.sum() / max(count.sum(), 1)
        score[inside] = ((hits + _SHRINK * base) / (count + _SHRINK))[bins[inside]]
    return roc_auc(hit, score)


def _one_for_one(one: Ints, other: Ints) -> bool:
    """Whether two columns of codes split the rows in the same way, by more than chance."""
    kinds = _count(other)
    if kinds < 2 or _count(one) != kinds or _pairs(one, other) != kinds:
        return False
    return _seldom(other, float(gammaln(kinds + 1)))


def _count(codes: Ints) -> int:
    """How many different codes; by a hash, as sorting every column anew would take most of the time."""
    return len(pd.unique(codes))


def _pairs(one: Ints, other: Ints) -> int:
    return _count((one + 1) * (int(other.max(initial=-1)) + 2) + other + 1)


def _seldom(codes: Ints, ways: float = 0.0) -> bool:
    """Whether chance would hit these codes, in one of exp(`ways`) ways, less often than `CHANCE`."""
    counts = np.bincount(codes[codes >= 0])
    arrangements = gammaln(counts.sum() + 1) - gammaln(counts + 1).sum()
    return bool(arrangements - ways > -np.log(CHANCE))


def _draw(rows: int) -> Ints:
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))


def _plain(value: object) -> str:
    """A value as text; 7, 7.0 and 007 are one."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text.lstrip("0") or "0" if text.isdigit() else text
