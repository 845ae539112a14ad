"""Rejects that are let through by lot, so that their truth is seen where labels are selective.

The setting is `[labels] let_through`; the chance stands in the trail, and a refit learns with it. Only the
rejects of people are drawn: what the machine rejects depends on nothing but the features, so its rejects are
like the cases beside them and bias nothing.
"""

from __future__ import annotations

import json
import random

import sqlalchemy as sa

from deccaf.data.config import LabelsTable
from deccaf.service.ledger import trail
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import LEARNING, read_setting

KIND = "let through"
_LOT = random.SystemRandom()  # a lot that nobody can foresee


def draw(
    connection: sa.Connection, case_id: str, maker: str, decision: str, actor: Actor, at: float
) -> float | None:
    """Draw whether a person's decision (JSON) is overruled by lot; the chance if it is, written down."""
    settings = read_setting(connection, LEARNING) or {}
    labels = LabelsTable.model_validate(settings.get("labels") or {})
    if not labels.let_through or not _hides(labels, json.loads(decision), settings["costs"].get("classes")):
        return None
    if _drawn_before(connection, case_id, labels, settings["costs"].get("classes")):
        return (
            None  # a reject that was taken back was drawn already: one draw a case, so the chance stays true
        )
    if _LOT.random() >= labels.let_through:
        return None
    trail.record(connection, KIND, at, actor, case_id, None, maker, chance=labels.let_through)
    return labels.let_through


def was_let_through(connection: sa.Connection, case_id: str) -> bool:
    """Whether a case was let through by lot."""
    h = t.history.c
    query = sa.select(h.id).where(h.case_id == case_id, h.kind == KIND).limit(1)
    return connection.execute(query).scalar() is not None


def chances(connection: sa.Connection) -> dict[str, float]:
    """The chance of every case that was let through."""
    h = t.history.c
    rows = connection.execute(sa.select(*h["case_id", "data"]).where(h.kind == KIND))
    return {row.case_id: float(json.loads(row.data)["chance"]) for row in rows}


def _drawn_before(
    connection: sa.Connection, case_id: str, labels: LabelsTable, classes: list[int | str] | None
) -> bool:
    before = connection.execute(sa.select(t.undone.c.decision).where(t.undone.c.case_id == case_id)).scalars()
    return any(_hides(labels, json.loads(decision), classes) for decision in before)


def _hides(labels: LabelsTable, decision: int | str, classes: list[int | str] | None) -> bool:
    return decision in labels.classes_of(tuple(classes or (0, 1)))
