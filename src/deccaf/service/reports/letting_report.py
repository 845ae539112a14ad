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
    """Rejects, those let through, and the price of it; costs are those in force."""

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
    machine_share: float
    """Of the machine's rejects that are let through from now on..."""
    machine_per_100_decisions: float | None
    """...and its price, per 100 decisions of the machine."""

    @property
    def price_in_words(self) -> str:
        """For the lead's page; empty where nothing is let through."""
        parts = (
            (self.share, self.per_100_decisions, "people"),
            (self.machine_share, self.machine_per_100_decisions, "the machine"),
        )
        told = [
            f"{share:.0%} of the rejects of {who} are let through by lot"
            + ("" if cost is None else f", at about {cost:.3g} per 100 decisions")
            for share, cost, who in parts
            if share
        ]
        return "; ".join(told)


def report_letting(connection: sa.Connection, config: Config) -> LettingReport:
    """Count, and price by the labels that came."""
    classes, d = config.costs.build().classes, t.decisions.c
    hidden = set(config.labels.classes_of(classes))
    total, rejects = _counted(connection, hidden, of_machine=False)
    machine_total, machine_rejects = _counted(connection, hidden, of_machine=True)
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
        per_100_decisions=_per_100(config.labels.let_through, rejects, total, each),
        machine_share=config.labels.let_through_machine,
        machine_per_100_decisions=_per_100(
            config.labels.let_through_machine, machine_rejects, machine_total, each
        ),
    )


def _counted(connection: sa.Connection, hidden: set[int | str], of_machine: bool) -> tuple[int, int]:
    """How many decisions there are, of the machine or of people, and how many of them are rejects."""
    d = t.decisions.c
    whose = d.maker == MACHINE if of_machine else d.maker != MACHINE
    made = connection.execute(sa.select(d.decision, sa.func.count()).where(whose).group_by(d.decision))
    counts = {json.loads(name): int(count) for name, count in made}
    return sum(counts.values()), sum(count for name, count in counts.items() if name in hidden)


def _per_100(share: float, rejects: int, decisions: int, each: float | None) -> float | None:
    return None if each is None or not decisions else 100 * share * rejects / decisions * each


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
