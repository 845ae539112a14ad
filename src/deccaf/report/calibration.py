"""Reliability pictures: what models said against what happened, for one team or expert by expert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deccaf.errors import DataError
from deccaf.report.figures import INK, MUTED, PALETTE, canvas, empty_figure, finish, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, pd.DataFrame]
"""For each model, the table of `deccaf.evaluate.measures.reliability`."""
MOST = 24
"""Panels that one picture shows; more could not be read."""
_COLUMNS = 4


def reliability_picture(curves: Curves, *, what: str = "a right decision") -> Figure:
    """Reliability of some models in one pair of axes; the title names the best calibrated."""
    if not curves:
        raise DataError("reliability: no curves to draw")
    errors = {name: _error(table) for name, table in curves.items()}
    best = min(errors, key=lambda name: errors[name])
    title = f"{best} is off by {errors[best]:.1%} on average"
    others = [f"{name} {error:.1%}" for name, error in errors.items() if name != best]
    figure, axes = canvas(title + (f" ({', '.join(others)})" if others else ""), width=6.4, height=5.4)
    limits = _limits(list(curves.values()))
    _draw(axes, curves, limits)
    axes.set(xlabel=f"Chance of {what}, as predicted", ylabel="Share of cases in which it was so")
    axes.legend(frameon=False, loc="upper left", labelcolor=INK, fontsize=9)
    return figure


def chances_picture(curves: Curves) -> Figure:
    """Reliability of the chances of each truth."""
    return reliability_picture(curves, what="this truth")


def reliability_grid(
    panels: Mapping[str, Curves], *, what: str = "a right decision", title: str | None = None
) -> Figure:
    """Small multiples, one panel per expert (or per model), with the same axes everywhere.

    Without a `title` it names the best calibrated.
    """
    if not panels:
        raise DataError("reliability: no curves to draw")
    shown = dict(list(panels.items())[:MOST])
    columns = min(len(shown), _COLUMNS)
    rows = -(-len(shown) // columns)
    figure = empty_figure(2.5 * columns + 0.6, 2.5 * rows + 1.1)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    limits = _limits([table for curves in shown.values() for table in curves.values()])
    for axes, (name, curves) in zip(grid.flat, shown.items(), strict=False):
        finish(axes, name, panel=True)
        _draw(axes, curves, limits)
        note = "\n".join(f"{model} {_error(table):.1%}" for model, table in curves.items())
        axes.text(0.97, 0.04, note, transform=axes.transAxes, ha="right", fontsize=7, color=MUTED)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    _below(grid.T, len(shown))
    figure.suptitle(
        title or _finding(panels, shown), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK
    )
    figure.supxlabel(f"Chance of {what}, as predicted", fontsize=9, color=INK)
    figure.supylabel("Share of cases in which it was so", fontsize=9, color=INK)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower right", ncols=4, frameon=False, fontsize=9, labelcolor=INK
    )
    return figure


def _draw(axes: Axes, curves: Curves, limits: tuple[float, float]) -> None:
    axes.plot(limits, limits, color=MUTED, linewidth=1, linestyle=(0, (4, 4)))
    for color, (name, table) in zip(PALETTE, curves.items(), strict=False):
        axes.fill_between(
            table["predicted"], table["low"], table["high"], color=color, alpha=0.13, linewidth=0
        )
        axes.plot(
            table["predicted"], table["observed"], color=color, linewidth=1.6, marker="o", markersize=3.5,
            label=name,
        )  # fmt: skip
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    percent(axes.xaxis, axes.yaxis)


def _below(by_column: np.ndarray, shown: int) -> None:
    """Label the x axis of the last panel in each column, also where the last row is not full."""
    for column, panels in enumerate(by_column):
        last = (shown - 1 - column) // len(by_column)
        panels[last].tick_params(labelbottom=True)


def _limits(tables: list[pd.DataFrame]) -> tuple[float, float]:
    """From the least to the greatest value of any curve, in steps of ten percent, with room for markers."""
    ends = [table[["predicted", "observed"]].to_numpy() for table in tables]
    low, high = min(float(e.min()) for e in ends), max(float(e.max()) for e in ends)
    return max(float(np.floor(10 * low) / 10), 0.0) - 0.02, min(float(np.ceil(10 * high) / 10), 1.0) + 0.02


def _error(table: pd.DataFrame) -> float:
    """Expected calibration error of a reliability table."""
    gap = (table["predicted"] - table["observed"]).abs()
    return float(np.average(gap, weights=table["weight"]))


def _finding(panels: Mapping[str, Curves], shown: Mapping[str, Curves]) -> str:
    errors = pd.DataFrame({p: {m: _error(t) for m, t in curves.items()} for p, curves in panels.items()})
    means = errors.mean(axis=1).sort_values()
    title = f"{means.index[0]} is off by {means.iloc[0]:.1%} on average"
    if len(means) > 1:
        wins = int((errors.idxmin() == means.index[0]).sum())
        title = f"{means.index[0]} is the best calibrated for {wins} of {errors.shape[1]}"
    return title + (f" (first {len(shown)} shown)" if len(shown) < len(panels) else "")
