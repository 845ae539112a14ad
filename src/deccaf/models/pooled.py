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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import log_expit, log_softmax
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deccaf.models.arrow import Array, Coefficients, Ints, Rows, Step, climb, joint_covariance, variances
from deccaf.models.encoding import LinearEncoder
from deccaf.models.log import DecisionLog
from deccaf.models.packing import pack, unpack
from deccaf.models.rates import dirichlet_strength

_PRECISION = (1e-3, 1e4)
_ROUNDS = 25
_SETTLED = 0.02
_CALM = 3.0
_TEAM_TAILS = 2.0
_OPERATIONS = 1e9
"""Experts x coefficients^3 in one step of the algebra, at most."""
_COEFFICIENTS = (40, 300)


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

    The algebra costs experts x coefficients^3. Where that is too much, with many classes the model is of
    being right or wrong, with the expert's own (shrunken) rates of what a wrong decision is; and with many
    features it sees those that say most about decisions.

    Parameters
    ----------
    tails
        Degrees of freedom of the experts' deviations from the team; infinity is a Gaussian prior.

    Attributes
    ----------
    encoder_ : how features become columns
    posterior_ : coefficients per expert, the team's last, and their covariance
    classes_ : K
    errors_ : None, or (experts + 1, K truths, K decisions): what wrong decisions are, 0 on the diagonal
    """

    def __init__(self, tails: float = 1.0) -> None:
        self.tails = tails

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> PooledLogistic:
        """Learn from one row per decision; the evidence sets the shrinkage, so `validation` is not used."""
        del validation
        self.classes_ = log.classes
        most = most_coefficients(len(log.experts))
        self.encoder_ = LinearEncoder().fit(log.features)
        matrix = self.encoder_.transform(log.features)
        wide = (matrix.shape[1] + log.classes) * (log.classes - 1) > most
        self.errors_ = error_shares(log) if wide and log.classes > 2 else None
        target = log.decision if self.errors_ is None else (log.decision == log.truth).astype(np.int64)
        room = most // self._contrasts - log.classes
        if matrix.shape[1] > room:
            kept = telling_features(matrix, self.encoder_.widths, target, log.truth, log.weight, room)
            self.encoder_ = self.encoder_.only(kept)
            matrix = self.encoder_.transform(log.features)
        groups = np.append(self.encoder_.groups_, np.full(log.classes, len(self.encoder_.groups_)))
        self.posterior_ = fit_posterior(
            np.hstack([matrix, np.eye(log.classes)[log.truth]]),
            log.expert,
            target,
            len(log.experts),
            self._contrasts + 1,
            groups,
            log.weight,
            self.tails,
        )
        return self

    @property
    def _contrasts(self) -> int:
        return self.classes_ - 1 if self.errors_ is None else 1

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K): log-chance of each decision for rows of case, truth and expert."""
        design = np.hstack([self.encoder_.transform(features), np.eye(self.classes_)[truth]])
        eta = np.zeros((len(design), self._contrasts + 1))
        for j in np.unique(expert):
            rows = expert == j
            eta[rows, 1:] = design[rows] @ self.posterior_.weights[j]
        if self.errors_ is None:
            return np.asarray(log_softmax(eta, axis=1))
        out = log_expit(-eta[:, 1:]) + _log(self.errors_[expert, truth])
        out[np.arange(len(out)), truth] = log_expit(eta[:, 1])
        return np.asarray(out)

    def log_table(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K decisions): log-chances for all pairs, by one matrix product."""
        matrix = self.encoder_.transform(features)
        weights = self.posterior_.weights[expert]
        slopes, intercepts = weights[:, : matrix.shape[1]], weights[:, matrix.shape[1] :]
        eta = np.tensordot(matrix, slopes, axes=(1, 1))[:, :, None, :] + intercepts
        if self.errors_ is None:
            out = np.zeros((len(matrix), len(expert), self.classes_, self.classes_))
            out[..., 1:] = eta
            return np.asarray(log_softmax(out, axis=-1))
        out = log_expit(-eta) + _log(self.errors_[expert])
        own = np.arange(self.classes_)
        out[..., own, own] = log_expit(eta[..., 0])
        return np.asarray(out)

    def slopes(self, place: int, truth: int, k: int) -> Array:
        """What each column adds to the log-odds that an expert says k and not 0 if the truth is `truth`."""
        weights = self.posterior_.weights[place]
        if self.errors_ is None:
            return np.asarray(weights[:, k - 1])
        return np.asarray(weights[:, 0] * (float(k == truth) - float(truth == 0)))

    def covariance(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K - 1, K - 1): posterior covariance of the log-odds against class 0."""
        matrix = self.encoder_.transform(features)
        contrasts, truths = self._contrasts, self.classes_
        out = np.empty((len(matrix), len(expert), truths, contrasts, contrasts))
        for place, j in enumerate(expert):
            blocks = self.posterior_.covariance[j].reshape(contrasts, -1, contrasts, matrix.shape[1] + truths)
            for k, m, y in np.ndindex(contrasts, contrasts, truths):
                design = np.hstack([matrix, np.tile(np.eye(truths)[y], (len(matrix), 1))])
                out[:, place, y, k, m] = ((design @ blocks[k, :, m]) * design).sum(axis=1)
        if self.errors_ is None:
            return out
        lever = np.eye(truths)[:, 1:] - np.eye(truths)[:, :1]  # how each log-odds moves with being right
        return np.asarray(out * (lever[:, :, None] * lever[:, None, :]))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, for a file."""
        return {
            "classes": self.classes_,
            "encoder": self.encoder_.to_dict(),
            "posterior": self.posterior_.to_dict(),
            "errors": None if self.errors_ is None else pack(self.errors_),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PooledLogistic:
        """Rebuild what `to_dict` gave."""
        model = cls()
        model.classes_ = int(data["classes"])
        model.encoder_ = LinearEncoder.from_dict(data["encoder"])
        model.posterior_ = Posterior.from_dict(data["posterior"])
        errors = data.get("errors")
        model.errors_ = None if errors is None else unpack(errors)
        return model


def most_coefficients(experts: int) -> int:
    """How many coefficients an expert may have, so that a step takes seconds at most."""
    return int(np.clip((_OPERATIONS / max(experts, 1)) ** (1 / 3), *_COEFFICIENTS))


def error_shares(log: DecisionLog) -> Array:
    """(experts + 1, K, K): what wrong decisions are, by expert and truth, shrunk to the team's."""
    wrong = log.take(log.decision != log.truth)
    counts = np.zeros((len(log.experts), log.classes, log.classes))
    np.add.at(counts, (wrong.expert, wrong.truth, wrong.decision), wrong.weight)
    team = counts.sum(axis=0) + 1.0 - np.eye(log.classes)
    team /= team.sum(axis=1, keepdims=True)
    shares = np.empty((len(counts) + 1, *team.shape))
    for y in range(log.classes):
        others = np.arange(log.classes) != y
        strength = dirichlet_strength(counts[:, y][:, others], team[y, others])
        shares[:-1, y] = counts[:, y] + strength * team[y]
    shares[-1] = team
    return np.asarray(shares / shares.sum(axis=2, keepdims=True))


def telling_features(
    matrix: Array, widths: Sequence[int], target: Ints, known: Ints, weight: Array, room: int
) -> list[int]:
    """The features that say most about a target given what is known, as many as there is room for.

    By score tests: how far each column goes with what the known class leaves unexplained.
    """
    left = np.eye(int(target.max()) + 1)[target]
    for y in np.unique(known):
        rows = known == y
        left[rows] -= np.average(left[rows], axis=0, weights=weight[rows])
    pull = ((weight[:, None] * matrix).T @ left) ** 2
    spread = (weight[:, None] * matrix**2).sum(axis=0)
    score = (pull / np.maximum(spread[:, None], 1e-12)).sum(axis=1)
    ends = np.cumsum(widths)
    by_feature = np.array([score[end - width : end].sum() for end, width in zip(ends, widths, strict=True)])
    order = np.argsort(-by_feature, kind="stable")
    fits = np.cumsum(np.asarray(widths)[order]) <= room
    return sorted(order[fits].tolist())


def _log(shares: Array) -> Array:
    return np.asarray(np.log(np.maximum(shares, 1e-300)))
