"""A decision log ready for learning: codes instead of names, only rows that can teach something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.errors import DataError
from deccaf.models.rows import codes, column, known_rows, same_length, weights_of

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
        same_length(names, rows, "expert")
        weights = weights_of(weight, rows)
        chances = None if p is None else _probabilities(p, rows, classes)
        fate = "are left out" if chances is None else "count by what it probably is"
        note = f"decisions are on cases without a truth yet: they {fate}"
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

    @property
    def target(self) -> Ints:
        """What is predicted."""
        return self.decision

    @property
    def stratum(self) -> Ints:
        """Decisions are calibrated apart for each truth."""
        return self.truth

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


def _probabilities(p: ArrayLike, rows: int, classes: int) -> Array:
    chances = np.asarray(p, np.float64)
    if chances.shape != (rows, classes) or not (np.isfinite(chances).all() and (chances >= 0).all()):
        raise DataError(f"p: expected {rows} x {classes} probabilities, got shape {chances.shape}")
    return chances
