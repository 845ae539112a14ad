"""A logistic model of decisions: what the team does, and how each expert differs.

For case i with truth y, and expert j, the log-odds of deciding class k against class 0 are

    eta_ijk = (team_k + expert_jk) . z_iy,      z_iy = (features of i, one indicator per truth)

with the priors of `deccaf.models.linear.hierarchical`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.folds import error_of
from deccaf.data.log_odds import log_expit, log_softmax
from deccaf.models.contributions import linear_contributions
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.rates import dirichlet_strength
from deccaf.models.linear import hierarchical
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.models.linear.hierarchical import Posterior, fit_posterior
from deccaf.models.linear.selection import most_informative
from deccaf.models.protocols import DecisionPart
from deccaf.models.rows import rows_by

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMS = ("choice", "difficulty", "right")
_OPERATIONS = 1e9
"""Experts x coefficients^3 in one step of the algebra, at most."""
_COEFFICIENTS = (40, 300)
_COVARIANCES = 25e6
"""Numbers that everybody's covariances may take (200 MB), for difficulty to be tried."""


class PooledLogistic(DecisionPart):
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
    begin
        A fitted model, whose coefficients the search for those of a long log begins with.

    Attributes
    ----------
    form_ : "choice": features move what is said; "difficulty": two classes, features also make cases harder
        or easier, for everybody alike; "right": features move only whether a decision is right
    encoder_ : how features become columns
    posterior_ : coefficients per expert, the team's last, and their covariance
    classes_ : K
    errors_ : None, or (experts + 1, K truths, K decisions): what wrong decisions are, 0 on the diagonal
    """

    name = "pooled"
    family = "logistic"

    def __init__(
        self, tails: float = 1.0, form: str | None = None, begin: PooledLogistic | None = None
    ) -> None:
        self.tails = tails
        self.form = form
        self.begin = begin

    def next_trial(self, trials: Sequence[PooledLogistic]) -> PooledLogistic:
        """The first trial chooses the form for the others: trying all forms takes several times as long."""
        return PooledLogistic(self.tails, trials[0].form_ if trials else self.form)

    def settled(self, trials: Sequence[PooledLogistic]) -> PooledLogistic:
        """With the form that most trials chose."""
        forms = [trial.form_ for trial in trials]
        if not forms:
            return PooledLogistic(self.tails, self.form)
        form = max(forms, key=forms.count)
        return PooledLogistic(self.tails, form, trials[forms.index(form)])

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> PooledLogistic:
        """Learn from one row per decision; the evidence sets the shrinkage, `validation` chooses the form."""
        encoder = LinearEncoder().fit(log.features)
        forms = possible_forms(len(encoder.groups_), len(log.experts), log.classes)
        if self.form in forms:
            forms = [str(self.form)]
        self._learn(log, encoder, forms[0], self.begin)
        self.begin = None  # it has served
        if validation is not None and len(validation):
            for form in forms[1:]:
                other = PooledLogistic(self.tails)._learn(log, encoder, form)
                if _clearly_better(other, self, validation):
                    vars(self).update({**vars(other), "form": self.form})
        return self

    def _learn(
        self, log: DecisionLog, encoder: LinearEncoder, form: str, begin: PooledLogistic | None = None
    ) -> PooledLogistic:
        self.form_, self.classes_ = form, log.classes
        self.errors_ = error_shares(log) if form == "right" else None
        target = (log.decision == log.truth).astype(np.int64) if form == "right" else log.decision
        matrix = encoder.transform(log.features)
        room = most_coefficients(len(log.experts)) // self._contrasts - log.classes
        if matrix.shape[1] > room:
            kept = most_informative(matrix, encoder.widths, target, log.truth, log.weight, room)
            encoder = encoder.only(kept)
            matrix = encoder.transform(log.features)
        self.encoder_ = encoder
        groups, harder = encoder.groups_, np.empty(0, np.int64)
        if form == "difficulty":
            harder = groups + groups.max(initial=-1) + 1
        last = max(groups.max(initial=-1), harder.max(initial=-1)) + 1
        toward = np.where(log.truth > 0, 1.0, -1.0)  # the truth, whichever it is
        found = fit_posterior(
            np.hstack([matrix, np.eye(log.classes)[log.truth]]),
            log.expert,
            target,
            len(log.experts),
            self._contrasts + 1,
            np.concatenate([groups, np.full(log.classes, last), harder]),
            log.weight,
            self.tails,
            toward if form == "difficulty" else None,
            self._beginning(begin, log),
        )
        self.posterior_ = found.take(np.argsort(self._order))
        return self

    def _beginning(self, begin: PooledLogistic | None, log: DecisionLog) -> Posterior | None:
        """What to begin with, as it is learned; None: nothing known fits, or the log is short."""
        if begin is None or begin.form_ != self.form_ or len(log) < hierarchical.LONG:
            return None
        shape = (len(log.experts) + 1, len(self._order), self._contrasts)
        return begin.posterior_.take(self._order) if begin.posterior_.weights.shape == shape else None

    @property
    def _order(self) -> Ints:
        """Columns of the design as they are learned: first those in which people differ."""
        width = len(self.encoder_.groups_)
        harder = width if self.form_ == "difficulty" else 0
        places = np.arange(width + harder + self.classes_)
        return np.concatenate([places[:width], places[width + harder :], places[width : width + harder]])

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
        matrix = self.encoder_.transform(features)
        eta = np.zeros((len(matrix), self._contrasts + 1))
        for j, rows in rows_by(expert):
            mine, y = matrix[rows], truth[rows]
            slopes, harder, intercepts = self._split(self.posterior_.weights[j])
            eta[rows, 1:] = mine @ slopes + intercepts[y]
            if harder.size:
                eta[rows, 1:] += (mine @ harder) * (2 * y - 1)[:, None]
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

    def log_odds(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, truths, experts): log-odds of the decision 1, where there are two classes."""
        if self.errors_ is not None:
            return super().log_odds(features, expert)
        matrix = self.encoder_.transform(features)
        slopes, harder, intercepts = self._split(self.posterior_.weights[expert][..., 0:1])
        eta = (matrix @ slopes[..., 0].T)[:, None, :] + intercepts[..., 0].T
        if harder.size:
            hard = matrix @ harder[..., 0].T
            eta[:, 0] -= hard
            eta[:, 1] += hard
        return np.asarray(eta)

    def log_odds_rows(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(rows, truths): the same for rows of case and expert."""
        if self.errors_ is not None:
            return super().log_odds_rows(features, expert)
        matrix = self.encoder_.transform(features)
        eta = np.empty((len(matrix), 2))
        for j, rows in rows_by(expert):
            slopes, harder, intercepts = self._split(self.posterior_.weights[j])
            mine = matrix[rows]
            eta[rows] = mine @ slopes + intercepts.T
            if harder.size:
                eta[rows] += (mine @ harder) * np.array([-1.0, 1.0])
        return eta

    def design(self, features: pd.DataFrame, truth: Ints) -> Array:
        """(rows, columns) for rows of case and truth, as the posterior has them."""
        return self._design(self.encoder_.transform(features), truth)

    def spread(self, expert: int) -> Array:
        """Covariance of somebody's coefficients, contrast by contrast; one past the last: a newcomer.

        People differ with heavy tails: most hardly, a few much. The variance over all takes a newcomer
        for one of the few, that of the core for one of the many; a newcomer has the geometric mean of both.
        """
        covariance = np.asarray(self.posterior_.covariance[expert])
        if expert < len(self.posterior_.covariance) - 1 or not len(self.posterior_.expert_precision):
            return covariance
        core = np.tile(1.0 / self.posterior_.expert_precision.mean(axis=0), self._contrasts)
        scale = np.minimum(core / np.diag(covariance), 1.0) ** 0.25  # of deviations: half the way in variance
        return covariance * scale[:, None] * scale

    @property
    def of_right(self) -> bool:
        """Whether the coefficients are of being right."""
        return self.form_ == "right"

    def contributions(self, case: pd.DataFrame, expert: int, truth: int, k: int) -> Array:
        """Exact, as the columns are centred."""
        return linear_contributions(self.encoder_, case, self.slopes(expert, truth, k))

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
        matrix, odds = self.encoder_.transform(features), self.classes_ - 1
        out = np.empty((len(matrix), len(expert), self.classes_, odds, odds))
        for place, j in enumerate(expert):
            out[:, place] = self._covariance(matrix, int(j))
        return out

    def covariance_rows(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(rows, K truths, K - 1, K - 1): the same for rows of case and expert."""
        matrix, odds = self.encoder_.transform(features), self.classes_ - 1
        out = np.empty((len(matrix), self.classes_, odds, odds))
        for j, mine in rows_by(expert):
            out[mine] = self._covariance(matrix[mine], j)
        return out

    def _covariance(self, matrix: Array, expert: int) -> Array:
        """(cases, K truths, K - 1, K - 1) for one expert."""
        contrasts, truths = self._contrasts, self.classes_
        out = np.empty((len(matrix), truths, contrasts, contrasts))
        columns = self.posterior_.weights.shape[1]
        blocks = self.posterior_.covariance[expert].reshape(contrasts, columns, contrasts, columns)
        for k, m in np.ndindex(contrasts, contrasts):
            out[:, :, k, m] = self._quadratic(matrix, blocks[k, :, m])
        if self.errors_ is None:
            return out
        lever = np.eye(truths)[:, 1:] - np.eye(truths)[:, :1]  # how each log-odds moves with being right
        return np.asarray(out * (lever[:, :, None] * lever[:, None, :]))

    def _quadratic(self, matrix: Array, block: Array) -> Array:
        """(cases, K truths): v C v for the design's row v of each case and truth, without making the design.

        With v = (x, +-x, e_y) it is x S x +- x T x + x (2 c_y) + c_yy, for sums S and T of blocks of C:
        products half as wide, and one for all truths.
        """
        width, truths = matrix.shape[1], self.classes_
        start = len(block) - truths  # of the intercepts
        same = block[:width, :width].copy()
        cross = block[:width, start:] + block[start:, :width].T
        if self.form_ != "difficulty":
            found = np.einsum("ij,ij->i", matrix @ same, matrix)[:, None] + matrix @ cross
            return np.asarray(found + np.diag(block)[start:])
        sign = np.array([-1.0, 1.0])
        same += block[width:start, width:start]
        turns = block[:width, width:start] + block[width:start, :width]
        harder = block[width:start, start:] + block[start:, width:start].T
        found = matrix @ (cross + harder * sign) + np.diag(block)[start:]
        found += np.einsum("ij,ij->i", matrix @ same, matrix)[:, None]
        found += np.einsum("ij,ij->i", matrix @ turns, matrix)[:, None] * sign
        return np.asarray(found)

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "form": self.form_,
            "classes": self.classes_,
            "encoder": self.encoder_.to_dict(),
            "posterior": self.posterior_.to_dict(),
            "errors": self.errors_,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PooledLogistic:
        """Rebuild what `to_dict` gave."""
        model = cls()
        model.classes_ = int(data["classes"])
        model.encoder_ = LinearEncoder.from_dict(data["encoder"])
        model.posterior_ = Posterior.from_dict(data["posterior"])
        model.errors_, model.form_ = data["errors"], str(data["form"])
        return model


def possible_forms(columns: int, experts: int, classes: int) -> list[str]:
    """The forms whose algebra is quick enough, the plainest first; at least one."""
    most = most_coefficients(experts)
    fits = (columns + classes) * (classes - 1) <= most
    if classes == 2:  # of difficulty nobody has coefficients of their own, but everybody a covariance
        return (
            ["choice", "difficulty"] if fits and experts * (2 * columns) ** 2 <= _COVARIANCES else ["choice"]
        )
    return ["choice", "right"] if fits else ["right"]


def _clearly_better(one: PooledLogistic, other: PooledLogistic, held: DecisionLog) -> bool:
    """Whether the first predicts held-out decisions better, by more than two standard errors."""
    here = np.arange(len(held))
    said = [m.log_rows(held.features, held.truth, held.expert)[here, held.decision] for m in (one, other)]
    gain, weight = said[0] - said[1], held.weight / held.weight.mean()
    mean = float((weight * gain).mean())
    group = None if held.group is None else held.group.to_numpy()
    return bool(mean > 2 * error_of(weight * (gain - mean), group))


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


def _log(shares: Array) -> Array:
    return np.asarray(np.log(np.maximum(shares, 1e-300)))
