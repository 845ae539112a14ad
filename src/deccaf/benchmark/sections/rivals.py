"""The section of a benchmark's report about rivals of other papers."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from deccaf.benchmark import tables
from deccaf.policies import RIVALS
from deccaf.report.page import Section


def rival_sections(results: pd.DataFrame) -> Iterable[Section]:
    """What deccaf saves against each, by its own rule and with the exact plan; who beats deccaf is named."""
    table = tables.rivals(results)
    if table.empty:
        return
    ahead = table[table["scenarios_won"] > 0]
    title = "No rival costs less than deccaf in any scenario"
    if len(ahead):
        named = [f"{row['policy']} in {row['scenarios_won']}" for _, row in ahead.iterrows()]
        title = (
            f"Rivals that cost less than deccaf: {', '.join(named)} of {table['scenarios'].max()} scenarios"
        )
    shown = pd.DataFrame(
        {
            "Policy": table["policy"],
            "What": table["policy"].map(lambda name: RIVALS.get(name.removesuffix("-optimal"), "")),
            "With": table["policy"].map(
                lambda name: "exact plan" if name.endswith("-optimal") else "own rule"
            ),
            "deccaf saves": table["saved"].map("{:.1%}".format),
            "Scenarios": [f"{a:.1%} to {b:.1%}" for a, b in zip(table["least"], table["most"], strict=True)],
            "Variations that it wins": table["won"].map("{:.0%}".format),
        }
    )
    yield Section(
        title=title,
        text="Ways to learn whom to ask from other papers, on the same history, within the same limits. The "
        "last column is the share of the variations in which the rival costs less than deccaf.",
        table=shown,
        name="rivals",
    )
