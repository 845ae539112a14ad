"""The latest cases and labels, as the checks compare them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.decide.registry import Model
from deccaf.service.ledger.review.golden import is_golden
from deccaf.service.store import tables as t

WINDOW = 1_000
"""The latest cases, and the latest labels, that are compared."""
PEOPLE_WINDOW = 2_000
"""The latest labels of cases that people decided: each of them should have enough."""
SCORE_REFERENCE = 400
"""The first cases under a model: what its scores are like when all is well."""


@dataclass(frozen=True)
class LabelledCase:
    """A case with its label; for cases that people decided, with the decision."""

    case_id: str
    features: str
    label: int | str
    maker: str | None = None
    decision: int | str | None = None
    label_id: int = 0
    at: float = 0.0
    """When the label came."""
    is_further: bool = False
    """One more person's answer on a case: its truth is counted once."""
    golden: bool = False
    """Whether it was chosen for what it tells of a person: it says nothing of how cases are."""


def latest_cases(connection: sa.Connection, since: float, at: float, model: Model) -> pd.DataFrame:
    """Features of the latest cases that the model scored."""
    c = t.cases.c
    came = sa.and_(c.arrived_at >= since, c.arrived_at <= at)
    query = sa.select(c.features).where(came, c.given.is_(None), ~is_golden(c.case_id))
    texts = connection.execute(query.order_by(c.id.desc()).limit(WINDOW)).scalars().all()
    return as_frame(texts, model)


def first_cases(connection: sa.Connection, model: Model) -> pd.DataFrame:
    """Features of the first cases after a model was first put in force."""
    a, c = t.activations.c, t.cases.c
    began = connection.execute(sa.select(sa.func.min(a.at)).where(a.model_id == model.id)).scalar()
    since = c.arrived_at >= (began or 0.0)
    query = sa.select(c.features).where(since, c.given.is_(None), ~is_golden(c.case_id))
    return as_frame(connection.execute(query.order_by(c.id).limit(SCORE_REFERENCE)).scalars().all(), model)


def freshly_labelled(connection: sa.Connection, since: float, at: float) -> list[LabelledCase]:
    """The cases of the freshest labels."""
    y, c = t.labels.c, t.cases.c
    fresh = sa.select(y.case_id).where(y.at >= since, y.at <= at).order_by(y.id.desc()).limit(WINDOW)
    query = sa.select(*c["case_id", "features", "label"]).where(
        c.case_id.in_(fresh), c.given.is_(None), ~is_golden(c.case_id)
    )
    return [
        LabelledCase(row.case_id, row.features, json.loads(row.label)) for row in connection.execute(query)
    ]


def decided_by_people(connection: sa.Connection, since: float, at: float) -> list[LabelledCase]:
    """The freshest labels of cases that people decided, each with the decision."""
    y, c = t.labels.c, t.cases.c
    rows: list[Any] = []
    for made, _ in t.ANSWERS:
        d = made.c
        query = (
            sa.select(y.id, c.case_id, c.features, c.label, d.maker, d.decision)
            .join_from(t.labels, t.cases, c.case_id == y.case_id)
            .join(made, d.case_id == c.case_id)
            .where(y.at >= since, y.at <= at, d.maker != MACHINE, c.given.is_(None))
            .order_by(y.id.desc())
            .limit(PEOPLE_WINDOW)
        )
        rows += connection.execute(query).all()
    latest = sorted(rows, key=lambda row: -row.id)[:PEOPLE_WINDOW]
    found = {(row.case_id, row.maker): row for row in latest}
    return [
        LabelledCase(r.case_id, r.features, json.loads(r.label), r.maker, json.loads(r.decision))
        for r in found.values()
    ]


def last_label_before(connection: sa.Connection, model: Model) -> int:
    """The last label from before a model was first put in force."""
    a, y = t.activations.c, t.labels.c
    began = connection.execute(sa.select(sa.func.min(a.at)).where(a.model_id == model.id)).scalar()
    query = sa.select(sa.func.max(y.id)).where(y.at < (began or 0.0))
    return int(connection.execute(query).scalar() or 0)


def labels_after(connection: sa.Connection, last: int, at: float) -> list[LabelledCase]:
    """The next labels after one, with the decision where a person made it; corrections do not count again."""
    y, c, d, o = t.labels.c, t.cases.c, t.decisions.c, t.opinions.c
    first = t.labels.alias("first")
    earlier = sa.exists().where(first.c.case_id == y.case_id, first.c.id < y.id)
    columns = (y.id, y.at, c.case_id, c.features, c.label, is_golden(c.case_id).label("golden"))
    fresh = (y.id > last, y.at <= at, c.given.is_(None), ~earlier)
    query = (
        sa.select(*columns, d.maker, d.decision)
        .join_from(t.labels, t.cases, c.case_id == y.case_id)
        .outerjoin(t.decisions, sa.and_(d.case_id == c.case_id, d.maker != MACHINE))
        .where(*fresh)
        .order_by(y.id)
        .limit(PEOPLE_WINDOW)
    )
    found = [_labelled(row, is_further=False) for row in connection.execute(query)]
    if not found:
        return []
    others = (
        sa.select(*columns, o.maker, o.decision)
        .join_from(t.labels, t.cases, c.case_id == y.case_id)
        .join(t.opinions, o.case_id == c.case_id)
        .where(*fresh, y.id <= found[-1].label_id)
        .order_by(y.id)
    )
    return found + [_labelled(row, is_further=True) for row in connection.execute(others)]


def _labelled(row: Any, *, is_further: bool) -> LabelledCase:
    decision = None if row.decision is None else json.loads(row.decision)
    facts = (row.case_id, row.features, json.loads(row.label), row.maker, decision)
    return LabelledCase(*facts, row.id, row.at, is_further, bool(row.golden))


def label_delays(connection: sa.Connection, since: float) -> tuple[float | None, float | None]:
    """Seconds from arrival to label: the median, and what the slowest tenth exceeds."""
    y, c = t.labels.c, t.cases.c
    query = (
        sa.select(y.at - c.arrived_at)
        .join_from(t.labels, t.cases, c.case_id == y.case_id)
        .where(y.at >= since)
        .order_by(y.id.desc())
        .limit(WINDOW)
    )
    found = np.array(connection.execute(query).scalars().all(), np.float64)
    if not len(found):
        return None, None
    return float(np.median(found)), float(np.quantile(found, 0.9))


def as_frame(features: Sequence[str], model: Model) -> pd.DataFrame:
    """Features as JSON in a table with the model's columns."""
    frame = pd.DataFrame([json.loads(text) for text in features])
    names = [*model.system.schema_.names, *model.system.costs_.columns]
    return frame.reindex(columns=list(dict.fromkeys(names)))
