"""The team as the model knows it: cost expected and seen for each person; who would disagree with whom."""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.service.decide.registry import Model
from deccaf.service.ledger import people
from deccaf.service.ledger.desk import machine_first
from deccaf.service.monitor.health import CalibrationPoint
from deccaf.service.store import tables as t

LATEST = 2_000
"""The latest labels that costs are compared on."""
ASKED = 150
"""Cases on which disagreement is reckoned; it is reckoned anew after as many further cases."""
FEWEST = 10

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CostCurve:
    """What somebody's cases were expected to cost, and what they did."""

    name: str
    labelled: int
    points: list[CalibrationPoint]
    """Groups of cases by expected cost, with the mean cost per case."""
    expected: float
    seen: float


@dataclass(frozen=True)
class Disagreement:
    """How often each two would decide the same case differently."""

    names: list[str]
    share: list[list[float]]
    cases: int


def cost_curves(connection: sa.Connection, model: Model) -> list[CostCurve]:
    """One curve per maker on the latest labels; none where costs differ from case to case."""
    costs = model.system.costs_
    if costs.columns:
        return []  # one curve would mix cases of unlike costs
    a, c = t.assignments.c, t.cases.c
    latest = sa.select(t.labels.c.case_id).order_by(t.labels.c.id.desc()).limit(LATEST).subquery()
    rows: list[Any] = []
    for made, state in t.ANSWERS:
        query = (
            sa.select(a.maker, a.expected_loss, made.c.decision, c.label)
            .join_from(latest, t.cases, c.case_id == latest.c.case_id)
            .join(t.assignments, sa.and_(a.case_id == c.case_id, a.state == state, a.method != "history"))
            .join(made, sa.and_(made.c.case_id == c.case_id, made.c.maker == a.maker))
        )
        rows += connection.execute(query).all()
    matrix, classes = costs.array()[0], {json.dumps(name): k for k, name in enumerate(costs.classes)}
    found: dict[str, list[tuple[float, float]]] = {}
    for maker, expected, decision, truth in rows:
        if decision in classes and truth in classes:
            cost = float(matrix[classes[truth], classes[decision]])
            found.setdefault(maker, []).append((expected, cost))
    return [curve_of(name, np.array(found[name])) for name in sorted(found, key=machine_first)]


class Disagreements:
    """The latest disagreement, which takes long to reckon and changes slowly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Hashable, list[list[float]]] | None = None

    def read(self, connection: sa.Connection, model: Model) -> Disagreement | None:
        """By the model, on the latest cases; None where it does not model decisions, or for too few cases."""
        if (
            not hasattr(model.system.learned_.decisions, "predict")
            or model.system.learned_.method != "deccaf"
        ):
            return None
        c = t.cases.c
        query = sa.select(c.id, c.features).where(c.given.is_(None)).order_by(c.id.desc()).limit(ASKED)
        rows = connection.execute(query).all()
        names = [name for name in people.active_experts(connection) if name in model.system.experts_]
        if len(rows) < FEWEST or len(names) < 2:
            return None
        key = (model.id, rows[0].id // ASKED, tuple(names))
        with self._lock:
            if self._kept is None or self._kept[0] != key:
                self._kept = (key, _disagreement(model, [row.features for row in rows], names))
            return Disagreement(names, self._kept[1], len(rows))


def _disagreement(model: Model, features: list[str], names: list[str]) -> list[list[float]]:
    frame = pd.DataFrame([json.loads(text) for text in features])
    cast = model.system.schema_.cast(frame.reindex(columns=model.system.schema_.names))
    p = model.system.learned_.classifier.predict(cast)
    q = model.system.learned_.decisions.predict(cast, names)  # type: ignore[union-attr]
    same = np.einsum("iy,ijym,ikym->jk", p, q, q) / len(features)
    share: list[list[float]] = (1.0 - same).tolist()
    return share


def curve_of(name: str, pairs: Floats) -> CostCurve:
    """Pairs of expected and seen cost as a curve."""
    order = pairs[np.argsort(pairs[:, 0], kind="stable")]
    points = []
    for part in np.array_split(order, min(3, max(len(order) // 15, 1))):
        seen, spread = part[:, 1].mean(), part[:, 1].std() / np.sqrt(len(part))
        low, high = max(seen - 1.96 * spread, 0.0), seen + 1.96 * spread
        points.append(CalibrationPoint(float(part[:, 0].mean()), float(seen), float(low), float(high)))
    return CostCurve(name, len(pairs), points, float(pairs[:, 0].sum()), float(pairs[:, 1].sum()))
