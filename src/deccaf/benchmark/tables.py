"""The tables of a benchmark, from its stored results alone: numbers, not yet formatted.

Costs are expected costs with the experts' true chances of error where these are known (simulated teams), else
those of the decisions themselves. A *variation* is one history and one capacity of a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from deccaf.benchmark.store import Store
from deccaf.policies import MIXTURES, RIVALS

Array = NDArray[np.float64]
SCENARIO = ["alert_rate", "ratio"]
COST = "expected_cost_per_100"
OURS, PAPER, WITHOUT_LIMITS = "deccaf", "deccaf-paper", "oracle-without-limits"
MIXED = [name for name in MIXTURES.values() if name not in (OURS, PAPER)]
"""What lies between the paper's method and ours: for `mixtures` alone."""
FACTORS = ("classifier", "experts", "objective")
_DRAWS = 2000


def cost_column(results: pd.DataFrame) -> str:
    """The expected cost where it is known, else that of the decisions themselves."""
    known = COST in results and results[COST].notna().any()
    return COST if known else "cost_per_100"


def largest_share(results: pd.DataFrame) -> pd.DataFrame:
    """The results with most training data."""
    found: pd.DataFrame = results[results["train_share"] == results["train_share"].max()]
    return found


def one_batch(results: pd.DataFrame) -> pd.DataFrame:
    """The results of the paper's settings, one batch each; of the workloads where nothing else was run."""
    plain = results[results["workload"] == ""]
    return results if plain.empty else plain


def by_workload(results: pd.DataFrame) -> pd.DataFrame:
    """Mean cost per 100 cases over scenarios and variations: a row per policy, a column per workload."""
    most = largest_share(results)
    wide = most.pivot_table(index="policy", columns="workload", values=cost_column(results), sort=False)
    return wide.rename(columns={"": "the month as one batch"}).rename_axis(columns=None).reset_index()


def by_scenario(table: pd.DataFrame) -> Iterator[tuple[float, float, pd.DataFrame]]:
    """(alert rate, ratio, rows) of each scenario, in order; they may be columns or levels of the index."""
    for (rate, ratio), part in table.groupby(SCENARIO):
        yield float(str(rate)), float(str(ratio)), part


def cost_table(results: pd.DataFrame) -> pd.DataFrame:
    """Mean cost per 100 cases: a row per policy, a column per scenario and training share."""
    cost, one_share = cost_column(results), results["train_share"].nunique() == 1
    columns = {}
    for share in sorted(results["train_share"].unique(), reverse=True):
        for rate, ratio, part in by_scenario(results[results["train_share"] == share]):
            name = f"{rate:.0%}, {ratio:g}" + ("" if one_share else f" ({share:.0%} data)")
            columns[name] = part.groupby("policy")[cost].mean()
    table = pd.DataFrame(columns).reindex(list(dict.fromkeys(results["policy"])))
    return table.rename_axis("policy").reset_index()


def cost_intervals(results: pd.DataFrame, cost: str | None = None) -> pd.DataFrame:
    """`mean` and `half` (95 %, from the variance between variations) by scenario, share and policy."""
    groups = results.groupby([*SCENARIO, "train_share", "policy"], sort=False)[cost or cost_column(results)]
    table = groups.agg(["mean", "std", "count"]).reset_index()
    table["half"] = 1.96 * table["std"].fillna(0.0) / np.sqrt(table["count"])
    return table.drop(columns="std")


def by_variation(results: pd.DataFrame) -> pd.DataFrame:
    """A row per variation, a column per policy: what it costs."""
    index = [*SCENARIO, "train_share", "training_seed", "workload", "capacity_seed"]
    order = list(dict.fromkeys(results["policy"]))
    return results.pivot(index=index, columns="policy", values=cost_column(results))[order]


def wins(results: pd.DataFrame, policy: str) -> pd.DataFrame:
    """Share of the variations in which `policy` costs less than each other one, with the binomial test."""
    wide, rows = by_variation(largest_share(results)), []
    if policy not in wide:
        return pd.DataFrame(columns=[*SCENARIO, "policy", "won", "variations", "p_value"])
    for rate, ratio, part in by_scenario(wide):
        for other in wide.columns.drop(policy):
            better, worse = int((part[policy] < part[other]).sum()), int((part[policy] > part[other]).sum())
            test = binomtest(better, better + worse).pvalue if better + worse else 1.0
            rows.append((rate, ratio, other, better / len(part), len(part), test))
    return pd.DataFrame(rows, columns=[*SCENARIO, "policy", "won", "variations", "p_value"])


def differences(results: pd.DataFrame, policy: str = OURS) -> pd.DataFrame:
    """Relative saving of `policy` against each other one, with a 95 % bootstrap interval.

    Histories and capacities are drawn with replacement, each for itself, as variations share them.
    """
    wide, rows = by_variation(largest_share(results)), []
    if policy not in wide:
        return pd.DataFrame(columns=[*SCENARIO, "policy", "difference", "saved", "low", "high"])
    for rate, ratio, part in by_scenario(wide):
        for other in wide.columns.drop(policy):
            whole = part[[policy, other]].unstack("capacity_seed").dropna()
            if whole.empty:  # a run that is not finished
                continue
            own, its = whole[policy].to_numpy(np.float64), whole[other].to_numpy(np.float64)
            low, high = np.quantile(_resampled(own, its), [0.025, 0.975])
            saved = 1 - own.mean() / its.mean()
            rows.append((rate, ratio, other, own.mean() - its.mean(), saved, float(low), float(high)))
    return pd.DataFrame(rows, columns=[*SCENARIO, "policy", "difference", "saved", "low", "high"])


def _resampled(own: Array, its: Array) -> Array:
    """The saving in resampled variations; both are histories x capacities."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(own), (_DRAWS, len(own)))
    columns = rng.integers(0, own.shape[1], (_DRAWS, own.shape[1]))

    def means(costs: Array) -> Array:
        return np.asarray(costs[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)))

    return 1 - means(own) / means(its)


def gaps(results: pd.DataFrame) -> pd.DataFrame:
    """How far each method is from deciding without limits and with perfect knowledge of the experts.

    `solver`: greedy against exact with the same model; `model`: the exact plan against the one with the true
    chances; `capacity`: that one against everybody's best without limits.
    """
    cost = largest_share(results).groupby([*SCENARIO, "policy"])[cost_column(results)].mean()
    wide, rows = cost.unstack("policy"), []
    exact = {"ova": "ova-optimal", "hem-greedy": PAPER}
    if not {"oracle", WITHOUT_LIMITS} <= set(wide):
        return pd.DataFrame(columns=[*SCENARIO, "policy", "cost", "solver", "model", "capacity"])
    for rate, ratio, one in by_scenario(wide):
        row = one.iloc[0]
        for name in ("ova", "ova-optimal", "hem-greedy", PAPER, "deccaf-paper-refit", OURS):
            solved = exact.get(name, name)
            if name in row and solved in row:
                capacity = row["oracle"] - row[WITHOUT_LIMITS]
                parts = (row[name] - row[solved], row[solved] - row["oracle"], capacity)
                rows.append((rate, ratio, name, row[name], *parts))
    return pd.DataFrame(rows, columns=[*SCENARIO, "policy", "cost", "solver", "model", "capacity"])


def closed(results: pd.DataFrame) -> pd.DataFrame:
    """By scenario: what `deccaf` saves, wins and closes; the last row is the mean over the scenarios."""
    part = largest_share(results)
    wide = by_variation(part)
    rows = []
    if not {OURS, PAPER, "ova"} <= set(wide):
        return pd.DataFrame()
    for rate, ratio, cell in by_scenario(wide):
        mean = cell.mean()
        row = {"alert_rate": rate, "ratio": ratio}
        row["saved_paper"] = 1 - mean[OURS] / mean[PAPER]
        row["won_paper"] = float((cell[OURS] < cell[PAPER]).mean())
        row["saved_ova"] = 1 - mean[OURS] / mean["ova"]
        if "oracle" in wide:
            row["closed"] = (mean[PAPER] - mean[OURS]) / (mean[PAPER] - mean["oracle"])
        rows.append(row)
    table = pd.DataFrame(rows)
    return pd.concat([table, table.mean().to_frame().T.assign(alert_rate=np.nan, ratio=np.nan)])


def mixtures(results: pd.DataFrame) -> pd.DataFrame:
    """Each corner between `deccaf-paper` and `deccaf`: its mean cost relative to `deccaf-paper`.

    One row per corner, with what it is made of, in `saved` the mean over the scenarios and in `least` and
    `most` the scenarios' range; empty unless all eight were run.
    """
    wide = (
        largest_share(results).groupby([*SCENARIO, "policy"])[cost_column(results)].mean().unstack("policy")
    )
    if not set(MIXTURES.values()) <= set(wide):
        return pd.DataFrame(columns=[*FACTORS, "policy", "saved", "least", "most"])
    rows = []
    for made_of, name in MIXTURES.items():
        saved = 1 - wide[name] / wide[PAPER]
        rows.append((*made_of, name, saved.mean(), saved.min(), saved.max()))
    return pd.DataFrame(rows, columns=[*FACTORS, "policy", "saved", "least", "most"])


def shares_of_gain(corners: pd.DataFrame) -> dict[str, float]:
    """What each factor adds to the saving, mean over the orders in which they can be changed (Shapley)."""
    saved = {tuple(row[name] for name in FACTORS): row["saved"] for _, row in corners.iterrows()}
    first, last = ("paper", "hem", "correct"), ("ours", "decisions", "cost")
    orders, shares = list(permutations(range(len(FACTORS)))), dict.fromkeys(FACTORS, 0.0)
    for order in orders:
        here = list(first)
        for place in order:
            before = saved[tuple(here)]
            here[place] = last[place]
            shares[FACTORS[place]] += (saved[tuple(here)] - before) / len(orders)
    return shares


def rivals(results: pd.DataFrame) -> pd.DataFrame:
    """What `deccaf` saves against each rival: its mean and range over scenarios, and what the rival wins."""
    wide = by_variation(largest_share(results))
    columns = ["policy", "saved", "least", "most", "won", "scenarios_won", "scenarios"]
    if OURS not in wide:
        return pd.DataFrame(columns=columns)
    means, rows = wide.groupby(SCENARIO).mean(), []
    for name in wide:
        if str(name).removesuffix("-optimal") in {*RIVALS, "rejection"}:
            saved = 1 - means[OURS] / means[name]
            won = float((wide[name] < wide[OURS]).mean())
            counts = (int((saved < 0).sum()), len(saved))
            rows.append((name, saved.mean(), saved.min(), saved.max(), won, *counts))
    found = pd.DataFrame(rows, columns=columns)
    return found if found["policy"].str.removesuffix("-optimal").isin(RIVALS).any() else found.head(0)


def outcomes(store: Store) -> pd.DataFrame:
    """Shares of fp, fn, tp, tn in the histories, with most training data."""
    rows = [{**where, **report["outcomes"]} for where, report in reports(store, "experts", most=True)]
    return _means(rows, ["fp", "fn", "tp", "tn"])


def classifiers(store: Store) -> pd.DataFrame:
    """AUC, ECE and log-loss of the classifiers, under the reweighted distribution."""
    rows = []
    for where, report in reports(store, "paper", most=True):
        rows += [{**where, "model": name, **report[name]} for name in ("paper", "refit")]
    for where, report in reports(store, "experts", most=True):
        rows.append({**where, "model": "deccaf", **report["classifier"]})
    return _means(rows, ["auc", "ece", "log_loss"], ["model"])


def expert_models(store: Store) -> pd.DataFrame:
    """AUC, ECE and log-loss of P~(right), one row per scenario, model, history and expert."""
    rows = []
    kinds = ("experts", "released")
    for where, report in (found for kind in kinds for found in reports(store, kind, most=True)):
        for model, measures in report["measures"].items():
            for place, expert in enumerate(report["experts"]):
                each = {name: values[place] for name, values in measures["each"].items()}
                rows.append({**where, "model": model, "expert": expert, **each})
    return pd.DataFrame(rows)


def validation_losses(store: Store) -> pd.DataFrame:
    """Mean validation loss of the paper's models with the best fixed settings, and with those chosen."""
    rows = []
    for where, report in reports(store, "paper"):
        rows.append({**where, "model": "classifier", **report["validation"]})
    for where, report in reports(store, "experts"):
        rows += [{**where, "model": m, **losses} for m, losses in report["validation"].items()]
    return _means(rows, ["fixed", "chosen"], ["train_share", "model"])


def classifiers_alone(store: Store) -> pd.DataFrame:
    """The paper's classifier with the best fixed settings and with those chosen, if it decides alone.

    Cost per 100 cases of the validation month, where the settings are chosen by log-loss; rejecting
    everything there; and the shares of the cases that it lets pass, there and in the test month.
    """
    rows = []
    for where, report in reports(store, "paper", most=True):
        alone = report.get("alone", {})  # folders of before have none
        for name in ("fixed", "chosen") if alone else ():
            passed = {key: alone[name][key] for key in ("passed", "passed_test")}
            costs = {"cost": 100 * alone[name]["cost"], "rejecting": 100 * alone["rejecting"]}
            rows.append({**where, "settings": name, "loss": report["validation"][name], **costs, **passed})
    return pd.DataFrame(rows)


def chosen_settings(store: Store) -> pd.DataFrame:
    """Settings of the paper's models that won on the validation month, with most training data.

    One row per scenario and classifier, and per scenario, history and HEM; of one-vs-all its medians.
    """
    rows: list[dict[str, Any]] = []
    for where, report in reports(store, "paper", most=True):
        rows.append({**where, "model": "classifier", **report["params"]})
    for where, report in reports(store, "experts", most=True):
        rows.append({**where, "model": "hem", **report["params"]["hem"]})
        each = pd.DataFrame(report["params"]["ova"]).median(numeric_only=True)
        rows.append({**where, "model": "ova", **{str(name): value for name, value in each.items()}})
    return pd.DataFrame(rows)


def group_errors(store: Store) -> pd.DataFrame:
    """Error rates by group: one row per scenario, variation, policy and group, with most training data."""
    rows: list[dict[str, Any]] = []
    for where, report in reports(store, "cells", most=True):
        for policy, groups in report.get("groups", {}).items():
            rows += [{**where, "policy": policy, "group": name, **rates} for name, rates in groups.items()]
    return pd.DataFrame(rows)


def group_ratios(errors: pd.DataFrame, rate: str) -> pd.DataFrame:
    """The least rate of a group as a share of the largest: a row per policy, a column per scenario.

    Rates are means over the variations; 1 is alike for all groups.
    """
    means = errors.groupby([*SCENARIO, "policy", "group"], sort=False)[rate].mean().unstack("group")
    ratio = means.min(axis=1) / means.max(axis=1)
    return ratio.unstack(SCENARIO).reindex(list(dict.fromkeys(errors["policy"])))


def prices(store: Store, policy: str = OURS) -> pd.DataFrame:
    """Mean price of one more case for each maker: what it would save, per 100 such cases."""
    rows = []
    for where, report in reports(store, "cells", most=True):
        for maker, price in zip(report["makers"], report["prices"].get(policy, []), strict=False):
            rows.append({**where, "maker": maker, "price": 100 * price})
    return _means(rows, ["price"], ["maker"])


def seconds(store: Store, results: pd.DataFrame) -> pd.DataFrame:
    """Mean and total seconds of each stage."""
    rows: list[dict[str, Any]] = []
    for kind in ("cases", "paper", "experts", "released", "rivals"):
        for _, report in reports(store, kind):
            rows += [{"stage": stage, "seconds": value} for stage, value in report["seconds"].items()]
    for key in store.finished("searches"):
        name = key.rsplit("_", 1)[-1]
        rows.append({"stage": f"search: {name}", "seconds": store.report(key)["seconds"]})
    for policy, part in results.groupby("policy", sort=False):
        rows += [{"stage": f"assign: {policy}", "seconds": value} for value in part["assign_seconds"]]
    table = pd.DataFrame(rows, columns=["stage", "seconds"])
    return table.groupby("stage", sort=False)["seconds"].agg(["count", "mean", "sum"]).reset_index()


def reports(store: Store, kind: str, *, most: bool = False) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The reports of a kind of work with what their folders' names say; `most`: largest share only."""
    found = [(_named(key), store.report(key)) for key in store.finished(kind)]
    if most and found:
        largest = max(where.get("train_share", 1.0) for where, _ in found)
        found = [(where, report) for where, report in found if where.get("train_share", 1.0) == largest]
    return found


_NAMES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "rate": ("alert_rate", float),
    "ratio": ("ratio", float),
    "share": ("train_share", lambda text: round(float(text) / 100, 6)),
    "seed": ("training_seed", int),
    "capacity": ("capacity_seed", int),
    "workload": ("workload", str),
}


def _named(key: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in key.split("/")[-1].split("_"):
        name, _, value = part.partition("-")
        if name in _NAMES:
            column, kind = _NAMES[name]
            found[column] = kind(value)
    return found


def _means(rows: list[dict[str, Any]], values: Sequence[str], by: Sequence[str] = ()) -> pd.DataFrame:
    groups = [*SCENARIO, *by]
    if not rows:
        return pd.DataFrame(columns=[*groups, *values])
    return pd.DataFrame(rows).groupby(groups, sort=False)[list(values)].mean().reset_index()
