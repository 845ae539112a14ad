"""The house style of all pictures, and the pictures of the alert model.

A figure is a plain matplotlib `Figure` (no global state, no display); its title states its finding. Nothing
but drawing needs matplotlib, which comes with the extra `report`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.optional import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#1f2933"
MUTED = "#7b8794"
GRID = "#e4e7eb"
BLUE, ORANGE, GREEN, RED, PURPLE = "#2563a8", "#d9730d", "#12a37a", "#a3143c", "#5b2a86"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED, "#4fa8d8", "#8a6414", "#5c6b7a")
"""The first six can be told apart by people who see two of three colours, which a test reckons."""


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def empty_figure(width: float, height: float) -> Figure:
    """A figure without axes."""
    with extra("report", "a picture"):
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def canvas(title: str, *, width: float = 7.2, height: float = 4.2) -> tuple[Figure, Axes]:
    """One pair of axes in the house style, under a title that states the finding."""
    figure = empty_figure(width, height)
    axes = figure.subplots()
    finish(axes, title)
    return figure, axes


def finish(axes: Axes, title: str, *, panel: bool = False) -> None:
    """Apply the house style to one pair of axes; a `panel` is one of several under a common title."""
    size, weight = (9, "normal") if panel else (11, "bold")
    axes.set_title(title, loc="left", fontsize=size, fontweight=weight, color=INK, wrap=True)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def as_png(figure: Figure, dpi: int = 130) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def as_pdf(figure: Figure) -> bytes:
    """The figure as a PDF for print; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return buffer.getvalue()


def roc(
    fpr: NDArray[np.float64], tpr: NDArray[np.float64], points: Mapping[str, tuple[float, float]], months: str
) -> Figure:
    """The alert model's ROC curve with the thresholds in use marked as (FPR, TPR)."""
    label, (at_fpr, at_tpr) = next(iter(points.items()))
    figure, axes = canvas(
        f"At {label} the model catches {at_tpr:.0%} of fraud and bothers {at_fpr:.1%} of honest applicants",
        height=4.6,
    )
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 4)))
    axes.text(0.72, 0.66, "no skill", color=MUTED, fontsize=9, rotation=32)
    axes.plot(fpr, tpr, color=BLUE, linewidth=2)
    for color, (name, (x, y)) in zip(PALETTE[1:], points.items(), strict=False):
        axes.scatter([x], [y], s=50, color=color, zorder=3)
        axes.annotate(f"{name}: {x:.1%}, {y:.1%}", (x, y), (10, -12), textcoords="offset points", color=color)
    area = float(np.trapezoid(tpr, fpr))
    axes.set(
        xlabel="False-positive rate (honest applications alerted)",
        ylabel="True-positive rate (fraud alerted)",
        xlim=(-0.01, 1.01),
        ylim=(-0.01, 1.01),
    )
    axes.text(0.98, 0.04, f"{months}, area {area:.3f}", ha="right", color=MUTED, fontsize=9)
    percent(axes.xaxis, axes.yaxis)
    return figure


def alerts_by_month(table: pd.DataFrame) -> Figure:
    """Alerts of each month, honest and fraud."""
    share, alerts = table["fraud_share"], table["alerts"]
    figure, axes = canvas(
        f"{alerts.sum():,.0f} alerts in {len(table)} months, and about one in "
        f"{alerts.sum() / (alerts * share).sum():.0f} of them is fraud"
    )
    months = [f"month {m}" for m in table.index]
    fraud = alerts * share
    axes.bar(months, fraud, color=ORANGE, width=0.62, label="fraud")
    honest = axes.bar(months, alerts - fraud, bottom=fraud, color=BLUE, width=0.62, label="honest")
    notes = [f"{n:,.0f}\n{p:.1%} fraud" for n, p in zip(alerts, share, strict=True)]
    axes.bar_label(honest, notes, color=INK, fontsize=9, padding=3)
    axes.set_ylabel("Alerts to review")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.2)
    axes.grid(visible=False, axis="x")
    axes.legend(frameon=False, loc="upper right", ncols=2, labelcolor=INK)
    return figure


def heatmap(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    *,
    fmt: str | None = None,
    diverging: bool = False,
    label: str = "",
) -> Figure:
    """A labelled matrix as colours; `fmt` writes the numbers into the cells."""
    height = max(2.6, 0.32 * len(rows) + 1.9)
    figure, axes = canvas(title, width=max(5.5, 0.34 * len(columns) + 2.6), height=height)
    limit = float(np.nanmax(np.abs(values))) or 1.0
    image = axes.imshow(
        values,
        aspect="auto",
        cmap="RdBu_r" if diverging else "Blues",
        vmin=-limit if diverging else 0.0,
        vmax=limit,
    )
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.grid(visible=False)
    if fmt is not None:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                dark = abs(value) > 0.6 * limit
                axes.text(column, row, format(value, fmt), ha="center", va="center", fontsize=7,
                          color="white" if dark else INK)  # fmt: skip
    bar: Any = figure.colorbar(image, ax=axes, shrink=0.85, label=label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, colors=MUTED)
    return figure


def percent(*which: Axis) -> None:
    """Write the shares along some axes as percentages, with the decimals that the ticks have: 2.5, 5, 7.5."""
    from matplotlib.ticker import FuncFormatter

    def written(share: float, _: int | None) -> str:
        return f"{100 * share:.6g}%".replace("-", "\N{MINUS SIGN}")

    for axis in which:
        axis.set_major_formatter(FuncFormatter(written))
