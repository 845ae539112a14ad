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
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

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

_PRECISION = (1e-3, 1e4)
_ROUNDS = 25
_SETTLED = 0.02
_CALM = 3.0
_TEAM_TAILS = 2.0


@dataclass(frozen=True)
class Posterior:
    """Coefficients and their spread; the last row stands for an expert never seen.

    `weights[j]` is (columns, K - 1); `covariance[j]` is square over the same coefficients, class by class.
    """

    weights: Array
    covariance: Array
    team_precision: Array
    expert_precision: Array

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
    common: Ints | None = None,
) -> Posterior:
    """Posterior of a hierarchical logistic model: rows of `expert` -1 inform the team only.

    `groups[c]` is the group of column c, whose coefficients share one precision; `tails` are the degrees of
    freedom of the experts' deviations (1: Cauchy, infinity: Gaussian). Nobody deviates in the columns
    `common`.
    """
    alike = np.empty(0, np.int64) if common is None else common
    with threadpool_limits(limits=1, user_api="blas"):  # many small matrices: threads would wait for threads
        rows = Rows(design, expert, target, experts, classes, weight)
        at, scales = _start(rows, groups)
        at.expert_precision[:, alike] = _PRECISION[1]
        for _ in range(_ROUNDS):
            at, step = climb(rows, at)
            before = np.log([at.team_precision, scales.expert])
            scales = _learn_precisions(at, step, scales, groups, tails)
            at.expert_precision[:, alike] = _PRECISION[1]
            if np.abs(np.log([at.team_precision, scales.expert]) - before).mean() < _SETTLED:
                break
        at, step = climb(rows, at)
        return _posterior(at, step)


@dataclass(frozen=True)
class _Scales:
    """What precisions are shrunk to: one number for the team's features, one per column for the experts."""

    team: float
    expert: Array


def _start(rows: Rows, groups: Ints) -> tuple[Coefficients, _Scales]:
    """Before any data, all features together move the log-odds with a variance of 1 / _CALM.

    A short log leaves precisions where they start, so the start must be calm.
    """
    intercept = groups == groups.max()
    precision = max(_CALM * float(rows.design[:, ~intercept].var(axis=0).sum()), 1.0)
    own = np.where(intercept, 1.0, precision)
    shape = (rows.columns, rows.contrasts)
    at = Coefficients(
        team=np.zeros(shape),
        expert=np.zeros((rows.experts, *shape)),
        team_precision=np.where(intercept, 0.5, precision),
        expert_precision=np.tile(own, (rows.experts, 1)),
    )
    return at, _Scales(precision, own)


def _learn_precisions(at: Coefficients, step: Step, scales: _Scales, groups: Ints, tails: float) -> _Scales:
    """One EM step, in place; gives the new scales.

    A precision is the mean of its posterior, Gamma((tails + size) / 2, rate (tails / scale + size * mean
    square) / 2), with the mean square of its coefficients, posterior variance included. The scale is the mean
    of the precisions: over the features for the team, over the experts for each feature. The intercepts (the
    last group) are few and well known: theirs is the plain inverse mean square for the team.
    """
    contrasts = at.team.shape[1]
    size = np.bincount(groups)[groups] * contrasts
    team_variance, expert_variance = variances(step, contrasts)
    squares = _group_means((at.team**2 + team_variance)[None], groups)[0]
    shrunk = (_TEAM_TAILS + size) / (_TEAM_TAILS / scales.team + size * squares)
    at.team_precision = np.clip(np.where(groups == groups.max(), 1.0 / squares, shrunk), *_PRECISION)
    each = np.unique(groups, return_index=True)[1][:-1]
    team = float(at.team_precision[each].mean()) if len(each) else scales.team
    if not len(at.expert):
        return _Scales(team, scales.expert)
    squares = _group_means(at.expert**2 + expert_variance, groups)
    if np.isinf(tails):
        precision = np.broadcast_to(1.0 / squares.mean(axis=0), squares.shape)
    else:
        precision = (tails + size) / (tails / scales.expert + size * squares)
    at.expert_precision = np.clip(precision, *_PRECISION)
    return _Scales(team, at.expert_precision.mean(axis=0))


def _group_means(squares: Array, groups: Ints) -> Array:
    """(experts, columns, contrasts) to (experts, columns): the mean over each column's group."""
    sums = np.zeros((len(squares), int(groups.max(initial=0)) + 1))
    np.add.at(sums.T, groups, squares.mean(axis=2).T)
    counts = np.maximum(np.bincount(groups, minlength=sums.shape[1]), 1)
    return np.asarray(np.maximum(sums / counts, 1e-12)[:, groups])


def _posterior(at: Coefficients, step: Step) -> Posterior:
    contrasts = at.team.shape[1]
    newcomer = step.schur_inverse
    if len(at.expert):
        differ = (at.expert**2 + variances(step, contrasts)[1]).mean(axis=0)
        newcomer = newcomer + np.diag(differ.T.ravel())
    return Posterior(
        weights=np.concatenate([at.team + at.expert, at.team[None]]),
        covariance=np.concatenate([joint_covariance(step), newcomer[None]]),
        team_precision=at.team_precision,
        expert_precision=at.expert_precision,
    )
