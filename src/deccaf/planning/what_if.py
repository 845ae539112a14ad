"""What if somebody had more time, or less, or errors cost something else: the same cases planned again.

A *scenario* is some changes that hold together: by maker "+10", "-5", or "40" to set it, and by the name of a
cost ("costs.false_positive") a number. The command line, the service's drafts and the pages all ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.capacity import UNLIMITED, Capacity
from deccaf.data.costs import MACHINE
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.planning.plan import Plan
from deccaf.planning.planner import make_plan, roster_notes
from deccaf.planning.scored import Scored
from deccaf.planning.terms import PREFIX, Terms

Score = Callable[[Terms, Sequence[str]], Scored]
"""Scores the cases on some terms, for some experts."""


@dataclass(frozen=True)
class Scenario:
    """Changes that hold together."""

    changes: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Of `ann=+10,bob=0,costs.false_positive=0.1`."""
        changes: dict[str, str] = {}
        for part in text.split(","):
            name, mark, change = (piece.strip() for piece in part.partition("="))
            if not (name and mark and change):
                raise ConfigError(
                    f"what if {text}: write it as ann=+10, ann=-5, ann=40 or costs.false_positive=0.1, "
                    "several changes of one scenario with commas"
                )
            if name in changes:
                raise ConfigError(f"what if {text}: {name!r} is changed twice")
            changes[name] = change
        return cls(changes)

    @property
    def name(self) -> str:
        """As it is written."""
        return ", ".join(f"{name}={change}" for name, change in self.changes.items())

    @property
    def room(self) -> dict[str, str]:
        """Changes of people's (or the machine's) limits."""
        return {name: change for name, change in self.changes.items() if not name.startswith(PREFIX)}

    @property
    def costs(self) -> dict[str, str]:
        """Changes of costs."""
        return {name: change for name, change in self.changes.items() if name.startswith(PREFIX)}


@dataclass(frozen=True, eq=False)
class WhatIf:
    """Two plans of the same cases."""

    now: Plan
    then: Plan
    kept: float
    """What the plan as it is would cost in the scenario: another number where the costs change, and NaN
    where they do and several people see a case."""
    scenario: Scenario

    @property
    def saves(self) -> float:
        """What planning for the change saves against keeping the plan; negative where it costs."""
        return self.kept - self.then.summary.total

    @property
    def moved(self) -> int:
        """Cases that somebody else gets."""
        return int((self.now.frame["maker"].to_numpy() != self.then.frame["maker"].to_numpy()).sum())

    @property
    def table(self) -> pd.DataFrame:
        """By maker: cases now, cases then, and the difference."""
        before, after = self.now.summary.makers["cases"], self.then.summary.makers["cases"]
        makers = pd.DataFrame({"now": before, "then": after}).fillna(0).astype("int64")
        order = dict.fromkeys([*before.index, *after.index])
        return makers.loc[list(order)].assign(change=makers["then"] - makers["now"])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON; the plan as it is stands beside, once."""
        return {
            "scenario": self.scenario.name,
            "changes": dict(self.scenario.changes),
            "cost": self.then.summary.total,
            "kept": None if np.isnan(self.kept) else self.kept,
            "saves": None if np.isnan(self.kept) else self.saves,
            "moved": self.moved,
            "then": self.then.summary.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class WhatIfs:
    """The plan as it is, and one answer for every scenario."""

    now: Plan
    answers: tuple[WhatIf, ...]
    machines: frozenset[str] = frozenset()
    """Who is a machine, beside deccaf's own."""

    @property
    def table(self) -> pd.DataFrame:
        """One row per scenario, the plan as it is first: `scenario`, `cost`, `kept` (what the plan as it is
        costs at the costs of the scenario), `saves`, `moved` and `people` (cases that people get)."""
        machines = {MACHINE, *self.machines}
        plans = [("as it is", self.now, self.now.summary.total, 0.0, 0)]
        plans += [(a.scenario.name, a.then, a.kept, a.saves, a.moved) for a in self.answers]
        rows = [
            (name, plan.summary.total, kept, saves, moved, int((~plan.frame["maker"].isin(machines)).sum()))
            for name, plan, kept, saves, moved in plans
        ]
        return pd.DataFrame(rows, columns=["scenario", "cost", "kept", "saves", "moved", "people"])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        return {
            "now": self.now.summary.to_dict(),
            "scenarios": [answer.to_dict() for answer in self.answers],
        }


def what_ifs(
    score: Score,
    terms: Terms,
    capacity: Capacity,
    scenarios: Sequence[Scenario],
    known: Sequence[str],
    **options: Any,
) -> WhatIfs:
    """Plan as it is, and once for every scenario; `options` are those of `make_plan`.

    `known` are the experts that were learned from: anyone else is the team's average.
    """
    for scenario in scenarios:
        check_names(scenario.room, (*capacity.makers, *known))
    rosters = [changed(capacity, scenario.room) for scenario in scenarios]
    others = [terms.changed(scenario.costs) for scenario in scenarios]  # before any work: names may be wrong
    everyone = list(dict.fromkeys(name for roster in [capacity, *rosters] for name in _people(roster)))
    scored = score(terms, everyone)
    now = make_plan(scored.of((MACHINE, *_people(capacity))), capacity, **options)
    now = _noted(now, roster_notes(known, capacity))
    answers = []
    for scenario, roster, other in zip(scenarios, rosters, others, strict=True):
        mine = score(other, everyone) if scenario.costs else scored
        kept = _kept(mine, now) if scenario.costs else now.summary.total
        then = make_plan(mine.of((MACHINE, *_people(roster))), roster, start=now.prices, **options)
        answers.append(WhatIf(now, _noted(then, roster_notes(known, roster)), kept, scenario))
    return WhatIfs(now, tuple(answers), frozenset(scored.machines))


def what_if(scored: Scored, capacity: Capacity, changes: Mapping[str, str], **options: Any) -> WhatIf:
    """The same for cases that are scored already, with other limits only."""
    now = make_plan(scored, capacity, **options)
    then = make_plan(scored, changed(capacity, changes), start=now.prices, **options)
    return WhatIf(now, then, now.summary.total, Scenario(changes))


def changed(capacity: Capacity, changes: Mapping[str, str]) -> Capacity:
    """The capacity with more or less room in every batch: by maker "+10", "-5", or "40" to set it.

    Who is not on the roster comes to it.
    """
    for maker, change in changes.items():
        capacity = _changed(capacity, maker, change)
    return capacity


def check_names(names: Collection[str], known: Collection[str]) -> None:
    """Refuse a new name that is nearly a known one: more likely a slip than a newcomer.

    Names that differ in a number (`analyst_1`, `analyst_12`) are different people.
    """
    for name in names:
        near = [one for one in known if _digits(one) == _digits(name)]
        hint = "" if name in known else did_you_mean(name, near, 0.8)
        if hint:
            raise DataError(f"what if {name}: nobody is called so{hint} A newcomer needs another name")


def _digits(name: str) -> str:
    return "".join(sign for sign in name if sign.isdigit())


def least_cost(scored: Scored, capacity: Capacity, **options: Any) -> float:
    """What the cases cost at best within the limits."""
    return make_plan(scored, capacity, **options).summary.total


def _changed(capacity: Capacity, maker: str, change: str) -> Capacity:
    text = change.strip()
    try:
        number = int(text)
    except ValueError:
        number = -1 if text[:1] not in "+-" else UNLIMITED
    if abs(number) >= UNLIMITED or (number < 0 and not text.startswith("-")):
        raise DataError(f"what if {maker}={change}: expected a number of cases such as +10, -5 or 40")
    upper, lower = capacity.upper.copy(), capacity.lower.copy()
    if maker not in upper:
        if number < 0:
            hint = did_you_mean(maker, capacity.makers)
            raise DataError(f"what if {maker}={change}: {maker!r} is not on the roster{hint}")
        upper[maker] = lower[maker] = 0
    present = upper[maker] if text[:1] in "+-" else 0 * upper[maker]
    upper[maker] = (present + number).clip(lower=0, upper=UNLIMITED)
    lower[maker] = np.minimum(lower[maker], upper[maker])
    return replace(capacity, upper=upper, lower=lower)


def _people(capacity: Capacity) -> list[str]:
    return [name for name in capacity.makers if name != MACHINE]


def _noted(plan: Plan, notes: Sequence[str]) -> Plan:
    """The plan with what is odd about its roster, before what is odd about the cases."""
    return replace(plan, summary=replace(plan.summary, notes=(*notes, *plan.summary.notes)))


def _kept(scored: Scored, plan: Plan) -> float:
    """What a plan costs by other beliefs; NaN where several people see a case."""
    if "reviewer_2" in plan.frame:
        return float("nan")
    maker = pd.Index(scored.makers).get_indexer(pd.Index(plan.frame["maker"]))
    waited = 0.0 if plan.summary.waiting is None else plan.summary.waiting.cost
    return float(scored.loss[np.arange(len(maker)), maker].sum()) + waited
