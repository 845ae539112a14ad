"""Prevalence drift: log-loss and cost of the next month, with the level of the truths over time and without.

Rolling origin: learn from the months up to m, plan month m + 1. A simulated team of nine whose true chances
are known to the plan, so that what is left is the level; the paper's homogeneous capacity; cost per 100.
*Believed* is what the plan expects, *real* what it costs given the labels; *held* says how often the interval
of the plan's cost holds the real one. *Right level*: the log-odds shifted to what the month's labels ask for,
which nobody can know; what is off then is not the level, but that the least of many costs was chosen, or the
model's spread. `real alerts`: months 3 to 6; on month 6 a fault of the calibration was
noticed and mended, so it is no longer untouched. `embedded`: alerts raised in worlds that deccaf generates.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from deccaf import Cases, Columns, Costs
from deccaf.assign import solve
from deccaf.data.costs import MACHINE, expert_losses, machine_losses
from deccaf.errors import DeccafWarning
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.cases.level import Level
from deccaf.planning.intervals import LEVEL
from deccaf.simulate import AlertModel, build_alert_sets, generate_applications
from deccaf.simulate.teams.build import paper_group, threshold_cost
from deccaf.simulate.teams.team import SyntheticTeam
from deccaf.simulate.testbed import paper_capacity

Array = NDArray[np.float64]
ALERTS = Path(__file__).parents[2] / "shared" / "data" / "baf_alerts_months_3_to_6.parquet"
RATIOS = (0.0114, 0.057, 0.285)
ROLES = Columns(label="fraud_bool", time="month")


def alerts_of(rows: int, seed: int) -> Cases:
    """Alerts of an embedded world."""
    applications = generate_applications(rows, seed=seed)
    sets = build_alert_sets(
        applications, [0.05], seed=seed, model=AlertModel(seed=seed, jobs=1).fit(applications)
    )
    return Cases.from_frame(sets.sets[0.05].reset_index(), columns=ROLES, require=("label", "time"))


def month(cases: Cases, last: int, parts: tuple[str, ...], seed: int) -> list[dict[str, object]]:
    """Learn up to `last`, plan the month after it."""
    past, test = cases.between(None, last + 1), cases.between(last + 1, last + 2)
    model = CaseClassifier(parts=parts).fit(past.features, past.label, time=past.time)
    walking, rows = model.level_, []
    print(
        f"month {last + 1}: errors {walking.errors[:, 1].round(3)}, expected {walking.shift[1]:.3f} "
        f"+- {walking.deviation[1]:.3f}, gain {walking.gain:.5f}",
        flush=True,
    )
    plain = Level.none(2)
    model.level_ = plain
    bias = right_shift(np.log(model.predict(test.features)), test.label)
    ways = {"before": plain, "after": walking, "right level": replace(plain, shift=np.array([0.0, bias]))}
    for way, model.level_ in ways.items():
        p = model.predict(test.features)
        reach = norm.ppf((1 + LEVEL) / 2)
        ends = [model.predict(test.features, sign * reach) for sign in (-1, 1)]
        for ratio in RATIOS:
            found = planned(ratio, past.between(last, last + 1), test, p, ends, seed)
            loss = float(-np.log(p[np.arange(len(p)), test.label]).mean())
            rows.append(
                {
                    "month": last + 1,
                    "ratio": ratio,
                    "way": way,
                    "level": float(test.label.mean()),
                    "mean p": float(p[:, 1].mean()),
                    "log-loss": loss,
                    **found,
                }
            )
    return rows


def right_shift(log_p: Array, label: NDArray[np.int64]) -> float:
    """What must be added to the log-odds for the month's mean to be right in the sense of likelihood."""
    odds = log_p[:, 1] - log_p[:, 0]
    return float(brentq(lambda move: float((expit(odds + move) - label).sum()), -5.0, 5.0))


def planned(
    ratio: float, fit: Cases, test: Cases, p: Array, ends: list[Array], seed: int
) -> dict[str, float]:
    """What the plan believes, and what it really costs."""
    costs = Costs.binary(ratio)
    team = SyntheticTeam.sample([paper_group()], fit, costs, seed, classifier_cost=threshold_cost(fit, costs))
    q, table = team.decision_probabilities(test), costs.array()
    machine = machine_losses(p, table)
    loss = np.column_stack([machine.min(axis=1), expert_losses(p, q, table, np.zeros(len(team.experts)))])
    capacity = paper_capacity("homogeneous", len(test), team.experts)
    lower, upper = capacity.limits([MACHINE, *team.experts], len(test))
    maker, rows = solve(loss, upper, lower).maker, np.arange(len(test))
    says = machine.argmin(axis=1)

    def cost(chance: Array) -> float:
        people = expert_losses(chance, q, table, np.zeros(len(team.experts)))
        own = machine_losses(chance, table)[rows, says]
        return 100 * float(np.column_stack([own, people])[rows, maker].mean())

    real, low, high = cost(np.eye(2)[test.label]), *(cost(end) for end in ends)
    return {"believed": cost(p), "real": real, "held": float(low <= real <= high)}


def main(arguments: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--alerts", type=Path, default=ALERTS)
    parser.add_argument("--rows", type=int, default=200_000, help="applications of an embedded world")
    parser.add_argument("--worlds", type=int, default=2)
    parser.add_argument("--last", type=int, default=6, help="the last real month to test on")
    parser.add_argument("--parts", nargs="*", default=["logistic", "boosted"])
    options = parser.parse_args(arguments)
    sets = {}
    if options.alerts.exists():
        cases = Cases.read(options.alerts, columns=ROLES, require=("label", "time"))
        sets["real alerts"] = [(cases.between(3, options.last + 1), 0)]
    sets["embedded"] = [(alerts_of(options.rows, seed), seed) for seed in range(options.worlds)]
    warnings.simplefilter("ignore", DeccafWarning)
    for name, worlds in sets.items():
        if not worlds:
            continue
        rows = []
        for cases, seed in worlds:
            assert cases.time is not None
            for last in range(int(cases.time.min()), int(cases.time.max())):
                rows += month(cases, last, tuple(options.parts), seed)
        show(name, pd.DataFrame(rows))


def show(name: str, table: pd.DataFrame) -> None:
    """By month and way; then how far belief is from cost, by ratio."""
    first = table[table["ratio"] == RATIOS[0]]
    by_month = first.pivot_table(["log-loss", "mean p"], ["month", "level"], "way", "mean")
    print(f"{name}: mean p and log-loss")
    print(by_month.round(4).to_string())
    means = table.groupby(["ratio", "way"], sort=False)[["believed", "real", "held"]].mean()
    means["believed off"] = (means["believed"] / means["real"] - 1).map("{:+.1%}".format)
    print(f"{name}: cost per 100, all months")
    print(means.round(3).to_string(), flush=True)
