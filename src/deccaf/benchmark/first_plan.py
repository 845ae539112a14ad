"""A month of a review desk: plan every day, compare with what one would do otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, solve_batches, verify
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.costs import MACHINE, Costs
from deccaf.errors import DataError
from deccaf.planning.comparing import compared
from deccaf.planning.random_sharing import random_cost
from deccaf.policies import Beliefs
from deccaf.report import figures
from deccaf.report.page import Section
from deccaf.simulate import SyntheticTeam
from deccaf.simulate.testbed import batches_by_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

A_DAY = 240
"""Cases that arrive on one day."""
EACH = 20
"""Cases that one analyst can review on one day; the machine decides the rest."""


@dataclass(frozen=True, eq=False)
class MonthOfPlans:
    """What a month cost under each way to assign, and what everybody got."""

    costs: pd.Series
    """Expected cost per 100 cases by way to assign, with the team's true chances of error."""
    makers: pd.DataFrame
    """One row per maker: cases in the month, and the mean price of one more case a day."""
    days: int


def plan_month(
    month: Cases, team: SyntheticTeam | None, known: Beliefs, costs: Costs, seed: int
) -> MonthOfPlans:
    """Plan each day of the month with what models believe of its cases; price the plans with the truth."""
    if team is None:
        raise DataError("a month of plans needs a simulated team: only its true chances of error are known")
    days = [np.flatnonzero(rows) for rows in _days(month)]
    says, paper = known.machine_says(), known.method("hem")
    plans = _daily_plans(known.loss(known.q), days, team, seed)
    of_paper = _daily_plans(paper.loss(), days, team, seed)
    truth, paper_truth = (true_costs(month, team, costs, m) for m in (says, paper.p.argmax(axis=1)))
    planned = _together([plan.maker for plan in plans], days)
    case = np.arange(len(month))
    by_policy = {
        "everything rejected": costs.array()[0][_label(month), -1].mean(),
        "the machine alone": truth[:, 0].mean(),
        "analysts at random": _at_random(truth, days),
        "the paper's DeCCaF": paper_truth[case, _together([plan.maker for plan in of_paper], days)].mean(),
        "deccaf": truth[case, planned].mean(),
    }
    makers = pd.DataFrame(
        {
            "cases": np.bincount(planned, minlength=1 + len(team)),
            "price": np.mean([plan.prices for plan in plans], axis=0),
        },
        index=pd.Index([MACHINE, *team.experts], name="maker"),
    )
    return MonthOfPlans(100 * pd.Series(by_policy), makers, len(days))


def true_costs(month: Cases, team: SyntheticTeam, costs: Costs, says: NDArray[np.int64]) -> Array:
    """Cases x makers: what each maker's decision is expected to cost, knowing the truth."""
    label = _label(month)
    experts = team.error_probabilities(month).to_numpy() * costs.case_weights(label)[:, None]
    return np.column_stack([costs.array()[0][label, says], experts])


def plan_sections(found: MonthOfPlans) -> tuple[Section, ...]:
    """The sections of a page about the month."""
    others = found.costs.drop("deccaf")
    best = others.idxmin()
    saved = 1 - found.costs["deccaf"] / others.min()
    people = found.makers.drop(MACHINE)
    dearest = people["price"].idxmax()
    shown = pd.DataFrame(
        {
            "Maker": found.makers.index,
            "Cases in the month": found.makers["cases"].map("{:,}".format).to_numpy(),
            "Room": ["no limit", *[f"{EACH * found.days:,}"] * len(people)],
            "One more case a day saves, per 100 days": (100 * found.makers["price"])
            .map("{:.2f}".format)
            .to_numpy(),
        }
    )
    return (
        Section(
            title="A month of plans",
            text=f"{A_DAY} alerts arrive each day, each analyst can review {EACH}, the machine decides the "
            "rest. deccaf learned from months 3-6, with one random analyst's decision per case, and planned "
            f"each day of month 7. Its plans cost {compared(saved, f'the next best way ({best})')}.",
            pictures={"cost-by-policy": partial(_cost_figure, found.costs)},
            note="Expected cost of errors with the analysts' true chances of error, which only a simulation "
            "knows; a missed fraud costs 1. Nothing was learned from month 7.",
        ),
        Section(
            title="What everybody got, and whose hours are worth most",
            text=f"One more case a day for {dearest} would save most: that is the price of their time.",
            table=shown,
        ),
    )


def _label(cases: Cases) -> NDArray[np.int64]:
    if cases.label is None:
        raise DataError("cases have no label column")
    return cases.label


def _days(month: Cases) -> list[NDArray[np.bool_]]:
    day = batches_by_size(month, A_DAY)
    return [(day == name).to_numpy() for name in day.unique()]


def _daily_plans(
    loss: Array, days: list[NDArray[np.int64]], team: SyntheticTeam, seed: int
) -> list[Assignment]:
    makers, capacity = [MACHINE, *team.experts], Capacity.of(dict.fromkeys(team.experts, EACH))
    problems = [
        AssignmentProblem.of(loss[rows], capacity.limits(makers, len(rows))[1], name=f"day {number}")
        for number, rows in enumerate(days, 1)
    ]
    plans = solve_batches(problems, seed=seed, n_jobs=1)
    for problem, plan in zip(problems, plans, strict=True):
        verify(problem, plan)
    return plans


def _at_random(truth: Array, days: list[NDArray[np.int64]]) -> float:
    """What a case costs if every analyst works to the limit on random ones and the machine decides the rest.

    The mean over all lots: in a small month one lot is far from it.
    """
    total, people = 0.0, truth.shape[1] - 1
    for rows in days:
        each = min(EACH, len(rows) / people)
        total += random_cost(truth[rows], [len(rows) - people * each, *[each] * people])
    return total / len(truth)


def _together(parts: Sequence[NDArray[Any]], days: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    whole = np.empty(sum(map(len, days)), np.int64)
    for rows, part in zip(days, parts, strict=True):
        whole[rows] = part
    return whole


def _cost_figure(costs: pd.Series) -> Figure:
    saved = 1 - costs["deccaf"] / costs["analysts at random"]
    figure, axes = figures.canvas(
        f"Choosing who decides saves {saved:.0%} against giving analysts random cases", height=2.9
    )
    colors = [figures.BLUE if name == "deccaf" else "#b8c4d0" for name in costs.index]
    bars = axes.barh(list(costs.index)[::-1], costs.to_numpy()[::-1], color=colors[::-1], height=0.62)
    axes.bar_label(bars, fmt="{:.2f}", color=figures.INK, padding=4, fontsize=9)
    axes.set_xlabel("Expected cost of errors per 100 cases (a missed fraud costs 1)")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.1)
    return figure
