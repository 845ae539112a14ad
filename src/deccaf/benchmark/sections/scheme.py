"""A drawing of the method, from the history to who decides (the paper's figure 1, in our own words)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deccaf.report.figures import INK, MUTED, PALETTE, empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]

_WIDTH, _HEIGHT = 2.3, 1.0
_BOXES: dict[str, tuple[Place, str, str]] = {
    "cases": ((0.0, 2.2), "past cases\nwith their truth", MUTED),
    "decisions": ((0.0, 0.2), "one decision on each:\nwho said what", MUTED),
    "classifier": ((3.2, 2.2), "classifier\nP(truth | case)", PALETTE[0]),
    "experts": ((3.2, 0.2), "model of the experts\nP(decision | case,\ntruth, who)", PALETTE[0]),
    "loss": ((6.4, 1.2), "expected cost\nof each maker\non each new case", PALETTE[1]),
    "capacity": ((9.6, 2.6), "everybody's capacity", MUTED),
    "plan": ((9.6, 1.2), "plan of least cost,\nproved", PALETTE[2]),
    "people": ((12.8, 2.2), "people decide", INK),
    "machine": ((12.8, 0.2), "the machine decides", INK),
}
_ARROWS = (
    ("cases", "classifier"),
    ("cases", "experts"),
    ("decisions", "experts"),
    ("classifier", "loss"),
    ("experts", "loss"),
    ("loss", "plan"),
    ("plan", "people"),
    ("plan", "machine"),
)


def scheme() -> Figure:
    """Boxes and arrows; new cases enter where costs are computed."""
    figure = empty_figure(12.0, 3.4)
    axes = figure.subplots()
    for (x, y), text, color in _BOXES.values():
        _box(axes, x, y, text, color)
    for start, end in _ARROWS:
        (x, y), (to_x, to_y) = _BOXES[start][0], _BOXES[end][0]
        _arrow(axes, (x + _WIDTH, y + _HEIGHT / 2), (to_x, to_y + _HEIGHT / 2))
    x, y = _BOXES["plan"][0]
    _arrow(axes, (x + _WIDTH / 2, _BOXES["capacity"][0][1]), (x + _WIDTH / 2, y + _HEIGHT))
    x, y = _BOXES["loss"][0]
    axes.annotate(
        "new cases", (x + _WIDTH / 2, y), (x + _WIDTH / 2, y - 1.1), ha="center", fontsize=9, color=INK,
        arrowprops={"arrowstyle": "-|>", "color": MUTED},
    )  # fmt: skip
    axes.set(xlim=(-0.2, 15.3), ylim=(-0.2, 3.8))
    axes.set_axis_off()
    figure.suptitle(
        "Two models, one cost for everybody on every case, one plan", x=0.01, ha="left", fontsize=11,
        fontweight="bold", color=INK,
    )  # fmt: skip
    return figure


def _box(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch(
        (x, y), _WIDTH, _HEIGHT, boxstyle="round,pad=0.02,rounding_size=0.12", linewidth=1.4,
        edgecolor=color, facecolor="white",
    )  # fmt: skip
    axes.add_patch(shape)
    axes.text(x + _WIDTH / 2, y + _HEIGHT / 2, text, ha="center", va="center", fontsize=8, color=INK)


def _arrow(axes: Axes, start: Place, end: Place) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": MUTED, "shrinkA": 2, "shrinkB": 2}
    )
