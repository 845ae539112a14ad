"""A Bayesian logistic model of the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.log_odds import log_softmax
from deccaf.models.cases.log import CaseLog
from deccaf.models.contributions import linear_contributions
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.models.linear.hierarchical import Posterior, fit_posterior
from deccaf.models.linear.selection import most_informative
from deccaf.models.protocols import CasePart

Array = NDArray[np.float64]

_COEFFICIENTS = 1_000
"""At most: with more features it sees those that say most."""


class LogisticCases(CasePart):
    """P(label | features) by a Bayesian logistic model whose shrinkage, per feature, the evidence sets."""

    name = "logistic"
    family = "logistic"

    def fit(self, rows: CaseLog, validation: CaseLog | None = None) -> LogisticCases:
        """Learn; `validation` is not needed."""
        del validation
        self.classes_ = rows.classes
        self.encoder_ = LinearEncoder().fit(rows.features)
        room = _COEFFICIENTS // (self.classes_ - 1) - 1
        if len(self.encoder_.groups_) > room:
            matrix, same = self.encoder_.transform(rows.features), np.zeros_like(rows.label)
            kept = most_informative(matrix, self.encoder_.widths, rows.label, same, rows.weight, room)
            self.encoder_ = self.encoder_.only(kept)
        groups = np.append(self.encoder_.groups_, len(self.encoder_.groups_))
        nobody = np.full(len(rows), -1)
        design = self._design(rows.features)
        self.posterior_ = fit_posterior(design, nobody, rows.label, 0, self.classes_, groups, rows.weight)
        return self

    def log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K) log-probabilities."""
        eta = np.zeros((len(features), self.classes_))
        eta[:, 1:] = self._design(features) @ self.posterior_.weights[-1]
        return np.asarray(log_softmax(eta, axis=1))

    def contributions(self, case: pd.DataFrame, k: int) -> Array:
        """Exact, as the columns are centred."""
        return linear_contributions(self.encoder_, case, self.posterior_.weights[-1][:, k - 1])

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "classes": self.classes_,
            "encoder": self.encoder_.to_dict(),
            "posterior": self.posterior_.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LogisticCases:
        """Rebuild what `to_dict` gave."""
        model = cls()
        model.classes_ = int(data["classes"])
        model.encoder_ = LinearEncoder.from_dict(data["encoder"])
        model.posterior_ = Posterior.from_dict(data["posterior"])
        return model

    def _design(self, features: pd.DataFrame) -> Array:
        return np.hstack([self.encoder_.transform(features), np.ones((len(features), 1))])
