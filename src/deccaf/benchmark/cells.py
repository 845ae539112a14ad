"""One variation: every policy decides the test month within the same limits, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.benchmark.kept import read_decisions, read_experts, read_truth
from deccaf.benchmark.scene import Crew, Scene, Setting
from deccaf.benchmark.store import Found
from deccaf.data.costs import MACHINE, Costs
from deccaf.policies import Beliefs, Correctness, Decided, Registered, Room
from deccaf.simulate.testbed import PAPER_SETTINGS, paper_capacity

Array = NDArray[np.float64]


def run_cells(
    setting: Setting,
    ratio: float,
    seed: int,
    keys: Mapping[int, str],
    policies: Sequence[Registered],
    kept: dict[str, pd.DataFrame],
) -> dict[str, Found]:
    """The cells of one history: for each capacity the outcome of each policy, under the key that it has.

    `kept` are the predictions of `cases` (our classifier), `paper` (the paper's), `experts`, and `released`
    where a policy asks for the paper's models as its released code trains them.
    """
    scene, crew, costs = setting.scene(), setting.crew(ratio, seed), Costs.binary(ratio)
    known = beliefs(crew, costs, kept)
    able = [policy for policy in policies if _can(policy, known)]
    found = {}
    for capacity, key in keys.items():
        room = limits_of(capacity, len(scene.test), crew)
        outcomes, prices, loads = [], {}, {}
        for policy in able:
            name, started = policy.name, time.perf_counter()
            decided = policy.decide(known, room, 1000 * seed + capacity)
            seconds = time.perf_counter() - started
            outcomes.append(
                {"policy": name, **outcome(decided, scene, crew, costs), "assign_seconds": seconds}
            )
            loads[name] = np.bincount(decided.maker, minlength=len(known.makers)).tolist()
            if decided.plan is not None:
                prices[name] = decided.plan.prices.tolist()
        asked = [policy.name for policy in policies]
        found[key] = Found(
            {
                "asked": asked,
                "outcomes": outcomes,
                "makers": known.makers,
                "loads": loads,
                "prices": prices,
            }
        )
    return found


def beliefs(crew: Crew, costs: Costs, kept: dict[str, pd.DataFrame]) -> Beliefs:
    """What the models believe about the test cases."""
    paper, experts = kept["paper"], kept["experts"]

    def correctness(p: str, model: str, models: pd.DataFrame = experts) -> Correctness:
        return Correctness(read_truth(paper, p, costs.classes), read_experts(models, model, crew.experts))

    methods = {
        "hem": correctness("p", "hem"),
        "hem-refit": correctness("refit", "refit"),
        "ova": correctness("p", "ova"),
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
    )


def outcome(decided: Decided, scene: Scene, crew: Crew, costs: Costs) -> dict[str, Any]:
    """Counts of one draw of decisions, their cost, and the expected cost with the true chances of error.

    The first class is the negative one, all others are positive.
    """
    truth, rows, n, k = scene.truth, np.arange(len(scene.test)), len(scene.test), len(costs.classes)
    human, price = decided.maker > 0, costs.array()[0]
    of_expert = np.where(human, decided.maker - 1, 0)
    said = np.where(human, crew.said[rows, of_expert], decided.machine_says)
    pairs = np.bincount(k * truth + said, minlength=k * k).reshape(k, k)
    tn, fp, fn, tp = (int(part.sum()) for part in (pairs[0, 0], pairs[0, 1:], pairs[1:, 0], pairs[1:, 1:]))
    cost, expected = 100 * float((pairs * price).sum()) / n, None
    if crew.true_q is not None:
        of_people = (crew.true_q[rows, of_expert, truth] * price[truth]).sum(axis=1)
        expected = float(100 * np.where(human, of_people, price[truth, decided.machine_says]).mean())
    counts = {"n": n, "fp": fp, "fn": fn, "tp": tp, "tn": tn}
    return {**counts, "cost_per_100": cost, "expected_cost_per_100": expected}


def _can(policy: Registered, known: Beliefs) -> bool:
    """Whether all that the policy needs is known; the true chances of a third party's people are not."""
    return "true_q" not in policy.needs or known.true_q is not None


def limits_of(capacity: int, cases: int, crew: Crew) -> Room:
    """Everybody's exact load in one of the capacity settings."""
    limits = paper_capacity(PAPER_SETTINGS[capacity], cases, crew.experts)
    lower, upper = limits.limits([MACHINE, *crew.experts], cases)
    return Room(lower, upper)
