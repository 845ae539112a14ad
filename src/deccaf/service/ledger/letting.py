"""Rejects that are let through by lot, so that their truth is seen where labels are selective.

The setting is `[labels] let_through`; the chance stands in the trail, and a refit learns with it. Rejects of
the machine have a share of their own, `let_through_machine`: what it rejects depends on nothing but the
features, so these bias nothing, but where it rejects all cases of a kind nobody would ever see their truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import sqlalchemy as sa

from deccaf.data.config import LabelsTable
from deccaf.data.costs import MACHINE
from deccaf.service.ledger import trail
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import LEARNING, read_setting

KIND = "let through"
_LOT = random.SystemRandom()  # a lot that nobody can foresee


def draw(
    connection: sa.Connection, case_id: str, maker: str, decision: str, actor: Actor, at: float
) -> float | None:
    """Draw whether a decision (JSON) is overruled by lot; the chance if it is, written down."""
    return draw_many(connection, maker, [(case_id, decision, actor)], at).get(case_id)


def in_force(connection: sa.Connection) -> tuple[LabelsTable, list[int | str] | None]:
    """What is set about labels, and the classes where they are named."""
    settings = read_setting(connection, LEARNING) or {}
    return LabelsTable.model_validate(settings.get("labels") or {}), settings.get("costs", {}).get("classes")


def draw_many(
    connection: sa.Connection, maker: str, decided: Sequence[tuple[str, str, Actor]], at: float
) -> dict[str, float]:
    """The same for several decisions of a maker: the chances of those that are overruled, by case."""
    labels, classes = in_force(connection)
    chance = labels.let_through_machine if maker == MACHINE else labels.let_through
    if not chance:
        return {}
    drawn = [
        (case_id, actor)
        for case_id, decision, actor in decided
        if _hides(labels, json.loads(decision), classes)
        # a reject that was taken back was drawn already: one draw a case, so that the chance stays true
        and not (maker != MACHINE and _drawn_before(connection, case_id, labels, classes))
        and _LOT.random() < chance
    ]
    lines = [trail.line(KIND, at, actor, case_id, None, maker, chance=chance) for case_id, actor in drawn]
    trail.write(connection, lines)
    return dict.fromkeys((case_id for case_id, _ in drawn), chance)


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
    u = t.undone.c
    undone = connection.execute(sa.select(*u["maker", "decision", "decided_at"]).where(u.case_id == case_id))
    before = [
        (row.maker, row.decided_at) for row in undone if _hides(labels, json.loads(row.decision), classes)
    ]
    if not before:
        return False
    # an answer that others were asked about too was no decision yet, so nothing was drawn for it
    answers = {
        (event.maker, event.at)
        for event in trail.events_of(connection, case_id)
        if event.kind == "decided" and "second" in event.data
    }
    return any(one not in answers for one in before)


def _hides(labels: LabelsTable, decision: int | str, classes: list[int | str] | None) -> bool:
    return decision in labels.classes_of(tuple(classes or (0, 1)))
