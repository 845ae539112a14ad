"""A plan as a picture: who gets how many cases, how much room is left, and whose time is worth most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deccaf.data.amounts import cost, named
from deccaf.data.costs import MACHINE
from deccaf.planning.plan import Plan, Summary
from deccaf.report.figures import BLUE, GRID, INK, MUTED, ORANGE, empty_figure, finish

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 40
"""Makers in one picture; more could not be read."""


def plan_picture(plan: Plan) -> Figure:
    """Cases against room by maker, and beside it what one more case of their time would save."""
    summary = plan.summary
    makers = summary.makers.sort_values("cases", ascending=False, kind="stable").head(MOST).iloc[::-1]
    figure = empty_figure(8.4, 0.3 * len(makers) + 1.7)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    place, cases = np.arange(len(makers)), makers["cases"].to_numpy()
    room = np.fmax(makers["capacity"].to_numpy(np.float64), cases)
    finish(left, "Cases (pale: room that is left)", panel=True)
    left.barh(place, np.where(np.isnan(room), cases, room), color=GRID, height=0.62)
    colors = [MUTED if name == MACHINE else BLUE for name in makers.index]
    bars = left.barh(place, cases, color=colors, height=0.62)
    left.bar_label(bars, [f"{count:,}" for count in cases], padding=3, color=INK, fontsize=8)
    left.set_yticks(place, [str(name) for name in makers.index])
    left.margins(x=0.12)
    finish(right, named("What one more case of their time would save", summary.unit), panel=True)
    right.hlines(place, 0, makers["price"], color=ORANGE, linewidth=1.6)
    right.plot(makers["price"], place, "o", color=ORANGE, markersize=5)
    for axes in (left, right):
        axes.grid(visible=False, axis="y")
    figure.suptitle(_finding(summary), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    return figure


def _finding(summary: Summary) -> str:
    mine = f"{summary.cases:,} cases cost {cost(summary.cost, summary.unit)}"
    if summary.machine_cost <= 0:
        return mine
    saved = 1.0 - summary.cost / summary.machine_cost
    return f"{mine}: {abs(saved):.0%} {'less' if saved >= 0 else 'more'} than with the machine alone"
