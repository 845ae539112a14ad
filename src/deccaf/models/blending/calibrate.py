"""Calibration of K-class probabilities: none, sigmoid or isotonic, whichever held-out data prefer.

- `sigmoid`: log p'(k) = slope * log p(k) + bias_k, normalised (Platt's for two classes).
- `isotonic`: a rising step function per class, renormalised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deccaf.data.folds import error_of, fold_of
from deccaf.data.log_odds import expit, log_softmax

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = ("none", "sigmoid", "isotonic")
_FOLDS = 5
_FEWEST = 200


class Calibrator:
    """Learn on held-out predictions how to correct them; (rows, K) log-probabilities in and out.

    Parameters
    ----------
    kinds
        The corrections to choose from, by cross-validated log-loss. A correction must win by more than one
        standard error of the difference, or there is none.

    Attributes
    ----------
    kind_ : what was chosen
    gain_ : what each kind takes off the log-loss, cross-validated
    """

    kind_: str
    gain_: dict[str, float]
    slope_: float
    bias_: Array

    def __init__(self, kinds: tuple[str, ...] = KINDS, seed: int = 0) -> None:
        self.kinds = kinds
        self.seed = seed

    def fit(
        self,
        log_p: Array,
        target: Ints,
        weight: Array | None = None,
        group: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> Calibrator:
        """Choose and fit a correction; rows of a `group`, or of a stretch of `time`, are held out together.

        A correction that knows the rows of a group by heart would win by row and lose on a new group.
        """
        weight = np.ones(len(target)) if weight is None else weight
        self._reset(log_p.shape[1])
        if len(target) < _FEWEST or len(np.unique(target)) < 2:
            return self
        fold = fold_of(len(target), _FOLDS, group=group, time=time, seed=self.seed)
        plain = _losses(log_p, target)
        best = 0.0
        for kind in self.kinds:
            if kind == "none":
                continue
            saved = weight * (plain - self._held_out_losses(kind, log_p, target, weight, fold))
            self.gain_[kind] = float(saved.sum() / weight.sum())
            noise = error_of(saved, group) * len(saved) / weight.sum()
            if self.gain_[kind] > max(noise, best):
                self.kind_, best = kind, self.gain_[kind]
        self._fit_kind(self.kind_, log_p, target, weight)
        return self

    @classmethod
    def identity(cls, classes: int) -> Calibrator:
        """No correction."""
        model = cls(("none",))
        model._reset(classes)
        return model

    def transform(self, log_p: Array) -> Array:
        """Corrected log-probabilities, of the same shape (..., K)."""
        if self.kind_ == "sigmoid":
            return np.asarray(log_softmax(self.slope_ * log_p + self.bias_, axis=-1))
        if self.kind_ == "isotonic":
            return self._isotonic(log_p)
        return log_p

    def log_odds(self, odds: Array) -> Array:
        """Corrected log-odds of class 1 against class 0, where there are two classes."""
        if self.kind_ == "sigmoid":
            return np.asarray(self.slope_ * odds + (self.bias_[1] - self.bias_[0]))
        if self.kind_ == "isotonic":
            (x_0, y_0), (x_1, y_1) = self.steps_
            return np.asarray(np.log(np.interp(expit(odds), x_1, y_1) / np.interp(expit(-odds), x_0, y_0)))
        return odds

    def recentre(self, log_p: Array, target: Ints, weight: Array | None = None) -> Calibrator:
        """Fit the biases of a sigmoid again, at the same slope: for a model refitted on more data."""
        if self.kind_ == "sigmoid":
            weight = np.ones(len(target)) if weight is None else weight
            _, self.bias_ = _fit_sigmoid(log_p, target, weight, slope=self.slope_)
        return self

    @property
    def stretch(self) -> float:
        """By what log-odds are multiplied; steps have no slope, so 1."""
        return float(self.slope_) if self.kind_ == "sigmoid" else 1.0

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "kind": self.kind_,
            "gain": self.gain_,
            "slope": self.slope_,
            "bias": self.bias_.tolist(),
            "steps": [[x.tolist(), y.tolist()] for x, y in self.steps_],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibrator:
        """Rebuild what `to_dict` gave."""
        model = cls()
        model.kind_, model.gain_ = data["kind"], dict(data["gain"])
        model.slope_, model.bias_ = float(data["slope"]), np.asarray(data["bias"], np.float64)
        model.steps_ = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in data["steps"]]
        return model

    def _reset(self, classes: int) -> None:
        self.kind_ = "none"
        self.gain_ = dict.fromkeys(self.kinds, 0.0)
        self.slope_, self.bias_ = 1.0, np.zeros(classes)
        self.steps_: list[tuple[Array, Array]] = []

    def _held_out_losses(self, kind: str, log_p: Array, target: Ints, weight: Array, fold: Ints) -> Array:
        losses = np.empty(len(target))
        for k in np.unique(fold):
            out = fold == k
            part = Calibrator()
            part.kind_ = kind
            part._fit_kind(kind, log_p[~out], target[~out], weight[~out])
            losses[out] = _losses(part.transform(log_p[out]), target[out])
        return losses

    def _fit_kind(self, kind: str, log_p: Array, target: Ints, weight: Array) -> None:
        if kind == "sigmoid":
            self.slope_, self.bias_ = _fit_sigmoid(log_p, target, weight)
        elif kind == "isotonic":
            self.steps_ = [
                _fit_steps(np.exp(log_p[:, k]), (target == k).astype(np.float64), weight)
                for k in range(log_p.shape[1])
            ]

    def _isotonic(self, log_p: Array) -> Array:
        chances = np.stack(
            [np.interp(np.exp(log_p[..., k]), x, y) for k, (x, y) in enumerate(self.steps_)], axis=-1
        )
        return np.asarray(np.log(chances / chances.sum(axis=-1, keepdims=True)))


def _losses(log_p: Array, target: Ints) -> Array:
    return np.asarray(-log_p[np.arange(len(target)), target])


def _fit_sigmoid(
    log_p: Array, target: Ints, weight: Array, slope: float | None = None
) -> tuple[float, Array]:
    """Slope and biases by penalised likelihood; a given slope is kept."""
    rows = np.arange(len(target))

    def parts(values: Array) -> tuple[float, Array]:
        return (float(values[0]) if slope is None else slope), np.append(0.0, values[1:])

    def cost(values: Array) -> tuple[float, Array]:
        steep, bias = parts(values)
        corrected = log_softmax(steep * log_p + bias, axis=1)
        error = np.exp(corrected)
        error[rows, target] -= 1.0
        error *= weight[:, None]
        # a weak pull to "no correction", so that a perfect split does not send anything to infinity
        pull = np.append((steep - 1.0) if slope is None else 0.0, bias[1:])
        gradient = np.append((error * log_p).sum() if slope is None else 0.0, error[:, 1:].sum(axis=0))
        loss = -(weight * corrected[rows, target]).sum() + (pull**2).sum() / 2
        return float(loss), gradient + pull

    start = np.append(1.0, np.zeros(log_p.shape[1] - 1))
    limits = [(0.05, 10.0)] + [(None, None)] * (log_p.shape[1] - 1)
    from scipy.optimize import minimize

    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=limits)
    return parts(found.x)


def _fit_steps(chance: Array, hit: Array, weight: Array) -> tuple[Array, Array]:
    """Knots of the isotonic fit; half a case keeps the ends off 0 and 1."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(out_of_bounds="clip").fit(chance, hit, sample_weight=weight)
    margin = 0.5 / (len(hit) + 1.0)
    x, y = model.X_thresholds_, model.y_thresholds_
    return np.asarray(x, np.float64), np.asarray(np.clip(y, margin, 1.0 - margin), np.float64)
