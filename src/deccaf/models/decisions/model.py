"""How each expert decides: P(decision = m | case, truth = y, expert), learned from a log.

Three parts, from simple to rich: shrunken rates, a pooled logistic model, boosted trees. They are blended by
their log-loss on held-out time, the blend is calibrated, and then the parts are fitted again on everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.log_odds import deviations, expit, log_expit
from deccaf.errors import ConfigError, DataError
from deccaf.models.blending.blend import Blend
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.observed import Columns, Leaning, Shift, learned, shifted, variances, wide
from deccaf.models.decisions.pooled import PooledLogistic
from deccaf.models.linear.encoding import encoded_once
from deccaf.models.protocols import DecisionPart, log_odds_of_rows
from deccaf.models.rows import aged, codes, weights_of
from deccaf.plugins import DECISION_PARTS

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = ("rates", "pooled", "boosted")
"""What is blended unless something else is asked for."""
_CAUTION = 1.25
"""Posterior deviations are multiplied by this: on simulated teams, whose chances are known, errors of the
log-odds were 1.1 to 1.3 posterior deviations, as the posterior takes the prior's precisions for known."""


class DecisionModel(Blend[DecisionPart, DecisionLog]):
    """P(decision | case, truth, expert) from a log with as little as one decision per case.

    Parameters and attributes are those of every `Blend`; the calibrations are one per truth.

    Attributes
    ----------
    experts_ : names, sorted; anyone else is the team's average
    shifts_ : what `observe` learned of people beside that, by name
    """

    registry = DECISION_PARTS
    defaults = PARTS

    @property
    def strata(self) -> int:
        """One per truth."""
        return self.classes

    def fit(
        self,
        features: pd.DataFrame,
        truth: ArrayLike,
        expert: Sequence[str] | pd.Series,
        decision: ArrayLike,
        *,
        time: Sequence[Any] | pd.Series | None = None,
        group: Sequence[Any] | pd.Series | None = None,
        weight: ArrayLike | None = None,
        p: ArrayLike | None = None,
    ) -> DecisionModel:
        """Learn from one row per decision: the case's features and truth (-1: unknown), who decided, what.

        With `time`, the latest decisions are held out to blend and calibrate. Rows of one `group` (a case, a
        patient) are never split. Rows without truth are left out, unless `p` gives P(truth | case) for all
        rows: then they count for each truth by its chance, given the case and the decision.
        """
        self._named()
        log = DecisionLog.of(
            features,
            truth,
            expert,
            decision,
            classes=self.classes,
            weight=weight,
            time=time,
            group=group,
            p=p,
        )
        log = replace(log, weight=aged(log.weight, log.time, self.half_life))
        self.experts_: tuple[str, ...] = log.experts
        self.shifts_: dict[str, Shift] = {}
        waiting, log = log.take(log.truth < 0), log.take(log.truth >= 0)
        self._learn(log, log.time, log.group)
        if len(waiting):
            more = log.with_guesses(waiting, self._guesses(waiting))
            self._fit_parts(self.parts_, more)
        return self

    def predict(self, features: pd.DataFrame, experts: Sequence[str] | None = None) -> Array:
        """q[i, j, y, m]: chance that expert j says m on case i if the truth is y; for `expected_loss`."""
        if self.classes == 2:
            odds = np.swapaxes(self.log_odds(features, experts), 1, 2)
            return np.stack([expit(-odds), expit(odds)], axis=-1)
        expert = self.positions(experts)
        log_q = self._mixed(lambda part: part.log_table(features, expert))
        for y, calibrator in enumerate(self.calibrators_):
            log_q[:, :, y] = calibrator.transform(log_q[:, :, y])
        for place, y, move in self._moves(features, experts):
            log_q[:, place, y] = move(log_q[:, place, y])
        return np.asarray(np.exp(log_q))

    def log_odds(self, features: pd.DataFrame, experts: Sequence[str] | None = None) -> Array:
        """Two classes: (cases, truths, experts), log-odds that an expert says 1."""
        expert = self.positions(experts)
        odds = np.zeros((len(features), 2, len(expert)))
        for part, weight in zip(self.parts_.values(), self._used_weights(), strict=True):
            odds += weight * part.log_odds(features, expert)
        for y, calibrator in enumerate(self.calibrators_):
            if calibrator.kind_ != "none":
                odds[:, y] = calibrator.log_odds(odds[:, y])
        for place, y, move in self._moves(features, experts):
            own = odds[:, y, place]
            moved = move(np.stack([log_expit(-own), log_expit(own)], axis=1))
            odds[:, y, place] = moved[:, 1] - moved[:, 0]
        return odds

    def predict_rows(self, features: pd.DataFrame, truth: Ints, expert: Sequence[str]) -> Array:
        """(rows, K): chance of each decision, for rows of case, truth and expert."""
        log_q = self._unshifted(features, truth, expert)
        names = np.asarray(expert, dtype=object)
        for name in set(names) & set(self.shifts_):
            mine = np.flatnonzero(names == name)
            design = self._columns.design(features.iloc[mine], truth[mine])
            right = self._columns.of_right
            log_q[mine] = shifted(log_q[mine], self.shifts_[name], design, truth[mine], right)
        return np.asarray(np.exp(log_q))

    def observe(
        self,
        features: pd.DataFrame,
        truth: ArrayLike,
        expert: Sequence[str] | pd.Series,
        decision: ArrayLike,
        weight: ArrayLike | None = None,
    ) -> Self:
        """The same model after more decisions with a known truth; nothing is fitted again.

        Decisions of somebody the model was fitted on must be new ones. See `decisions.observed`.
        """
        rows = len(features)
        truths, said = (
            codes(truth, rows, self.classes, "truth"),
            codes(decision, rows, self.classes, "decision"),
        )
        if (truths < 0).any() or (said < 0).any():
            raise DataError(f"observe: {((truths < 0) | (said < 0)).sum()} row(s) without truth or decision")
        names, weights = np.asarray(expert, dtype=object), weights_of(weight, rows)
        other = copy(self)
        other.shifts_ = dict(self.shifts_)
        base = self._unshifted(features, truths, names.tolist())
        for name in sorted(set(names)):
            mine = np.flatnonzero(names == name)
            design = self._columns.design(features.iloc[mine], truths[mine])
            before = self.shift_of(name)
            other.shifts_[name] = learned(
                before, base[mine], design, truths[mine], said[mine], weights[mine], self._columns.of_right
            )
        return other

    def shift_of(self, expert: str) -> Shift:
        """What is known of somebody beside the fitted model; before anything was observed, its prior."""
        if expert in self.shifts_:
            return self.shifts_[expert]
        spread = self._columns.spread(int(self.positions([expert])[0]))
        return Shift.before(spread, len(spread) // (1 if self._columns.of_right else self.classes - 1))

    @property
    def of_right(self) -> bool:
        """Whether shifts are of the log-odds of being right."""
        return self._columns.of_right

    def wide(self, features: pd.DataFrame, truth: Ints) -> Array:
        """(rows, contrasts, coefficients): what each coefficient of a shift adds to each log-odds."""
        return wide(self._columns.design(features, truth), 1 if self.of_right else self.classes - 1)

    def _moves(
        self, features: pd.DataFrame, experts: Sequence[str] | None
    ) -> Iterator[tuple[int, int, Callable[[Array], Array]]]:
        """For everybody who was observed, by place and truth: how their (cases, K) log-chances shift."""
        names = self.experts_ if experts is None else experts
        observed = [(place, self.shifts_[name]) for place, name in enumerate(names) if name in self.shifts_]
        for y in range(self.classes) if observed else ():
            truth = np.full(len(features), y)
            design = self._columns.design(features, truth)
            for place, shift in observed:
                yield (
                    place,
                    y,
                    partial(shifted, shift=shift, design=design, truth=truth, of_right=self.of_right),
                )

    @property
    def _columns(self) -> Columns:
        found = self.parts_.get("pooled")
        return found if isinstance(found, PooledLogistic) else Leaning(self.classes)

    def _unshifted(self, features: pd.DataFrame, truth: Ints, expert: Sequence[str]) -> Array:
        """(rows, K) log-chances of the blend."""
        places = self.positions(expert)
        log_q = self._mixed(lambda part: part.log_rows(features, truth, places))
        for y, calibrator in enumerate(self.calibrators_):
            log_q[truth == y] = calibrator.transform(log_q[truth == y])
        return log_q

    def interval(
        self, features: pd.DataFrame, experts: Sequence[str] | None = None, *, level: float = 0.9
    ) -> tuple[Array, Array]:
        """(low, high), each (cases, experts, K): where P(error | truth y) lies with this posterior chance.

        From the posterior of the parts that have one, on the scale of log-odds; the others are taken to be
        as sure as the richest of these.
        """
        if not 0 < level < 1:
            raise ConfigError(f"level must lie between 0 and 1, got {level}")
        q = np.clip(self.predict(features, experts), 1e-12, 1.0)
        deviation = self._spread(features, self.experts_ if experts is None else experts, q)
        right = np.einsum("ijyy->ijy", q)
        middle = np.log(np.maximum(1.0 - right, 1e-12)) - np.log(right)
        reach = deviations((1 + level) / 2) * deviation
        return np.asarray(expit(middle - reach)), np.asarray(expit(middle + reach))

    def interval_rows(
        self, features: pd.DataFrame, expert: Sequence[str], *, level: float = 0.9
    ) -> tuple[Array, Array, Array]:
        """(low, high) of `interval`, each (rows, K), for rows of case and expert, and q[i, y, m] of the rows.

        Much cheaper than `interval` for every expert where each case has one.
        """
        places, names = self.positions(expert), np.asarray(expert, dtype=object)
        with encoded_once():
            q = np.clip(self._by_truth(features, expert), 1e-12, 1.0)
            tables = [part.covariance_rows(features, places) for part in self.parts_.values()]
        deviation = self._deviation(tables, q)
        for name in self.shifts_:
            mine = np.flatnonzero(names == name)
            if len(mine):
                deviation[mine] = self._observed_spread(features.iloc[mine], self.shifts_[name], q[mine])
        right = np.einsum("iyy->iy", q)
        middle = np.log(np.maximum(1.0 - right, 1e-12)) - np.log(right)
        reach = deviations((1 + level) / 2) * deviation
        return np.asarray(expit(middle - reach)), np.asarray(expit(middle + reach)), q

    def _by_truth(self, features: pd.DataFrame, expert: Sequence[str]) -> Array:
        """(rows, K truths, K decisions): the chances of `predict_rows` for every truth."""
        if self.classes > 2 or not self.shifts_.keys().isdisjoint(expert):
            truths = (np.full(len(features), y) for y in range(self.classes))
            return np.stack([self.predict_rows(features, truth, expert) for truth in truths], axis=1)
        places, odds = self.positions(expert), np.zeros((len(features), 2))
        for part, weight in zip(self.parts_.values(), self._used_weights(), strict=True):
            odds += weight * log_odds_of_rows(part, features, places)
        for y, calibrator in enumerate(self.calibrators_):
            odds[:, y] = calibrator.log_odds(odds[:, y])
        return np.stack([expit(-odds), expit(odds)], axis=-1)

    def positions(self, experts: Sequence[str] | None = None) -> Ints:
        """Where each name stands among `experts_`; one past the last for a name never seen."""
        if experts is None:
            return np.arange(len(self.experts_))
        found = pd.Index(self.experts_, dtype=object).get_indexer(pd.Index(list(experts), dtype=object))
        return np.where(found < 0, len(self.experts_), found).astype(np.int64)

    def contributions(self, case: pd.DataFrame, expert: str, truth: int, k: int) -> pd.DataFrame:
        """What moved the log-odds that the expert says k and not 0 if the truth is `truth`."""
        place = int(self.positions([expert])[0])
        return self._moved(case, truth, lambda part: part.contributions(case, place, truth, k))

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file, which names the parts."""
        found = {**super().to_dict(), "experts": list(self.experts_)}
        if self.shifts_:
            found["shifts"] = [{"name": name, **one.to_dict()} for name, one in sorted(self.shifts_.items())]
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave."""
        model = super().from_dict(data)
        model.experts_ = tuple(data["experts"])
        model.shifts_ = {str(one["name"]): Shift.from_dict(one) for one in data.get("shifts", ())}
        return model

    def _predicted(self, part: DecisionPart, rows: DecisionLog) -> Array:
        return part.log_rows(rows.features, rows.truth, rows.expert)

    def _guesses(self, waiting: DecisionLog) -> Array:
        """(rows, K): chance of each truth, given the case (`p`) and what the expert said."""
        names = [self.experts_[j] for j in waiting.expert]
        said = np.column_stack(
            [
                self.predict_rows(waiting.features, np.full(len(waiting), y), names)[
                    np.arange(len(waiting)), waiting.decision
                ]
                for y in range(self.classes)
            ]
        )
        joint = np.asarray(waiting.p) * said
        return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300))

    def _spread(self, features: pd.DataFrame, experts: Sequence[str], q: Array) -> Array:
        """(cases, experts, K): posterior deviation of the log-odds of an error given each truth."""
        places = self.positions(experts)
        out = self._deviation([part.covariance(features, places) for part in self.parts_.values()], q)
        for place, name in enumerate(experts):
            if name in self.shifts_:
                out[:, place] = self._observed_spread(features, self.shifts_[name], q[:, place])
        return out

    def _observed_spread(self, features: pd.DataFrame, shift: Shift, q: Array) -> Array:
        """(cases, K): the same of somebody observed."""
        out = np.empty(q.shape[:2])
        for y in range(self.classes):
            spread = variances(shift, self._columns.design(features, np.full(len(features), y)))
            lever = np.ones((len(q), 1))
            if not self._columns.of_right:
                wrong = np.maximum(1.0 - q[:, y, y], 1e-12)[:, None]
                lever = (np.eye(self.classes)[y, 1:] - q[:, y, 1:]) / wrong
            out[:, y] = _CAUTION * np.sqrt(np.einsum("ik,ikm,im->i", lever, spread, lever))
        return out

    def _deviation(self, tables: Sequence[Array | None], q: Array) -> Array:
        """(..., K) for the covariances that each part knows, (..., K, K - 1, K - 1), and q, (..., K, K)."""
        known = [table for table in tables if table is not None]
        if not known:
            return np.zeros(q.shape[:-1])
        weights = self._used_weights()
        # parts are named from simple to rich: the last that knows speaks for those that do not
        pairs = zip(tables, weights, strict=True)
        covariance = sum(w * (known[-1] if table is None else table) for table, w in pairs)
        # (sum w)(sum w C) bounds the covariance of the weighted sum from above, however the parts correlate
        covariance = weights.sum() * covariance
        slope = np.array([calibrator.slope_ for calibrator in self.calibrators_])
        right = np.einsum("...yy->...y", q)
        lever = (np.eye(self.classes)[:, 1:] - q[..., 1:]) / np.maximum(1.0 - right, 1e-12)[..., None]
        variance = np.einsum("...yk,...ykm,...ym->...y", lever, covariance, lever)
        return np.asarray(_CAUTION * slope * np.sqrt(variance))
