"""The frontier of cost against hours, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deccaf.data.amounts import cost, named
from deccaf.planning.staffing import Staffing
from deccaf.report.figures import BLUE, INK, MUTED, ORANGE, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    axes.plot([best.hours, everybody.hours], [best.cost, everybody.cost], color=BLUE, linestyle=(0, (1, 2)))
    axes.scatter([best.hours], [best.cost], s=70, color=ORANGE, zorder=3)
    axes.scatter([everybody.hours], [everybody.cost], s=40, color=BLUE, marker="D", zorder=3)
    notes = [
        ("best", best.hours, best.cost, ORANGE, (0, 10)),
        ("everybody, all hours", everybody.hours, everybody.cost, BLUE, (0, 10)),
        ("errors alone", bought["hours"].iloc[-1], best.errors, INK, (0, -14)),
    ]
    for words, x, y, color, offset in notes:
        axes.annotate(words, (x, y), offset, textcoords="offset points", color=color, ha="center", fontsize=9)
    axes.set(xlabel="Hours of people in the week", ylabel=named("Errors and wages of the week", found.unit))
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12, y=0.15)
    return figure
