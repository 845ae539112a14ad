"""The page of a backtest: what plans would have cost, who would have got what, how far to trust models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deccaf.backtest import agreement
from deccaf.backtest.results import Backtest, Hidden
from deccaf.backtest.verdict import HISTORY, OURS
from deccaf.data.amounts import cost, named
from deccaf.data.files import write_frame, write_text
from deccaf.evaluate.fairness import ACCURACY, BINARY, COST
from deccaf.evaluate.measures import POOLED, ece, log_loss, measure_by_expert, reliability, roc_auc
from deccaf.report import figures
from deccaf.report.calibration import MOST, reliability_grid
from deccaf.report.page import Report, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEWEST = 50
"""Decisions that a reliability curve of one expert needs."""
_BINS = 5
"""Bins of every calibration error and curve on the page."""
_PALE = "#8fa3b5"


def backtest_report(found: Backtest, title: str = "Backtest") -> Report:
    """The page."""
    how = (
        "Several experts decided each test case, so every outcome is known."
        if found.known
        else "One expert decided each case, so costs are doubly-robust estimates from the log."
    )
    sections = [_costs_section(found)]
    sections += [] if found.open is None else [_open_section(found.open)]
    sections.append(_curve_section(found))
    sections += [] if found.ratios.empty else [_ratio_section(found)]
    sections += [] if found.hidden is None else [_hidden_section(found, found.hidden)]
    sections += [_received_section(found), _calibration_section(found), *_group_sections(found)]
    sections += [] if found.agreement is None else agreement.sections(found.agreement, found.verdict.unit)
    sections.append(_quality_section(found))
    mine = found.costs.loc[OURS]
    return Report(
        title=title,
        lead=f"{found.verdict.headline} {how} {found.split}",
        sections=tuple(sections),
        figures=(
            (found.verdict.kind, "verdict, against the best without deccaf"),
            (f"{found.test_cases:,}", "test cases"),
            (
                cost(mine["cost"], found.verdict.unit, 2),
                "cost of errors and reviews per 100 cases with deccaf",
            ),
            (f"{mine['deferred']:.0%}", "of the cases given to people"),
        ),
        footer=f"deccaf backtest: {found.folds} split(s), {found.train_cases:,} training cases on average.",
    )


def write_backtest(found: Backtest, folder: Path, title: str = "Backtest") -> Path:
    """Write report.html with its pictures, backtest.json and plan.parquet; gives the page's path.

    Where several people decided the same cases also meeting.html and meeting.csv: the list for a meeting.
    """
    page = backtest_report(found, title).write(folder)
    write_text(json.dumps(found.to_dict(), indent=2) + "\n", folder / "backtest.json")
    write_frame(found.plan, folder / "plan.parquet")
    if found.agreement is not None:
        meeting = agreement.meeting_section(found.agreement, found.verdict.unit)
        write_text(Report(f"{title}: calibration meeting", "", (meeting,)).html(), folder / "meeting.html")
        write_frame(found.agreement.meeting, folder / "meeting.csv")
    return page


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
    """Calibration of P(right) by expert; the row `all` takes everybody's decisions together."""
    frame = found.calibration
    table = measure_by_expert(
        frame["right"],
        frame["chance"],
        frame["expert"],
        measures={"ece": lambda y, p, w: ece(y, p, w, bins=_BINS), "log_loss": log_loss, "auc": roc_auc},
    )
    right = frame.groupby("expert")["right"].mean()
    right.loc[POOLED] = frame["right"].mean()
    return pd.DataFrame(
        {
            "expert": table.index,
            "decisions": table["cases"].map("{:,.0f}".format).to_numpy(),
            "right": right.reindex(table.index).map("{:.1%}".format).to_numpy(),
            "calibration error": table["ece"].map("{:.1%}".format).to_numpy(),
            "log-loss": table["log_loss"].map("{:.3f}".format).to_numpy(),
            "AUC": table["auc"].map(lambda value: "" if np.isnan(value) else f"{value:.3f}").to_numpy(),
        }
    )


def _costs_section(found: Backtest) -> Section:
    shown = cost_table(found)
    for name in ("cost per 100", "low", "high"):
        shown[name] = shown[name].map("{:.2f}".format)
    what = named("Cost of errors and reviews per 100 cases", found.verdict.unit)
    note = f"{what}, with 95 % intervals; '{HISTORY}' is what the log says."
    if not found.known:
        note += " Estimates are doubly robust; deccaf's from the log alone (inverse propensity) stands beside"
        note += ", and that from cases given by lot alone where there are enough."
    return Section(
        title="What it would have cost",
        text=" ".join(found.verdict.sentences),
        table=shown,
        pictures={"backtest-costs": partial(cost_figure, found)},
        note=note,
    )


def cost_figure(found: Backtest) -> Figure:
    """Costs by policy with their intervals."""
    table = found.costs.sort_values("cost", ascending=False)
    figure, axes = figures.canvas(found.verdict.headline, height=0.42 * len(table) + 1.6)
    places = np.arange(len(table))
    colors = [figures.BLUE if name == OURS else _PALE for name in table.index]
    for place, color, (_, row) in zip(places, colors, table.iterrows(), strict=True):
        axes.plot([row["low"], row["high"]], [place, place], color=color, linewidth=2.5)
        axes.scatter([row["cost"]], [place], color=color, s=42, zorder=3)
        axes.annotate(
            f"{row['cost']:.2f}", (row["cost"], place), (0, 7), textcoords="offset points", ha="center",
            color=figures.INK, fontsize=9,
        )  # fmt: skip
    axes.set_yticks(places, list(table.index))
    axes.set_ylim(-0.6, len(table) - 0.2)
    axes.set_xlabel(f"{named('Cost per 100 cases', found.verdict.unit)}, with 95 % intervals")
    axes.grid(visible=False, axis="y")
    return figure


def _curve_section(found: Backtest) -> Section:
    curve = found.curve
    best = curve.iloc[int(curve["cost"].argmin())]
    whose = "of the roster" if found.roster else "that the team really worked"
    table = pd.DataFrame(
        {
            "Hours": curve["hours"].map("{:.0%}".format),
            "Cost per 100": curve["cost"].map("{:.2f}".format),
            "Interval": [f"{a:.2f} to {b:.2f}" for a, b in zip(curve["low"], curve["high"], strict=True)],
            "Given to people": curve["deferred"].map("{:.0%}".format),
        }
    )
    return Section(
        title="How much the team's hours are worth",
        text=f"Cost is least at {best['hours']:.0%} of the hours {whose}: "
        f"{cost(best['cost'], found.verdict.unit, 2)} per 100 cases, "
        f"with {best['deferred']:.0%} of the cases given to people; the plan above has "
        f"{found.capacity_share:.0%} of those hours.",
        table=table,
        pictures={"backtest-hours": partial(curve_figure, found)},
        note="Everybody's room is scaled alike; 0 % is the machine alone."
        + (" Of one draw." if found.known else ""),
    )


def curve_figure(found: Backtest) -> Figure:
    """Cost against hours of the team, with the machine and today's practice on it."""
    curve, past = found.curve, found.costs.loc[HISTORY]
    low = curve["cost"].iloc[0] - curve["cost"].min()
    figure, axes = figures.canvas(
        f"The team's hours save up to {cost(low, found.verdict.unit, 2)} per 100 cases over none"
    )
    axes.fill_between(
        curve["hours"], curve["low"], curve["high"], color=figures.BLUE, alpha=0.13, linewidth=0
    )
    axes.plot(curve["hours"], curve["cost"], color=figures.BLUE, linewidth=2, marker="o", markersize=4)
    axes.annotate(
        "deccaf's plan", (curve["hours"].iloc[-1], curve["cost"].iloc[-1]), (0, -14),
        textcoords="offset points", ha="right", color=figures.BLUE, fontsize=9,
    )  # fmt: skip
    points = [(1.0, past["cost"], past["low"], past["high"], HISTORY, figures.ORANGE)]
    if "machine" in found.costs.index:
        machine = found.costs.loc["machine"]
        points.append((0.0, machine["cost"], machine["low"], machine["high"], "machine alone", figures.GREEN))
    for x, y, least, most, name, color in points:
        axes.plot([x, x], [least, most], color=color, linewidth=2)
        axes.scatter([x], [y], color=color, s=46, zorder=3)
        side = ("right", -8) if x > 0 else ("left", 8)
        axes.annotate(
            name, (x, y), (side[1], 6), textcoords="offset points", ha=side[0], color=color, fontsize=9
        )
    axes.set(
        xlabel="Hours of the team, as a share of the roster" if found.roster
        else "Hours of the team, as a share of what it really worked",
        ylabel=f"{named('Cost per 100 cases', found.verdict.unit)}, with 95 % intervals",
    )  # fmt: skip
    figures.percent(axes.xaxis)
    axes.set_ylim(bottom=0.0)
    return figure


def _ratio_section(found: Backtest) -> Section:
    table = found.ratios
    holds = bool((table["low"] > 0).all())
    most = cost(table["saved"].max(), found.verdict.unit, 2)
    ends = f"from {table['saved'].min():.2f} to {most} per 100 cases"
    other = table[table["ratio"] != 1.0]
    shown = pd.DataFrame(
        {
            "False positives cost": [f"x {ratio:.2f}" for ratio in table["ratio"]],
            "Cost of deccaf per 100": table["cost"].map("{:.2f}".format),
            "Best without": table["against"],
            "deccaf saves": [
                f"{row['saved']:.2f} ({row['low']:.2f} to {row['high']:.2f})" for _, row in table.iterrows()
            ],
            "Cases that change hands": table["moved"].map("{:.0%}".format),
        }
    )
    return Section(
        title="If the ratio of costs is another",
        text=f"With the ratio of costs between half and double, the saving goes {ends}"
        + (", and is above 0 throughout" if holds else "")
        + f"; {other['moved'].min():.0%} to {other['moved'].max():.0%} of the cases change hands.",
        table=shown,
        note="The same models, planned anew and counted at each ratio; nothing is learned anew.",
    )


def _open_section(table: pd.DataFrame) -> Section:
    def ends(what: str) -> list[str]:
        pairs = zip(table[f"{what}_low"], table[f"{what}_high"], strict=True)
        return ["" if pd.isna(low) else f"{low:.2f} to {high:.2f}" for low, high in pairs]

    return Section(
        title="What nobody could see",
        text="The truth of rejected cases was never seen, so costs are only known within bounds: over all "
        "that reviewers of different leniency leave open, with the 95 % intervals at both ends. All other "
        "figures on this page have the truths in the middle.",
        table=pd.DataFrame(
            {"Policy": table.index, "Cost per 100": ends("cost"), "deccaf saves": ends("saved")}
        ),
        note="Let a share of the rejects through by lot, and name its column under [columns] let_through: "
        "then there is a number instead.",
    )


def _hidden_section(found: Backtest, hidden: Hidden) -> Section:
    table = hidden.table

    def times(strength: float) -> str:
        return f"more than {table['strength'].max():.0f}" if np.isinf(strength) else f"{strength:.2f}"

    if table["saved"].iloc[0] <= 0:
        words = "There is no saving to undo."
    else:
        words = (
            "A reason that no column shows would have to make it "
            f"{times(hidden.undoes)} times as likely who got a case to undo the saving "
            f"against {hidden.against}"
        )
        words += (
            f", and {times(hidden.undoes_interval)} times to make it doubtful."
            if hidden.undoes_interval > 1
            else "; with its interval it is in doubt without one."
        )
    end = int((table["saved"] <= 0).argmax()) if (table["saved"] <= 0).any() else len(table) - 1
    table = table.iloc[: max(end + 1, 4)]
    shown = pd.DataFrame(
        {
            "Strength": table["strength"].map("{:.2f}".format),
            f"Least saving against {hidden.against}": table["saved"].map("{:.2f}".format),
            "Lower end of its interval": table["low"].map("{:.2f}".format),
        }
    )
    return Section(
        title="If history had reasons that no column shows",
        text=words,
        table=shown,
        note="Per 100 cases, in the worst case for the plan (marginal sensitivity model). Strength 2: some "
        "cases went to a person twice as often, or half as often, as the propensity says. Nothing in the "
        "data can tell how strong such a reason was; people who know the desk can.",
    )


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
    shown = calibration_table(found)
    pooled = shown.set_index("expert").loc[POOLED]
    text = (
        "The chance that each expert would be right, as given before, is off by "
        f"{pooled['calibration error']} on average over all {pooled['decisions']} decisions in the test part."
    )
    drawn = {"backtest-calibration": partial(calibration_figure, found)} if _often(found) else {}
    return Section(
        title="Can the chances be trusted?",
        text=text,
        table=shown,
        pictures=drawn,
        note=f"On the experts' own decisions, which the models had not seen; {_BINS} bins each.",
    )


def calibration_figure(found: Backtest) -> Figure:
    """The chances that experts would be right against how often they were, expert by expert."""
    panels = {
        name: {OURS: reliability(mine["right"], mine["chance"], bins=_BINS)}
        for name in _often(found)
        for mine in [found.calibration[found.calibration["expert"] == name]]
    }
    error = calibration_table(found).set_index("expert").loc[POOLED]["calibration error"]
    return reliability_grid(
        panels, title=f"Chances are off by {error} over all decisions; by expert as below"
    )


def _often(found: Backtest) -> list[str]:
    """Who decided often enough for a curve."""
    counts = found.calibration["expert"].value_counts()
    return [str(name) for name in counts.index if counts[name] >= _FEWEST][:MOST]


def _group_sections(found: Backtest) -> list[Section]:
    how = (
        "Every test case counts; its decision is known."
        if found.known
        else "Every test case counts: with its decision where the machine or the person of the log decides, "
        "and else as estimated from the log, like the costs."
    )
    return [
        Section(
            title=f"By {name}",
            text=f"Costs and rates of deccaf's plan in each group, machine and people together. {how}",
            table=group_table(table),
            note="95 % intervals in brackets, and after each rate the number of cases that it is a share of.",
        )
        for name, table in found.groups.items()
    ]


def group_table(table: pd.DataFrame) -> pd.DataFrame:
    """A row per group: cases, costs and rates with intervals and counts, ready to print."""
    rows = []
    for name, mine in table.groupby("group", sort=False):
        by = mine.set_index("measure")
        row = {"group": name, "cases": f"{int(by['cases'][COST]):,}"}
        for measure in (COST, *BINARY, ACCURACY):
            if measure not in by.index:
                continue
            cases, value, low, high = by.loc[[measure], ["cases", "value", "low", "high"]].to_numpy()[0]
            if pd.isna(value):
                row[measure] = "no case"
            elif measure == COST:
                row[measure] = f"{value:.2f} ({low:.2f} to {high:.2f})"
            else:
                row[measure] = f"{value:.1%} ({low:.1%} to {high:.1%}) of {int(cases):,}"
        rows.append(row)
    return pd.DataFrame(rows)


def _quality_section(found: Backtest) -> Section:
    notes = found.notes or ("Nothing stood out.",)
    return Section(
        title="About the data",
        text=f"{found.split} {found.train_cases:,} cases to learn from, {found.test_cases:,} to test on.",
        table=pd.DataFrame({"note": notes}),
    )
