"""A decision log ready for learning: codes instead of names, only rows that can teach something."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.errors import ConfigError, DataError, DeccafWarning, show

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """One row per decision: the case's features, its truth, who decided, what, and how much it counts."""

    features: pd.DataFrame
    truth: Ints
    expert: Ints
    """Positions in `experts`."""
    decision: Ints
    weight: Array
    experts: tuple[str, ...]
    classes: int
    time: pd.Series | None = None
    group: pd.Series | None = None
    """Rows of one group (the decisions on one case, say) are never split between training and validation."""
    p: Array | None = None
    """(rows, K): P(truth | case), to learn also from rows without a truth (-1)."""

    @classmethod
    def of(
        cls,
        features: pd.DataFrame,
        truth: ArrayLike,
        expert: Sequence[str] | pd.Series,
        decision: ArrayLike,
        *,
        classes: int = 2,
        weight: ArrayLike | None = None,
        time: Sequence[Any] | pd.Series | None = None,
        group: Sequence[Any] | pd.Series | None = None,
        p: ArrayLike | None = None,
    ) -> DecisionLog:
        """Check the parts against each other; rows without weight are left out.

        So are rows without truth (-1), unless `p` says what it probably is; a `DeccafWarning` counts them.
        """
        rows = len(features)
        truths, decisions = codes(truth, rows, classes, "truth"), codes(decision, rows, classes, "decision")
        if (decisions < 0).any():
            raise DataError(f"decision: {(decisions < 0).sum()} of {rows} value(s) missing")
        names = pd.Series(np.asarray(expert, dtype=object)).astype(str)
        _same_length(names, rows, "expert")
        weights = weights_of(weight, rows)
        chances = None if p is None else _probabilities(p, rows, classes)
        note = " and were left out" if chances is None else "; they were learned from by what it probably is"
        useful = known_rows(truths, weights, note)
        if chances is not None:
            useful |= weights > 0
        experts, codes_ = np.unique(names.to_numpy(str)[useful], return_inverse=True)
        log = cls(
            features,
            truths,
            np.zeros(rows, np.int64),
            decisions,
            weights,
            tuple(experts.tolist()),
            classes,
            column(time, rows, "time"),
            column(group, rows, "group"),
            chances,
        ).take(useful)
        return replace(log, expert=codes_.astype(np.int64))

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.bool_] | Ints) -> DecisionLog:
        """Some of the decisions, of the same experts."""
        picked = np.flatnonzero(rows) if rows.dtype == bool else rows
        return replace(
            self,
            features=self.features.iloc[picked],
            truth=self.truth[picked],
            expert=self.expert[picked],
            decision=self.decision[picked],
            weight=self.weight[picked],
            time=None if self.time is None else self.time.iloc[picked],
            group=None if self.group is None else self.group.iloc[picked],
            p=None if self.p is None else self.p[picked],
        )

    def with_guesses(self, waiting: DecisionLog, truth_chances: Array) -> DecisionLog:
        """This log and another one whose rows count once for each truth, with its chance as weight."""
        rows, classes = len(waiting), self.classes
        return replace(
            self,
            features=pd.concat([self.features, *[waiting.features] * classes]),
            truth=np.concatenate([self.truth, np.repeat(np.arange(classes), rows)]),
            expert=np.concatenate([self.expert, np.tile(waiting.expert, classes)]),
            decision=np.concatenate([self.decision, np.tile(waiting.decision, classes)]),
            weight=np.concatenate([self.weight, (waiting.weight[:, None] * truth_chances).T.ravel()]),
            time=None,
            group=None,
            p=None,
        )


def codes(values: ArrayLike, rows: int, classes: int, name: str) -> Ints:
    """Positions of classes, -1 where missing; anything else is a `DataError`."""
    raw = np.asarray(values)
    _same_length(raw, rows, name)
    if raw.dtype.kind not in "iub":
        raise DataError(f"{name}: holds {raw.dtype}, but must be positions of classes (whole numbers)")
    found = raw.astype(np.int64)
    bad = (found < -1) | (found >= classes)
    if bad.any():
        raise DataError(
            f"{name}: {bad.sum()} value(s) outside 0 .. {classes - 1}, first: {show(found[bad.argmax()])}"
        )
    return found


def weights_of(weight: ArrayLike | None, rows: int) -> Array:
    """Weights as numbers from 0 on; 1 where none are given."""
    if weight is None:
        return np.ones(rows)
    weights = np.asarray(weight, np.float64)
    _same_length(weights, rows, "weight")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        raise DataError(
            f"weight: {bad.sum()} value(s) missing, infinite or negative, first: {weights[bad.argmax()]}"
        )
    return weights


def known_rows(truth: Ints, weight: Array, note: str = " and were left out") -> NDArray[np.bool_]:
    """The rows to learn from: the truth is known and the weight is not 0."""
    unknown = truth < 0
    if not (~unknown & (weight > 0)).any():
        raise DataError(f"nothing to learn from: {len(truth)} rows, {unknown.sum()} of them without a truth")
    if unknown.any():
        warnings.warn(
            f"{unknown.sum()} of {len(truth)} rows have no truth yet{note}",
            DeccafWarning,
            stacklevel=3,
        )
    return np.asarray(~unknown & (weight > 0))


def column(values: Sequence[Any] | pd.Series | None, rows: int, name: str) -> pd.Series | None:
    """A column by position, or None."""
    if values is None:
        return None
    series = pd.Series(values, name=name).reset_index(drop=True)
    _same_length(series, rows, name)
    if series.isna().any():
        raise DataError(f"{name}: {series.isna().sum()} value(s) missing")
    return series


def aged(weight: Array, time: pd.Series | None, half_life: Any) -> Array:
    """Weights that halve with every `half_life` before the latest time (for dates, a length of time)."""
    if half_life is None:
        return weight
    if time is None:
        raise ConfigError("half_life: the decisions have no time")
    dates = pd.api.types.is_datetime64_any_dtype(time.dtype)
    age = time.max() - time
    try:
        unit = pd.Timedelta(half_life).total_seconds() if dates else float(half_life)
    except (TypeError, ValueError):
        unit = float("nan")
    if not unit > 0:
        kind = "a length of time" if dates else "a number"
        raise ConfigError(f"half_life: expected {kind} above 0, got {half_life!r}")
    passed = age.dt.total_seconds() if dates else age
    return np.asarray(weight * 0.5 ** (passed.to_numpy(np.float64) / unit))


def _probabilities(p: ArrayLike, rows: int, classes: int) -> Array:
    chances = np.asarray(p, np.float64)
    if chances.shape != (rows, classes) or not (np.isfinite(chances).all() and (chances >= 0).all()):
        raise DataError(f"p: expected {rows} x {classes} probabilities, got shape {chances.shape}")
    return chances


def _same_length(values: Any, rows: int, name: str) -> None:
    if len(values) != rows:
        raise DataError(f"{name}: {len(values)} value(s) for {rows} rows of features")
