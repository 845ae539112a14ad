"""Selective labels: what a plan claims and what it really costs when rejected cases never show their truth.

Applications with six features; eight reviewers of different skill and leniency who see more than the features
do, one of them on each case, drawn at random. A rejected application has no label. Columns: all labels known;
labels of accepted cases alone, as they come; the same with `[labels] selective` (leniency); and with a share
of the rejects let through by lot, learned from alone (each for 1 / chance) and as deccaf does. Costs are per
100 new cases under the true chances: *claim* is what the plan believes, *real* what it costs; *way back* is
the share of the damage that is undone.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from deccaf import DeCCaF, History
from deccaf.data.config import Config
from deccaf.data.costs import expert_losses, machine_losses
from deccaf.errors import DeccafWarning
from deccaf.estimator import learn_from
from deccaf.evaluate.audit import audit

Array = NDArray[np.float64]

EXPERTS = tuple(f"reviewer {j}" for j in range(8))
CONFIG = {
    "costs": {"false_positive": 0.3, "false_negative": 1.0},
    "columns": {"let_through": "let_through"},
    "model": {"case_parts": ["logistic"], "decision_parts": ["rates", "pooled"]},
}


@dataclass(frozen=True, eq=False)
class World:
    """Cases with their truth and true chances."""

    features: pd.DataFrame
    truth: NDArray[np.int64]
    p: Array
    """(cases, 2)."""
    q: Array
    """(cases, experts, 2 truths, 2 decisions)."""

    def take(self, rows: slice) -> World:
        return World(self.features[rows], self.truth[rows], self.p[rows], self.q[rows])


def world(cases: int, seed: int) -> World:
    """Applications, about a third of them bad."""
    rng, people = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    x = rng.normal(size=(cases, 6))
    chance = expit(-0.75 + x @ np.array([0.9, -0.7, 0.5, 0.3, 0.0, 0.0]))
    truth = (rng.random(cases) < chance).astype(np.int64)
    count = len(EXPERTS)
    lean, skill = people.normal(-0.2, 0.7, count), people.uniform(0.7, 2.2, count)
    slopes = people.normal(0.0, 0.4, (count, 6)) + np.array([0.5, -0.4, 0.2, 0.2, 0.0, 0.0])
    says = expit(
        (x @ slopes.T)[:, :, None] + lean[:, None] + skill[:, None] * np.array([-1.0, 1.0])
    )  # (cases, experts, truth)
    features = pd.DataFrame(x, columns=[f"x{k}" for k in range(6)])
    q = np.stack([1.0 - says, says], axis=-1)
    return World(features, truth, np.column_stack([1.0 - chance, chance]), q)


def desk(past: World, hidden: bool, share: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of a desk: cases with the labels that it sees, and decisions."""
    rng = np.random.default_rng([seed, 2])
    rows = len(past.truth)
    who = rng.integers(0, len(EXPERTS), rows)
    said = (rng.random(rows) < past.q[np.arange(rows), who, past.truth, 1]).astype(np.int64)
    let = (said == 1) & (rng.random(rows) < share)
    label = pd.Series(past.truth).astype("Int64")
    cases = past.features.assign(case_id=np.arange(rows), label=label, time=np.arange(rows) // 50)
    if hidden:
        cases["label"] = label.mask((said == 1) & ~let)
    cases["let_through"] = np.where(let & hidden, share, np.nan)
    log = pd.DataFrame({"case_id": np.arange(rows), "expert_id": np.array(EXPERTS)[who], "decision": said})
    return cases, log


def learned(cases: pd.DataFrame, log: pd.DataFrame, selective: bool, alone: bool = False) -> DeCCaF:
    """As `deccaf fit` does it; or, for comparison, from the let-through rejects `alone`, by 1 / chance."""
    config = Config.model_validate({**CONFIG, **({"labels": {"selective": "positive"}} if selective else {})})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeccafWarning)
        history = History.from_frames(cases, log, config)
        if alone:
            found = audit(history, config.columns, config.labels).history
            weighted = replace(found, guess=None, weight=found.stands)
            return DeCCaF.from_config(config).fit_history(weighted)
        return learn_from(history, config, lambda _: None)


def outcome(model: DeCCaF, new: World) -> tuple[float, float, float]:
    """(claim, real) of a plan that gives everybody a tenth of the cases at most, and the mean chance."""
    capacity = {name: len(new.truth) // 10 for name in EXPERTS}
    plan = model.assign(new.features, capacity, intervals=False)
    costs = model.costs_.array()
    machine = machine_losses(new.p, costs)
    says = model.predict_decision(new.features)
    true = np.column_stack(
        [machine[np.arange(len(says)), says], expert_losses(new.p, new.q, costs, np.zeros(len(EXPERTS)))]
    )
    names = {name: place for place, name in enumerate(("machine", *EXPERTS))}
    maker = plan.frame["maker"].map(names).to_numpy()
    real = true[np.arange(len(maker)), maker].mean()
    return (
        100 * float(plan.frame["expected_loss"].mean()),
        100 * float(real),
        float(model.predict_proba(new.features)[:, 1].mean()),
    )


def measured(size: int, seed: int, shares: tuple[float, ...]) -> list[dict[str, float | str]]:
    """One row per way to learn."""
    whole = world(size + 4000, seed)
    past, new = whole.take(slice(0, size)), whole.take(slice(size, None))
    new = World(new.features.reset_index(drop=True), new.truth, new.p, new.q)
    ways = {
        "all labels": (False, 0.0, False),
        "accepted alone (before)": (True, 0.0, False),
        "leniency": (True, 0.0, True),
        **{f"{share:.0%} let through, alone": (True, share, True) for share in shares},
        **{f"{share:.0%} let through": (True, share, True) for share in shares},
    }
    rows = []
    for name, (hidden, share, selective) in ways.items():
        tables = desk(past, hidden, share, seed)
        claim, real, level = outcome(learned(*tables, selective, name.endswith("alone")), new)
        rows.append({"cases": size, "labels": name, "mean p": level, "claim": claim, "real": real})
    return rows


def main(arguments: list[str]) -> None:
    """Print the table, means over worlds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--worlds", type=int, default=4)
    parser.add_argument("--cases", type=int, nargs="*", default=[2000, 6000])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.05])
    options = parser.parse_args(arguments)
    rows = [
        row
        for size in options.cases
        for seed in range(options.worlds)
        for row in measured(size, seed, tuple(options.shares))
    ]
    table = pd.DataFrame(rows).groupby(["cases", "labels"], sort=False).mean()
    # ratios of the means, as single worlds may have little to win back
    first = table["real"].groupby("cases").transform("first")
    worst = table["real"].groupby("cases").transform(lambda real: real.iloc[1])
    table["claim off"] = (table["claim"] / table["real"] - 1).map("{:+.1%}".format)
    table["way back"] = ((worst - table["real"]) / (worst - first)).map("{:.0%}".format)
    print(table.round({"mean p": 3, "claim": 2, "real": 2}).to_string())
