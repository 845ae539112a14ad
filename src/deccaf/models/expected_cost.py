"""The method `deccaf`: how likely each truth is, how everyone decides, and what that is expected to cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Class, Costs, expert_losses, machine_losses, two_class_losses
from deccaf.data.history import History
from deccaf.errors import ConfigError
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.methods import Learned, Scores, Settings
from deccaf.models.protocols import Method

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS = 1_000_000
"""Chances (cases x experts x truths) that are held at once while scoring."""


class LearnedCosts(Learned):
    """P(truth | case) and P(decision | case, truth, expert); plans minimise the expected cost."""

    any_costs = True
    classifier: CaseClassifier
    decisions: DecisionModel | None

    def chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): chance of each truth, whatever the costs."""
        return np.asarray(self.classifier.predict(features))

    def sensitive_chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): the chances before their calibration."""
        return self.classifier.uncalibrated(features)

    def score(self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array) -> Scores:
        """Expected costs of the machine, which takes the cheapest class, and of each expert."""
        p = self.classifier.predict(features)
        machine = machine_losses(p, costs)
        loss = np.empty((len(p), 1 + len(experts)))
        loss[:, 0] = machine.min(axis=1)
        if experts:
            self._fill(loss[:, 1:], features, experts, p, costs, review)
        return Scores(p, machine.argmin(axis=1), loss, loss)

    def _fill(
        self,
        loss: Array,
        features: pd.DataFrame,
        experts: Sequence[str],
        p: Array,
        costs: Array,
        review: Array,
    ) -> None:
        """The experts' losses, some cases at a time: tables of chances are much larger than losses."""
        team, classes = self._team(), p.shape[1]
        rows = max(CELLS // (len(experts) * classes * max(classes - 1, 1)), 1)
        for start in range(0, len(p), rows):
            part = slice(start, start + rows)
            some = features if len(p) <= rows else features.iloc[part]
            c = costs[part] if len(costs) > 1 else costs
            if classes == 2:
                two_class_losses(p[part], team.log_odds(some, experts), c, loss[part])
                loss[part] += review
            else:
                loss[part] = expert_losses(p[part], team.predict(some, experts), c, review)

    def decision_chances(self, features: pd.DataFrame, experts: Sequence[str]) -> Array | None:
        """q[i, j, y, m]: chance that an expert says m if the truth is y."""
        return None if self.decisions is None else self.decisions.predict(features, experts)

    @property
    def experts(self) -> tuple[str, ...]:
        """Everyone whose decisions were learned from or observed, sorted."""
        team = self.decisions
        return () if team is None else tuple(sorted({*team.experts_, *team.shifts_}))

    def observed(self, features: pd.DataFrame, truth: Ints, expert: Sequence[str], decision: Ints) -> Learned:
        """The same after more decisions with a known truth, without fitting anything again."""
        team = self._team().observe(features, truth, expert, decision)
        return LearnedCosts(self.method, self.classifier, team)

    def level_spread(self) -> Array | None:
        """(K,): deviation of the log-odds of each truth in the next period."""
        spread = self.classifier.level_.deviation
        return spread if spread.any() else None

    def guessed(self, history: History) -> History | None:
        """Guesses by Bayes' rule from the case and from who decided what about it: one step of EM."""
        if history.guess is None or self.decisions is None:
            return None
        unseen = np.flatnonzero(np.isfinite(history.guess[:, 0]))
        joint = np.log(np.maximum(self.classifier.predict(history.features.iloc[unseen]), 1e-12))
        place = np.full(len(history.cases), -1)
        place[unseen] = np.arange(len(unseen))
        rows = np.flatnonzero(place[history.case] >= 0)
        features, names = history.features.iloc[history.case[rows]], history.expert.iloc[rows].tolist()
        for y in range(joint.shape[1]):
            chance = self.decisions.predict_rows(features, np.full(len(rows), y), names)
            said = np.log(np.maximum(chance[np.arange(len(rows)), history.decision[rows]], 1e-12))
            np.add.at(joint[:, y], place[history.case[rows]], said)
        guess = history.guess.copy()
        guess[unseen] = np.exp(joint - joint.max(axis=1, keepdims=True))
        return replace(history, guess=guess / guess.sum(axis=1, keepdims=True))

    def _expert_contributions(
        self, case: pd.DataFrame, expert: str, classes: Sequence[Class]
    ) -> list[tuple[Class | None, Class, pd.DataFrame]]:
        team = self._team()
        return [
            (truth, classes[k], team.contributions(case, expert, y, k))
            for k in range(1, len(classes))
            for y, truth in enumerate(classes)
        ]

    def _team(self) -> DecisionModel:
        if self.decisions is None:
            raise ConfigError("the model learned from no decisions, so nothing is known of the experts")
        return self.decisions


class ExpectedCost(Method):
    """Learn for every cost structure at once; the costs are needed only to score."""

    name = "deccaf"

    def learn(
        self, history: History, settings: Settings, costs: Costs, classifier: CaseClassifier | None = None
    ) -> Learned:
        """Learn the cases, and the experts where there are decisions."""
        del costs
        classifier = classifier or learn_cases(history, settings)
        team = learn_decisions(history, settings, classifier) if len(history.case) else None
        return LearnedCosts(self.name, classifier, team)

    def from_dict(self, data: Mapping[str, Any]) -> Learned:
        """Rebuild what `Learned.to_dict` gave."""
        team = None if data["decisions"] is None else DecisionModel.from_dict(data["decisions"])
        return LearnedCosts(self.name, CaseClassifier.from_dict(data["classifier"]), team)


def learn_cases(history: History, settings: Settings) -> CaseClassifier:
    """P(truth | case)."""
    return CaseClassifier(
        settings.classes,
        parts=settings.case_parts,
        half_life=settings.half_life,
        budget=settings.budget,
        seed=settings.seed,
    ).fit(history.features, history.label, time=history.time, group=history.group, weight=history.weight)


def learn_decisions(
    history: History, settings: Settings, classifier: CaseClassifier | None = None
) -> DecisionModel:
    """P(decision | case, truth, expert); cases without a truth need a classifier to count."""
    settings.step("Learning how people decide")
    features, truth = history.features.iloc[history.case], history.label[history.case]
    waiting = bool((truth < 0).any())
    return DecisionModel(
        settings.classes,
        parts=settings.decision_parts,
        half_life=settings.half_life,
        budget=settings.budget,
        seed=settings.seed,
    ).fit(
        features,
        truth,
        history.expert,
        history.decision,
        time=_times(history),
        group=_groups(history),
        weight=None if history.weight is None else history.weight[history.case],
        p=None if classifier is None or not waiting else classifier.predict(features),
    )


def _times(history: History) -> pd.Series | None:
    """When decisions were made; else when their cases came."""
    if history.decision_time is not None:
        return history.decision_time
    return None if history.time is None else history.time.iloc[history.case]


def _groups(history: History) -> pd.Series | None:
    """Decisions on one case (or of one group) stay together; one decision per case needs no groups."""
    if history.group is not None:
        return history.group.iloc[history.case]
    repeated = len(np.unique(history.case)) < len(history.case)
    return pd.Series(history.case) if repeated else None


EXPECTED_COST = ExpectedCost()
