"""A candidate beside today's practice: how often it would choose otherwise, what both cost, and the verdict.

*Expected* costs are each model's of its own choices, and the candidate's of today's choices, on the same
cases. *Doubly robust*: what both would have cost on all labelled cases, from the chances on record. The
*saving* is that of the trial (`deccaf.evaluate.trial`): whole blocks whose labels are all known, in the order
in which they became known, with what today's model expected taken out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.data.costs import Costs
from deccaf.evaluate.off_policy import Estimate, mean_with_interval
from deccaf.evaluate.trial import Look, block_of, looks, terms_by_block, terms_by_group
from deccaf.service.decide.registry import Model
from deccaf.service.ledger.desk import machine_first
from deccaf.service.ledger.trials.arms import SHADOW_BLOCK
from deccaf.service.ledger.trials.trial_records import Trial
from deccaf.service.reports.kinds import kind_columns, kinds_of
from deccaf.service.store import tables as t

Floats = NDArray[np.float64]

MOST = 200_000
"""Labelled cases of a trial that are read."""
FEWEST = 30
"""Labelled cases from which on costs are estimated."""


@dataclass(frozen=True)
class GroupLook:
    """What a trial has shown for one kind of case."""

    column: str
    value: str
    look: Look


@dataclass(frozen=True)
class TrialReport:
    """What is known of a trial by now."""

    trial: Trial
    cases: int
    otherwise: int
    """Cases for which the candidate would choose somebody else."""
    in_candidate: int
    """Cases that went by it."""
    today_expected: float | None
    """Per case: of today's choices by the model in force,"""
    same_plan: float | None
    """of today's choices by the candidate's model,"""
    candidate_expected: float | None
    """of the candidate's choices by its own."""
    loads: list[tuple[str, int, int]]
    """Everybody's cases as today's practice and as the candidate would give them."""
    labelled: int
    supported: float | None
    """Share of labelled cases of which the record tells what the candidate's choice costs."""
    today_cost: Estimate | None
    candidate_cost: Estimate | None
    """Doubly robust, per case."""
    look: Look | None
    """The saving per case with its bounds; None while it is a shadow."""
    groups: list[GroupLook]
    """The same by kind of case, each with bounds of its own."""


def report_trial(connection: sa.Connection, trial: Trial, model: Model | None) -> TrialReport:
    """Everything about one trial, by the costs of the model in force."""
    costs = None if model is None else model.system.costs_
    c = t.trial_cases.c
    counted = sa.select(
        sa.func.count(),
        sa.func.sum(sa.case((c.maker != c.expert, 1), else_=0)),
        sa.func.sum(sa.case((c.candidate, 1), else_=0)),
        sa.func.avg(c.today_loss),
        sa.func.avg(c.same_plan),
        sa.func.avg(c.candidate_loss),
    ).where(c.trial_id == trial.id)
    cases, otherwise, ours, today_mean, same_mean, candidate_mean = connection.execute(counted).one()
    rows = _labelled(connection, trial, costs) if costs is not None else []
    cost = np.zeros(0) if costs is None else _costs(rows, costs)
    today, candidate, supported = _estimates(rows, cost)
    return TrialReport(
        trial=trial,
        cases=int(cases),
        otherwise=int(otherwise or 0),
        in_candidate=int(ours or 0),
        today_expected=today_mean,
        same_plan=same_mean,
        candidate_expected=candidate_mean,
        loads=_loads(connection, trial),
        labelled=len(rows),
        supported=supported,
        today_cost=today,
        candidate_cost=candidate,
        look=look_of(trial, rows, cost),
        groups=groups_of(trial, rows, cost, kind_columns(connection, model)),
    )


def look_at(connection: sa.Connection, trial: Trial, costs: Costs) -> Look | None:
    """The saving by now, for the rule that ends a trial."""
    rows = _labelled(connection, trial, costs)
    return look_of(trial, rows, _costs(rows, costs))


def look_of(trial: Trial, rows: Sequence[Any], cost: Floats) -> Look | None:
    """The saving from labelled cases in the order of their labels."""
    lots = _Lots.of(trial, rows, cost)
    if lots is None:
        return None
    terms = terms_by_block(lots.cost, lots.candidate, lots.block, trial.rules, lots.expected, lots.size)
    return looks(terms, trial.rules)[0]


def groups_of(trial: Trial, rows: Sequence[Any], cost: Floats, columns: Sequence[str]) -> list[GroupLook]:
    """The same by kind of case."""
    lots, found = _Lots.of(trial, rows, cost), []
    if lots is None:
        return []
    for column, kinds in kinds_of([row.features for row in lots.rows], columns).items():
        for value in sorted(set(kinds.tolist())):
            terms = terms_by_group(
                lots.cost,
                lots.candidate,
                lots.block,
                kinds == value,
                trial.rules,
                lots.expected,
                lots.size,
            )
            found.append(GroupLook(column, value, looks(terms, trial.rules)[0]))
    return found


@dataclass(frozen=True, eq=False)
class _Lots:
    """Labelled cases that the lot gave to an arm."""

    rows: Sequence[Any]
    cost: Floats
    candidate: list[bool]
    block: list[str]
    expected: list[float]
    size: int

    @classmethod
    def of(cls, trial: Trial, rows: Sequence[Any], cost: Floats) -> _Lots | None:
        mine = [k for k, row in enumerate(rows) if row.block != SHADOW_BLOCK]
        part = [rows[k] for k in mine]
        if not part:
            return None
        return cls(
            part,
            cost[mine],
            [bool(row.candidate) for row in part],
            [f"{row.stratum}|{row.block}" for row in part],
            [row.today_loss for row in part],
            block_of(trial.rules.share)[0],
        )


def _labelled(connection: sa.Connection, trial: Trial, costs: Costs) -> Sequence[Any]:
    """Decided cases of a trial with their labels, in the order in which these became known.

    Of the classes that `costs` knows alone: a model in force that decides something else prices none of them.
    """
    c, d, k, a = t.trial_cases.c, t.decisions.c, t.cases.c, t.assignments.c
    known = [json.dumps(name) for name in costs.classes]
    query = (
        sa.select(c.case_id, c.stratum, c.block, c.candidate, c.maker, c.expert, c.today_loss)
        .add_columns(c.candidate_loss, d.decision, k.label, k.features, d.maker.label("decided_by"))
        .add_columns(a.propensity)
        .join_from(t.trial_cases, t.cases, k.case_id == c.case_id)
        .join(t.decisions, d.case_id == c.case_id)
        .join(t.assignments, sa.and_(a.case_id == c.case_id, a.state == "decided"))
        .where(c.trial_id == trial.id, k.label.in_(known), d.decision.in_(known))
        .order_by(k.labelled_at, k.id)
        .limit(MOST)
    )
    return connection.execute(query).all()


def _costs(rows: Sequence[Any], costs: Costs) -> Floats:
    """What every decision cost."""
    if not rows:
        return np.zeros(0)
    place = {json.dumps(name): k for k, name in enumerate(costs.classes)}
    amounts = pd.DataFrame([json.loads(row.features) for row in rows]) if costs.columns else None
    table = costs.array(amounts)
    truth = np.array([place[row.label] for row in rows])
    said = np.array([place[row.decision] for row in rows])
    return np.asarray(table[np.arange(len(rows)) if len(table) > 1 else 0, truth, said])


def _estimates(rows: Sequence[Any], cost: Floats) -> tuple[Estimate | None, Estimate | None, float | None]:
    """Doubly-robust cost of both per case, and how far the record tells of the candidate's choices."""
    if len(rows) < FEWEST:
        return None, None, None
    by, chance = [row.decided_by for row in rows], np.array([row.propensity for row in rows])
    found = []
    for choice, expected in (("maker", "today_loss"), ("expert", "candidate_loss")):
        same = np.array([getattr(row, choice) == who for row, who in zip(rows, by, strict=True)], float)
        predicted = np.array([getattr(row, expected) for row in rows])
        one = mean_with_interval(predicted + same / chance * (cost - predicted))
        value, low, high = (max(part, 0.0) for part in (one.value, one.low, one.high))  # costs: never below
        found.append(Estimate(value, low, high, one.error))
    alike = np.array([row.expert == who for row, who in zip(rows, by, strict=True)])
    return found[0], found[1], float((alike | (chance < 1)).mean())


def _loads(connection: sa.Connection, trial: Trial) -> list[tuple[str, int, int]]:
    c = t.trial_cases.c
    both: list[Counter[str]] = []
    for column in (c.maker, c.expert):
        query = sa.select(column, sa.func.count()).where(c.trial_id == trial.id).group_by(column)
        both.append(Counter(dict(connection.execute(query).all())))
    names = sorted({*both[0], *both[1]}, key=machine_first)
    return [(name, both[0][name], both[1][name]) for name in names]
