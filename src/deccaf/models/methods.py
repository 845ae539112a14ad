"""What a method learns, and what it believes about new cases: one object for all three methods.

- `deccaf`: P(truth | case) and P(decision | case, truth, expert); the plan minimises the expected cost.
- `paper`: the paper's cost-weighted classifier and expertise model; the plan minimises 1 - P~(right).
- `ova`: the same with one model per expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Costs, expert_losses, machine_losses
from deccaf.data.history import History
from deccaf.models.budgets import candidates
from deccaf.models.cases.classifier import CaseClassifier, unweighted
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.holdout import holdouts
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import PaperClassifier
from deccaf.progress import Step, silent

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("deccaf", "paper", "ova")
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Scores:
    """What a method believes about some cases; makers are the machine, then the experts asked for."""

    p: Array
    """(cases, K): chance of each truth."""
    says: Ints
    """What the machine would decide."""
    loss: Array
    """(cases, makers): expected cost."""
    objective: Array
    """(cases, makers): what the plan minimises; the loss itself, except for the paper's methods."""


@dataclass(frozen=True)
class Settings:
    """How to learn."""

    method: str = "deccaf"
    classes: int = 2
    half_life: Any = None
    case_parts: Sequence[str] = ("logistic", "boosted")
    decision_parts: Sequence[str] = ("rates", "pooled", "boosted")
    budget: str = "quick"
    seed: int = 0
    step: Step = field(default=silent, compare=False)
    """Hears what is being learned."""


class Learned:
    """The fitted models of a method."""

    def __init__(self, method: str, classifier: Any, decisions: Any | None) -> None:
        self.method = method
        self.classifier = classifier
        self.decisions = decisions

    @property
    def experts(self) -> tuple[str, ...]:
        """Everyone whose decisions were learned from, sorted."""
        return () if self.decisions is None else tuple(self.decisions.experts_)

    def chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): chance of each truth."""
        p = self.classifier.predict(features)
        return np.asarray(p) if self.method == "deccaf" else unweighted(p, _stakes(costs))

    def score(self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array) -> Scores:
        """What the method believes; `costs` are (cases or 1, K, K), `review` is what each expert costs."""
        if self.method == "deccaf":
            return self._expected_costs(features, experts, costs, review)
        return self._correctness(features, experts, costs, review)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {
            "method": self.method,
            "classifier": self.classifier.to_dict(),
            "decisions": None if self.decisions is None else self.decisions.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Learned:
        """Rebuild what `to_dict` gave."""
        classifier, decisions = _KINDS[data["method"]]
        team = None if data["decisions"] is None else decisions.from_dict(data["decisions"])
        return cls(data["method"], classifier.from_dict(data["classifier"]), team)

    def _expected_costs(
        self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array
    ) -> Scores:
        p = self.classifier.predict(features)
        machine = machine_losses(p, costs)
        loss = np.empty((len(p), 1 + len(experts)))
        loss[:, 0] = machine.min(axis=1)
        if experts:
            loss[:, 1:] = expert_losses(p, self.decisions.predict(features, experts), costs, review)  # type: ignore[union-attr]
        return Scores(p, machine.argmin(axis=1), loss, loss)

    def _correctness(
        self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array
    ) -> Scores:
        """The expected cost of one case is E[c | x] (1 - P~(right)), with c the cost of an error on it."""
        weighted, stakes = self.classifier.predict(features), _stakes(costs)
        p = unweighted(weighted, stakes)
        objective = np.empty((len(p), 1 + len(experts)))
        objective[:, 0] = 1.0 - weighted.max(axis=1)
        if experts:
            objective[:, 1:] = 1.0 - self.decisions.predict(features, experts)  # type: ignore[union-attr]
        loss = (p * stakes).sum(axis=1)[:, None] * objective
        loss[:, 1:] += review
        return Scores(p, weighted.argmax(axis=1), loss, objective)


_KINDS: dict[str, Any] = {
    "deccaf": (CaseClassifier, DecisionModel),
    "paper": (PaperClassifier, HumanExpertiseModel),
    "ova": (PaperClassifier, OneVsAll),
}


def learn(history: History, settings: Settings, costs: Costs, classifier: Any = None) -> Learned:
    """Fit the models of a method; without decisions only the machine is learned.

    A `classifier` fitted on the same cases before is taken as it is.
    """
    settings.step("Learning how likely each truth is")
    if settings.method == "deccaf":
        return _learn_costs(history, settings, classifier)
    return _learn_correctness(history, settings, costs, classifier)


def _learn_costs(history: History, settings: Settings, classifier: CaseClassifier | None) -> Learned:
    classifier = classifier or CaseClassifier(
        settings.classes,
        parts=settings.case_parts,
        half_life=settings.half_life,
        candidates=candidates("cases", settings.budget, settings.seed),
        seed=settings.seed,
    ).fit(history.features, history.label, time=history.time, group=history.group, weight=history.weight)
    if not len(history.case):
        return Learned("deccaf", classifier, None)
    settings.step("Learning how people decide")
    features, truth = history.features.iloc[history.case], history.label[history.case]
    team = DecisionModel(
        settings.classes,
        parts=settings.decision_parts,
        half_life=settings.half_life,
        candidates=candidates("decisions", settings.budget, settings.seed),
        seed=settings.seed,
    ).fit(
        features,
        truth,
        history.expert,
        history.decision,
        time=_of_decisions(history),
        group=_groups_of_decisions(history),
        weight=None if history.weight is None else history.weight[history.case],
        p=classifier.predict(features) if (truth < 0).any() else None,
    )
    return Learned("deccaf", classifier, team)


def _learn_correctness(
    history: History, settings: Settings, costs: Costs, classifier: PaperClassifier | None
) -> Learned:
    """Train on the earlier part, choose settings on the later one, both weighted by the cost of an error."""
    known = np.flatnonzero(history.label >= 0)
    stakes = np.zeros(len(history.label))
    stakes[known] = costs.case_weights(history.label[known], history.amounts.iloc[known])
    if history.weight is not None:
        stakes *= history.weight
    masks = holdouts(len(history.label), time=history.time, group=history.group, seed=settings.seed)
    held = masks[0] if masks else np.zeros(len(history.label), bool)
    if classifier is None:
        tried = candidates("paper-cases", settings.budget, settings.seed)
        classifier = PaperClassifier(settings.classes, candidates=tried, seed=settings.seed).fit(
            history.features, history.label, stakes, validation=held
        )
    if not len(history.case):
        return Learned(settings.method, classifier, None)
    settings.step("Learning how people decide")
    kind = HumanExpertiseModel if settings.method == "paper" else OneVsAll
    tried = candidates("paper-experts", settings.budget, settings.seed)
    team = kind(settings.classes, candidates=tried, seed=settings.seed).fit(
        history.features.iloc[history.case],
        history.label[history.case],
        history.expert,
        history.decision,
        stakes[history.case],
        validation=held[history.case],
    )
    return Learned(settings.method, classifier, team)


def _of_decisions(history: History) -> pd.Series | None:
    if history.decision_time is not None:
        return history.decision_time
    return None if history.time is None else history.time.iloc[history.case]


def _groups_of_decisions(history: History) -> pd.Series | None:
    """Decisions on one case (or of one group) stay together; one decision per case needs no groups."""
    if history.group is not None:
        return history.group.iloc[history.case]
    repeated = len(np.unique(history.case)) < len(history.case)
    return pd.Series(history.case) if repeated else None


def _stakes(costs: Array) -> Array:
    """(cases or 1, K): what an error costs by truth, never quite 0, which would leave no trace."""
    stakes = costs.sum(axis=2) / (costs.shape[2] - 1)
    return np.asarray(np.maximum(stakes, _TINY * max(float(stakes.max()), _TINY)))
