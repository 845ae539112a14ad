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

from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.rates import dirichlet_strength
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
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.models.packing import pack, unpack

FORMS = ("choice", "difficulty", "right")
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


class PooledLogistic:
    """P(decision | features, truth, expert) by partial pooling; see the module's docstring.

    The algebra costs experts x coefficients^3. Where that is too much, with many classes the model is of
    being right or wrong, with the expert's own (shrunken) rates of what a wrong decision is; and with many
    features it sees those that say most about decisions.

    Besides what a feature makes people say there is what it does to their being right: some cases are harder
    than others, whatever their truth. Held-out decisions tell whether that is worth its coefficients.

    Parameters
    ----------
    tails
        Degrees of freedom of the experts' deviations from the team; infinity is a Gaussian prior.
    form
        One of `FORMS`; None: the first that fits, or what held-out decisions prefer.

    Attributes
    ----------
    form_ : "choice": features move what is said; "difficulty": two classes, features also make cases harder
        or easier, for everybody alike; "right": features move only whether a decision is right
    encoder_ : how features become columns
    posterior_ : coefficients per expert, the team's last, and their covariance
    classes_ : K
    errors_ : None, or (experts + 1, K truths, K decisions): what wrong decisions are, 0 on the diagonal
    """

    def __init__(self, tails: float = 1.0, form: str | None = None) -> None:
        self.tails = tails
        self.form = form

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> PooledLogistic:
        """Learn from one row per decision; the evidence sets the shrinkage, `validation` chooses the form."""
        encoder = LinearEncoder().fit(log.features)
        forms = possible_forms(len(encoder.groups_), len(log.experts), log.classes)
        if self.form in forms:
            forms = [str(self.form)]
        self._learn(log, encoder, forms[0])
        if validation is not None and len(validation):
            for form in forms[1:]:
                other = PooledLogistic(self.tails)._learn(log, encoder, form)
                if _clearly_better(other, self, validation):
                    vars(self).update({**vars(other), "form": self.form})
        return self

    def _learn(self, log: DecisionLog, encoder: LinearEncoder, form: str) -> PooledLogistic:
        self.form_, self.classes_ = form, log.classes
        self.errors_ = error_shares(log) if form == "right" else None
        target = (log.decision == log.truth).astype(np.int64) if form == "right" else log.decision
        matrix = encoder.transform(log.features)
        room = most_coefficients(len(log.experts)) // self._contrasts - log.classes
        if matrix.shape[1] > room:
            kept = telling_features(matrix, encoder.widths, target, log.truth, log.weight, room)
            encoder = encoder.only(kept)
            matrix = encoder.transform(log.features)
        self.encoder_ = encoder
        groups, width = encoder.groups_, matrix.shape[1]
        common = np.empty(0, np.int64)
        if form == "difficulty":
            groups = np.concatenate([groups, groups + groups.max(initial=-1) + 1])
            common = np.arange(width, 2 * width)
        last = groups.max(initial=-1) + 1
        self.posterior_ = fit_posterior(
            self._design(matrix, log.truth),
            log.expert,
            target,
            len(log.experts),
            self._contrasts + 1,
            np.append(groups, np.full(log.classes, last)),
            log.weight,
            self.tails,
            common,
        )
        return self

    @property
    def _contrasts(self) -> int:
        return self.classes_ - 1 if self.errors_ is None else 1

    def _design(self, matrix: Array, truth: Ints) -> Array:
        """Columns for rows of case and truth."""
        parts = [matrix, np.eye(self.classes_)[truth]]
        if self.form_ == "difficulty":
            parts.insert(1, matrix * (2 * truth - 1)[:, None])  # towards the truth, whichever it is
        return np.hstack(parts)

    def _split(self, weights: Array) -> tuple[Array, Array, Array]:
        """(..., columns, contrasts) as slopes, slopes of difficulty (none: empty), intercepts."""
        width = len(self.encoder_.groups_)
        slopes, rest = weights[..., :width, :], weights[..., width:, :]
        if self.form_ != "difficulty":
            return slopes, rest[..., :0, :], rest
        return slopes, rest[..., :width, :], rest[..., width:, :]

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K): log-chance of each decision for rows of case, truth and expert."""
        design = self._design(self.encoder_.transform(features), truth)
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
        slopes, harder, intercepts = self._split(self.posterior_.weights[expert])
        eta = np.tensordot(matrix, slopes, axes=(1, 1))[:, :, None, :] + intercepts
        if harder.size:
            eta += np.tensordot(matrix, harder, axes=(1, 1))[:, :, None, :] * np.array([-1.0, 1.0])[:, None]
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
        slopes, harder, _ = self._split(self.posterior_.weights[place])
        if self.form_ == "right":
            return np.asarray(slopes[:, 0] * (float(k == truth) - float(truth == 0)))
        if self.form_ == "difficulty":
            slopes = slopes + harder * (2 * truth - 1)
        return np.asarray(slopes[:, k - 1])

    def covariance(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K - 1, K - 1): posterior covariance of the log-odds against class 0."""
        matrix = self.encoder_.transform(features)
        contrasts, truths = self._contrasts, self.classes_
        out = np.empty((len(matrix), len(expert), truths, contrasts, contrasts))
        for y in range(truths):
            design = self._design(matrix, np.full(len(matrix), y))
            for place, j in enumerate(expert):
                blocks = self.posterior_.covariance[j].reshape(contrasts, -1, contrasts, design.shape[1])
                for k, m in np.ndindex(contrasts, contrasts):
                    out[:, place, y, k, m] = ((design @ blocks[k, :, m]) * design).sum(axis=1)
        if self.errors_ is None:
            return out
        lever = np.eye(truths)[:, 1:] - np.eye(truths)[:, :1]  # how each log-odds moves with being right
        return np.asarray(out * (lever[:, :, None] * lever[:, None, :]))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, for a file."""
        return {
            "form": self.form_,
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
        errors = data.get("errors")  # files of earlier versions have no form but "choice"
        model.errors_ = None if errors is None else unpack(errors)
        model.form_ = data.get("form", "choice")
        return model


def possible_forms(columns: int, experts: int, classes: int) -> list[str]:
    """The forms whose algebra is quick enough, the plainest first; at least one."""
    most = most_coefficients(experts)
    fits = (columns + classes) * (classes - 1) <= most
    if classes == 2:
        return ["choice", "difficulty"] if 2 * columns + classes <= most else ["choice"]
    return ["choice", "right"] if fits else ["right"]


def _clearly_better(one: PooledLogistic, other: PooledLogistic, held: DecisionLog) -> bool:
    """Whether the first foretells held-out decisions better, by more than two standard errors."""
    here = np.arange(len(held))
    said = [m.log_rows(held.features, held.truth, held.expert)[here, held.decision] for m in (one, other)]
    gain, weight = said[0] - said[1], held.weight / held.weight.mean()
    mean = float((weight * gain).mean())
    return bool(mean > 2 * float((weight * (gain - mean)).std()) / np.sqrt(len(held)))


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
    kept = []
    for place in np.argsort(-by_feature, kind="stable").tolist():
        if widths[place] <= room:  # a category with very many levels must not crowd out all else
            kept.append(place)
            room -= widths[place]
    return sorted(kept)


def _log(shares: Array) -> Array:
    return np.asarray(np.log(np.maximum(shares, 1e-300)))
