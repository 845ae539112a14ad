"""What one scenario looks like: the alerts cut by months, and who reviews them.

A `Setting` is an alert set with the rules of the protocol; it travels to every worker. From it each piece of
work derives the same `Scene` (past and test cases) and the same `Crew` (experts, their history, what they
would say of every test case), so nothing but the setting has to be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.benchmark.profile import MonthsTable, TeamTable
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.config import PartsTable
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.decisions import Decisions
from deccaf.data.history import History
from deccaf.data.names import positions_of
from deccaf.errors import ConfigError, DataError, did_you_mean, show
from deccaf.simulate.history import random_history
from deccaf.simulate.seeds import stream
from deccaf.simulate.teams.build import paper_group, protected_groups, threshold_cost
from deccaf.simulate.teams.config import FeaturesTable
from deccaf.simulate.teams.features import truth_of
from deccaf.simulate.teams.team import SyntheticTeam

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Roster:
    """Limits that the user gave for the test month."""

    capacity: Capacity
    batch: pd.Series | None = None
    """The batch of each case, by its id; None: all are of one batch."""

    @property
    def people(self) -> tuple[str, ...]:
        """Everybody who may get a case."""
        most = self.capacity.upper.drop(columns=MACHINE, errors="ignore").max()
        return tuple(str(name) for name in most.index[most > 0])

    def batch_of(self, cases: pd.Index) -> pd.Series:
        """The batch of each of these cases."""
        if self.batch is None:
            return pd.Series("", cases, dtype="str")
        where = positions_of(self.batch.index, cases)
        if (where < 0).any():
            first = cases[int((where < 0).argmax())]
            raise DataError(f"batches: {(where < 0).sum():,} test case(s) have none, first: {show(first)}")
        return pd.Series(self.batch.to_numpy()[where], cases)


@dataclass(frozen=True, eq=False)
class Setting:
    """The alerts of one alert rate, with the rules of the protocol."""

    cases: Cases
    months: MonthsTable
    team: TeamTable
    score: str
    seed: int = 0
    decisions: Decisions | None = None
    """A third party's decisions in place of a simulated team."""
    model: PartsTable = field(default_factory=PartsTable)
    """What `deccaf` blends."""
    classifier_cost: Mapping[float, float] = field(default_factory=dict)
    """By cost ratio: what the paper's classifier costs per case of the validation month."""

    roster: Roster | None = None
    """Limits of the user's own: then its people are the team."""

    @property
    def around_classifier(self) -> bool:
        """Whether simulated people are drawn around the classifier's cost, which must be known first."""
        return self.decisions is None and self.team.around == "classifier"

    def groups(self, cases: Cases) -> NDArray[np.str_] | None:
        """The group of each case by the protected feature, where the cases have it."""
        name = self.team.protected
        if name not in cases.features:
            return None
        table = FeaturesTable(protected=(name,), thresholds={name: self.team.threshold})
        return protected_groups(table, cases)[name].to_numpy(np.str_)

    def scene(self, share: float = 1.0) -> Scene:
        """Past and test cases; of the past a share, drawn so that smaller shares are parts of larger ones."""
        time = self.cases.time
        if time is None:
            raise DataError("the alerts have no time column; name it under [columns] time")
        past = self.cases.take(time.isin(self.months.past).to_numpy())
        if share < 1.0:
            rank = stream(self.seed, "share").permutation(len(past))
            past = past.take(rank < round(share * len(past)))
        test = self.cases.take((time == self.months.test).to_numpy())
        if past.time is None or not len(past) or not len(test):
            raise DataError(f"no alerts in the past months {self.months.past} or in month {self.months.test}")
        return Scene(past, (past.time == self.months.validation).to_numpy(), test)

    def crew(self, ratio: float, seed: int) -> Crew:
        """Who reviews in this scenario, and the history with this seed."""
        if self.decisions is not None:
            return _given(self.decisions, self, seed)
        return _simulated(self, ratio, seed)


@dataclass(frozen=True, eq=False)
class Scene:
    """Cases to learn from and cases to decide."""

    past: Cases
    held: Mask
    """Past cases that choose between settings."""
    test: Cases

    @property
    def label(self) -> Ints:
        """The truth of the past cases."""
        return truth_of(self.past)

    @property
    def truth(self) -> Ints:
        """The truth of the test cases."""
        return truth_of(self.test)


@dataclass(frozen=True, eq=False)
class Crew:
    """The experts, one decision per past case, and what everyone says of every test case."""

    experts: tuple[str, ...]
    history: pd.DataFrame
    """`case_id`, `expert_id`, `decision`."""
    said: Ints
    """(test cases, experts)."""
    true_q: Array | None = None
    """(test cases, experts, K, K), where the experts are simulated."""
    team: SyntheticTeam | None = None

    def log(self, scene: Scene) -> History:
        """What can be learned from: the scene's past cases, and the decisions on them in their order."""
        where = scene.past.ids.get_indexer(pd.Index(self.history["case_id"]))
        rows = np.flatnonzero(where >= 0)
        rows = rows[np.argsort(where[rows], kind="stable")]
        part = self.history.iloc[rows].reset_index(drop=True)
        decision = part["decision"].to_numpy(np.int64)
        log = Decisions(part["case_id"], part["expert_id"], decision, scene.past.classes)
        return History.of(scene.past, log)


def simulated_team(setting: Setting, ratio: float) -> SyntheticTeam:
    """Everybody of this scenario, as in the paper; they look at the same things in every scenario."""
    months, cases, team = setting.months, setting.cases, setting.team
    fit, costs = cases.between(months.validation, months.validation + 1), Costs.binary(ratio)
    if setting.around_classifier:
        if ratio not in setting.classifier_cost:
            raise ConfigError(
                f"[team] around = 'classifier': what the classifier costs at ratio {ratio:g} is not known; "
                "fit it first, or say around = 'threshold'"
            )
        cost = setting.classifier_cost[ratio]
    else:
        cost = threshold_cost(fit, costs, setting.score)
    group = paper_group(team.pool or team.size, team.protected)
    return SyntheticTeam.sample([group], fit, costs, team.seed, classifier_cost=cost)


def _simulated(setting: Setting, ratio: float, seed: int) -> Crew:
    scene, team = setting.scene(), simulated_team(setting, ratio)
    team = team.take(_drawn_team(_pool(team.experts, setting), setting.team, setting.team.team_of(seed)))
    # One table of decisions, of which each history shows other cells, as in the paper.
    history = random_history(team, scene.past, seed, decision_seed=setting.team.seed)
    draw = np.random.SeedSequence([setting.team.seed, seed, 7])
    said = team.decide(scene.test, draw).to_numpy(np.int64)
    return Crew(team.experts, history, said, team.decision_probabilities(scene.test), team)


def _given(decisions: Decisions, setting: Setting, seed: int) -> Crew:
    """A team drawn from the people who decided, and one of the team's decisions on each past case."""
    scene, experts = setting.scene(), _drawn_team(_pool(decisions.experts, setting), setting.team, seed)
    table = pd.DataFrame(
        {"case_id": decisions.case, "expert_id": decisions.expert, "decision": decisions.decision}
    )
    table = table[table["expert_id"].isin(experts)].drop_duplicates(["case_id", "expert_id"])
    past = table[scene.past.ids.get_indexer(pd.Index(table["case_id"])) >= 0]
    if past.empty:
        raise DataError(f"decisions: none of the team {list(experts)} decided a case of the past months")
    order = stream(seed, "history").permutation(len(past))
    history = past.iloc[order].drop_duplicates("case_id").sort_index()
    wide = table.pivot(index="case_id", columns="expert_id", values="decision")
    wide = wide.reindex(index=scene.test.ids, columns=list(experts))
    known = wide.notna().sum().to_numpy()
    if (known < len(wide)).any():
        name = experts[int(known.argmin())]
        raise DataError(
            f"decisions: {name!r} decided {known.min():,} of the {len(wide):,} test cases; what an "
            "assignment would have cost is known only where everyone in the team decided every test case"
        )
    return Crew(experts, history, wide.to_numpy(np.int64))


def _pool(experts: tuple[str, ...], setting: Setting) -> tuple[str, ...]:
    """Of whom a team is drawn: everybody, or who is on the roster that the user gave."""
    if setting.roster is None:
        return experts
    stray = [name for name in setting.roster.people if name not in experts]
    if stray:
        hint = did_you_mean(stray[0], experts)
        raise DataError(f"capacity: {len(stray)} people decided nothing, first: {stray[0]!r}{hint}")
    return setting.roster.people


def _drawn_team(pool: tuple[str, ...], team: TeamTable, number: int) -> tuple[str, ...]:
    """One of the teams that a pool has."""
    if len(pool) < team.size:
        raise DataError(f"decisions: {len(pool)} people decided, a team of {team.size} is asked for")
    if len(pool) == team.size:
        return pool
    chosen = stream(team.seed, "team", number).permutation(len(pool))[: team.size]
    return tuple(pool[place] for place in sorted(chosen))
