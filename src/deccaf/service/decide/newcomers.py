"""People who came after the model was fitted: their decisions count as soon as the labels are there.

Somebody whom the model was fitted on waits for the next refit, so that no decision counts twice.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pandas as pd
import sqlalchemy as sa

from deccaf.data.rows import check_row
from deccaf.errors import DataError
from deccaf.fitted import FittedTeam
from deccaf.service.store import tables as t

MOST = 2_000
"""Decisions of newcomers that are counted, the latest first."""


class Known(NamedTuple):
    """How much of newcomers' labelled decisions a model has counted."""

    decisions: int
    labelled_at: float


NOTHING = Known(0, 0.0)


def known(connection: sa.Connection, system: FittedTeam) -> Known:
    """What there is to count."""
    count, latest = 0, 0.0
    for made, _ in t.ANSWERS:
        query = _labelled(system, made, sa.func.count(), sa.func.max(t.cases.c.labelled_at))
        more, last = connection.execute(query).one()
        count, latest = count + int(more), max(latest, float(last or 0.0))
    return Known(count, latest)


def with_newcomers(connection: sa.Connection, system: FittedTeam) -> FittedTeam:
    """The model after newcomers' decisions on labelled cases; those that it cannot read are passed over."""
    if system.method != "deccaf" or not system.experts_:
        return system
    answers: list[Any] = []
    for made, _ in t.ANSWERS:
        d, c = made.c, t.cases.c
        query = _labelled(system, made, d.maker, d.decision, d.at, c.features, c.label)
        answers += connection.execute(query.order_by(d.at.desc()).limit(MOST)).all()
    rows, features = [], []
    for row in sorted(answers, key=lambda one: -one.at)[:MOST]:
        found = json.loads(row.features)
        try:
            check_row(system.schema_, found)
            system.costs_.check_amounts(pd.DataFrame([found]))
        except DataError:
            continue
        rows.append((json.loads(row.label), row.maker, json.loads(row.decision)))
        features.append(found)
    classes = set(system.classes_.tolist())
    usable = [k for k, (label, _, said) in enumerate(rows) if label in classes and said in classes]
    if not usable:
        return system
    label, maker, said = (pd.Series([rows[k][place] for k in usable]) for place in range(3))
    return system.observe(pd.DataFrame([features[k] for k in usable]), label, expert=maker, decision=said)


def _labelled(system: FittedTeam, made: sa.Table, *columns: Any) -> sa.Select[Any]:
    """Labelled decisions of active people whom the model was not fitted on."""
    d, c, e = made.c, t.cases.c, t.experts.c
    newcomer = sa.select(e.name).where(e.active, e.name.not_in(system.experts_))
    return (
        sa.select(*columns)
        .join_from(made, t.cases, c.case_id == d.case_id)
        .where(d.maker.in_(newcomer), c.label.is_not(None))
    )
