"""Sections of a benchmark's report about who bears the errors, and about other ways to share the work out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from deccaf.benchmark import tables
from deccaf.benchmark.store import Store
from deccaf.report.page import Section


def group_sections(store: Store) -> Iterable[Section]:
    """Error rates by protected group, for every policy, and how far apart they are."""
    errors = tables.group_errors(store)
    if errors.empty:
        return
    names = sorted(errors["group"].unique())
    shown = pd.DataFrame({"Policy": list(dict.fromkeys(errors["policy"]))})
    for rate, title in (("fpr", "False positives"), ("fnr", "False negatives")):
        means = errors.groupby(["policy", "group"])[rate].mean().unstack("group")
        for name in names:
            shown[f"{title}, {name}"] = shown["Policy"].map(means[name]).map("{:.1%}".format)
        ratio = tables.group_ratios(errors, rate).mean(axis=1)
        shown[f"{title}, ratio"] = shown["Policy"].map(ratio).map("{:.2f}".format)
    apart = tables.group_ratios(errors, "fpr").mean(axis=1)
    yield Section(
        title="Who bears the errors",
        text="Error rates among the alerts by protected group, mean over scenarios and variations, and the "
        "ratio of the least to the largest (1: alike; that of false positives is predictive equality). "
        f"By false positives {apart.idxmax()} treats the groups most alike ({apart.max():.2f}), "
        f"{apart.idxmin()} least ({apart.min():.2f}).",
        table=shown,
        note="deccaf-banded keeps the expected false-positive rates of the groups at most 5 points apart, as "
        "its models foresee them.",
        name="groups",
    )
    by = tables.group_ratios(errors, "fpr")
    scenarios = by.columns.to_frame(index=False)
    by = by.set_axis(
        [f"{rate:.0%}, {ratio:g}" for rate, ratio in scenarios.to_numpy(np.float64).tolist()], axis=1
    )
    yield Section(
        title="Ratio of the groups' false-positive rates, scenario by scenario",
        text="The least rate of a group as a share of the largest, from mean rates over the variations.",
        table=by.map("{:.2f}".format).rename_axis("Policy").reset_index(),
        name="groups-by-scenario",
    )


def workload_sections(results: pd.DataFrame) -> Iterable[Section]:
    """The same policies where the month comes in batches, people are away, or the machine decides more."""
    if results["workload"].nunique() < 2 and not results["workload"].any():
        return
    table = tables.by_workload(results)
    shown = table.set_index("policy").map("{:.3f}".format).rename_axis("Policy").reset_index()
    yield Section(
        title="Batches, absences and deferral rates",
        text="Cost per 100 cases by how the month was cut and shared out, over scenarios and variations.",
        table=shown,
        name="workloads",
    )
