"""How much could be saved at all: the benchmark's plans with perfect knowledge of cases, of experts, of both.

    python benchmarks/ceiling.py DIR [--seeds 5] [--capacities 5]

DIR is a finished `deccaf bench run --profile standard` on the embedded world. The generator's own P(fraud |
features, month) takes the place of the classifier; `base rate` only shifts the classifier to the right share
of fraud in the test month. Nobody can know either: these are bounds, not policies.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from deccaf.benchmark.cells import beliefs, limits_of, outcome
from deccaf.benchmark.kept import with_first
from deccaf.benchmark.profile import read_profile
from deccaf.benchmark.scenario import Scenario, settled
from deccaf.benchmark.scene import Setting
from deccaf.benchmark.store import Store
from deccaf.benchmark.world import Source, settings
from deccaf.data.costs import Costs
from deccaf.evaluate.measures import log_loss, roc_auc
from deccaf.policies import find
from deccaf.simulate.applications import BLOCK, load_world

Array = NDArray[np.float64]


def main() -> int:
    """Print mean costs and what each saves against the paper's DeCCaF and one-vs-all."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--capacities", type=int, default=5)
    options = parser.parse_args()
    profile, store = read_profile("standard"), Store(options.folder)
    truth = true_chances(profile.world.rows, profile.world.seed, profile.months.test)
    rows = []
    for rate, setting in settings(store, profile, Source(), print).items():
        p_true = truth[setting.scene().test.ids.to_numpy()]
        show_classifier(store, setting, rate, p_true)
        for ratio in profile.grid.ratios:
            found = bounds(
                store, setting, Scenario(rate, ratio, 1.0), p_true, options.seeds, options.capacities
            )
            rows.append({"alerts": rate, "ratio": ratio, **found})
    table = pd.DataFrame(rows).set_index(["alerts", "ratio"])
    print(table.round(3).to_string())
    rivals = ("deccaf-paper", "ova")
    saved = pd.DataFrame({f"less than {name}": 1 - table.div(table[name], axis=0).mean() for name in rivals})
    print("\nmean over the scenarios\n" + saved.round(3).to_string())
    return 0


def true_chances(rows: int, seed: int, month: int) -> Array:
    """P(fraud) of every application of a month, as the generator had it when it drew the label."""
    world, found = load_world(), np.full(rows, np.nan)
    months, starts = world.months(rows), range(0, rows, BLOCK)
    for start, child in zip(starts, np.random.SeedSequence(seed).spawn(len(starts)), strict=True):
        block = months[start : start + BLOCK]
        if month in block:
            _, basis = world.draw_features(block, np.random.default_rng(child))
            risk = world.fraud.offset[block] + world.fraud.scale[block] * world.fraud.index(basis)
            found[start : start + BLOCK] = expit(risk)
    return found


def show_classifier(store: Store, setting: Setting, rate: float, p_true: Array) -> None:
    """How far the classifier is from the truth that the generator knows."""
    label = setting.scene().truth
    ours = store.table(Scenario(rate, 0.0, 1.0).cases, "predictions")["p:1"].to_numpy()
    for name, p in (("generator", p_true), ("classifier", ours)):
        print(
            f"{rate:.0%} alerts, {name}: AUC {roc_auc(label, p):.3f}, log-loss {log_loss(label, p):.4f}, "
            f"mean {p.mean():.3f} where {label.mean():.3f} are fraud"
        )


def bounds(
    store: Store, setting: Setting, where: Scenario, p_true: Array, seeds: int, capacities: int
) -> dict[str, float]:
    """Mean expected cost per 100 of policies, and of deccaf and the oracle with better chances of fraud."""
    scene, costs, found = setting.scene(), Costs.binary(where.ratio), {}
    for seed in range(seeds):
        crew = settled(store, setting, where).crew(where.ratio, seed)
        folders = {"cases": where.cases, "paper": where.paper, "experts": where.experts(seed)}
        known = beliefs(crew, costs, {name: store.table(key, "predictions") for name, key in folders.items()})
        level = logit(known.p[:, 1])
        shift = brentq(lambda by, at=level: expit(at + by).mean() - scene.truth.mean(), -5, 5)
        better = {
            "": known,
            ", base rate": replace(known, p=with_first(expit(level + shift))),
            ", true p": replace(known, p=with_first(p_true)),
        }
        runs = [("ova", ""), ("deccaf-paper", "")]
        runs += [(name, kind) for kind in better for name in ("deccaf", "oracle")]
        for capacity in range(capacities):
            room = limits_of(capacity, len(scene.test), crew)
            for name, kind in runs:
                decided = find(name).decide(better[kind], room, 1000 * seed + capacity)
                cost = outcome(decided, scene, crew, costs)["expected_cost_per_100"]
                found.setdefault(name + kind, []).append(cost)
    return {name: float(np.mean(values)) for name, values in found.items()}


if __name__ == "__main__":
    sys.exit(main())
