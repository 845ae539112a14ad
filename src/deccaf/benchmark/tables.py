"""The tables of a benchmark, from its stored results alone."""

from __future__ import annotations

import pandas as pd

SCENARIO = ["alert_rate", "ratio"]
COST = "expected_cost_per_100"


def cost_column(results: pd.DataFrame) -> str:
    """The expected cost where it is known, else that of the decisions themselves."""
    known = COST in results and results[COST].notna().any()
    return COST if known else "cost_per_100"


def cost_table(results: pd.DataFrame) -> pd.DataFrame:
    """Mean cost per 100 cases: a row per policy, a column per scenario and training share."""
    cost, one_share = cost_column(results), results["train_share"].nunique() == 1
    columns = {}
    for share in sorted(results["train_share"].unique(), reverse=True):
        for (rate, ratio), part in results[results["train_share"] == share].groupby(SCENARIO):
            name = f"{rate:.0%}, {ratio:g}" + ("" if one_share else f", {share:.0%} data")
            columns[name] = part.groupby("policy")[cost].mean()
    table = pd.DataFrame(columns).reindex(list(dict.fromkeys(results["policy"])))
    return table.rename_axis("policy").reset_index()
