"""How each version of the model has done while it was in force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from deccaf.data.costs import Costs
from deccaf.service.ledger import versions
from deccaf.service.ledger.review.golden import is_golden
from deccaf.service.ledger.versions import Activation, Version
from deccaf.service.store import tables as t

LATEST = 10_000
"""The latest labels that versions are judged by."""
MOST_VERSIONS = 50


@dataclass(frozen=True)
class InForce:
    """Labelled cases that a version gave out: what they were expected to cost, and what they did."""

    labelled: int
    expected: float
    cost: float | None
    """None where costs differ from case to case."""


@dataclass(frozen=True)
class VersionReport:
    """A version with its record."""

    version: Version
    active: bool
    times: list[Activation]
    done: InForce | None


def report_versions(
    connection: sa.Connection, costs: Costs | None, only: Sequence[int] | None = None
) -> list[VersionReport]:
    """The newest versions, or those named; `costs` say what errors cost now."""
    times: dict[int, list[Activation]] = {}
    for activation in versions.activations(connection):
        times.setdefault(activation.model_id, []).append(activation)
    done = _in_force(connection, costs)
    active = versions.active_id(connection)
    found = (
        versions.latest_versions(connection, MOST_VERSIONS)
        if only is None
        else [versions.read_version(connection, number) for number in dict.fromkeys(only)]
    )
    return [
        VersionReport(version, version.id == active, times.get(version.id, []), done.get(version.id))
        for version in found
    ]


def _in_force(connection: sa.Connection, costs: Costs | None) -> dict[int, InForce]:
    a, d, c = t.assignments.c, t.decisions.c, t.cases.c
    latest = sa.select(t.labels.c.case_id).order_by(t.labels.c.id.desc()).limit(LATEST).subquery()
    query = (
        sa.select(a.model_id, d.decision, c.label, sa.func.count(), sa.func.sum(a.expected_loss))
        .join_from(latest, t.cases, c.case_id == latest.c.case_id)
        .join(t.assignments, sa.and_(a.case_id == c.case_id, a.state == "decided"))
        .join(t.decisions, d.case_id == c.case_id)
        .where(a.model_id.is_not(None), ~is_golden(c.case_id))
        .group_by(a.model_id, d.decision, c.label)
    )
    prices = _prices(costs)
    found: dict[int, InForce] = {}
    for model, decision, truth, count, expected in connection.execute(query):
        before = found.get(int(model), InForce(0, 0.0, 0.0 if prices else None))
        price = prices.get((truth, decision))  # None: a class that the model in force does not know
        cost = None if before.cost is None or price is None else before.cost + count * price
        found[int(model)] = InForce(before.labelled + count, before.expected + float(expected), cost)
    return found


def _prices(costs: Costs | None) -> dict[tuple[str, str], float]:
    """The cost of every truth and decision, as the ledger writes them; empty where cases bring their own."""
    if costs is None or costs.columns:
        return {}
    matrix, names = costs.array()[0], [json.dumps(name) for name in costs.classes]
    return {(y, m): float(matrix[j, k]) for j, y in enumerate(names) for k, m in enumerate(names)}
