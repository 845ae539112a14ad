"""*Team*: how often everybody errs, whether that was expected, and who would disagree with whom.

People are compared on cases that were given out by lot wherever there are enough of these: whoever gets the
hardest cases is not the worst.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from fastapi import APIRouter, Response

from deccaf.data.costs import MACHINE
from deccaf.service.decide.registry import Model
from deccaf.service.monitor import reporting
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import Here
from deccaf.service.web.pages.access import LeadHere
from deccaf.service.web.pages.render import PageRoute, page
from deccaf.service.web.pages.words import percent

router = APIRouter(route_class=PageRoute, include_in_schema=False)

FEWEST_BY_LOT = 20
LATEST = 2_000
ASKED = 150
_remembered: dict[str, Any] = {}


@router.get("/team")
def team(here: Here, visitor: LeadHere) -> Response:
    """Everybody's record, with intervals."""
    model = here.models.active

    def look(connection: sa.Connection) -> dict[str, Any]:
        return {
            "rows": [_record(row) for row in reporting.expert_numbers(connection)],
            "curves": [] if model is None else _calibration(connection, model),
            "matrix": None if model is None else _disagreement(connection, model),
        }

    found = here.read(look)
    rates = [row for row in found["rows"] if row["rate"] is not None]
    people = [row for row in rates if row["name"] != MACHINE]
    mean = sum(r["wrong"] for r in people) / sum(r["labelled"] for r in people) if people else None
    most = max([min(row["high"], 1.0) for row in rates] or [1.0])
    return page("team.html", visitor, finding=_finding(rates, mean), mean=mean, most=most, **found)


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """Somebody's errors, by lot where there are enough labels of that kind."""
    by_lot = row["assigned_by_lot"]["labelled"] >= FEWEST_BY_LOT
    basis = row["assigned_by_lot"] if by_lot else row["all_cases"]
    low, high = basis["interval"] or (0.0, 1.0)
    return {
        "name": row["maker"],
        "decisions": row["decisions"],
        "labelled": basis["labelled"],
        "wrong": basis["wrong"],
        "rate": basis["error_rate"],
        "low": low,
        "high": high,
        "by_lot": by_lot,
        "by_truth": basis["by_truth"],
        "note": f"of {basis['labelled']}",
    }


def _finding(rates: list[dict[str, Any]], mean: float | None) -> str:
    people = [row for row in rates if row["name"] != MACHINE]
    if not people or mean is None:
        return "No labels have come yet for anybody's decisions"
    apart = [row for row in people if row["low"] > mean or row["high"] < mean]
    if not apart:
        return f"Nobody differs clearly from the mean of {percent(mean, 1)} errors"
    worst = max(people, key=lambda row: row["low"])
    best = min(people, key=lambda row: row["high"])
    said = f"{best['name']} errs least ({percent(best['rate'], 1)})" if best["high"] < mean else ""
    other = f"{worst['name']} errs most ({percent(worst['rate'], 1)})" if worst["low"] > mean else ""
    return "; ".join(part for part in (said, other) if part) + f"; the mean is {percent(mean, 1)}"


def _calibration(connection: sa.Connection, model: Model) -> list[dict[str, Any]]:
    """What everybody's cases were expected to cost, and what they did; latest labels, three groups each."""
    costs = model.system.costs_
    if costs.columns:
        return []  # costs differ from case to case: one curve would mix them
    a, d, c = t.assignments.c, t.decisions.c, t.cases.c
    latest = sa.select(t.labels.c.case_id).order_by(t.labels.c.id.desc()).limit(LATEST).subquery()
    query = (
        sa.select(a.maker, a.expected_loss, d.decision, c.label)
        .join_from(latest, t.cases, c.case_id == latest.c.case_id)
        .join(t.assignments, sa.and_(a.case_id == c.case_id, a.state == "decided", a.method != "history"))
        .join(t.decisions, d.case_id == c.case_id)
    )
    matrix, classes = costs.array()[0], {json.dumps(name): k for k, name in enumerate(costs.classes)}
    found: dict[str, list[tuple[float, float]]] = {}
    for maker, expected, said, truth in connection.execute(query):
        if said in classes and truth in classes:
            found.setdefault(maker, []).append((expected, float(matrix[classes[truth], classes[said]])))
    return [
        {"name": name, "labelled": len(pairs), **_groups(np.array(pairs))}
        for name, pairs in sorted(found.items(), key=lambda item: (item[0] != MACHINE, item[0]))
    ]


def _groups(pairs: np.ndarray) -> dict[str, Any]:
    order = pairs[np.argsort(pairs[:, 0], kind="stable")]
    points = []
    for part in np.array_split(order, min(3, max(len(order) // 15, 1))):
        seen, spread = part[:, 1].mean(), part[:, 1].std() / np.sqrt(len(part))
        points.append(
            {
                "expected": float(part[:, 0].mean()),
                "seen": float(seen),
                "low": float(max(seen - 1.96 * spread, 0.0)),
                "high": float(seen + 1.96 * spread),
            }
        )
    return {"points": points, "expected": float(pairs[:, 0].sum()), "seen": float(pairs[:, 1].sum())}


def _disagreement(connection: sa.Connection, model: Model) -> dict[str, Any] | None:
    """How often each two would decide the same case differently, as the model knows them."""
    decisions = model.system.learned_.decisions
    if not hasattr(decisions, "predict") or model.system.learned_.method != "deccaf":
        return None
    c = t.cases.c
    query = sa.select(c.id, c.features).where(c.given.is_(None)).order_by(c.id.desc()).limit(ASKED)
    rows = connection.execute(query).all()
    known = connection.execute(sa.select(t.experts.c.name).where(t.experts.c.active)).scalars()
    names = sorted(name for name in known if name in model.system.experts_)
    if len(rows) < 10 or len(names) < 2:
        return None
    key = (model.id, rows[0].id // ASKED, tuple(names))
    if _remembered.get("key") != key:
        frame = pd.DataFrame([json.loads(row.features) for row in rows])
        cast = model.system.schema_.cast(frame.reindex(columns=model.system.schema_.names))
        p = model.system.learned_.classifier.predict(cast)
        q = decisions.predict(cast, names)  # type: ignore[union-attr]
        same = np.einsum("iy,ijym,ikym->jk", p, q, q) / len(rows)
        _remembered.update(key=key, share=(1.0 - same).tolist())
    share = _remembered["share"]
    pairs = [(share[a][b], names[a], names[b]) for a in range(len(names)) for b in range(a)]
    top, low = max(pairs), min(pairs)
    said = (
        f"{top[2]} and {top[1]} would disagree most often, on {percent(top[0])} of the cases; "
        f"{low[2]} and {low[1]} least, on {percent(low[0])}"
    )
    return {"names": names, "share": share, "finding": said, "cases": len(rows)}
