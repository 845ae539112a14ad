"""How people decide, as a picture and as a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deccaf.data.files import replacing, write_text
from deccaf.errors import DataError
from deccaf.evaluate.people import People
from deccaf.report.figures import BLUE, INK, MUTED, as_png, empty_figure, finish, percent
from deccaf.report.page import Report, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 40
"""People in one picture; more could not be read."""


def people_picture(people: People) -> Figure:
    """Everybody's error rate by truth with its interval, beside the team's; the title says who errs least."""
    known = _with_truth(people)
    shown = (
        known.sort_values("decisions", ascending=False).head(MOST).sort_values("error_rate", ascending=False)
    )
    figure = empty_figure(3.0 * len(people.classes) + 1.6, 0.28 * len(shown) + 1.9)
    grid = figure.subplots(1, len(people.classes), squeeze=False, sharey=True)[0]
    place = np.arange(len(shown))
    for axes, name in zip(grid, people.classes, strict=True):
        finish(axes, f"when the truth is {name}", panel=True)
        rate = shown[f"error_rate_{name}"].to_numpy(np.float64)
        ends = np.stack([rate - shown[f"low_{name}"], shown[f"high_{name}"] - rate]).clip(min=0)
        axes.errorbar(rate, place, xerr=ends, fmt="o", color=BLUE, markersize=4, elinewidth=1.4)
        axes.axvline(people.team[f"error_rate_{name}"], color=MUTED, linestyle=(0, (4, 4)), linewidth=1)
        percent(axes.xaxis)
    grid[0].set_ylim(-0.6, len(shown) - 0.4)
    grid[0].set_yticks(place, [str(name) for name in shown.index])
    figure.suptitle(_finding(known, len(shown)), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    figure.supxlabel("Share of wrong decisions, with 95 % intervals; dashed: the team", fontsize=9, color=INK)
    return figure


def people_report(people: People, title: str) -> Report:
    """A page with the picture, the rates and where people are strong and weak."""
    _with_truth(people)
    table = people.table.reset_index()
    for name in table.columns:
        if name.startswith(("error_rate", "low", "high", "leaning_")):
            table[name] = ["" if pd.isna(v) else f"{v:.1%}" for v in table[name]]
    table["pace"] = ["" if pd.isna(v) else f"{v:,.0f}" for v in table["pace"]]
    parts = people.parts.assign(expected=[f"{v:.1f}" for v in people.parts["expected"]])
    sections = [
        Section(
            "How people decide",
            "Counts of the history, with 95 % intervals: whoever got harder cases errs more.",
            table.astype("str"),
            {"people": partial(people_picture, people)},
        ),
        Section(
            "Where they are strong and weak",
            "Parts of the cases in which somebody errs clearly less or more than the others do there."
            if len(parts)
            else "Nobody differs from the others in any part of the cases by more than chance may bring.",
            parts.astype("str") if len(parts) else None,
        ),
    ]
    about = people.about
    lead = (
        f"{about['cases']:,} cases and {people.team['decisions']:,} decisions of {len(people.table)} people."
    )
    return Report(
        title, lead, tuple(sections), footer=" ".join(f"Not known: {one}." for one in people.missing)
    )


def write_people(people: People, path: Path, title: str) -> None:
    """Write the picture (.png) or the page (.html), whole or not at all."""
    if path.suffix == ".html":
        write_text(people_report(people, title).html(), path)
        return
    with replacing(path) as beside:
        beside.write_bytes(as_png(people_picture(people)))


def _with_truth(people: People) -> pd.DataFrame:
    """The people whose errors are known."""
    known = people.table[people.table["labelled"] > 0]
    if known.empty:
        raise DataError("no person's decisions have a known truth, so there is nothing to draw")
    return known


def _finding(known: pd.DataFrame, shown: int) -> str:
    rates = {str(name): float(rate) for name, rate in known["error_rate"].items()}
    best, worst = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
    if best == worst:
        return f"{best} errs on {rates[best]:.1%} of the cases"
    words = f"{best} errs least ({rates[best]:.1%}), {worst} most ({rates[worst]:.1%})"
    return words + (f"; the {shown} with most decisions are shown" if shown < len(known) else "")
