"""How often each expert decides what, given the truth, without looking at the case.

The simplest part of the decision model, and on a log with a handful of decisions per expert often the best.
For each truth y an expert's rates have a Dirichlet prior around the team's,

    rates[j, y] ~ Dirichlet(strength_y * team[y]),

with the strength that makes the log most likely (Dirichlet-multinomial evidence): experts who are alike are
shrunk strongly, experts who differ hardly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.log_odds import trigamma
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.protocols import DecisionPart

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_STRENGTH = (0.5, 1e4)


class ShrunkenRates(DecisionPart):
    """P(decision | truth, expert), shrunk to the team's rates.

    Attributes
    ----------
    counts_ : (experts + 1, K truths, K decisions), prior included; the last row is an expert never seen
    strength_ : (K,), how many decisions the team's rates are worth
    """

    name = "rates"

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> ShrunkenRates:
        """Count, and shrink by evidence; `validation` is not needed."""
        del validation
        counts = np.zeros((len(log.experts), log.classes, log.classes))
        np.add.at(counts, (log.expert, log.truth, log.decision), log.weight)
        team = _team_rates(counts.sum(axis=0))
        self.strength_ = np.array([dirichlet_strength(counts[:, y], team[y]) for y in range(log.classes)])
        prior = self.strength_[:, None] * team
        self.counts_ = np.concatenate([counts + prior, prior[None]])
        return self

    @property
    def rates_(self) -> Array:
        """(experts + 1, K, K): the expected rates."""
        return np.asarray(self.counts_ / self.counts_.sum(axis=2, keepdims=True))

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K): log-chance of each decision for rows of case, truth and expert."""
        del features
        return np.asarray(np.log(self.rates_)[expert, truth])

    def log_table(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K decisions), the same for every case."""
        table = np.log(self.rates_)[expert]
        return np.broadcast_to(table, (len(features), *table.shape))

    def log_odds(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(1, truths, experts): log-odds of the decision 1, the same for every case."""
        del features
        table = np.log(self.counts_[expert])
        return np.asarray((table[..., 1] - table[..., 0]).T[None])

    def log_odds_rows(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(rows, truths): the same for rows of case and expert."""
        del features
        table = np.log(self.counts_[expert])
        return np.asarray(table[..., 1] - table[..., 0])

    def covariance(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K - 1, K - 1): posterior covariance of the log-odds against class 0."""
        spread = trigamma(self.counts_[expert])
        own = spread[..., 1:, None] * np.eye(spread.shape[-1] - 1)
        table = spread[..., :1, None] + own
        return np.broadcast_to(table, (len(features), *table.shape))

    def covariance_rows(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(rows, K truths, K - 1, K - 1): the same for rows of case and expert."""
        everyone = self.covariance(features.iloc[:1], np.arange(len(self.counts_)))
        return np.asarray(everyone[0][expert])

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {"counts": self.counts_, "strength": self.strength_}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ShrunkenRates:
        """Rebuild what `to_dict` gave."""
        model = cls()
        model.counts_, model.strength_ = data["counts"], np.asarray(data["strength"], np.float64)
        return model


def _team_rates(counts: Array) -> Array:
    """The team's rates, with one pseudo-decision per truth that errs as the team does over all truths.

    So a truth that the log does not hold has the team's overall accuracy, and no rate is 0.
    """
    classes = len(counts)
    right = (np.trace(counts) + 1.0) / (counts.sum() + 2.0)
    prior = np.full((classes, classes), (1.0 - right) / (classes - 1))
    np.fill_diagonal(prior, right)
    return np.asarray((counts + prior) / (counts.sum(axis=1, keepdims=True) + 1.0))


def dirichlet_strength(counts: Array, team: Array) -> float:
    """Strength of the prior with the highest Dirichlet-multinomial evidence for (experts, K) counts."""
    from scipy.optimize import minimize_scalar
    from scipy.special import gammaln

    totals = counts.sum(axis=1)

    def cost(log_strength: float) -> float:
        prior = np.exp(log_strength) * team
        own = gammaln(counts + prior).sum() - len(counts) * gammaln(prior).sum()
        return float(-(own + (gammaln(prior.sum()) - gammaln(totals + prior.sum())).sum()))

    found = minimize_scalar(cost, bounds=tuple(np.log(_STRENGTH)), method="bounded")
    return float(np.exp(found.x))
