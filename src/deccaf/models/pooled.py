"""A hierarchical logistic model of decisions: what the team does, and how each expert differs.

For case i with truth y, and expert j, the log-odds of deciding class k against class 0 are

    eta_ijk = (team_k + expert_jk) . z_iy,      z_iy = (features of i, one indicator per truth)

with heavy-tailed priors. For each feature g the team's coefficients have a precision of their own, drawn
around one that is common to all features: most features say little, a few say much. Experts' deviations are
Cauchy with precision b_g: most experts do with a feature what the team does, and a few differ much. Both are
mixtures of Gaussians. An expert with few decisions stays close to the team; one never seen is the team's
average. All precisions are learned from the data by maximising the evidence (EM with a Laplace posterior), so
a feature on which experts do not differ costs nothing. `arrow` does the algebra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deccaf.models.arrow import Array, Coefficients, Ints, Rows, Step, climb, joint_covariance, variances
from deccaf.models.encoding import LinearEncoder
from deccaf.models.log import DecisionLog
from deccaf.models.packing import pack, unpack

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
            "weights": pack(self.weights),
            "covariance": pack(self.covariance[:, lower[0], lower[1]].astype(np.float32)),
            "team_precision": pack(self.team_precision),
            "expert_precision": pack(self.expert_precision),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Posterior:
        """Rebuild what `to_dict` gave."""
        weights, triangle = unpack(data["weights"]), unpack(data["covariance"]).astype(np.float64)
        size = weights.shape[1] * weights.shape[2]
        covariance = np.zeros((len(weights), size, size))
        lower = np.tril_indices(size)
        covariance[:, lower[0], lower[1]] = triangle
        covariance[:, lower[1], lower[0]] = triangle
        return cls(weights, covariance, unpack(data["team_precision"]), unpack(data["expert_precision"]))


def fit_posterior(
    design: Array,
    expert: Ints,
    target: Ints,
    experts: int,
    classes: int,
    groups: Ints,
    weight: Array,
    tails: float = 1.0,
) -> Posterior:
    """Posterior of a hierarchical logistic model: rows of `expert` -1 inform the team only.

    `groups[c]` is the group of column c, whose coefficients share one precision; `tails` are the degrees of
    freedom of the experts' deviations (1: Cauchy, infinity: Gaussian).
    """
    with threadpool_limits(limits=1, user_api="blas"):  # many small matrices: threads would wait for threads
        rows = Rows(design, expert, target, experts, classes, weight)
        at, scales = _start(rows, groups)
        for _ in range(_ROUNDS):
            at, step = climb(rows, at)
            before = np.log([at.team_precision, scales.expert])
            scales = _learn_precisions(at, step, scales, groups, tails)
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


class PooledLogistic:
    """P(decision | features, truth, expert) by partial pooling; see the module's docstring.

    Parameters
    ----------
    tails
        Degrees of freedom of the experts' deviations from the team; infinity is a Gaussian prior.

    Attributes
    ----------
    encoder_ : how features become columns
    posterior_ : coefficients per expert, the team's last, and their covariance
    classes_ : K
    """

    def __init__(self, tails: float = 1.0) -> None:
        self.tails = tails

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> PooledLogistic:
        """Learn from one row per decision; the evidence sets the shrinkage, so `validation` is not used."""
        del validation
        self.classes_ = log.classes
        self.encoder_ = LinearEncoder().fit(log.features)
        groups = np.append(self.encoder_.groups_, np.full(log.classes, len(self.encoder_.groups_)))
        self.posterior_ = fit_posterior(
            self._design(log.features, log.truth),
            log.expert,
            log.decision,
            len(log.experts),
            log.classes,
            groups,
            log.weight,
            self.tails,
        )
        return self

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K): log-chance of each decision for rows of case, truth and expert."""
        design = self._design(features, truth)
        eta = np.zeros((len(design), self.classes_))
        for j in np.unique(expert):
            rows = expert == j
            eta[rows, 1:] = design[rows] @ self.posterior_.weights[j]
        return np.asarray(log_softmax(eta, axis=1))

    def log_table(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K decisions): log-chances for all pairs, by one matrix product."""
        matrix = self.encoder_.transform(features)
        weights = self.posterior_.weights[expert]
        slopes, intercepts = weights[:, : matrix.shape[1]], weights[:, matrix.shape[1] :]
        out = np.zeros((len(matrix), len(expert), self.classes_, self.classes_))
        out[..., 1:] = np.tensordot(matrix, slopes, axes=(1, 1))[:, :, None, :] + intercepts
        return np.asarray(log_softmax(out, axis=-1))

    def covariance(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K - 1, K - 1): posterior covariance of the log-odds against class 0."""
        matrix = self.encoder_.transform(features)
        contrasts, truths = self.classes_ - 1, self.classes_
        out = np.empty((len(matrix), len(expert), truths, contrasts, contrasts))
        for place, j in enumerate(expert):
            blocks = self.posterior_.covariance[j].reshape(contrasts, -1, contrasts, matrix.shape[1] + truths)
            for k, m, y in np.ndindex(contrasts, contrasts, truths):
                design = np.hstack([matrix, np.tile(np.eye(truths)[y], (len(matrix), 1))])
                out[:, place, y, k, m] = ((design @ blocks[k, :, m]) * design).sum(axis=1)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, for a file."""
        return {
            "classes": self.classes_,
            "encoder": self.encoder_.to_dict(),
            "posterior": self.posterior_.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PooledLogistic:
        """Rebuild what `to_dict` gave."""
        model = cls()
        model.classes_ = int(data["classes"])
        model.encoder_ = LinearEncoder.from_dict(data["encoder"])
        model.posterior_ = Posterior.from_dict(data["posterior"])
        return model

    def _design(self, features: pd.DataFrame, truth: Ints) -> Array:
        return np.hstack([self.encoder_.transform(features), np.eye(self.classes_)[truth]])
