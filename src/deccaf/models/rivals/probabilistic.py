"""Deferral as a mixture of makers with missing annotations, by EM: Nguyen, Do and Carneiro, *Probabilistic
Learning to Defer: Handling Missing Expert Annotations and Controlling Workload Distribution* (ICLR 2025).

A hidden z says who decides a case: p(z | x) is the gating, p(t_j | x) what expert j would say, p(t_0 | x) the
classifier; the truth is what the decider says, but for a slip. The E-step guesses z and the annotations that
are missing, and moves the guesses of z as little as needed to share the work out; the M-step fits all models.
Here they are heads of one small network on the encoded features (the paper has a network for each).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from deccaf.data.log_odds import log_softmax, softmax
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.models.rivals.annotated import Annotated, Array, Deferral, Ints

_HIDDEN, _ROUNDS, _STEPS, _FIXED_POINT = 24, 12, 25, 5
_SLIP = 1e-3
"""Chance that the truth is drawn at random instead of being what the decider says."""
_RIDGE = 1e-3
_SLACK = 0.1
"""How far a maker's share of the work may be from an equal one, relative to it."""


@dataclass(frozen=True, eq=False)
class _Chances:
    """Log-chances of the gating (cases, makers), the annotations (cases, experts, K) and the classifier."""

    gating: Array
    said: Array
    truth: Array


def probabilistic(known: Annotated, new: pd.DataFrame, seed: int = 0) -> Deferral:
    """EM from a random start; of its rounds the one that explains the truths of the held cases best."""
    encoder = LinearEncoder().fit(known.features)
    everything = encoder.transform(known.features)
    learn = np.flatnonzero(~known.held)
    network = _Network(everything.shape[1], len(known.experts), known.classes, seed)
    x, y, weight = everything[learn], known.truth[learn], known.weight[learn] / known.weight[learn].mean()
    observed, missing = _annotations(known, learn)
    best, parameters = np.inf, network.parameters
    for _ in range(_ROUNDS):
        now = network.chances(x)
        z, t = _guesses(now, y, observed, missing)
        network.fit(x, shared_out(z, 1.0 / z.shape[1]), t, np.eye(known.classes)[y], weight)
        loss = _unexplained(network.chances(everything), known)
        if loss < best:
            best, parameters = loss, network.parameters
    network.parameters = parameters
    found = network.chances(encoder.transform(new))
    return Deferral(-found.gating, found.truth.argmax(axis=1))


def shared_out(z: Array, share: float) -> Array:
    """The nearest guesses (in relative entropy) whose mean by maker lies within the slack around `share`."""
    log_z, price = np.log(np.maximum(z, 1e-12)), np.zeros(z.shape[1])
    for _ in range(100):
        load = softmax(log_z - price, axis=1).mean(axis=0)
        wanted = np.clip(load, (1 - _SLACK) * share, (1 + _SLACK) * share)
        if np.allclose(load, wanted, rtol=1e-3):
            break
        price += np.log(load / wanted)
    return np.asarray(softmax(log_z - price, axis=1))


def _annotations(known: Annotated, rows: Ints) -> tuple[Array, Array]:
    """(cases, experts, K): what was said, smoothed; and (cases, experts, 1): whether it is missing."""
    observed = np.zeros((len(rows), len(known.experts), known.classes))
    missing = np.ones((len(rows), len(known.experts), 1))
    seen = np.flatnonzero(known.expert[rows] >= 0)
    who = known.expert[rows[seen]]
    observed[seen, who] = _SLIP / known.classes
    observed[seen, who, known.decision[rows[seen]]] += 1.0 - _SLIP
    missing[seen, who] = 0.0
    return observed, missing


def _guesses(now: _Chances, y: Ints, observed: Array, missing: Array) -> tuple[Array, Array]:
    """The E-step: who decides, and what those said whose annotations are missing, in turns (mean field)."""
    classes = now.truth.shape[1]
    given = np.log(_SLIP / classes + (1.0 - _SLIP) * np.eye(classes))[:, y].T  # (cases, K): log p(y | t)
    t = missing * np.exp(now.said) + observed
    machine = (np.exp(now.truth) * given).sum(axis=1, keepdims=True)
    for _ in range(_FIXED_POINT):
        z = softmax(now.gating + np.hstack([machine, (t * given[:, None, :]).sum(axis=2)]), axis=1)
        guess = softmax(now.said + z[:, 1:, None] * given[:, None, :], axis=2)
        t = missing * guess + observed
    return z, t


def _unexplained(now: _Chances, known: Annotated) -> float:
    """Weighted -log of the chance that the decider is right, on the held cases (all, if there are none)."""
    rows = np.flatnonzero(known.held) if known.held.any() else np.arange(len(known.truth))
    y = known.truth[rows]
    right = np.column_stack(
        [
            np.exp(now.truth[rows, y]),
            np.exp(now.said[rows[:, None], np.arange(now.said.shape[1]), y[:, None]]),
        ]
    )
    chance = (np.exp(now.gating[rows]) * right).sum(axis=1)
    return float(np.average(-np.log(np.maximum(chance, 1e-12)), weights=known.weight[rows]))


class _Network:
    """One hidden layer and a softmax for the gating, for each expert, and for the classifier."""

    def __init__(self, width: int, experts: int, classes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.experts, self.classes = experts, classes
        self.ends = np.cumsum([1 + experts, *[classes] * (experts + 1)])
        shapes = [(width, _HIDDEN), (_HIDDEN,), (_HIDDEN, int(self.ends[-1])), (int(self.ends[-1]),)]
        self.shapes = shapes
        self.parameters = np.concatenate(
            [(rng.normal(size=shape) / np.sqrt(shape[0]) if len(shape) == 2 else np.zeros(shape)).ravel()
             for shape in shapes]
        )  # fmt: skip

    def chances(self, x: Array) -> _Chances:
        """What the network says of some cases."""
        _, heads = self._forward(self.parameters, x)
        said = np.stack(heads[1:-1], axis=1) if self.experts else np.zeros((len(x), 0, self.classes))
        return _Chances(heads[0], said, heads[-1])

    def fit(self, x: Array, z: Array, t: Array, y: Array, weight: Array) -> None:
        """A few steps down the cross-entropy of all heads."""
        goals = [z, *(t[:, j] for j in range(self.experts)), y]
        goal, scale = np.hstack(goals), weight[:, None] / weight.sum()

        def loss(parameters: Array) -> tuple[float, Array]:
            hidden, heads = self._forward(parameters, x)
            outputs = np.hstack(heads)
            # every goal sums to 1 in its head, so the gradient of a head is its chances less its goal
            back = scale * (np.exp(outputs) - goal)
            _, _, last, _ = self._split(parameters)
            below = (back @ last.T) * (1.0 - hidden**2)
            parts = [x.T @ below, below.sum(axis=0), hidden.T @ back, back.sum(axis=0)]
            gradient = np.concatenate([part.ravel() for part in parts]) + _RIDGE * parameters
            return float(-(scale * goal * outputs).sum() + _RIDGE / 2 * (parameters**2).sum()), gradient

        found = minimize(loss, self.parameters, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        self.parameters = found.x

    def _split(self, parameters: Array) -> list[Array]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = np.split(parameters, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _forward(self, parameters: Array, x: Array) -> tuple[Array, list[Array]]:
        first, shift, last, bias = self._split(parameters)
        hidden = np.tanh(x @ first + shift)
        outputs = np.split(hidden @ last + bias, self.ends[:-1], axis=1)
        return hidden, [np.asarray(log_softmax(part, axis=1)) for part in outputs]
