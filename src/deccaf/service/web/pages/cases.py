"""*Case*: what is known about it, who was chosen and why, what moved the estimate, what happened."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pandas as pd
import sqlalchemy as sa
from fastapi import APIRouter, Query, Response

from deccaf.errors import DeccafError
from deccaf.service.decide.registry import Model
from deccaf.service.store import tables as t
from deccaf.service.web.api.cases import shown_case
from deccaf.service.web.api.common import CasePath, Here
from deccaf.service.web.pages.access import AnyoneHere, LeadHere
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

SHOWN = 100
MOVERS = 6


@router.get("/cases")
def cases(
    here: Here,
    visitor: LeadHere,
    status: Literal["waiting", "assigned", "decided", "all"] = "all",
    before: Annotated[int, Query(ge=0, le=2**62)] = 2**62,
    find: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The latest cases, or the one that is looked for."""
    if find.strip() and here.read(lambda c: _known(c, find.strip())):
        return go(f"/cases/{find.strip()}")

    def look(connection: sa.Connection) -> list[Any]:
        c, a = t.cases.c, t.assignments.c
        query = (
            sa.select(c.id, c.case_id, c.status, c.arrived_at, c.label, a.maker, a.expected_loss, a.method)
            .outerjoin_from(t.cases, t.assignments, sa.and_(a.case_id == c.case_id, a.state.in_(t.LIVE)))
            .where(c.id < before)
        )
        if status != "all":
            query = query.where(c.status == status)
        return list(connection.execute(query.order_by(c.id.desc()).limit(SHOWN)).all())

    return page("cases.html", visitor, rows=here.read(look), status=status, find=find, shown=SHOWN)


@router.get("/cases/{case_id}")
def case(case_id: CasePath, here: Here, visitor: AnyoneHere) -> Response:
    """One case; a reviewer sees only what is theirs, and nobody else's losses."""
    found = here.read(lambda connection: shown_case(connection, case_id, visitor.actor))
    if not visitor.is_lead:
        return page(
            "case.html", visitor, case=found, makers=[], why=None, movers=[], about=None, chances=None
        )
    makers, why = _why(found)
    about, movers, chances = _movers(here.models.active, found)
    return page(
        "case.html", visitor, case=found, makers=makers, why=why, movers=movers, about=about, chances=chances
    )


def _known(connection: sa.Connection, case_id: str) -> bool:
    query = sa.select(t.cases.c.case_id).where(t.cases.c.case_id == case_id)
    return connection.execute(query).scalar() is not None


def _why(case: dict[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Everybody's loss and price, cheapest first, and the reason in a sentence."""
    assignment = case["assignment"]
    if assignment is None:
        return [], None
    reason, chosen = assignment["reason"], assignment["maker"]
    rows = [
        {"maker": m, "loss": loss, "price": reason["prices"].get(m, 0.0), "chosen": m == chosen}
        for m, loss in reason["losses"].items()
    ]
    rows = [{**r, "total": None if r["loss"] is None else r["loss"] + r["price"]} for r in rows]
    rows.sort(key=lambda r: (r["total"] is None, r["total"] or 0.0))
    mine = next((r for r in rows if r["chosen"]), None)
    if mine is None or mine["total"] is None:
        return rows, f"{chosen} has it."
    return rows, _sentence(rows, mine, reason)


def _sentence(rows: list[dict[str, Any]], mine: dict[str, Any], reason: dict[str, Any]) -> str:
    name = mine["maker"]
    if reason["method"] == "lot":
        return (
            f"{name} was drawn by lot (chance {reason['propensity']:.1%}): a few cases are, so that people "
            "can be compared on a fair sample."
        )
    others = [r for r in rows if not r["chosen"] and r["total"] is not None]
    if not others:
        return f"{name} has it; nobody else could have got it."
    best = min(others, key=lambda r: r["loss"])
    if mine["loss"] <= best["loss"]:
        return (
            f"{name} has the least expected loss, {mine['loss']:.4f}; "
            f"next is {best['maker']} with {best['loss']:.4f}."
        )
    return (
        f"{best['maker']} would lose less ({best['loss']:.4f} against {mine['loss']:.4f}), but "
        f"{best['maker']}'s time is worth {best['price']:.4f} per case elsewhere: together "
        f"{best['total']:.4f} against {mine['total']:.4f} for {name}."
    )


def _movers(
    model: Model | None, case: dict[str, Any]
) -> tuple[str | None, list[tuple[str, float]], dict[str, float] | None]:
    """What moved the estimate of the truth (log-odds), by the model in force; nothing where none can say."""
    if (
        model is None
        or not case["features"]
        or (case["assignment"] or {}).get("reason", {}).get("model") is None
    ):
        return None, [], None
    try:
        frame = pd.DataFrame([json.loads(json.dumps(case["features"]))])
        explained = model.system.explain(frame)
    except (DeccafError, ValueError, TypeError, KeyError):
        return None, [], None  # the case was scored by another model, with other features
    mine = explained.features[explained.features["about"] == "machine"]
    strongest = mine.loc[mine["total"].abs().sort_values(ascending=False).index].drop_duplicates("feature")
    top = strongest.head(MOVERS)
    rows = [
        (f"{name} = {value}", float(total))
        for name, value, total in zip(top["feature"], top["value"], top["total"], strict=True)
    ]
    chances = {str(name): float(chance) for name, chance in explained.chances.items()}
    return str(strongest["says"].iloc[0]) if len(strongest) else None, rows, chances
