"""A month of a review desk: plan every day, compare with what one would do otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, solve_batches, verify
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.costs import MACHINE, Costs
from deccaf.errors import DataError
from deccaf.policies import Beliefs
from deccaf.simulate import SyntheticTeam
from deccaf.simulate.testbed import batches_by_size

Array = NDArray[np.float64]

A_DAY = 240
"""Cases that arrive on one day."""
EACH = 20
"""Cases that one analyst can review on one day; the machine decides the rest."""


HOURS = 8
"""Of an analyst in one day."""


@dataclass(frozen=True, eq=False)
class MonthOfPlans:
    """What a month cost under each way to assign, and what everybody got."""

    ways: pd.DataFrame
    """By way to assign, with the team's true chances of error: frauds expected to be `missed`, honest
    applicants to be `refused`, and the expected `cost` of both in missed frauds."""
    makers: pd.DataFrame
    """By maker, under deccaf's plans: `cases`, the `frauds` among them, `missed`, `refused`, and the mean
    `price` of one more case a day."""
    days: int
    ratio: float
    """What refusing an honest applicant costs, in missed frauds."""

    @property
    def cases(self) -> int:
        """Of the month."""
        return int(self.makers["cases"].sum())

    @property
    def per_100(self) -> pd.Series:
        """Expected cost per 100 cases, by way to assign."""
        return 100 * self.ways["cost"] / self.cases


def plan_month(
    month: Cases, team: SyntheticTeam | None, known: Beliefs, ratio: float, seed: int
) -> MonthOfPlans:
    """Plan each day of the month with what models believe of its cases; price the plans with the truth."""
    if team is None:
        raise DataError("a month of plans needs a simulated team: only its true chances of error are known")
    days, costs, label = [np.flatnonzero(rows) for rows in _days(month)], Costs.binary(ratio), _label(month)
    says, paper = known.machine_says(), known.method("hem")
    plans = _daily_plans(known.loss(known.q), days, team, seed)
    of_paper = _daily_plans(paper.loss(), days, team, seed)
    truth, paper_truth = (true_costs(month, team, costs, m) for m in (says, paper.p.argmax(axis=1)))
    planned = _together([plan.maker for plan in plans], days)
    case = np.arange(len(month))
    ways = {
        "everything rejected": costs.array()[0][label, -1],
        "the machine alone": truth[:, 0],
        "analysts at random": _at_random(truth, days),
        "the paper's DeCCaF": paper_truth[case, _together([plan.maker for plan in of_paper], days)],
        "deccaf": truth[case, planned],
    }
    errors = pd.DataFrame(ways).div(costs.case_weights(label), axis=0)  # chances of error
    frauds = pd.DataFrame({"cases": 1, "frauds": label == 1})
    mine = frauds.assign(missed=errors["deccaf"] * (label == 1), refused=errors["deccaf"] * (label == 0))
    makers = mine.groupby(planned).sum().reindex(range(1 + len(team)), fill_value=0)
    makers["price"] = np.mean([plan.prices for plan in plans], axis=0)
    return MonthOfPlans(
        pd.DataFrame(
            {
                "missed": errors[label == 1].sum(),
                "refused": errors[label == 0].sum(),
                "cost": pd.DataFrame(ways).sum(),
            }
        ),
        makers.set_axis([MACHINE, *team.experts]),
        len(days),
        ratio,
    )


def true_costs(month: Cases, team: SyntheticTeam, costs: Costs, says: NDArray[np.int64]) -> Array:
    """Cases x makers: what each maker's decision is expected to cost, knowing the truth."""
    label = _label(month)
    experts = team.error_probabilities(month).to_numpy() * costs.case_weights(label)[:, None]
    return np.column_stack([costs.array()[0][label, says], experts])


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


def _at_random(truth: Array, days: list[NDArray[np.int64]]) -> Array:
    """What each case costs if every analyst works to the limit on random ones, the machine on the rest.

    The mean over all lots: in a small month one lot is far from it.
    """
    found, people = np.empty(len(truth)), truth.shape[1] - 1
    for rows in days:
        each = min(EACH / len(rows), 1 / people)
        found[rows] = truth[rows] @ np.array([1 - people * each, *[each] * people])
    return found


def _together(parts: Sequence[NDArray[Any]], days: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    whole = np.empty(sum(map(len, days)), np.int64)
    for rows, part in zip(days, parts, strict=True):
        whole[rows] = part
    return whole
