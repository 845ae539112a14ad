"""People who change: what half-lives, updates at the end of every day and the watch save.

A team decides a history of months and then, day by day, a month that is planned. Somewhere in between people
change (`KINDS`). Every way to keep up (`WAYS`) has models of its own, learns from the decisions that its own
plans bring, and hears the truth in the evening. Costs are expected costs with everybody's true chances of
error on the day.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.benchmark.profile import MonthsTable, read_profile
from deccaf.benchmark.scene import Scene, Setting, simulated_team
from deccaf.benchmark.store import Store
from deccaf.benchmark.tasks import our_settings
from deccaf.benchmark.world import Source, build_world
from deccaf.benchmark.world import settings as settings_of
from deccaf.data.cases import Cases
from deccaf.data.costs import Costs, expected_loss, machine_losses
from deccaf.data.decisions import Decisions
from deccaf.data.history import History
from deccaf.errors import ConfigError, did_you_mean
from deccaf.evaluate import sequential
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.expected_cost import learn_cases, learn_decisions
from deccaf.policies import Room, optimal
from deccaf.simulate.history import handled_before, random_history
from deccaf.simulate.teams.features import truth_of
from deccaf.simulate.teams.team import SyntheticTeam
from deccaf.simulate.testbed import batches_by_size

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = {
    "steady": "nobody changes",
    "lenient": "a third of the team lets more through from the last month of the history on",
    "learning": "a third of the team began with more errors and unlearns them month by month",
    "sudden": "one person errs far more often from the second week of the planned month on",
    "tired": "errors grow with every case of the day",
}
WAYS = {
    "as fitted": "one fit, kept",
    "half-life": "one fit in which decisions a month ago count half",
    "day by day": "one fit, and every evening what the day's decisions tell (`observe`)",
    "watched": "one fit; whom the watch finds changed gets no more cases",
    "all three": "half-life, day by day, and the watch",
    "known": "everybody's true chances, every day",
}
_LENIENT, _UNLEARNED, _SUDDEN, _TIRED = 1.5, 1.5, 2.0, 3.0
"""Log-odds: of leniency; of errors at the begin; after the sudden change; for 100 cases of a day."""


@dataclass(frozen=True)
class Desk:
    """How a day is planned."""

    cases: int = 240
    each: int = 20
    """Cases that one person can decide in a day; the machine decides the rest."""
    half_life: float = 1.0
    """In months."""


DESK = Desk()


@dataclass(frozen=True, eq=False)
class _Answers:
    """Decisions of people on cases whose truth came out."""

    features: pd.DataFrame
    truth: Ints
    expert: NDArray[np.object_]
    said: Ints


class _Way:
    """One way to keep up: its model of the people, and whom the watch has found changed."""

    def __init__(self, name: str, model: DecisionModel, margins: Mapping[str, float]) -> None:
        self.name = name
        self.model = model
        self.margins = margins
        self.away: set[str] = set()
        self.tallies: dict[str, list[sequential.Tally]] = {person: [] for person in margins}

    def chances(self, day: Cases, today: SyntheticTeam) -> Array:
        """(cases, experts, K, K), as this way believes."""
        if self.name == "known":
            return today.decision_probabilities(day)
        return self.model.predict(day.features, list(today.experts))

    def evening(self, day: _Answers, q: Array) -> None:
        """Hear the day's truths; `q` is what the model had said of whoever decided, (decisions, K, K)."""
        if self.name in ("watched", "all three"):
            wrong = 1.0 - q[np.arange(len(day.truth)), day.truth, day.truth]
            self.away |= {name for name in self.margins if self._has_changed(name, day, wrong)}
        if self.name in ("day by day", "all three") and len(day.truth):
            self.model = self.model.observe(day.features, day.truth, day.expert.tolist(), day.said)

    def _has_changed(self, name: str, day: _Answers, expected: Array) -> bool:
        """Whether the watch raises an alert, as the service's does."""
        mine = day.expert == name
        if not mine.any():
            return False
        wrong = (day.said[mine] != day.truth[mine]).astype(np.float64)
        self.tallies[name].append(sequential.errors(wrong, expected[mine], self.margins[name]))
        return sequential.change(self.tallies[name], sequential.threshold(len(self.margins))).is_odd


def alerts_setting(
    rows: int, alerts: Path | None, team: Mapping[str, int], say: Callable[[str], None]
) -> Setting:
    """Alerts of the embedded world, or of a file, with a team drawn around the alert score's threshold."""
    profile = read_profile("own-alerts").with_team({**team, "around": "threshold"})
    profile = profile.model_copy(update={"world": profile.world.model_copy(update={"rows": rows})})
    source, rate = Source(alerts=alerts), profile.grid.alert_rates[0]
    with tempfile.TemporaryDirectory() as folder:
        build_world(Store(folder), profile, source, say)
        return settings_of(Store(folder), profile, source, say)[rate]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Mean over the seeds, with what each way saves against the fit that is kept."""
    means = table.drop(columns="seed").groupby("kind", sort=False).mean()
    shown = means[list(WAYS)].map("{:.3f}".format)
    for way in list(WAYS)[1:]:
        saved = 1 - means[way] / means["as fitted"]
        shown[way] += saved.map(" ({:+.1%})".format)
    return shown.assign(alerts=means["alerts"].map("{:.1f}".format)).reset_index()


def drift_table(
    setting: Setting,
    ratio: float,
    seeds: Sequence[int],
    kinds: Iterable[str] = tuple(KINDS),
    desk: Desk = DESK,
    say: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Expected cost per 100 cases by way, a row per kind of change and seed; `alerts` are the watch's."""
    rows = []
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"kind {kind!r}: known are {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
        for seed in seeds:
            say(f"{kind}, seed {seed}: {KINDS[kind]}")
            rows.append({"kind": kind, "seed": seed, **_month(setting, ratio, kind, seed, desk)})
    return pd.DataFrame(rows)


def changed(team: SyntheticTeam, kind: str, month: float, months: MonthsTable) -> SyntheticTeam:
    """The same people at a time (7.5 is the middle of month 7)."""
    shift, third = np.zeros_like(team.intercepts), np.arange(len(team)) % 3 == 0
    if kind == "tired":
        return replace(team, fatigue=np.full(len(team), _TIRED))
    if kind == "lenient" and month >= months.validation:
        shift[third, 0, 1], shift[third, 1, 0] = -_LENIENT, _LENIENT
    elif kind == "learning":
        left = (months.test + 1 - month) / (months.test + 1 - months.train[0])
        shift[third, 0, 1] = shift[third, 1, 0] = _UNLEARNED * left
    elif kind == "sudden" and month >= months.test + 0.25:
        shift[0, 0, 1] = shift[0, 1, 0] = _SUDDEN
    return replace(team, intercepts=team.intercepts + shift)


def _month(setting: Setting, ratio: float, kind: str, seed: int, desk: Desk) -> dict[str, float]:
    """What each way costs in the planned month."""
    scene, costs, months = setting.scene(), Costs.binary(ratio), setting.months
    team, settings = simulated_team(setting, ratio), our_settings(setting)
    history = _history(scene, team, kind, months, seed, desk)
    machine = learn_cases(history, settings)
    fits = {
        half_life: learn_decisions(history, replace(settings, half_life=half_life), machine)
        for half_life in (None, desk.half_life)
    }
    counts = history.expert.value_counts()
    margins = {name: sequential.margin_of(float(counts.get(name, 0))) for name in team.experts}
    ways = [
        _Way(name, fits[desk.half_life if name in ("half-life", "all three") else None], margins)
        for name in WAYS
    ]
    cost, batches = dict.fromkeys(WAYS, 0.0), batches_by_size(scene.test, desk.cases, seed)
    names = list(batches.unique())
    for number, name in enumerate(names):
        day = scene.test.take((batches == name).to_numpy())
        today = changed(team, kind, months.test + number / len(names), months)
        p = machine.predict(day.features)
        for way in ways:
            cost[way.name] += _day(way, day, today, p, costs, desk, [seed, number])
    alerts = next(len(way.away) for way in ways if way.name == "watched")
    return {**{name: 100 * total / len(scene.test) for name, total in cost.items()}, "alerts": alerts}


def _day(
    way: _Way, day: Cases, today: SyntheticTeam, p: Array, costs: Costs, desk: Desk, seed: Sequence[int]
) -> float:
    """Plan a day, let people decide, tell the way what came of it; what it is expected to cost."""
    q, prices, truth = way.chances(day, today), costs.array(), truth_of(day)
    says = machine_losses(p, prices).argmin(axis=1)
    most = [0 if name in way.away else desk.each for name in today.experts]
    room = Room(np.zeros(1 + len(most), np.int64), np.array([len(day), *most]))
    maker = optimal(expected_loss(p, q, prices), says, room, 0).maker
    row = np.flatnonzero(maker > 0)
    expert = maker[row] - 1
    handled = handled_before(expert)
    chance = today.pair_errors(day, row, expert, handled=handled)
    price = costs.case_weights(truth)
    alone = maker == 0
    total = float((price[row] * chance).sum() + (price * (says != truth))[alone].sum())
    said = today.decide_pairs(day, row, expert, np.random.SeedSequence(list(seed)), handled=handled)
    answers = _Answers(
        day.features.iloc[row], truth[row], np.array(today.experts, object)[expert], said.astype(np.int64)
    )
    way.evening(answers, q[row, expert])
    return total


def _history(
    scene: Scene, team: SyntheticTeam, kind: str, months: MonthsTable, seed: int, desk: Desk
) -> History:
    """One random person's decision on each past case, as people decided in that month."""
    parts, times = [], scene.past.time
    assert times is not None
    for month in months.past:
        cases = scene.past.take((times == month).to_numpy())
        if not len(cases):
            continue
        cases = replace(cases, batch=batches_by_size(cases, desk.each * len(team), seed))
        parts.append(
            random_history(changed(team, kind, month, months), cases, np.random.SeedSequence([seed, month]))
        )
    log = pd.concat(parts, ignore_index=True)
    decision = log["decision"].to_numpy(np.int64)
    return History.of(scene.past, Decisions(log["case_id"], log["expert_id"], decision, scene.past.classes))
