"""The pictures of a benchmark: those of the paper, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.benchmark.tables import by_scenario
from deccaf.report.figures import GRID, INK, MUTED, PALETTE, canvas, empty_figure, finish, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS: Mapping[str, str] = {
    "deccaf": PALETTE[0],
    "deccaf-paper": PALETTE[1],
    "hem": PALETTE[1],
    "deccaf-paper-refit": PALETTE[6],
    "refit": PALETTE[6],
    "hem-as-released": PALETTE[4],
    "ova-as-released": PALETTE[5],
    "ova": PALETTE[3],
    "ova-optimal": "#a58bc9",
    "random": PALETTE[7],
    "oracle": PALETTE[2],
}
"""A policy or a model has the same colour in every picture."""
MODELS: Mapping[str, str] = {
    "hem": "HEM (paper)",
    "refit": "HEM, refit",
    "ova": "one-vs-all",
    "hem-as-released": "HEM, as released",
    "ova-as-released": "one-vs-all, as released",
    "deccaf": "decision model (deccaf)",
}
_Scenario = tuple[float, float]


def scenario_name(rate: float, ratio: float) -> str:
    """A scenario in a few words."""
    return f"{rate:.0%} alerts, ratio {ratio:g}"


def costs(intervals: pd.DataFrame, policies: Sequence[str], title: str) -> Figure:
    """Cost by policy relative to rejecting everything, one panel per scenario."""
    found = list(by_scenario(intervals))
    figure, grid = _panels(len(found), title, height=0.24 * len(policies) + 1.0)
    for axes, (rate, ratio, part) in zip(grid, found, strict=False):
        finish(axes, scenario_name(rate, ratio))
        rows = part.set_index("policy").reindex([name for name in policies if name in set(part["policy"])])
        names = list(rows.index)[::-1]
        means, halves = rows["mean"].to_numpy()[::-1], rows["half"].to_numpy()[::-1]
        colors = [COLORS.get(name, "#b8c4d0") for name in names]
        axes.barh(names, means, xerr=halves, color=colors, height=0.66, ecolor=INK, error_kw={"lw": 0.8})
        for place, value in enumerate(means):
            axes.text(value + halves[place], place, f" {value:.2f}", va="center", fontsize=7, color=INK)
        axes.margins(x=0.16)
        axes.grid(visible=False, axis="y")
        axes.tick_params(labelsize=7)
    _below(grid, "Expected cost per 100 cases")
    return figure


def expert_models(table: pd.DataFrame, title: str) -> Figure:
    """Mean AUC and ECE of P~(right) over experts and histories, with 95 % intervals, by ratio."""
    rates = sorted(table["alert_rate"].unique())
    figure = empty_figure(max(3.7 * len(rates) + 0.8, 7.0), 5.8)
    grid = figure.subplots(2, len(rates), squeeze=False, sharey="row")
    for column, rate in enumerate(rates):
        for axes, measure in zip(grid[:, column], ("auc", "ece"), strict=True):
            finish(axes, f"{rate:.0%} alerts")
            _model_lines(axes, table[table["alert_rate"] == rate], measure)
            axes.set_ylabel({"auc": "ROC-AUC", "ece": "Calibration error"}[measure] if column == 0 else "")
            if measure == "auc":
                axes.axhline(0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 4)))
            else:
                percent(axes.yaxis)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return _titled(figure, title)


def _model_lines(axes: Axes, table: pd.DataFrame, measure: str) -> None:
    ratios = sorted(table["ratio"].unique())
    there = [model for model in MODELS if model in set(table["model"])]
    for shift, model in enumerate(there):
        part = table[table["model"] == model].groupby("ratio")[measure].agg(["mean", "std", "count"])
        part = part.reindex(ratios)
        half = 1.96 * part["std"] / np.sqrt(part["count"])
        places = np.arange(len(ratios)) + 0.12 * (shift - (len(there) - 1) / 2)
        axes.errorbar(
            places, part["mean"], half, color=COLORS[model], marker="o", markersize=5, linestyle="none",
            capsize=3, label=MODELS[model],
        )  # fmt: skip
    axes.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    axes.set_xlabel("Cost ratio")


def training_data(intervals: pd.DataFrame, policies: Sequence[str], title: str) -> Figure:
    """Cost against the share of training data, one panel per scenario."""
    found = list(by_scenario(intervals))
    figure, grid = _panels(len(found), title, height=2.5)
    for axes, (rate, ratio, part) in zip(grid, found, strict=False):
        finish(axes, scenario_name(rate, ratio))
        for name in policies:
            line = part[part["policy"] == name].sort_values("train_share")
            axes.errorbar(
                line["train_share"], line["mean"], line["half"], color=COLORS.get(name, MUTED), marker="o",
                markersize=4, linewidth=1.6, capsize=2, label=name,
            )  # fmt: skip
        percent(axes.xaxis)
        axes.set_xticks(sorted(part["train_share"].unique()))
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    _below(grid, "Share of the past learned from")
    _beside(grid, "Expected cost per 100 cases")
    return figure


def rates(teams: Mapping[_Scenario, tuple[pd.DataFrame, Mapping[str, float]]], title: str) -> Figure:
    """FPR against FNR of experts and classifier on the test month, with lines of equal cost."""
    figure, grid = _panels(len(teams), title, height=2.8)
    for axes, ((rate, ratio), (table, stakes)) in zip(grid, teams.items(), strict=False):
        finish(axes, scenario_name(rate, ratio))
        machine = table["maker"] == "classifier"
        right = min(1.0, 1.2 * max(float(table["fnr"].max()), 0.05))
        slope = -stakes["fn"] / stakes["fp"]
        for share in (1.0, 0.7, 0.4):
            axes.axline(
                (0.0, share), slope=slope, color=MUTED, linewidth=1.0,
                linestyle="-" if share == 1.0 else (0, (4, 3)),
            )  # fmt: skip
        ends = np.array([-0.02 * right, right])  # cheaper, and dearer, than rejecting everything
        axes.fill_between(ends, -0.03, 1.0 + slope * ends, color=PALETTE[2], alpha=0.08, linewidth=0)
        axes.fill_between(ends, 1.0 + slope * ends, 1.04, color=PALETTE[4], alpha=0.08, linewidth=0)
        axes.scatter(table["fnr"][~machine], table["fpr"][~machine], s=28, color=PALETTE[0], label="experts")
        axes.scatter(
            table["fnr"][machine], table["fpr"][machine], s=46, marker="s", color=PALETTE[1],
            label="the paper's classifier",
        )  # fmt: skip
        axes.set(xlim=(-0.02 * right, right), ylim=(-0.03, 1.04))
        percent(axes.xaxis, axes.yaxis)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    _below(grid, "False-negative rate")
    _beside(grid, "False-positive rate")
    return figure


def complementarity(tables: Mapping[_Scenario, pd.DataFrame], title: str) -> Figure:
    """Share of cases on which the row is right and the column wrong, one panel per scenario."""
    figure, grid = _panels(len(tables), title, height=3.1)
    top = max(float(table.to_numpy().max()) for table in tables.values())
    for axes, ((rate, ratio), table) in zip(grid, tables.items(), strict=False):
        finish(axes, scenario_name(rate, ratio))
        image = axes.imshow(table.to_numpy(np.float64), cmap="Blues", vmin=0.0, vmax=top)
        names = [_short(str(name)) for name in table.columns]
        axes.set_xticks(range(len(names)), names, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.grid(visible=False)
    bar: Any = figure.colorbar(image, ax=list(grid), shrink=0.6, label="row right, column wrong")
    bar.outline.set_visible(False)
    percent(bar.ax.yaxis)
    return figure


def savings(table: pd.DataFrame, policies: Sequence[str], title: str) -> Figure:
    """What deccaf saves against other policies, with bootstrap intervals; a colour per scenario."""
    figure, axes = canvas(title, height=0.5 * len(policies) + 1.8)
    scenarios = list(by_scenario(table))
    for place, (rate, ratio, part) in enumerate(scenarios):
        part = part.set_index("policy").reindex(list(policies))
        y = np.arange(len(policies)) + 0.7 * ((place + 0.5) / len(scenarios) - 0.5)
        reach = np.vstack([part["saved"] - part["low"], part["high"] - part["saved"]]).clip(min=0)
        axes.errorbar(
            part["saved"], y, xerr=reach, fmt="o", markersize=4, color=PALETTE[place % len(PALETTE)],
            capsize=2, linewidth=1.2, label=scenario_name(rate, ratio),
        )  # fmt: skip
    axes.axvline(0.0, color=INK, linewidth=1)
    for line in np.arange(len(policies) - 1) + 0.5:
        axes.axhline(line, color=GRID, linewidth=0.8)
    axes.set_yticks(range(len(policies)), [f"than {name}" for name in policies])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    percent(axes.xaxis)
    axes.set_xlabel("How much less deccaf costs")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.16))
    return figure


def gaps(table: pd.DataFrame, title: str) -> Figure:
    """The distance to deciding with perfect knowledge and without limits, in parts."""
    found = list(by_scenario(table))
    figure, grid = _panels(len(found), title, height=2.3)
    parts = {"capacity": "#b8c4d0", "model": PALETTE[0], "solver": PALETTE[1]}
    for axes, (rate, ratio, rows) in zip(grid, found, strict=False):
        finish(axes, scenario_name(rate, ratio))
        names, left = list(rows["policy"])[::-1], np.zeros(len(rows))
        for part, color in parts.items():
            width = rows[part].to_numpy()[::-1].clip(min=0)
            axes.barh(names, width, left=left, color=color, height=0.62, label=part)
            left = left + width
        axes.tick_params(labelsize=7)
        axes.grid(visible=False, axis="y")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    _below(grid, "Cost per 100 above the best without limits")
    return figure


def _panels(count: int, title: str, *, height: float) -> tuple[Figure, NDArray[Any]]:
    """Small multiples, three in a row."""
    columns = min(max(count, 1), 3)
    rows = -(-max(count, 1) // columns)
    figure = empty_figure(max(3.6 * columns + 0.8, 7.2), height * rows + 1.0)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return _titled(figure, title), grid.flat[:count] if count else grid.flat[:1]


def _below(grid: NDArray[Any], label: str) -> None:
    """Say what the x axes show, under the last row of panels."""
    columns = min(len(grid), 3)
    for axes in grid[-columns:]:
        axes.set_xlabel(label, fontsize=8, wrap=True)


def _beside(grid: NDArray[Any], label: str) -> None:
    """Say what the y axes show, beside the first panel of each row."""
    for axes in grid[:: min(len(grid), 3)]:
        axes.set_ylabel(label, fontsize=8)


def _titled(figure: Figure, title: str) -> Figure:
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    return figure


def _short(name: str) -> str:
    return "h" if name == "classifier" else name.rsplit("_", 1)[-1][:4]
