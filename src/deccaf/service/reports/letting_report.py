"""What it costs to let rejects through by lot."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from deccaf.data.config import Config
from deccaf.data.costs import MACHINE
from deccaf.service.ledger import letting
from deccaf.service.store import tables as t


@dataclass(frozen=True)
class LettingReport:
    """Rejects of people, those let through, and the price of it; costs are those in force."""

    share: float
    """Of people's rejects that are let through from now on."""
    decisions: int
    """Of people."""
    rejects: int
    let_through: int
    labelled: int
    """Of those let through."""
    price: float | None
    """What one cost more than if it had been rejected, on average over the labelled ones; None: no label
    yet, or costs that differ from case to case."""
    error: float | None
    """Its standard error."""
    worst: float | None
    """What one costs more at most."""
    per_100_decisions: float | None
    """The price of the share, per 100 decisions of people; at worst, where no label tells yet."""


def report_letting(connection: sa.Connection, config: Config) -> LettingReport:
    """Count, and price by the labels that came."""
    classes, d = config.costs.build().classes, t.decisions.c
    hidden = set(config.labels.classes_of(classes))
    made = connection.execute(
        sa.select(d.decision, sa.func.count()).where(d.maker != MACHINE).group_by(d.decision)
    )
    counts = {json.loads(name): int(count) for name, count in made}
    rejects = sum(count for name, count in counts.items() if name in hidden)
    through, c = letting.chances(connection), t.cases.c
    rows = connection.execute(
        sa.select(c.case_id, c.label, d.decision)
        .join_from(t.cases, t.decisions, d.case_id == c.case_id)
        .join(t.history, sa.and_(t.history.c.case_id == c.case_id, t.history.c.kind == letting.KIND))
        .where(c.label.is_not(None))
    ).all()
    extra = _extra(config, hidden)
    more = [
        extra[classes.index(json.loads(row.decision))][classes.index(json.loads(row.label))] for row in rows
    ] if extra is not None else []  # fmt: skip
    total = sum(counts.values())
    price = float(np.mean(more)) if more else None
    worst = None if extra is None else float(max(max(row) for row in extra.values()))
    each = price if price is not None else worst
    return LettingReport(
        share=config.labels.let_through,
        decisions=total,
        rejects=rejects,
        let_through=len(through),
        labelled=len(rows),
        price=price,
        error=float(np.std(more) / np.sqrt(len(more))) if len(more) > 1 else None,
        worst=worst,
        per_100_decisions=None
        if each is None or not total
        else 100 * config.labels.let_through * rejects / total * each,
    )


def _extra(config: Config, hidden: set[int | str]) -> dict[int, list[float]] | None:
    """By reject, for every truth: what it costs more to accept, which is the first class that is none."""
    costs = config.costs.build()
    if costs.columns or not hidden:
        return None
    table = costs.array()[0]
    accept = next(k for k, name in enumerate(costs.classes) if name not in hidden)
    return {
        k: (table[:, accept] - table[:, k]).tolist() for k, name in enumerate(costs.classes) if name in hidden
    }
