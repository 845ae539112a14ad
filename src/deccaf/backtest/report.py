"""The page of a backtest: what plans would have cost, who would have got what, how far to trust models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deccaf.backtest.run import Backtest
from deccaf.data.history import MANY_GROUPS
from deccaf.evaluate.fairness import by_group
from deccaf.evaluate.measures import measure_by_expert, reliability
from deccaf.report import figures
from deccaf.report.calibration import MOST, reliability_grid
from deccaf.report.page import Report, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEWEST = 50
"""Decisions that a reliability curve of one expert needs."""


def backtest_report(found: Backtest, title: str = "Backtest") -> Report:
    """The page."""
    verdict = found.verdict()
    how = (
        "Several experts decided each test case, so every outcome is known."
        if found.known
        else "One expert decided each case, so costs are doubly-robust estimates from the log."
    )
    sections = [_costs_section(found), _received_section(found), _calibration_section(found)]
    sections += _group_sections(found)
    sections.append(_quality_section(found))
    mine = found.costs.loc["deccaf"]
    return Report(
        title=title,
        lead=" ".join([*verdict, how]),
        sections=tuple(sections),
        figures=(
            (f"{found.test_cases:,}", "test cases"),
            (f"{mine['cost']:.2f}", "cost of errors per 100 cases with deccaf"),
            (f"{mine['deferred']:.0%}", "of the cases given to people"),
        ),
        footer=f"deccaf backtest: {found.folds} split(s), {found.train_cases:,} training cases on average.",
    )


def cost_table(found: Backtest) -> pd.DataFrame:
    """Costs and savings by policy, the cheapest last, ready to print."""
    table = found.costs.sort_values("cost", ascending=False)
    saved = found.savings.reindex(table.index)
    return pd.DataFrame(
        {
            "policy": table.index,
            "cost per 100": table["cost"].round(3).to_numpy(),
            "low": table["low"].round(3).to_numpy(),
            "high": table["high"].round(3).to_numpy(),
            "given to people": [f"{share:.0%}" for share in table["deferred"]],
            "deccaf saves": [
                "" if pd.isna(row["saved"]) else f"{row['saved']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
                for _, row in saved.iterrows()
            ],
        }
    )


def calibration_table(found: Backtest) -> pd.DataFrame:
    """Calibration of P(right) by expert."""
    frame = found.calibration
    table = measure_by_expert(frame["right"], frame["chance"], frame["expert"])
    right = frame.groupby("expert")["right"].mean()
    right.loc["all"] = frame["right"].mean()
    return pd.DataFrame(
        {
            "expert": table.index,
            "decisions": table["cases"].map("{:,.0f}".format).to_numpy(),
            "right": right.reindex(table.index).map("{:.1%}".format).to_numpy(),
            "calibration error": table["ece"].map("{:.3f}".format).to_numpy(),
            "log-loss": table["log_loss"].map("{:.3f}".format).to_numpy(),
            "AUC": table["auc"].map("{:.3f}".format).to_numpy(),
        }
    )


def _costs_section(found: Backtest) -> Section:
    shown = cost_table(found)
    for name in ("cost per 100", "low", "high"):
        shown[name] = shown[name].map("{:.2f}".format)
    note = "Cost of errors and reviews per 100 cases with 95 % intervals; 'as it was' is what the log says."
    if not found.known:
        note += " Estimates are doubly robust; the inverse-propensity estimate of deccaf stands beside it."
    return Section(
        title="What it would have cost",
        text=" ".join(found.verdict()),
        table=shown,
        pictures={"backtest-costs": partial(cost_figure, found)},
        note=note,
    )


def cost_figure(found: Backtest) -> Figure:
    """Costs by policy with their intervals."""
    table = found.costs.sort_values("cost", ascending=False)
    figure, axes = figures.canvas(
        found.verdict()[min(1, len(found.verdict()) - 1)], height=0.42 * len(table) + 1.6
    )
    places = np.arange(len(table))
    colors = [figures.BLUE if name == "deccaf" else "#8fa3b5" for name in table.index]
    for place, color, (_, row) in zip(places, colors, table.iterrows(), strict=True):
        axes.plot([row["low"], row["high"]], [place, place], color=color, linewidth=2.5)
        axes.scatter([row["cost"]], [place], color=color, s=42, zorder=3)
        axes.annotate(
            f"{row['cost']:.2f}", (row["cost"], place), (0, 7), textcoords="offset points", ha="center",
            color=figures.INK, fontsize=9,
        )  # fmt: skip
    axes.set_yticks(places, list(table.index))
    axes.set_ylim(-0.6, len(table) - 0.2)
    axes.set_xlabel("Cost per 100 cases, with 95 % intervals")
    axes.grid(visible=False, axis="y")
    return figure


def _received_section(found: Backtest) -> Section:
    table = found.received.sort_values("received", ascending=False)
    shown = pd.DataFrame(
        {
            "Expert": table.index,
            "Decided in the test part": table["decided"].map("{:,.0f}".format).to_numpy(),
            "Capacity in the backtest": table["capacity"].map("{:,.0f}".format).to_numpy(),
            "Would have received": table["received"].map("{:,.0f}".format).to_numpy(),
        }
    )
    full = int((table["received"] >= table["capacity"] - 0.5).sum())
    return Section(
        title="What each expert would have received",
        text=f"{full} of {len(table)} experts would have worked to their limit.",
        table=shown,
    )


def _calibration_section(found: Backtest) -> Section:
    counts = found.calibration["expert"].value_counts()
    chosen = [str(name) for name in counts.index if counts[name] >= _FEWEST][:MOST]
    pictures = {}
    if chosen:
        panels = {
            name: {"deccaf": reliability(mine["right"], mine["chance"], bins=5)}
            for name in chosen
            for mine in [found.calibration[found.calibration["expert"] == name]]
        }
        pictures["backtest-calibration"] = partial(reliability_grid, panels)
    return Section(
        title="Can the chances be trusted?",
        text="The chance that each expert would be right, as given before, against what happened.",
        table=calibration_table(found),
        pictures=pictures,
        note="On the experts' own decisions in the test part, which the models had not seen.",
    )


def _group_sections(found: Backtest) -> list[Section]:
    sections = []
    known = found.rows[found.rows["decision"] >= 0]
    for name in [column for column in found.rows if str(column).startswith("group: ")]:
        if not 1 < known[name].nunique() < MANY_GROUPS:
            continue
        table = by_group(
            known["truth"], known["decision"], known["cost"], known[name], known["weight"], len(found.classes)
        ).reset_index()
        for column in table.columns[1:]:
            form = "{:,}" if column == "cases" else "{:.2f}" if column.startswith("cost") else "{:.1%}"
            table[column] = table[column].map(form.format)
        label = str(name).removeprefix("group: ")
        sections.append(
            Section(
                title=f"By {label}",
                text="Costs and rates of deccaf's plan in each group, machine and people together.",
                table=table,
            )
        )
    return sections


def _quality_section(found: Backtest) -> Section:
    notes = found.notes or ("Nothing stood out.",)
    return Section(
        title="About the data",
        text=f"{found.train_cases:,} cases to learn from, {found.test_cases:,} to test on.",
        table=pd.DataFrame({"note": notes}),
    )
