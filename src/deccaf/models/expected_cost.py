"""The method `deccaf`: how likely each truth is, how everyone decides, and what that is expected to cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Class, Costs, expert_losses, machine_losses, two_class_losses
from deccaf.data.folds import fold_of
from deccaf.data.history import History
from deccaf.data.log_odds import log_expit
from deccaf.errors import ConfigError
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.decisions.dependence import Dependence
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.decisions.own_scores import OwnScores
from deccaf.models.methods import Learned, Scores, Settings
from deccaf.models.protocols import Method

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS = 2_000_000
"""Chances (cases x experts x truths) that are held at once while scoring."""


class LearnedCosts(Learned):
    """P(truth | case) and P(decision | case, truth, expert); plans minimise the expected cost."""

    any_costs = True
    classifier: CaseClassifier
    decisions: DecisionModel | None

    def __init__(
        self,
        method: str,
        classifier: CaseClassifier,
        decisions: DecisionModel | None,
        own: OwnScores | None = None,
        dependence: Dependence | None = None,
    ) -> None:
        super().__init__(method, classifier, decisions)
        self.own = own
        """What machines' own scores tell; None: there are none."""
        self.dependence = dependence
        """Who errs together; None: nobody decided the same cases."""

    def chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): chance of each truth, whatever the costs."""
        p = np.asarray(self.classifier.predict(features))
        return p if self.own is None else self.own.chances(features, p)

    def sensitive_chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): the chances before their calibration."""
        return self.classifier.uncalibrated(features)

    def score(self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array) -> Scores:
        """Expected costs of the machine, which takes the cheapest class, and of each expert."""
        p = self.chances(features, costs)
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
            paid = review[part] if review.ndim == 2 else review
            if classes == 2:
                two_class_losses(p[part], self._odds(team, some, experts), c, loss[part])
                loss[part] += paid
            else:
                loss[part] = expert_losses(p[part], self._said(team, some, experts), c, paid)

    def decision_chances(self, features: pd.DataFrame, experts: Sequence[str]) -> Array | None:
        """q[i, j, y, m]: chance that an expert says m if the truth is y."""
        return None if self.decisions is None else self._said(self.decisions, features, experts)

    def _said(self, team: DecisionModel, features: pd.DataFrame, experts: Sequence[str]) -> Array:
        q = team.predict(features, experts)
        if self.own is not None:
            self.own.moved(
                features,
                experts,
                lambda j, y, known: np.log(np.maximum(q[known, j, y], 1e-300)),
                lambda j, y, known, log_q: q.__setitem__((known, j, y), np.exp(log_q)),
            )
        return q

    def _odds(self, team: DecisionModel, features: pd.DataFrame, experts: Sequence[str]) -> Array:
        """Two classes: (cases, truths, experts), log-odds that an expert says 1."""
        odds = team.log_odds(features, experts)
        if self.own is not None:
            self.own.moved(
                features,
                experts,
                lambda j, y, known: np.stack(
                    [log_expit(-odds[known, y, j]), log_expit(odds[known, y, j])], 1
                ),
                lambda j, y, known, log_q: odds.__setitem__((known, y, j), log_q[:, 1] - log_q[:, 0]),
            )
        return odds

    def correlation(self, makers: Sequence[str]) -> Array | None:
        """(makers, makers): how the errors of these go together; None: nothing is known of it."""
        return None if self.dependence is None else self.dependence.among(makers)

    def knows_more(self, expert: str) -> bool:
        """Whether somebody's own score tells more of their decisions than the decision model knows."""
        return self.own is not None and expert in self.own.answers

    @property
    def experts(self) -> tuple[str, ...]:
        """Everyone whose decisions were learned from or observed, sorted."""
        team = self.decisions
        return () if team is None else tuple(sorted({*team.experts_, *team.shifts_}))

    def observed(self, features: pd.DataFrame, truth: Ints, expert: Sequence[str], decision: Ints) -> Learned:
        """The same after more decisions with a known truth, without fitting anything again."""
        team = self._team().observe(features, truth, expert, decision)
        return LearnedCosts(self.method, self.classifier, team, self.own, self.dependence)

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
        team, case = self._team(), self._plain(case)
        return [
            (truth, classes[k], team.contributions(case, expert, y, k))
            for k in range(1, len(classes))
            for y, truth in enumerate(classes)
        ]

    def contributions(self, case: pd.DataFrame, maker: str, classes: Sequence[Class]) -> pd.DataFrame:
        """What moved the estimate of a maker on one case, without what machines' own scores add."""
        return super().contributions(self._plain(case), maker, classes)

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        more = {"own": self.own, "dependence": self.dependence}
        return super().to_dict() | {name: one.to_dict() for name, one in more.items() if one is not None}

    def _plain(self, case: pd.DataFrame) -> pd.DataFrame:
        return (
            case if self.own is None else case.drop(columns=list(self.own.columns.values()), errors="ignore")
        )

    def _team(self) -> DecisionModel:
        if self.decisions is None:
            raise ConfigError("the model learned from no decisions, so nothing is known of the experts")
        return self.decisions


class ExpectedCost(Method):
    """Learn for every cost structure at once; the costs are needed only to score."""

    name = "deccaf"
    own_scores = True
    """Machines' own scores are features of theirs alone; other methods do without them."""

    def learn(
        self, history: History, settings: Settings, costs: Costs, classifier: CaseClassifier | None = None
    ) -> Learned:
        """Learn the cases, and the experts where there are decisions."""
        del costs
        scores, history = history, history.without(list(history.schema.own.values()))
        classifier = classifier or learn_cases(history, settings)
        team = learn_decisions(history, settings, classifier) if len(history.case) else None
        own = None if team is None or scores is history else learn_scores(scores, settings, team)
        return LearnedCosts(self.name, classifier, team, own, learn_dependence(history, settings, team))

    def from_dict(self, data: Mapping[str, Any]) -> Learned:
        """Rebuild what `Learned.to_dict` gave."""
        team = None if data["decisions"] is None else DecisionModel.from_dict(data["decisions"])
        own = OwnScores.from_dict(data["own"]) if "own" in data else None
        together = Dependence.from_dict(data["dependence"]) if "dependence" in data else None
        return LearnedCosts(self.name, CaseClassifier.from_dict(data["classifier"]), team, own, together)


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


def learn_scores(history: History, settings: Settings, team: DecisionModel) -> OwnScores | None:
    """What machines' own scores tell of their answers and of the truth."""
    columns = {name: column for name, column in history.schema.own.items() if name in team.experts_}
    if not columns:
        return None
    settings.step("Learning from machines' own scores")
    plain = history.without(list(history.schema.own.values()))
    fold = fold_of(len(plain.cases), 2, group=plain.group, seed=settings.seed)
    log_p = np.empty((len(fold), settings.classes))
    for one in range(2):  # chances of cases that the classifier did not see
        held = fold == one
        known = learn_cases(plain.take(~held), settings)
        log_p[held] = np.log(np.maximum(known.predict(plain.features[held]), 1e-300))
    said = {}
    names = history.expert.to_numpy(object)
    for name in columns:
        mine = np.flatnonzero((names == name) & (history.label[history.case] >= 0))
        rows = history.case[mine]
        chance = team.predict_rows(plain.features.iloc[rows], history.label[rows], [name] * len(rows))
        said[name] = rows, history.decision[mine], np.log(np.maximum(chance, 1e-300))
    weight = np.ones(len(fold)) if history.weight is None else history.weight
    return OwnScores.learn(columns, history.features, history.label, weight, log_p, said)


def learn_dependence(history: History, settings: Settings, team: DecisionModel | None) -> Dependence | None:
    """Who errs together, from the cases that several decided and whose truth is known."""
    if team is None or len(np.unique(history.case)) == len(history.case):
        return None
    truth, case = history.label[history.case], np.asarray(history.case)
    several = np.bincount(case)[case] > 1
    rows = np.flatnonzero(several & (truth >= 0))
    if not len(rows):
        return None
    names = history.expert.iloc[rows].tolist()
    chance = team.predict_rows(history.features.iloc[case[rows]], truth[rows], names)
    return Dependence.learn(
        team.experts_,
        case[rows],
        team.positions(names),
        history.decision[rows] != truth[rows],
        1.0 - chance[np.arange(len(rows)), truth[rows]],
        settings.machines,
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
