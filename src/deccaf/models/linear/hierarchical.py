"""A hierarchical logistic model: what the team does, and how each expert differs from it.

The log-odds of class k against class 0 in a row of expert j with columns z are

    eta_jk = (team_k + expert_jk) . z

with heavy-tailed priors. For each feature g the team's coefficients have a precision of their own, drawn
around one that is common to all features: most features say little, a few say much. Experts' deviations are
Cauchy with precision b_g: most experts do with a feature what the team does, and a few differ much. Both are
mixtures of Gaussians. An expert with few rows stays close to the team; one never seen is the team's average.
All precisions are learned from the data by maximising the evidence (EM with a Laplace posterior), so a
feature on which experts do not differ costs nothing. `block_newton` does the algebra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deccaf.models.linear.block_newton import (
    Array,
    Coefficients,
    Ints,
    Rows,
    Step,
    climb,
    joint_covariance,
    variances,
)
from deccaf.threads import one_thread

_PRECISION = (1e-3, 1e4)
_ROUNDS = 25
_SETTLED = 0.02
_CALM = 3.0
_TEAM_TAILS = 2.0
LONG = 20_000
"""Rows from which there are half as many rounds, and each goes nearly twice as far. All end before precisions
are at rest: where people have few decisions each, what they settle at predicts worse."""
_LONG_ROUNDS, _REACH = 14, 1.8
_ROUNDS_AGAIN = 4
"""Where another fit has ended."""


@dataclass(frozen=True)
class Posterior:
    """Coefficients and their spread; the last row stands for an expert never seen.

    `weights[j]` is (columns, K - 1); `covariance[j]` is square over the same coefficients, class by class.
    """

    weights: Array
    covariance: Array
    team_precision: Array
    expert_precision: Array

    def take(self, columns: Ints) -> Posterior:
        """With the columns in another order."""
        size, contrasts = self.weights.shape[1:]
        places = (np.arange(contrasts)[:, None] * size + columns).ravel()
        return Posterior(
            self.weights[:, columns],
            self.covariance[:, places[:, None], places],
            self.team_precision[columns],
            self.expert_precision[:, columns],
        )

    def to_dict(self) -> dict[str, Any]:
        """For a file; the covariance (symmetric) by its lower triangle, in single precision."""
        lower = np.tril_indices(self.covariance.shape[1])
        return {
            "weights": self.weights,
            "covariance": self.covariance[:, lower[0], lower[1]].astype(np.float32),
            "team_precision": self.team_precision,
            "expert_precision": self.expert_precision,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Posterior:
        """Rebuild what `to_dict` gave."""
        weights, triangle = data["weights"], data["covariance"].astype(np.float64)
        size = weights.shape[1] * weights.shape[2]
        covariance = np.zeros((len(weights), size, size))
        lower = np.tril_indices(size)
        covariance[:, lower[0], lower[1]] = triangle
        covariance[:, lower[1], lower[0]] = triangle
        return cls(weights, covariance, data["team_precision"], data["expert_precision"])


def fit_posterior(
    design: Array,
    expert: Ints,
    target: Ints,
    experts: int,
    classes: int,
    groups: Ints,
    weight: Array,
    tails: float = 1.0,
    sign: Array | None = None,
    begin: Posterior | None = None,
) -> Posterior:
    """Posterior of a hierarchical logistic model: rows of `expert` -1 inform the team only.

    `groups[c]` is the group of column c, whose coefficients share one precision; `tails` are the degrees of
    freedom of the experts' deviations (1: Cauchy, infinity: Gaussian). With a `sign` for each row there are
    further groups, of as many of the first columns times the sign, in which nobody deviates. `begin` is a
    posterior to begin with, of the same columns: fewer rounds are needed then.
    """
    signed = len(groups) - design.shape[1]
    import scipy.linalg  # noqa: F401  # it brings a matrix library of its own

    with one_thread():  # many small matrices
        rows = Rows(design, expert, target, experts, classes, weight, sign, signed)
        at, scales = _start(rows, groups)
        if begin is not None:
            at, scales = _again(scales, begin, rows.columns, groups)
        long = len(design) >= LONG
        rounds = _LONG_ROUNDS if long else _ROUNDS
        for _ in range(rounds if begin is None else _ROUNDS_AGAIN):
            at, step = climb(rows, at)
            before = _logs(at, scales)
            scales = _learn_precisions(at, step, scales, groups, tails, _REACH if long else 1.0)
            if np.abs(_logs(at, scales) - before).mean() < _SETTLED:
                break
        at, step = climb(rows, at)
        return _posterior(at, step)


@dataclass(frozen=True)
class _Scales:
    """What precisions are shrunk to: one number for the team's features, one per column for the experts."""

    team: float
    expert: Array


def _logs(at: Coefficients, scales: _Scales) -> Array:
    return np.asarray(np.log(np.concatenate([at.team_precision, scales.expert])))


def _start(rows: Rows, groups: Ints) -> tuple[Coefficients, _Scales]:
    """Before any data, all features together move the log-odds with a variance of 1 / _CALM.

    A short log leaves precisions where they start, so the start must be calm.
    """
    intercept = groups == groups.max()
    spread = float(rows.design[:, ~intercept[: rows.columns]].var(axis=0).sum())
    if rows.sign is not None and rows.signed:
        plain, count = rows.design[:, : rows.signed], max(len(rows.design), 1)
        spread += float(
            (np.einsum("ic,ic->c", plain, plain) / count - (rows.sign @ plain / count) ** 2).sum()
        )
    precision = max(_CALM * spread, 1.0)
    both = np.where(intercept, 1.0, precision)
    own = both[: rows.columns]
    at = Coefficients(
        team=np.zeros((len(groups), rows.contrasts)),
        expert=np.zeros((rows.experts, rows.columns, rows.contrasts)),
        team_precision=np.where(intercept, 0.5, precision),
        expert_precision=np.tile(own, (rows.experts, 1)),
    )
    return at, _Scales(precision, own)


def _again(scales: _Scales, begin: Posterior, columns: int, groups: Ints) -> tuple[Coefficients, _Scales]:
    """Where another fit has ended."""
    at = Coefficients(
        begin.weights[-1].copy(),
        begin.weights[:-1, :columns] - begin.weights[-1, :columns],
        begin.team_precision.copy(),
        begin.expert_precision[:, :columns].copy(),
    )
    return at, _Scales(_team_scale(at, groups, scales.team), at.expert_precision.mean(axis=0))


def _team_scale(at: Coefficients, groups: Ints, otherwise: float) -> float:
    """The mean precision of the team's features."""
    each = np.unique(groups, return_index=True)[1][:-1]
    return float(at.team_precision[each].mean()) if len(each) else otherwise


def _learn_precisions(
    at: Coefficients, step: Step, scales: _Scales, groups: Ints, tails: float, reach: float
) -> _Scales:
    """One EM step, in place, or `reach` times as far in the logarithms (below 2); gives the new scales.

    A precision is the mean of its posterior, Gamma((tails + size) / 2, rate (tails / scale + size * mean
    square) / 2), with the mean square of its coefficients, posterior variance included. The scale is the mean
    of the precisions: over the features for the team, over the experts for each feature. The intercepts (the
    last group) are few and well known: theirs is the plain inverse mean square for the team.
    """
    contrasts, columns = at.team.shape[1], at.expert.shape[1]
    size = np.bincount(groups)[groups] * contrasts
    team_variance, expert_variance = variances(step, contrasts)
    squares = _group_means((at.team**2 + team_variance)[None], groups)[0]
    shrunk = (_TEAM_TAILS + size) / (_TEAM_TAILS / scales.team + size * squares)
    new = np.where(groups == groups.max(), 1.0 / squares, shrunk)
    at.team_precision = _reached(at.team_precision, new, reach)
    team = _team_scale(at, groups, scales.team)
    if not len(at.expert):
        return _Scales(team, scales.expert)
    squares, size = _group_means(at.expert**2 + expert_variance, groups[:columns]), size[:columns]
    if np.isinf(tails):
        precision = np.broadcast_to(1.0 / squares.mean(axis=0), squares.shape)
    else:
        precision = (tails + size) / (tails / scales.expert + size * squares)
    at.expert_precision = _reached(at.expert_precision, precision, reach)
    return _Scales(team, at.expert_precision.mean(axis=0))


def _reached(old: Array, new: Array, reach: float) -> Array:
    further = new if reach == 1.0 else old * (new / old) ** reach
    return np.clip(further, *_PRECISION)


def _group_means(squares: Array, groups: Ints) -> Array:
    """(experts, columns, contrasts) to (experts, columns): the mean over each column's group."""
    sums = np.zeros((len(squares), int(groups.max(initial=0)) + 1))
    np.add.at(sums.T, groups, squares.mean(axis=2).T)
    counts = np.maximum(np.bincount(groups, minlength=sums.shape[1]), 1)
    return np.asarray(np.maximum(sums / counts, 1e-12)[:, groups])


def _posterior(at: Coefficients, step: Step) -> Posterior:
    contrasts, columns = at.team.shape[1], at.expert.shape[1]
    weights = np.repeat(at.team[None], len(at.expert) + 1, axis=0)
    weights[:-1, :columns] += at.expert
    newcomer = step.schur_inverse
    if len(at.expert):
        differ = np.zeros_like(at.team)
        differ[:columns] = (at.expert**2 + variances(step, contrasts)[1]).mean(axis=0)
        newcomer = newcomer + np.diag(differ.T.ravel())
    precision = np.full(
        (len(at.expert), len(at.team)), _PRECISION[1]
    )  # nobody deviates where there is a sign
    precision[:, :columns] = at.expert_precision
    return Posterior(
        weights=weights,
        covariance=np.concatenate([joint_covariance(step), newcomer[None]]),
        team_precision=at.team_precision,
        expert_precision=precision,
    )
