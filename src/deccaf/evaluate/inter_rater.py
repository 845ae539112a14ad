"""How far people agree where several decided the same case: kappa, alpha and AC1, with intervals.

With n_k of a case's r reviewers saying class k, two of them agree with chance
sum_k n_k (n_k - 1) / (r (r - 1)). The coefficients compare the mean of that with what chance alone gives:

- *Cohen's kappa* of a pair: chance is that of two people who each keep their own shares of the classes. Of a
  team: the mean over pairs, weighed by the cases that both decided (Light's kappa).
- *Krippendorff's alpha* (nominal): chance is that of two decisions drawn from all decisions together; cases
  with more reviewers weigh more.
- *Gwet's AC1*: chance is that of classes given out where it is hard to tell, which keeps the coefficient
  from collapsing where nearly all cases are of one class.

Intervals are jackknives over cases, or over groups of cases that belong together. Where nobody ever
disagreed, the lower end is what Wilson's interval for the share of agreement leaves open.

*Expected* is the same coefficient from what the models say of these people on these cases, given the truth.
People who agree more than expected go by something that the models do not see; people who agree less have
different rules, or careless days.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from deccaf.data.history import History
from deccaf.errors import DataError
from deccaf.evaluate.measures import wilson

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Coefficient = Callable[[Array], Array]

KAPPA, ALPHA, AC1, SHARE = "Cohen's kappa", "Krippendorff's alpha", "Gwet's AC1", "share in agreement"
FEWEST_SHARED = 10
"""Cases that a pair must share to be compared."""
_MOST_PAIRS = 500
_MOST_LEFT_OUT = 100


@dataclass(frozen=True, eq=False)
class Ratings:
    """Who said what about cases that several people decided."""

    said: Ints
    """(cases, people): positions of classes, -1 where they did not decide."""
    people: tuple[str, ...]
    classes: tuple[int | str, ...]
    case: pd.Index
    unit: Ints
    """What belongs together, for intervals: a number for every case."""
    chances: Array | None = None
    """(cases, people, K): the models' chances of each decision, given the truth; None: not known."""

    @classmethod
    def of(cls, history: History, chances: Array | None = None) -> Ratings:
        """The cases of a history that several people decided; who decided twice counts with the last.

        `chances` is for all cases and people of the history's log, in their order.
        """
        people = tuple(history.log.experts)
        said = np.full((len(history.cases), len(people)), -1, np.int64)
        column = pd.Index(people).get_indexer(pd.Index(history.expert))
        said[history.case, column] = history.decision
        several = (said >= 0).sum(axis=1) > 1
        group = np.arange(len(said)) if history.group is None else pd.factorize(history.group)[0]
        return cls(
            said[several],
            people,
            history.cases.classes,
            history.cases.features.index[several],
            np.asarray(group)[several],
            None if chances is None else chances[several],
        )

    def __len__(self) -> int:
        return len(self.said)

    def take(self, rows: ArrayLike) -> Ratings:
        """Some of the cases."""
        at = np.asarray(rows)
        chances = None if self.chances is None else self.chances[at]
        return Ratings(self.said[at], self.people, self.classes, self.case[at], self.unit[at], chances)

    def spoken(self) -> Array:
        """(cases, people, K): 1 where somebody said a class."""
        return np.asarray(self.said[:, :, None] == np.arange(len(self.classes)), np.float64)

    def expected(self) -> Array | None:
        """The same as the models expect it of those who decided."""
        return None if self.chances is None else self.chances * (self.said >= 0)[:, :, None]


def agreement(ratings: Ratings, confidence: float = 0.95) -> pd.DataFrame:
    """A row per coefficient: `measure`, `cases`, `value`, `low`, `high`, `expected` (NaN: not known)."""
    if not len(ratings):
        raise DataError("agreement: no case was decided by several people")
    spoken, expected = ratings.spoken(), ratings.expected()
    parts, theirs = _parts(spoken), None if expected is None else _parts(expected)
    rows = []
    for name, of in _OF_SUMS.items():
        found = _interval(of, parts, ratings.unit, confidence)
        rows.append((name, *found, np.nan if theirs is None else float(of(theirs.sum(axis=0)))))
    kappa = _light(spoken, ratings, confidence)
    rows.insert(1, (KAPPA, *kappa, np.nan if expected is None else float(_light_value(_joints(expected)))))
    table = pd.DataFrame(rows, columns=["measure", "value", "low", "high", "expected"])
    table.insert(1, "cases", len(ratings))
    return table


def by_kind(ratings: Ratings, kind: ArrayLike, confidence: float = 0.95) -> pd.DataFrame:
    """The same by kind of case, a row per kind and coefficient; `kind` has a value for every case."""
    names = pd.Series(np.asarray(kind), dtype=object).fillna("missing").astype(str).to_numpy()
    if len(names) != len(ratings):
        raise DataError(f"agreement: {len(names)} kinds for {len(ratings)} cases")
    parts = []
    for name in np.unique(names):
        part = agreement(ratings.take(np.flatnonzero(names == name)), confidence)
        part.insert(0, "kind", name)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def by_pair(ratings: Ratings, confidence: float = 0.95, fewest: int = FEWEST_SHARED) -> pd.DataFrame:
    """A row per pair that shares enough cases: kappa with its interval, alpha, AC1, the least kappa first.

    Of very many pairs those that share the most cases.
    """
    spoken, expected, made = ratings.spoken(), ratings.expected(), ratings.said >= 0
    shared = made.T.astype(np.int64) @ made.astype(np.int64)
    pairs = [(a, b) for a, b in combinations(range(len(ratings.people)), 2) if shared[a, b] >= fewest]
    rows = []
    for a, b in sorted(pairs, key=lambda pair: -shared[pair])[:_MOST_PAIRS]:
        both = np.flatnonzero(made[:, a] & made[:, b])
        two = spoken[both][:, [a, b]]
        cells = np.hstack([_parts(two)[:, :2], _cells(two)])
        sums = _parts(two).sum(axis=0)
        kappa = _interval(_kappa, cells, ratings.unit[both], confidence)
        theirs = np.nan
        if expected is not None:
            met = _cells(expected[both][:, [a, b]])
            theirs = float(_kappa(np.concatenate([[len(both), 0.0], met.sum(axis=0)])))
        shown = (float(of(sums)) for of in (_alpha, _ac1))
        names = (ratings.people[a], ratings.people[b])
        rows.append((*names, len(both), float(_share(sums)), *kappa, theirs, *shown))
    columns = ["first", "second", "cases", "share", "kappa", "low", "high", "expected", "alpha", "ac1"]
    found = pd.DataFrame(rows, columns=columns)
    return found.sort_values(["kappa", "cases"], ascending=[True, False], ignore_index=True)


def for_a_meeting(ratings: Ratings, costs: ArrayLike, count: int = 20) -> pd.DataFrame:
    """Cases to talk about: those on which it matters most who decides them.

    `costs` is (cases, K): what each decision costs, or is expected to where the truth is not known. `apart`
    is the chance that two of the case's reviewers differ; `at_stake` how far the costs of two of their
    decisions lie apart on average. Columns: `case_id`, `said` (who said what), `apart`, `at_stake`.
    """
    price = np.asarray(costs, np.float64)
    if price.shape != (len(ratings), len(ratings.classes)):
        raise DataError(f"agreement: costs of {price.shape} for {len(ratings)} cases")
    counts = ratings.spoken().sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :]
    away = np.abs(price[:, :, None] - price[:, None, :])
    reviewers = counts.sum(axis=1)
    stake = (pairs * away).sum(axis=(1, 2)) / (reviewers * (reviewers - 1))
    apart = 1.0 - (counts * (counts - 1)).sum(axis=1) / (reviewers * (reviewers - 1))
    order = np.lexsort((np.arange(len(stake)), -apart, -stake))[:count]
    order = order[apart[order] > 0]
    return pd.DataFrame(
        {
            "case_id": ratings.case[order].to_numpy(),
            "said": [_said(ratings, row) for row in order],
            "apart": apart[order],
            "at_stake": stake[order],
        }
    )


def _said(ratings: Ratings, row: int) -> str:
    """By class, those who said it: "1: ann, bob; 0: cat"."""
    words = []
    for m, name in enumerate(ratings.classes):
        who = [ratings.people[j] for j in np.flatnonzero(ratings.said[row] == m)]
        if who:
            words.append(f"{name}: {', '.join(who)}")
    return "; ".join(words)


def _parts(spoken: Array) -> Array:
    """(cases, ...): what a case adds to the sums of which the coefficients are functions."""
    counts = spoken.sum(axis=1)
    same = counts**2 - (spoken**2).sum(axis=1)  # for decisions n (n - 1); for chances those of two people
    reviewers = np.rint(counts.sum(axis=1, keepdims=True))
    share = same.sum(axis=1, keepdims=True) / (reviewers * (reviewers - 1))
    one = np.ones_like(reviewers)
    return np.hstack([one, share, counts / reviewers, counts, same / (reviewers - 1)])


def _share(sums: Array) -> Array:
    return np.asarray(sums[..., 1] / sums[..., 0])


def _ac1(sums: Array) -> Array:
    k = (sums.shape[-1] - 2) // 3
    pi = sums[..., 2 : 2 + k] / sums[..., :1]
    chance = (pi * (1 - pi)).sum(axis=-1) / (k - 1)
    return np.asarray((_share(sums) - chance) / (1 - chance))


def _alpha(sums: Array) -> Array:
    """NaN where everybody always said the same one thing."""
    k = (sums.shape[-1] - 2) // 3
    counts, same = sums[..., 2 + k : 2 + 2 * k], sums[..., 2 + 2 * k :]
    total = counts.sum(axis=-1)
    apart = 1 - same.sum(axis=-1) / total
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = 1 - (counts * (counts - 1)).sum(axis=-1) / (total * (total - 1))
        return np.asarray(np.where(by_chance > 1e-12, 1 - apart / by_chance, np.nan))


def _cells(two: Array) -> Array:
    """(cases, K x K): the table of what two people said."""
    return np.asarray(np.einsum("ik,im->ikm", two[:, 0], two[:, 1]).reshape(len(two), -1))


def _kappa(sums: Array) -> Array:
    """Cohen's kappa from the number of cases, something else, and the cells of the table."""
    k = round((sums.shape[-1] - 2) ** 0.5)
    table = sums[..., 2:].reshape(*sums.shape[:-1], k, k) / sums[..., :1, None]
    chance = (table.sum(axis=-1) * table.sum(axis=-2)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = (np.einsum("...kk->...", table) - chance) / (1 - chance)
    return np.asarray(np.where(chance < 1 - 1e-12, kappa, np.nan))


_OF_SUMS: dict[str, Coefficient] = {SHARE: _share, ALPHA: _alpha, AC1: _ac1}


def _interval(of: Coefficient, parts: Array, unit: Ints, confidence: float) -> tuple[float, float, float]:
    """Value and jackknife interval of a function of sums over cases."""
    total = parts.sum(axis=0)
    codes = pd.factorize(unit)[0]
    each = np.stack([np.bincount(codes, column) for column in parts.T], axis=1)
    value = float(of(total))
    without = of(total - each) if len(each) > 1 else np.full(1, np.nan)
    return _ends(value, without, total[1] / total[0], len(each), confidence)


def _ends(
    value: float, without: Array, share: float, units: int, confidence: float
) -> tuple[float, float, float]:
    """The interval from the values that leave out one unit each."""
    without = without[np.isfinite(without)]
    if share >= 1.0 - 1e-12:
        # nobody disagreed: a coefficient is 1 or does not exist, and lies no lower than the share can
        low = float(wilson([1.0], [units], confidence)[0][0])
        return value, low if np.isfinite(value) else np.nan, value
    if len(without) < 2 or not np.isfinite(value):
        return value, np.nan, np.nan
    spread = float(np.sqrt((len(without) - 1) / len(without) * ((without - without.mean()) ** 2).sum()))
    reach = float(stdtrit(len(without) - 1, 0.5 + confidence / 2)) * spread
    return value, value - reach, min(value + reach, 1.0)


def _joints(spoken: Array) -> Array:
    """(people, K, people, K): how often the first said one class and the second another, on shared cases."""
    flat = spoken.reshape(len(spoken), -1)
    people, k = spoken.shape[1:]
    return np.asarray((flat.T @ flat).reshape(people, k, people, k))


def _light_value(joints: Array) -> Array:
    """Mean kappa over pairs, weighed by shared cases; (...) from (..., people, K, people, K)."""
    people = joints.shape[-2]
    upper = np.triu(np.ones((people, people), bool), 1)
    pairs = np.moveaxis(joints, -3, -2)[..., upper, :, :]
    count = pairs.sum(axis=(-1, -2))
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = _kappa(np.concatenate([np.stack([count, count], -1), pairs.reshape(*count.shape, -1)], -1))
    weight = np.where(np.isfinite(kappa), count, 0.0)
    total = weight.sum(axis=-1)
    summed = (weight * np.nan_to_num(kappa, posinf=0.0, neginf=0.0)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(total > 0, summed / total, np.nan))


def _light(spoken: Array, ratings: Ratings, confidence: float) -> tuple[float, float, float]:
    """Kappa over all pairs, with a jackknife that leaves out one unit (of many, a hundredth) at a time."""
    codes = pd.factorize(ratings.unit)[0]
    units = int(codes.max()) + 1
    blocks = codes if units <= _MOST_LEFT_OUT else codes % _MOST_LEFT_OUT
    total = _joints(spoken)
    order = np.argsort(blocks, kind="stable")
    parts = np.split(spoken[order], np.flatnonzero(np.diff(blocks[order])) + 1)
    without = _light_value(np.stack([total - _joints(part) for part in parts]))
    share = float(_parts(spoken)[:, 1].mean())
    return _ends(float(_light_value(total)), without, share, units, confidence)
