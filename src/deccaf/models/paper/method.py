"""The methods `paper` and `ova`: cost-weighted models of the truth and of being right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Class, Costs
from deccaf.data.history import History
from deccaf.errors import ConfigError
from deccaf.models.blending.holdout import holdouts
from deccaf.models.budgets import PUBLISHED, candidates
from deccaf.models.cases.classifier import unweighted
from deccaf.models.methods import Learned, Scores, Settings
from deccaf.models.paper import expertise, paper_classifier
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import OFFSETS, ClassifierRows, PaperClassifier
from deccaf.models.paper.searching import expertise_trial, searched_classifier, searched_expertise
from deccaf.models.paper.spaces import CLASSIFIER, EXPERTISE
from deccaf.models.protocols import Method

Array = NDArray[np.float64]

_TINY = 1e-12


class LearnedCorrectness(Learned):
    """P~(truth | case) and P~(right | case, expert) under the distribution reweighted by the costs."""

    classifier: PaperClassifier
    decisions: HumanExpertiseModel | OneVsAll | None

    def chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): chance of each truth, with the weights of the costs taken out again."""
        return unweighted(self.classifier.predict(features), _stakes(costs))

    def score(self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array) -> Scores:
        """The expected cost of one case is E[c | x] (1 - P~(right)), with c the cost of an error on it."""
        weighted, stakes = self.classifier.predict(features), _stakes(costs)
        p = unweighted(weighted, stakes)
        objective = np.empty((len(p), 1 + len(experts)))
        objective[:, 0] = 1.0 - weighted.max(axis=1)
        if experts:
            objective[:, 1:] = 1.0 - self._team().predict(features, experts)
        loss = (p * stakes).sum(axis=1)[:, None] * objective
        loss[:, 1:] += review
        return Scores(p, weighted.argmax(axis=1), loss, objective)

    def _expert_contributions(
        self, case: pd.DataFrame, expert: str, classes: Sequence[Class]
    ) -> list[tuple[Class | None, Class, pd.DataFrame]]:
        return [(None, "right", self._team().contributions(case, expert))]

    def _team(self) -> HumanExpertiseModel | OneVsAll:
        if self.decisions is None:
            raise ConfigError("the model learned from no decisions, so nothing is known of the experts")
        return self.decisions


class PaperMethod(Method):
    """Train on the earlier part, choose settings on the later one, both weighted by the cost of an error."""

    def __init__(self, name: str, team: type[HumanExpertiseModel] | type[OneVsAll]) -> None:
        self.name = name
        self.team = team

    def learn(
        self, history: History, settings: Settings, costs: Costs, classifier: PaperClassifier | None = None
    ) -> Learned:
        """Learn the cases, and the experts where there are decisions."""
        known = np.flatnonzero(history.label >= 0)
        stakes = np.zeros(len(history.label))
        stakes[known] = costs.case_weights(history.label[known], history.amounts.iloc[known])
        if history.weight is not None:
            stakes *= history.weight
        masks = holdouts(len(history.label), time=history.time, group=history.group, seed=settings.seed)
        held = masks[0] if masks else np.zeros(len(history.label), bool)
        if classifier is None:
            classifier = self._classifier(history, settings, stakes, held)
        if not len(history.case):
            return LearnedCorrectness(self.name, classifier, None)
        settings.step("Learning how people decide")
        return LearnedCorrectness(self.name, classifier, self._experts(history, settings, stakes, held))

    def _classifier(
        self, history: History, settings: Settings, stakes: Array, held: NDArray[np.bool_]
    ) -> PaperClassifier:
        features, label = history.features, history.label
        options: dict[str, Any] = {
            "candidates": candidates(paper_classifier.QUICK, CLASSIFIER.space, settings.budget, settings.seed)
        }
        if settings.budget == PUBLISHED and held.any():
            settings.step(
                f"Searching the classifier's settings: 2,000 trials for each of {len(OFFSETS)} starts"
            )
            rows = ClassifierRows.of(
                features, label, stakes, validation=held, classes=settings.classes, seed=settings.seed
            )
            params, offset = searched_classifier(rows, settings.seed)
            options = {"candidates": [params], "offsets": [offset]}
        model = PaperClassifier(settings.classes, seed=settings.seed, **options)
        return model.fit(features, label, stakes, validation=held)

    def _experts(
        self, history: History, settings: Settings, stakes: Array, held: NDArray[np.bool_]
    ) -> HumanExpertiseModel | OneVsAll:
        rows = (
            history.features.iloc[history.case],
            history.label[history.case],
            history.expert,
            history.decision,
        )
        weight, later = stakes[history.case], held[history.case]
        tried: Sequence[Mapping[str, Any]] = candidates(
            expertise.QUICK, EXPERTISE.space, settings.budget, settings.seed
        )
        if settings.budget == PUBLISHED:
            people = (
                [None] if self.team is HumanExpertiseModel else _searchable(history.expert, weight, later)
            )
            settings.step(f"Searching the settings of {len(people)} expertise model(s): 120 trials each")
            known = {"classes": settings.classes, "seed": settings.seed}
            trials = [expertise_trial(self.team, rows, weight, later, name, **known) for name in people]
            if later.any() and trials:
                tried = searched_expertise(trials, settings.seed)
        team = self.team(settings.classes, candidates=tried, seed=settings.seed)
        team.fit(*rows, weight, validation=later)
        return team

    def from_dict(self, data: Mapping[str, Any]) -> Learned:
        """Rebuild what `Learned.to_dict` gave."""
        team = None if data["decisions"] is None else self.team.from_dict(data["decisions"])
        return LearnedCorrectness(self.name, PaperClassifier.from_dict(data["classifier"]), team)


def _searchable(expert: pd.Series, weight: Array, held: NDArray[np.bool_]) -> list[str]:
    """Experts with decisions to learn from and others to choose by."""
    known = pd.DataFrame({"expert": expert.to_numpy(), "held": held})[weight > 0].groupby("expert")["held"]
    return [str(name) for name, part in known if part.any() and not part.all()]


def _stakes(costs: Array) -> Array:
    """(cases or 1, K): what an error costs by truth, never quite 0, which would leave no trace."""
    stakes = costs.sum(axis=2) / (costs.shape[2] - 1)
    return np.asarray(np.maximum(stakes, _TINY * max(float(stakes.max()), _TINY)))


PAPER = PaperMethod("paper", HumanExpertiseModel)
ONE_VS_ALL = PaperMethod("ova", OneVsAll)
