"""*Case*: what is known about it, who was chosen and why, what moved the estimate, what happened."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from fastapi import APIRouter, Response

from deccaf.errors import DeccafError
from deccaf.planning.reason import reason
from deccaf.service.decide.registry import Model
from deccaf.service.ledger import case_records, people
from deccaf.service.ledger.assignments import Live, Reason
from deccaf.service.ledger.case_records import CaseFile
from deccaf.service.ledger.review import opinion
from deccaf.service.web.common import CasePath, Here
from deccaf.service.web.pages import words
from deccaf.service.web.pages.access import AnyoneHere, Visitor
from deccaf.service.web.pages.casework import facts
from deccaf.service.web.pages.render import PageRoute, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOVERS = 6


@dataclass(frozen=True)
class MakerRow:
    """What somebody would have cost."""

    maker: str
    loss: float | None
    aim: float | None
    """What the choice minimised: the loss, or the objective of the model's method."""
    price: float
    chosen: bool

    @property
    def total(self) -> float | None:
        """What the choice minimised and the price together."""
        return None if self.aim is None else self.aim + self.price


@dataclass(frozen=True)
class Movers:
    """What moved the estimate of the truth (log-odds), by the model in force; empty where it cannot say."""

    about: str | None = None
    rows: list[tuple[str, float]] = field(default_factory=list)
    chances: dict[str, float] = field(default_factory=dict)


@router.get("/cases/{case_id:path}")
def case(case_id: CasePath, here: Here, visitor: AnyoneHere) -> Response:
    """One case; a reviewer sees only what is theirs, and nobody else's losses."""
    found = here.read(lambda connection: case_records.read_case(connection, case_id, visitor.actor))
    display = here.read(opinion.read_display)
    look = facts.look(case_id, found.features, display, here.models.active)
    same: dict[str, Any] = {"found": found, "look": look, "display": display}
    if not visitor.is_lead or found.live is None or found.reason is None:
        nothing: dict[str, Any] = {"makers": [], "why": None, "movers": Movers(), "team": []}
        return page("case.html", visitor, images=look.hosts, **same, **nothing)
    team = [one for one in here.read(people.list_experts) if one.active]
    makers, why = _makers(found.live, found.reason), _why(found.live, found.reason, visitor)
    movers = _movers(here.models.active, found)
    more: dict[str, Any] = {"makers": makers, "why": why, "movers": movers, "team": team}
    return page("case.html", visitor, images=look.hosts, **same, **more)


def _makers(live: Live, why: Reason) -> list[MakerRow]:
    """Everybody's loss and price, cheapest first."""
    aims = why.losses if why.objective is None else why.objective
    rows = [
        MakerRow(maker, loss, aims[maker], why.prices.get(maker, 0.0), maker == live.maker)
        for maker, loss in why.losses.items()
    ]
    return sorted(rows, key=lambda row: (row.total is None, row.total or 0.0))


def _why(live: Live, why: Reason, visitor: Visitor) -> str:
    drawn = why.propensity if why.method == "lot" else None
    called = visitor.called
    aim = None
    if why.objective is not None:
        aim = {called(m): v for m, v in why.objective.items() if v is not None}
    losses = {called(m): loss for m, loss in why.losses.items()}
    prices = {called(m): price for m, price in why.prices.items()}
    return reason(losses, prices, called(live.maker), objective=aim, drawn=drawn)


def _movers(model: Model | None, found: CaseFile) -> Movers:
    if model is None or not found.features or found.reason is None or found.reason.model is None:
        return Movers()
    try:
        explained = model.system.explain(pd.DataFrame([json.loads(json.dumps(found.features))]))
    except (DeccafError, ValueError, TypeError, KeyError):
        return Movers()  # the case was scored by another model, with other features
    mine = explained.features[explained.features["about"] == "machine"]
    strongest = mine.loc[mine["total"].abs().sort_values(ascending=False).index].drop_duplicates("feature")
    top = strongest.head(MOVERS)
    rows = [
        (f"{name} = {words.fact(value)}", float(total))
        for name, value, total in zip(top["feature"], top["value"], top["total"], strict=True)
    ]
    chances = {str(name): float(chance) for name, chance in explained.chances.items()}
    return Movers(str(strongest["says"].iloc[0]) if len(strongest) else None, rows, chances)
