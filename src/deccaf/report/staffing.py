"""The frontier of cost against hours, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deccaf.data.amounts import cost, named
from deccaf.planning.staffing import Staffing
from deccaf.report.figures import BLUE, INK, MUTED, ORANGE, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAR = 2.5
"""Beyond so many times the hours that pay, everybody is named and not drawn: the curve would be squeezed."""


def staffing_picture(found: Staffing) -> Figure:
    """Errors, and errors with wages, against the hours that are bought; the best and everybody marked."""
    bought, everybody = found.curve.iloc[:-1], found.curve.iloc[-1]
    best = bought.iloc[-1]
    title = (
        f"{best.hours:,.0f} hours are worth their wages: the week then costs {cost(best.cost, found.unit)}"
    )
    figure, axes = canvas(title)
    axes.plot(bought["hours"], bought["errors"], color=MUTED, marker="s", markersize=4, linestyle=(0, (4, 2)))
    axes.plot(bought["hours"], bought["cost"], color=BLUE, marker="o", markersize=4)
    axes.scatter([best.hours], [best.cost], s=70, color=ORANGE, zorder=3)
    notes = [
        ("best", best.hours, best.cost, ORANGE, (0, 10)),
        ("errors alone", best.hours, best.errors, INK, (0, -14)),
    ]
    all_hours = f"everybody, all hours: {everybody.hours:,.0f} h, {cost(everybody.cost, found.unit)}"
    if everybody.hours <= FAR * best.hours:
        axes.plot(
            [best.hours, everybody.hours], [best.cost, everybody.cost], color=BLUE, linestyle=(0, (1, 2))
        )
        axes.scatter([everybody.hours], [everybody.cost], s=40, color=BLUE, marker="D", zorder=3)
    axes.text(0.99, 0.04, all_hours, transform=axes.transAxes, ha="right", color=MUTED, fontsize=9)
    for words, x, y, color, offset in notes:
        axes.annotate(words, (x, y), offset, textcoords="offset points", color=color, ha="center", fontsize=9)
    axes.set(xlabel="Hours of people in the week", ylabel=named("Errors and wages of the week", found.unit))
    axes.margins(x=0.12)
    axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
    return figure
