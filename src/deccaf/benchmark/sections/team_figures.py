"""The pictures of a team of experts; each title states what the picture shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deccaf.report.figures import GRID, INK, MUTED, PALETTE, canvas, empty_figure, finish, heatmap, percent
from deccaf.simulate.teams.team import SyntheticTeam

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 40
"""Experts that one picture shows; more could not be read."""
_WRITTEN = 12


def weight_heatmap(team: SyntheticTeam) -> Figure:
    """What each expert looks at: weights divided by their length, features in order of their sway."""
    weights = team.directions[:, -1, :]
    sway = np.abs(weights).mean(axis=0)
    order = [k for k in np.argsort(-sway, kind="stable") if sway[k] > 0]
    names = team.features.names
    used = int(np.median((weights != 0).sum(axis=1)))
    title = f"Each expert goes by about {used} of {len(names)} features"
    if order:
        leading = int((np.abs(weights).argmax(axis=1) == order[0]).sum())
        title += f"; {names[order[0]]!r} sways {leading} of {len(team)} most"
    if not order:
        order = list(range(len(names)))
    shown = weights[:MOST, order]
    return heatmap(
        shown, team.experts[:MOST], [names[k] for k in order], title, diverging=True, label="weight / length"
    )


def rates(
    table: pd.DataFrame, groups: Sequence[str], lines: Mapping[str, float], stakes: tuple[float, float]
) -> Figure:
    """FPR against FNR of every expert on the fitting cases, with lines of equal cost.

    `table` has `fpr` and `fnr`; `lines` names a cost per case for each line; `stakes` is what an FPR of 1 and
    an FNR of 1 cost per case.
    """
    cost = stakes[0] * table["fpr"] + stakes[1] * table["fnr"]
    limit, name = max(lines.values()), max(lines, key=lambda key: lines[key])
    better = int((cost < limit).sum())
    figure, axes = canvas(f"{better} of {len(table)} experts cost less than {name}", height=4.8)
    right = min(1.0, 1.25 * max(float(table["fnr"].max()), 0.02))
    _cost_lines(axes, lines, stakes)
    for color, group in zip(PALETTE, dict.fromkeys(groups), strict=False):
        rows = table[np.array(groups) == group]
        axes.scatter(rows["fnr"], rows["fpr"], s=46, color=color, zorder=3, label=group, edgecolor="white")
    if len(table) <= _WRITTEN:
        for expert, row in table.iterrows():
            axes.annotate(
                str(expert).rsplit("_", 1)[-1], (row["fnr"], row["fpr"]), (5, 4), textcoords="offset points",
                fontsize=8, color=INK,
            )  # fmt: skip
    axes.legend(frameon=True, framealpha=0.9, edgecolor="white", fontsize=9, loc="best", labelcolor=INK)
    axes.set(
        xlabel="False-negative rate (positives let through)",
        ylabel="False-positive rate (negatives stopped)",
        xlim=(0, right),
        ylim=(0, 1.04),
    )
    percent(axes.xaxis, axes.yaxis)
    return figure


def _cost_lines(axes: Axes, lines: Mapping[str, float], stakes: tuple[float, float]) -> None:
    dashes = ("-", (0, (5, 3)), (0, (1, 2)))
    ordered = sorted(lines.items(), key=lambda item: -item[1])
    for style, (name, cost) in zip(dashes, ordered, strict=False):
        axes.axline(
            (0.0, cost / stakes[0]), slope=-stakes[1] / stakes[0], color=MUTED, linewidth=1.6, ls=style,
            label=f"as costly as {name}: {100 * cost:.2f} per 100",
        )  # fmt: skip


def complementarity_heatmap(table: pd.DataFrame) -> Figure:
    """Row right, column wrong."""
    values = table.to_numpy(np.float64)
    apart = values[~np.eye(len(values), dtype=bool)]
    title = "Nobody to compare with"
    if apart.size:
        title = (
            f"Whoever errs, another is often right: on {apart.min():.0%} to {apart.max():.0%} of cases "
            "the row is right where the column is wrong"
        )
    shown = table.iloc[:MOST, :MOST]
    return heatmap(
        shown.to_numpy(np.float64),
        [str(name) for name in shown.index],
        [str(name) for name in shown.columns],
        title,
        fmt=".2f" if len(shown) <= _WRITTEN else None,
        label="share of cases",
    )


def agreement_heatmap(table: pd.DataFrame) -> Figure:
    """Cohen's kappa between experts, and of each expert with itself on the diagonal."""
    values = table.to_numpy(np.float64)
    same = np.eye(len(values), dtype=bool)
    title = f"Experts agree with themselves (kappa {np.nanmean(values[same]):.2f} on the diagonal)"
    if len(values) > 1:
        title += f" more than with others ({np.nanmean(values[~same]):.2f})"
        if np.nanmean(values[same]) <= np.nanmean(values[~same]):
            title = title.replace(" more than with", " no more than with")
    shown = table.iloc[:MOST, :MOST]
    return heatmap(
        shown.to_numpy(np.float64),
        [str(name) for name in shown.index],
        [str(name) for name in shown.columns],
        title,
        fmt=".2f" if len(shown) <= _WRITTEN else None,
        diverging=bool(np.nanmin(values) < 0),
        label="Cohen's kappa",
    )


def error_by_group_dots(table: pd.DataFrame, attribute: str) -> Figure:
    """Error rate of every expert in each group of a protected attribute, one panel per truth."""
    truths, groups = list(dict.fromkeys(table["truth"])), sorted(table["group"].unique())
    experts = list(dict.fromkeys(table["expert_id"]))[:MOST]
    height = max(3.2, 0.26 * len(experts) + 2.0)
    figure = empty_figure(7.2, height)
    panels = np.atleast_1d(figure.subplots(1, len(truths), sharey=True))
    wide = {
        truth: part.pivot(index="expert_id", columns="group", values="error_rate")
        for truth, part in table.groupby("truth", sort=False)
    }
    figure.suptitle(
        "\n".join(_gap(truth, part) for truth, part in wide.items()),
        x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK,
    )  # fmt: skip
    for axes, truth in zip(panels, truths, strict=True):
        part = wide[truth].reindex(experts)
        finish(axes, f"Truth: {truth}")
        axes.hlines(range(len(part)), part.min(axis=1), part.max(axis=1), color=GRID, linewidth=4, zorder=1)
        for color, group in zip(PALETTE, groups, strict=False):
            if group in part:
                axes.scatter(part[group], range(len(part)), s=34, color=color, label=group, zorder=2)
        axes.set_xlabel("Error rate")
        percent(axes.xaxis)
        axes.set_xlim(left=0.0)
    panels[0].set_yticks(range(len(experts)), experts, fontsize=8)
    panels[0].set_ylim(len(experts) - 0.4, -0.6)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9, title=attribute,
        title_fontsize=9, labelcolor=MUTED,
    )  # fmt: skip
    return figure


def _gap(truth: Any, part: pd.DataFrame) -> str:
    """Which group suffers more errors of most experts, and by how much on average."""
    means = part.mean().sort_values(ascending=False, kind="stable")
    if len(means) < 2:
        return f"Truth {truth}: one group, {means.iloc[0]:.0%} errors"
    worst, best = means.index[0], means.index[-1]
    more = int((part[worst] > part[best]).sum())
    return (
        f"Truth {truth}: {more} of {len(part)} experts err more on {worst!r}, "
        f"{means.iloc[0]:.0%} against {means.iloc[-1]:.0%}"
    )
