"""What a machine's own score tells: of its answer, and so of the truth.

A score that a machine gave a case before anybody decides is a feature of that machine's decisions alone.
Where it is known for a case, two things are known better: what the machine will say,

    P(m | case, truth, score)  from  log P(m | case, truth), the truth and the score,

and, as the score speaks of the truth, how likely each truth is,

    P(y | case, scores)  from  log P(y | case) and the scores that are known.

Both are multinomial logistic regressions on top of what the models say without the score; where a score is
missing the models' word stands. How the others decide, given the truth, is not touched by it. The truth is
learned for every set of scores that may be known together, from chances of cases that the classifier did not
see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.log_odds import log_softmax
from deccaf.data.rows import CaseRows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

FEWEST = 100
"""Cases with a score and a truth that are needed to learn from it."""
_KNOTS = 65
_HINGES = (-0.25, 0.0, 0.25)
_MOST_TOGETHER = 3
_RIDGE = 10.0
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class _Shape:
    """A score as columns: its rank, bends of the rank, and its size."""

    knots: Array
    ranks: Array
    mean: float
    deviation: float

    @classmethod
    def fit(cls, values: Array) -> _Shape:
        known = np.sort(values)
        knots = np.unique(np.quantile(known, np.linspace(0.0, 1.0, _KNOTS)))
        ranks = (np.searchsorted(known, knots, "left") + np.searchsorted(known, knots, "right")) / 2
        spread = float(known.std())
        return cls(knots, ranks / len(known) - 0.5, float(known.mean()), spread if spread > 0 else 1.0)

    def columns(self, values: Array) -> list[Array]:
        rank = np.interp(values, self.knots, self.ranks)
        size = np.clip((values - self.mean) / self.deviation, -5.0, 5.0)
        return [rank, size, *(np.maximum(rank - at, 0.0) for at in _HINGES)]


@dataclass(frozen=True, eq=False)
class _Layer:
    """Log-chances as a function of log-chances and of scores."""

    shapes: tuple[_Shape, ...]
    weights: Array
    """(columns, K - 1): what each column adds to the log-odds against class 0."""
    level: Array
    """(K - 1,)"""

    @classmethod
    def fit(
        cls, log_p: Array, scores: Sequence[Array], target: Ints, weight: Array, truth: Ints | None
    ) -> _Layer | None:
        """None: there is too little to learn from."""
        from sklearn.linear_model import LogisticRegression

        classes = log_p.shape[1]
        if len(target) < FEWEST or len(np.unique(target)) < classes:
            return None
        shapes = tuple(_Shape.fit(score) for score in scores)
        columns = _columns(shapes, log_p, scores, truth)
        model = LogisticRegression(C=_RIDGE, max_iter=1000).fit(columns, target, sample_weight=weight)
        rows, level = np.asarray(model.coef_), np.asarray(model.intercept_)
        if classes > 2:
            rows, level = rows[1:] - rows[:1], level[1:] - level[:1]
        return cls(shapes, rows.T, level)

    def log_chances(self, log_p: Array, scores: Sequence[Array], truth: Ints | None) -> Array:
        """(rows, K)"""
        odds = _columns(self.shapes, log_p, scores, truth) @ self.weights + self.level
        return np.asarray(log_softmax(np.column_stack([np.zeros(len(odds)), odds]), axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Numbers and arrays, for a file."""
        return {"shapes": [vars(one) for one in self.shapes], "weights": self.weights, "level": self.level}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Layer:
        """Rebuild what `to_dict` gave."""
        shapes = [
            _Shape(
                np.asarray(one["knots"], np.float64),
                np.asarray(one["ranks"], np.float64),
                float(one["mean"]),
                float(one["deviation"]),
            )
            for one in data["shapes"]
        ]
        return cls(
            tuple(shapes), np.asarray(data["weights"], np.float64), np.asarray(data["level"], np.float64)
        )


def _columns(shapes: Sequence[_Shape], log_p: Array, scores: Sequence[Array], truth: Ints | None) -> Array:
    known = np.maximum(log_p, np.log(_TINY))
    blocks = [known[:, 1:] - known[:, :1]]
    if truth is not None:
        blocks.append(np.eye(log_p.shape[1])[truth][:, 1:])
    for shape, score in zip(shapes, scores, strict=True):
        blocks += [column[:, None] for column in shape.columns(score)]
    return np.hstack(blocks)


@dataclass(frozen=True, eq=False)
class OwnScores:
    """What the own scores of some machines tell."""

    columns: Mapping[str, str]
    """The column of each machine's score."""
    answers: Mapping[str, _Layer]
    truths: Mapping[tuple[str, ...], _Layer]
    """By the machines whose scores are known."""

    @classmethod
    def learn(
        cls,
        columns: Mapping[str, str],
        features: pd.DataFrame,
        label: Ints,
        weight: Array,
        log_p: Array,
        said: Mapping[str, tuple[Ints, Ints, Array]],
    ) -> OwnScores | None:
        """From cases with their log-chances of each truth (not seen by whoever gave them), and what machines
        said.

        `said` has for each machine the positions of its cases, its decisions, and their log-chances (rows, K)
        by the decision model.
        """
        scores = {name: _score(features, column) for name, column in columns.items()}
        answers, truths = {}, {}
        for name, (rows, decision, log_q) in said.items():
            score = scores[name][rows]
            kept = np.flatnonzero(np.isfinite(score) & (label[rows] >= 0) & (weight[rows] > 0))
            at = rows[kept]
            layer = _Layer.fit(log_q[kept], [score[kept]], decision[kept], weight[at], label[at])
            if layer is not None:
                answers[name] = layer
        for names in _together(list(columns)):
            at = np.flatnonzero(_known([scores[name] for name in names]) & (label >= 0) & (weight > 0))
            layer = _Layer.fit(log_p[at], [scores[name][at] for name in names], label[at], weight[at], None)
            if layer is not None:
                truths[names] = layer
        return cls(dict(columns), answers, truths) if answers or truths else None

    def chances(self, features: pd.DataFrame | CaseRows, p: Array) -> Array:
        """(cases, K): P(truth | case, the scores that are known)."""
        scores = {name: _score(features, column) for name, column in self.columns.items()}
        found, open_ = np.array(p, np.float64), np.ones(len(p), bool)
        for names in sorted(self.truths, key=len, reverse=True):
            at = np.flatnonzero(open_ & _known([scores[name] for name in names]))
            if len(at):
                own, log_p = [scores[name][at] for name in names], np.log(np.maximum(p[at], _TINY))
                found[at] = np.exp(self.truths[names].log_chances(log_p, own, None))
                open_[at] = False
        return found

    def moved(
        self,
        features: pd.DataFrame | CaseRows,
        experts: Sequence[str],
        chances: Callable[[int, int, Mask], Array],
        write: Callable[[int, int, Mask, Array], None],
    ) -> None:
        """Put P(decision | case, truth, own score) where a machine's score is known.

        `chances` and `write` get and take log-chances (rows, K) of the expert at a place, for a truth and
        some cases.
        """
        for place, name in enumerate(experts):
            layer = self.answers.get(name)
            if layer is None:
                continue
            score = _score(features, self.columns[name])
            known = np.isfinite(score)
            for y in range(layer.weights.shape[1] + 1) if known.any() else ():
                truth = np.full(int(known.sum()), y)
                write(place, y, known, layer.log_chances(chances(place, y, known), [score[known]], truth))

    def to_dict(self) -> dict[str, Any]:
        """Numbers, names and arrays, for a file."""
        return {
            "columns": dict(self.columns),
            "answers": {name: layer.to_dict() for name, layer in self.answers.items()},
            "truths": [{"of": list(names), **layer.to_dict()} for names, layer in self.truths.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OwnScores:
        """Rebuild what `to_dict` gave."""
        return cls(
            dict(data["columns"]),
            {name: _Layer.from_dict(one) for name, one in data["answers"].items()},
            {tuple(one["of"]): _Layer.from_dict(one) for one in data["truths"]},
        )


def _together(names: list[str]) -> list[tuple[str, ...]]:
    """The sets of scores that are learned from together: all of them, or of many the single ones and all."""
    sizes = range(1, len(names) + 1) if len(names) <= _MOST_TOGETHER else (1, len(names))
    return [some for size in sizes for some in combinations(names, size)]


def _known(scores: Sequence[Array]) -> Mask:
    return np.asarray(np.logical_and.reduce([np.isfinite(score) for score in scores]))


def _score(features: pd.DataFrame | CaseRows, column: str) -> Array:
    if isinstance(features, CaseRows):
        return features.numbers(column)
    if column not in features:
        return np.full(len(features), np.nan)
    return features[column].to_numpy(np.float64)
