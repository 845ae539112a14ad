"""How each expert decides: P(decision = m | case, truth = y, expert), learned from a log.

Three parts, from simple to rich: shrunken rates, a pooled logistic model, boosted trees. They are blended by
their log-loss on held-out time, the blend is calibrated, and then the parts are fitted again on everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri

from deccaf.errors import ConfigError, did_you_mean
from deccaf.models.blend import blend, held_out_chances, held_out_losses, mix
from deccaf.models.cases.calibrate import Calibrator
from deccaf.models.decisions.boosted import QUICK, BoostedDecisions
from deccaf.models.decisions.log import DecisionLog, aged
from deccaf.models.decisions.rates import ShrunkenRates
from deccaf.models.holdout import holdouts
from deccaf.models.linear.pooled import PooledLogistic

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = ("rates", "pooled", "boosted")
_FEWEST_FOR_TREES = 300
"""A shorter log cannot tell whether trees help: the luck of 100 held-out decisions exceeds the difference."""
_CAUTION = 1.25
"""Posterior deviations are multiplied by this: on simulated teams, whose chances are known, errors of the
log-odds were 1.1 to 1.3 posterior deviations, as the posterior takes the prior's precisions for known."""


class Part(Protocol):
    """What a part of the blend can do; experts are positions, one past the last is an expert never seen."""

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> Self:
        """Learn from a log; `validation` may choose settings."""

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K) log-chances for rows of case, truth and expert."""

    def log_table(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K, K) log-chances for all pairs."""

    def to_dict(self) -> dict[str, Any]:
        """For a file."""


class DecisionModel:
    """P(decision | case, truth, expert) from a log with as little as one decision per case.

    Parameters
    ----------
    classes
        K, the number of classes of truths and of decisions.
    parts
        Which parts to blend, out of `PARTS`.
    half_life
        Age at which a decision counts half: a number, or a length of time where times are dates.
    validation_share
        About how much of the log is held out to blend and calibrate; see `holdouts`.
    candidates
        LightGBM settings that the boosted part chooses from.

    Attributes
    ----------
    experts_ : names, sorted; anyone else is the team's average
    parts_ : the fitted parts by name, those that the blend uses
    weights_ : the weight of every part in the blend
    held_out_ : log-loss of each part and of the blend on the held-out decisions
    calibrators_ : one per truth
    """

    def __init__(
        self,
        classes: int = 2,
        *,
        parts: Sequence[str] = PARTS,
        half_life: Any = None,
        validation_share: float = 0.25,
        candidates: Sequence[Mapping[str, Any]] = QUICK,
        seed: int = 0,
    ) -> None:
        self.classes = classes
        self.parts = parts
        self.half_life = half_life
        self.validation_share = validation_share
        self.candidates = candidates
        self.seed = seed

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
        self._check()
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
        self.experts_ = log.experts
        waiting, log = log.take(log.truth < 0), log.take(log.truth >= 0)
        masks = holdouts(
            len(log), time=log.time, group=log.group, share=self.validation_share, seed=self.seed
        )
        names = [name for name in self.parts if name != "boosted" or len(log) >= _FEWEST_FOR_TREES]
        names = names or list(self.parts)
        trials: list[dict[str, Part]] = []
        for mask in masks:
            trials.append(self._trial(names, log, mask, trials[:1]))
        self._blend(names, log, masks, trials)
        used = [name for name, weight in self.weights_.items() if weight > 0]
        settled = {name: self._again(name, [trial[name] for trial in trials]) for name in used}
        self.parts_ = {name: part.fit(log) for name, part in settled.items()}
        if len(waiting):
            more = log.with_guesses(waiting, self._guesses(waiting))
            self.parts_ = {name: part.fit(more) for name, part in settled.items()}
        return self

    def predict(self, features: pd.DataFrame, experts: Sequence[str] | None = None) -> Array:
        """q[i, j, y, m]: chance that expert j says m on case i if the truth is y; for `expected_loss`."""
        expert = self.positions(experts)
        tables = [part.log_table(features, expert) for part in self.parts_.values()]
        log_q = mix(tables, self._used_weights())
        for y, calibrator in enumerate(self.calibrators_):
            log_q[:, :, y] = calibrator.transform(log_q[:, :, y])
        return np.asarray(np.exp(log_q))

    def predict_rows(self, features: pd.DataFrame, truth: Ints, expert: Sequence[str]) -> Array:
        """(rows, K): chance of each decision, for rows of case, truth and expert."""
        codes = self.positions(expert)
        rows = [part.log_rows(features, truth, codes) for part in self.parts_.values()]
        return np.asarray(np.exp(self._calibrated(mix(rows, self._used_weights()), truth)))

    def interval(
        self, features: pd.DataFrame, experts: Sequence[str] | None = None, *, level: float = 0.9
    ) -> tuple[Array, Array]:
        """(low, high), each (cases, experts, K): where P(error | truth y) lies with this posterior chance.

        From the posterior of the parts that have one, on the scale of log-odds; trees are taken to be as
        sure as the pooled model.
        """
        if not 0 < level < 1:
            raise ConfigError(f"level must lie between 0 and 1, got {level}")
        q = np.clip(self.predict(features, experts), 1e-12, 1.0)
        deviation = self._spread(features, self.positions(experts), q)
        right = np.einsum("ijyy->ijy", q)
        middle = np.log(np.maximum(1.0 - right, 1e-12)) - np.log(right)
        reach = ndtri((1 + level) / 2) * deviation
        return np.asarray(expit(middle - reach)), np.asarray(expit(middle + reach))

    def interval_rows(
        self, features: pd.DataFrame, expert: Sequence[str], *, level: float = 0.9
    ) -> tuple[Array, Array, Array]:
        """(low, high) of `interval`, each (rows, K), for rows of case and expert, and q[i, y, m] of the rows.

        Much cheaper than `interval` for every expert where each case has one.
        """
        codes, rows = self.positions(expert), len(features)
        each = [self.predict_rows(features, np.full(rows, y), expert) for y in range(self.classes)]
        q = np.clip(np.stack(each, axis=1), 1e-12, 1.0)
        deviation = np.empty((rows, self.classes))
        for j in np.unique(codes):
            mine = np.flatnonzero(codes == j)
            deviation[mine] = self._spread(features.iloc[mine], np.array([j]), q[mine][:, None])[:, 0]
        right = np.einsum("iyy->iy", q)
        middle = np.log(np.maximum(1.0 - right, 1e-12)) - np.log(right)
        reach = ndtri((1 + level) / 2) * deviation
        return np.asarray(expit(middle - reach)), np.asarray(expit(middle + reach)), q

    def positions(self, experts: Sequence[str] | None = None) -> Ints:
        """Where each name stands among `experts_`; one past the last for a name never seen."""
        if experts is None:
            return np.arange(len(self.experts_))
        found = pd.Index(self.experts_, dtype=object).get_indexer(pd.Index(list(experts), dtype=object))
        return np.where(found < 0, len(self.experts_), found).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, for a file."""
        return {
            "classes": self.classes,
            "experts": list(self.experts_),
            "weights": self.weights_,
            "held_out": self.held_out_,
            "calibrators": [calibrator.to_dict() for calibrator in self.calibrators_],
            "parts": {name: part.to_dict() for name, part in self.parts_.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DecisionModel:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]), parts=list(data["weights"]))
        model.experts_ = tuple(data["experts"])
        model.weights_, model.held_out_ = dict(data["weights"]), dict(data["held_out"])
        model.calibrators_ = [Calibrator.from_dict(item) for item in data["calibrators"]]
        model.parts_ = {name: _KINDS[name].from_dict(item) for name, item in data["parts"].items()}
        return model

    def _check(self) -> None:
        unknown = [name for name in self.parts if name not in PARTS]
        if unknown or not self.parts:
            raise ConfigError(
                f"parts: expected some of {', '.join(PARTS)}, got {list(self.parts)}"
                + (did_you_mean(unknown[0], PARTS) if unknown else "")
            )
        if self.classes < 2:
            raise ConfigError(f"classes: at least two are needed, got {self.classes}")

    def _trial(
        self,
        names: Sequence[str],
        log: DecisionLog,
        mask: NDArray[np.bool_],
        first: Sequence[Mapping[str, Part]],
    ) -> dict[str, Part]:
        """All parts fitted without the held-out decisions; the form of the logistic is the first trial's."""
        train, validation = log.take(~mask), log.take(mask)
        parts = {name: self._part(name) for name in names}
        if first and "pooled" in names:
            parts["pooled"] = self._again("pooled", [trial["pooled"] for trial in first])
        return {name: part.fit(train, validation) for name, part in parts.items()}

    def _part(self, name: str) -> Part:
        return BoostedDecisions(self.candidates, self.seed) if name == "boosted" else _KINDS[name]()

    def _again(self, name: str, fitted: Sequence[Part]) -> Part:
        """An unfitted part with the settings that the trials chose."""
        forms = [part.form_ for part in fitted if isinstance(part, PooledLogistic)]
        if forms:
            return PooledLogistic(form=max(forms, key=forms.count))
        chosen = [part.params_ for part in fitted if isinstance(part, BoostedDecisions)]
        if not chosen:
            return self._part(name)
        rounds = int(np.mean([params["n_estimators"] for params in chosen]).round())
        return BoostedDecisions([{**chosen[0], "n_estimators": rounds}], self.seed)

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

    def _blend(
        self,
        names: Sequence[str],
        log: DecisionLog,
        masks: Sequence[NDArray[np.bool_]],
        trials: Sequence[dict[str, Part]],
    ) -> None:
        """Weigh and calibrate the parts on what they did not see."""
        if not masks:  # too little to hold anything out: the simplest part, as it is
            self.weights_ = {name: float(name == names[0]) for name in names}
            self.held_out_ = {}
            self.calibrators_ = [Calibrator.identity(self.classes) for _ in range(self.classes)]
            return
        held = [log.take(mask) for mask in masks]

        def predict(part: Part, rows: DecisionLog) -> Array:
            return part.log_rows(rows.features, rows.truth, rows.expert)

        log_p = held_out_chances(names, trials, held, predict)
        truth, target, weight = (
            np.concatenate([getattr(rows, name) for rows in held]) for name in ("truth", "decision", "weight")
        )
        self.weights_, blended = blend(names, log_p, target, weight)
        self.held_out_ = held_out_losses(names, log_p, blended, target, weight)
        self.calibrators_ = [
            Calibrator(seed=self.seed).fit(blended[truth == y], target[truth == y], weight[truth == y])
            for y in range(self.classes)
        ]

    def _used_weights(self) -> Array:
        return np.array([self.weights_[name] for name in self.parts_])

    def _calibrated(self, log_q: Array, truth: Ints) -> Array:
        out = np.empty_like(log_q)
        for y, calibrator in enumerate(self.calibrators_):
            out[truth == y] = calibrator.transform(log_q[truth == y])
        return out

    def _spread(self, features: pd.DataFrame, expert: Ints, q: Array) -> Array:
        """(cases, experts, K): posterior deviation of the log-odds of an error given each truth."""
        knowing = {name: part for name, part in self.parts_.items() if hasattr(part, "covariance")}
        tables = {name: part.covariance(features, expert) for name, part in knowing.items()}
        if not tables:
            return np.zeros(q.shape[:3])
        spare = tables.get("pooled", next(iter(tables.values())))
        weights = self._used_weights()
        covariance = sum(w * tables.get(name, spare) for name, w in zip(self.parts_, weights, strict=True))
        # (sum w)(sum w C) bounds the covariance of the weighted sum from above, however the parts correlate
        covariance = weights.sum() * covariance
        slope = np.array([calibrator.slope_ for calibrator in self.calibrators_])
        right = np.einsum("ijyy->ijy", q)
        lever = (np.eye(self.classes)[:, 1:] - q[..., 1:]) / np.maximum(1.0 - right, 1e-12)[..., None]
        variance = np.einsum("ijyk,ijykm,ijym->ijy", lever, covariance, lever)
        return np.asarray(_CAUTION * slope * np.sqrt(variance))


_KINDS: dict[str, Any] = {"rates": ShrunkenRates, "pooled": PooledLogistic, "boosted": BoostedDecisions}
