"""One variation: every policy decides the test month within the same limits, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.benchmark.kept import read_decisions, read_experts, read_truth
from deccaf.benchmark.profile import WorkloadTable
from deccaf.benchmark.rivals import read_rival
from deccaf.benchmark.scene import Crew, Scene, Setting
from deccaf.benchmark.store import Found
from deccaf.data.capacity import Capacity
from deccaf.data.costs import MACHINE, Costs
from deccaf.policies import RIVALS, Beliefs, Correctness, Decided, Registered, Room
from deccaf.simulate.testbed import (
    PAPER_SETTINGS,
    Workload,
    batches_by_size,
    paper_capacity,
    sample_capacity,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Variation:
    """One way to share the test month out among everybody, and the folder of what comes of it."""

    key: str
    draw: int
    workload: WorkloadTable | None = None
    """None: one of the paper's five settings, by its number."""

    @property
    def described(self) -> dict[str, Any] | None:
        """The workload as data."""
        return None if self.workload is None else self.workload.model_dump(mode="json", exclude={"draws"})


Batches = list[tuple[Ints, Room]]
"""Rows of each batch, and how much everybody must and may get of it."""


def run_cells(
    setting: Setting,
    ratio: float,
    seed: int,
    variations: Sequence[Variation],
    policies: Sequence[Registered],
    kept: dict[str, pd.DataFrame],
) -> dict[str, Found]:
    """The cells of one history: for each variation the outcome of each policy, under its key.

    `kept` are the predictions of `cases` (our classifier), `paper` (the paper's), `experts`, and `released`
    where a policy asks for the paper's models as its released code trains them; other names are rivals.
    """
    scene, crew, costs = setting.scene(), setting.crew(ratio, seed), Costs.binary(ratio)
    known = beliefs(crew, costs, kept, setting.groups(scene.test))
    able = [policy for policy in policies if _can(policy, known)]
    found = {}
    for variation in variations:
        batches = batches_of(variation, setting, seed, scene, crew)
        outcomes, prices, loads, groups = [], {}, {}, {}
        for policy in able:
            name, started = policy.name, time.perf_counter()
            decided, of_plan = decide(policy, known, batches, 1000 * seed + variation.draw)
            seconds = time.perf_counter() - started
            outcomes.append(
                {"policy": name, **outcome(decided, scene, crew, costs), "assign_seconds": seconds}
            )
            loads[name] = np.bincount(decided.maker, minlength=len(known.makers)).tolist()
            if of_plan is not None:
                prices[name] = of_plan.tolist()
            if known.group is not None:
                groups[name] = group_errors(decided, scene, crew, known.group)
        found[variation.key] = Found(
            {
                "asked": [policy.name for policy in policies],
                "workload": variation.described,
                "outcomes": outcomes,
                "makers": known.makers,
                "loads": loads,
                "prices": prices,
                "groups": groups,
            }
        )
    return found


def decide(policy: Registered, known: Beliefs, batches: Batches, seed: int) -> tuple[Decided, Array | None]:
    """What a policy decides, batch after batch; with the mean prices of its plans where it makes some."""
    if len(batches) == 1:
        found = policy.decide(known, batches[0][1], seed)
        return found, None if found.plan is None else found.plan.prices
    maker, says, prices = np.empty(len(known), np.int64), np.empty(len(known), np.int64), []
    chances, drawn = np.empty((len(known), len(known.makers))), False
    for place, (rows, room) in enumerate(batches):
        part = policy.decide(known.take(rows), room, seed + 1_000_000 * place)
        maker[rows], says[rows] = part.maker, part.machine_says
        drawn |= part.chances is not None
        as_said = part.maker[:, None] == np.arange(len(known.makers))
        chances[rows] = as_said if part.chances is None else part.chances
        if part.plan is not None:
            prices.append(part.plan.prices)
    found = Decided(maker, says, chances=chances if drawn else None)
    return found, np.mean(prices, axis=0) if prices else None


def beliefs(
    crew: Crew, costs: Costs, kept: dict[str, pd.DataFrame], group: NDArray[np.str_] | None = None
) -> Beliefs:
    """What the models believe about the test cases; `group` is the protected group of each."""
    paper, experts = kept["paper"], kept["experts"]

    def correctness(p: str, model: str, models: pd.DataFrame = experts) -> Correctness:
        return Correctness(read_truth(paper, p, costs.classes), read_experts(models, model, crew.experts))

    methods = {
        "hem": correctness("p", "hem"),
        "hem-refit": correctness("refit", "refit"),
        "ova": correctness("p", "ova"),
        "fixed": correctness("fixed", "hem"),
    }
    if "released" in kept:
        for name in ("hem", "ova"):
            methods[f"{name}-as-released"] = correctness("p", name, kept["released"])
    return Beliefs(
        experts=crew.experts,
        costs=costs.array(),
        p=read_truth(kept["cases"], "p", costs.classes),
        q=read_decisions(experts, crew.experts, costs.classes),
        true_q=crew.true_q,
        paper=methods,
        rivals={name: read_rival(kept[name], crew.experts) for name in kept if name in RIVALS},
        group=group,
    )


def outcome(decided: Decided, scene: Scene, crew: Crew, costs: Costs) -> dict[str, Any]:
    """Counts of one draw of decisions, their cost, and the expected cost with the true chances of error.

    The expected cost of a policy that draws lots is its mean over all of them. The first class is the
    negative one, all others are positive.
    """
    truth, rows, n, k = scene.truth, np.arange(len(scene.test)), len(scene.test), len(costs.classes)
    human, price = decided.maker > 0, costs.array()[0]
    of_expert = np.where(human, decided.maker - 1, 0)
    said = np.where(human, crew.said[rows, of_expert], decided.machine_says)
    pairs = np.bincount(k * truth + said, minlength=k * k).reshape(k, k)
    tn, fp, fn, tp = (int(part.sum()) for part in (pairs[0, 0], pairs[0, 1:], pairs[1:, 0], pairs[1:, 1:]))
    cost, expected = 100 * float((pairs * price).sum()) / n, None
    if crew.true_q is not None:
        of_people = (crew.true_q[rows, :, truth] * price[truth][:, None]).sum(axis=2)
        expected = float(100 * _over_lots(of_people, price[truth, decided.machine_says], decided).mean())
    counts = {"n": n, "fp": fp, "fn": fn, "tp": tp, "tn": tn}
    return {**counts, "cost_per_100": cost, "expected_cost_per_100": expected}


def _over_lots(people: Array, machine: Array, decided: Decided) -> Array:
    """Of each case: what its maker stands for, or the mean over all who might have drawn it."""
    each = np.column_stack([machine, people])
    if decided.chances is None:
        return np.asarray(each[np.arange(len(each)), decided.maker])
    return np.asarray((decided.chances * each).sum(axis=1))


def group_errors(
    decided: Decided, scene: Scene, crew: Crew, group: NDArray[np.str_]
) -> dict[str, dict[str, float | None]]:
    """By group: false-positive and false-negative rate, and of how many cases each is the mean.

    Expected rates with the true chances of error where these are known, else those of the decisions drawn.
    """
    truth, rows = scene.truth, np.arange(len(scene.test))
    people = (crew.said != truth[:, None]).astype(np.float64)
    if crew.true_q is not None:
        people = 1.0 - crew.true_q[rows, :, truth, truth]
    machine = (decided.machine_says != truth).astype(np.float64)
    wrong = _over_lots(people, machine, decided)
    found: dict[str, dict[str, float | None]] = {}
    for name in np.unique(group):
        mine = {"fpr": (group == name) & (truth == 0), "fnr": (group == name) & (truth > 0)}
        rates = {rate: float(wrong[who].mean()) if who.any() else None for rate, who in mine.items()}
        counts = {"negatives": int(mine["fpr"].sum()), "positives": int(mine["fnr"].sum())}
        found[str(name)] = {**rates, **counts}
    return found


def _can(policy: Registered, known: Beliefs) -> bool:
    """Whether all that the policy needs is known; the true chances of a third party's people are not."""
    there = {"true_q": known.true_q is not None, "group": known.group is not None}
    return all(there.get(need, True) for need in policy.needs)


def batches_of(variation: Variation, setting: Setting, seed: int, scene: Scene, crew: Crew) -> Batches:
    """The test cases in batches, with everybody's load in each."""
    cases, asked = len(scene.test), variation.workload
    if setting.roster is not None:
        return _rooms(setting.roster.batch_of(scene.test.ids), setting.roster.capacity, crew)
    if asked is None:
        return [(np.arange(cases), limits_of(variation.draw, cases, crew))]
    names = batches_by_size(scene.test, asked.batch or cases, setting.team.shuffle_of(seed))
    workload = Workload(
        spread=asked.spread if variation.draw else 0.0,
        deferral_rate=asked.deferral_rate,
        absent=asked.absent,
        per_batch=asked.per_batch,
        exact=asked.exact,
    )
    return _rooms(names, sample_capacity(names, crew.experts, workload, variation.draw), crew)


def _rooms(batch: pd.Series, capacity: Capacity, crew: Crew) -> Batches:
    """The limits of every batch that has cases."""
    found, makers = [], [MACHINE, *crew.experts]
    for name in batch.unique():
        rows = np.flatnonzero((batch == name).to_numpy())
        lower, upper = capacity.limits(makers, len(rows), name or None)
        found.append((rows, Room(lower, upper, name=f"batch {name}" if name else "")))
    return found


def limits_of(capacity: int, cases: int, crew: Crew) -> Room:
    """Everybody's exact load in one of the paper's settings."""
    limits = paper_capacity(PAPER_SETTINGS[capacity], cases, crew.experts)
    lower, upper = limits.limits([MACHINE, *crew.experts], cases)
    return Room(lower, upper)
