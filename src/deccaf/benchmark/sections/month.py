"""The first part of the demo's page: a month of a review desk, for somebody who is new to all this."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from deccaf.benchmark.first_plan import A_DAY, EACH, HOURS, MonthOfPlans
from deccaf.data.costs import MACHINE
from deccaf.planning.comparing import compared, direction
from deccaf.report import figures
from deccaf.report.page import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED = "analysts at random"


def month_headline(found: MonthOfPlans) -> tuple[tuple[str, str], ...]:
    """How many cases, who decided them, what errors cost with and without, what an hour is worth."""
    cost, saved = found.ways["cost"], _saved(found, SHARED)
    people = found.makers.drop(MACHINE)
    name, worth = _hours(found).idxmax(), _hours(found).max()
    one_in = found.cases / found.makers["frauds"].sum()
    return (
        (
            f"{found.cases:,}",
            f"cases to decide in {found.days} day{'s' * (found.days > 1)}; one in {one_in:.0f} is fraud",
        ),
        (
            f"{people['cases'].sum() / found.cases:.0%}",
            f"decided by {len(people)} people, at most {EACH} a day each; the rest by the machine",
        ),
        (
            f"{abs(saved):.0%} {direction(saved)}",
            f"cost of errors than the same people and hours with cases at random: as bad as "
            f"{_many(cost['deccaf'])} missed frauds, not {_many(cost[SHARED])}",
        ),
        (f"{worth:.2f}", f"missed frauds: what one more hour a day of {name} would save in all, at most"),
    )


def month_lead(found: MonthOfPlans, rows: int) -> str:
    """What there is to decide and by whom, in plain words."""
    people = len(found.makers) - 1
    return (
        f"{rows:,} people ask for a bank account in eight months, and a first model picks out what looks "
        f"like fraud. In the last month {A_DAY} such cases come in every day. {people} analysts have time "
        f"for {people * EACH} of them, a machine must decide the others. Who should decide which? deccaf "
        "learned from four months of past cases, each decided by one analyst, who is good at what, and "
        "planned every day of the month. All of it is made up, the applications and the analysts."
    )


def month_sections(found: MonthOfPlans) -> tuple[Section, ...]:
    """What errors cost by who decides, and who decided what."""
    return (_by_way(found), _by_maker(found))


def _by_way(found: MonthOfPlans) -> Section:
    ways, per_100 = found.ways, found.per_100
    others = ways["cost"].drop("deccaf")
    best = str(others.idxmin())
    saved = _saved(found, best)
    shown = pd.DataFrame(
        {
            "Who decides": ways.index,
            "Frauds let through": ways["missed"].map(_many).to_numpy(),
            "Honest people refused": ways["refused"].map(_many).to_numpy(),
            "Cost, in missed frauds": ways["cost"].map(_many).to_numpy(),
            "Cost per 100 cases": per_100.map("{:.2f}".format).to_numpy(),
        }
    )
    return Section(
        title=f"Its plans cost {compared(saved, f'the next best way ({best})')}",
        text="Two things can go wrong: a fraud is let through, or an honest person is refused. Here "
        f"{1 / found.ratio:.0f} people refused are as bad as one fraud let through. Nobody works more with "
        "deccaf than with random cases; they get other cases.",
        table=shown,
        pictures={"cost-by-policy": partial(_cost_figure, per_100)},
        note="Errors are expected ones, counted with the analysts' true chances of error, which only a "
        "simulation knows. Nothing was learned from this month. The command deccaf backtest makes "
        "such a comparison on your own past, and says how sure it is.",
    )


def _by_maker(found: MonthOfPlans) -> Section:
    makers, hours = found.makers, _hours(found)
    people = makers.drop(MACHINE)
    shown = pd.DataFrame(
        {
            "Who": makers.index,
            "Cases": makers["cases"].map("{:,}".format).to_numpy(),
            "Had time for": ["no limit", *[f"{EACH * found.days:,}"] * len(people)],
            "Frauds among them": makers["frauds"].map("{:,}".format).to_numpy(),
            "Let through": makers["missed"].map(_many).to_numpy(),
            "Honest refused": makers["refused"].map(_many).to_numpy(),
            "An hour more saves": ["", *hours.map("{:.2f}".format)],
        }
    )
    name = hours.idxmax()
    return Section(
        title=f"An hour of {name} is worth most",
        text="Who decided what in deccaf's plans. The last column says what one more hour a day of "
        "somebody's time would save in the month, in missed frauds and at most (an hour is "
        f"{EACH / HOURS:g} cases). That is whom to ask for overtime first.",
        table=shown,
        note="The errors do not rank people: everybody gets the cases in which they make the greatest "
        "difference, and some of these are harder than others.",
    )


def _hours(found: MonthOfPlans) -> pd.Series:
    """By person, what one more hour a day would save in the month: at most its cases times their price."""
    return found.makers["price"].drop(MACHINE) * (EACH / HOURS) * found.days


def _many(errors: float) -> str:
    """So many errors; with a decimal where there are few."""
    return f"{errors:,.{0 if errors >= 100 else 1}f}"


def _saved(found: MonthOfPlans, way: str) -> float:
    return float(1 - found.ways["cost"]["deccaf"] / found.ways["cost"][way])


def _cost_figure(costs: pd.Series) -> Figure:
    saved = 1 - costs["deccaf"] / costs[SHARED]
    figure, axes = figures.canvas(
        f"Choosing who decides costs {compared(saved, 'random cases for the analysts')}", height=2.9
    )
    colors = [figures.BLUE if name == "deccaf" else "#b8c4d0" for name in costs.index]
    bars = axes.barh(list(costs.index)[::-1], costs.to_numpy()[::-1], color=colors[::-1], height=0.62)
    axes.bar_label(bars, fmt="{:.2f}", color=figures.INK, padding=4, fontsize=9)
    axes.set_xlabel("Expected cost of errors per 100 cases (a missed fraud costs 1)")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.1)
    return figure
