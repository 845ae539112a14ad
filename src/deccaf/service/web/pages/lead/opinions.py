"""*Second opinions*: which cases get one, and the cases on which people disagree, for the lead's word."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from deccaf.data.second import SecondTable
from deccaf.service.errors import invalid
from deccaf.service.ledger import people
from deccaf.service.ledger.review import lead_word, opinion, second
from deccaf.service.ledger.review.lead_word import Listed
from deccaf.service.web.common import Here, number
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.casework import facts
from deccaf.service.web.pages.casework.facts import Look
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

SHOWN = 25


@dataclass(frozen=True)
class Open:
    """A case on the list as it is shown, and who else could be asked."""

    case: Listed
    look: Look


@router.get("/opinions")
def opinions(here: Here, visitor: LeadHere, done: str = "") -> Response:
    """The rule, and the list with all answers side by side."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        return {
            "rule": second.read_rule(connection),
            "found": lead_word.lead_list(connection, SHOWN),
            "count": lead_word.waiting_for_lead(connection),
            "display": opinion.read_display(connection),
            "team": [one for one in people.list_experts(connection) if one.active],
        }

    read = here.read(look)
    listed = [
        Open(one, facts.look(one.case_id, one.features, read["display"], here.models.active))
        for one in read.pop("found")
    ]
    hosts = tuple(dict.fromkeys(host for one in listed for host in one.look.hosts))
    return page("opinions.html", visitor, images=hosts, listed=listed, done=done[:300], **read)


@router.post("/opinions/rule")
async def keep_rule(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Say which cases get a second opinion."""
    form = await checked_form(request, visitor)
    wanted = {
        "share": (number("share", form.get("share")) or 0.0) / 100.0,
        "above": number("expected loss", form.get("above")),
        "disagreement": form.get("disagreement", "third"),
    }
    try:
        rule = SecondTable.model_validate(wanted)
    except ValidationError as error:
        raise invalid("bad-rule", "the share is between 0 and 100 %, the loss not below 0") from error
    await here.writer.run(lambda c: second.write_rule(c, rule, visitor.actor, time.time()))
    return go("/opinions?done=rule")


@router.post("/opinions/settle")
async def settle(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Make an answer the decision, or ask one more person."""
    form = await checked_form(request, visitor)
    case_id, who = str(form.get("case", "")), visitor.actor

    def change(connection: sa.Connection) -> str:
        if form.get("do") == "ask":
            lead_word.ask_one_more(connection, case_id, str(form.get("to", "")) or None, who, time.time())
            return "asked"
        lead_word.settle(connection, case_id, str(form.get("decision", "")), who, time.time())
        return "settled"

    return go(f"/opinions?done={await here.writer.run(change)}")
