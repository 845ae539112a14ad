"""The numbers behind the reports, straight from the ledger."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.decide.pricing import recent_losses
from deccaf.service.ledger import ledger
from deccaf.service.store import tables as t

_SAMPLE = 2_000


def shift_numbers(connection: sa.Connection, shift_id: int) -> dict[str, Any]:
    """Cases, loads and expected costs of a shift."""
    desk = ledger.read_desk(connection, shift_id)
    a = t.assignments.c
    live = sa.and_(a.shift_id == shift_id, a.state.in_(t.LIVE))
    counted = sa.select(a.maker, a.state, sa.func.count(), sa.func.sum(a.expected_loss)).where(live)
    by_maker: dict[str, dict[str, Any]] = {maker: {} for maker in desk.makers}
    for maker, state, count, loss in connection.execute(counted.group_by(a.maker, a.state)):
        by_maker.setdefault(maker, {})[state] = (count, loss)
    limits = {
        row.maker: row
        for row in connection.execute(sa.select(t.roster).where(t.roster.c.shift_id == shift_id))
    }
    prices = dict(zip(desk.makers, desk.prices.tolist(), strict=True))
    makers = [
        {
            "maker": maker,
            "capacity": limits[maker].capacity,
            "used": limits[maker].used,
            "absent": limits[maker].absent,
            "decided": states.get("decided", (0, 0))[0],
            "expected_loss": sum(loss for _, loss in states.values()),
            "price": prices[maker],
        }
        for maker, states in by_maker.items()
        if maker in limits
    ]
    waiting = sa.select(sa.func.count()).select_from(t.cases).where(t.cases.c.status == "waiting")
    return {
        "shift": shift_id,
        "waiting": connection.execute(waiting).scalar_one(),
        "assigned": sum(row["used"] for row in makers),
        "decided": sum(row["decided"] for row in makers),
        "expected_cost": sum(row["expected_loss"] for row in makers),
        **_alternatives(connection, desk.makers, sum(row["used"] for row in makers), makers),
        "makers": makers,
    }


def _alternatives(
    connection: sa.Connection, makers: tuple[str, ...], cases: int, rows: list[dict[str, Any]]
) -> dict[str, float | None]:
    """What the same number of cases would cost with the machine alone, and with the same loads at random.

    Both from the losses of the latest cases, so they are comparable with `expected_cost` when most cases of
    the shift are among them.
    """
    losses = recent_losses(connection, makers, _SAMPLE)
    if not len(losses) or not cases:
        return {"machine_cost": None, "random_cost": None}
    known = np.where(np.isfinite(losses), losses, np.nan)
    counts = np.isfinite(known).sum(axis=0)
    means = np.where(counts > 0, np.nansum(known, axis=0) / np.maximum(counts, 1), np.nan)
    mean = dict(zip(makers, means.tolist(), strict=True))
    at_random = sum(row["used"] * mean[row["maker"]] for row in rows if row["used"])
    alone = cases * mean[MACHINE] if MACHINE in mean else math.nan
    return {"machine_cost": _or_none(alone), "random_cost": _or_none(at_random)}


def expert_numbers(connection: sa.Connection) -> list[dict[str, Any]]:
    """For every maker: decisions, decisions with a known label, errors; on all cases, and by lot only."""
    a, d, k = t.assignments.c, t.decisions.c, t.cases.c
    by_lot = sa.case((a.method == "lot", 1), else_=0)
    wrong = sa.case((d.decision != k.label, 1), else_=0)
    query = (
        sa.select(
            d.maker,
            by_lot.label("lot"),
            k.label,
            sa.func.count().label("decisions"),
            sa.func.sum(wrong).label("wrong"),
            sa.func.avg(d.seconds).label("seconds"),
        )
        .join_from(t.decisions, t.cases, d.case_id == k.case_id)
        .join(t.assignments, sa.and_(a.case_id == d.case_id, a.state == "decided"))
        .group_by(d.maker, by_lot, k.label)
    )
    found: dict[str, list[Any]] = {}
    for row in connection.execute(query):
        found.setdefault(row.maker, []).append(row)
    return [
        {
            "maker": maker,
            "decisions": sum(row.decisions for row in rows),
            "all_cases": _errors([row for row in rows if row.label is not None]),
            "assigned_by_lot": _errors([row for row in rows if row.label is not None and row.lot]),
        }
        for maker, rows in sorted(found.items(), key=lambda item: (item[0] != MACHINE, item[0]))
    ]


def _errors(rows: list[Any]) -> dict[str, Any]:
    labelled, wrong = sum(row.decisions for row in rows), sum(row.wrong for row in rows)
    by_truth: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = by_truth.setdefault(str(json.loads(row.label)), {"labelled": 0, "wrong": 0})
        entry["labelled"] += row.decisions
        entry["wrong"] += row.wrong
    for entry in by_truth.values():
        entry["error_rate"], entry["interval"] = _rate(entry["wrong"], entry["labelled"])
    rate, interval = _rate(wrong, labelled)
    return {
        "labelled": labelled,
        "wrong": wrong,
        "error_rate": rate,
        "interval": interval,
        "by_truth": by_truth,
    }


def _rate(wrong: int, total: int) -> tuple[float | None, list[float] | None]:
    """A share with Wilson's 95 % interval."""
    if not total:
        return None, None
    z, p = 1.959964, wrong / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return p, [max(middle - reach, 0.0), min(middle + reach, 1.0)]


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
