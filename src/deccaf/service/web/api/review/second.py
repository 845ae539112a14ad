"""Second opinions: which cases get one, and the lead's word where people disagree."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import Field

from deccaf.client.answers import All, Placed
from deccaf.client.lead_answers import Disagreement, SecondWanted
from deccaf.data.second import SecondTable
from deccaf.service.ledger.review import lead_word, second
from deccaf.service.ledger.review.lead_word import Listed
from deccaf.service.store.fields import CaseId, Class, Maker, Strict, known_class
from deccaf.service.web.api.common import IdempotencyKey, Lead, call_of, gives, problems, send
from deccaf.service.web.common import Here, as_time, classes_of

router = APIRouter(prefix="/v1", tags=["second opinions"], responses=problems(404, 409))


class Wanted(Strict):
    """Cases that a second person should decide too."""

    case_ids: Annotated[list[CaseId], Field(min_length=1, max_length=1_000)]


class Settled(Strict):
    """Which of the answers is the decision."""

    case_id: CaseId
    decision: Class


class OneMore(Strict):
    """Who is asked next about a case; nobody named: the best with room."""

    case_id: CaseId
    to: Maker | None = None


@router.get("/second-opinions", responses=gives(SecondTable), operation_id="get_second_opinions")
def get_rule(here: Here, who: Lead) -> dict[str, Any]:
    """Which cases get a second opinion: the table `[second]` of a configuration."""
    return here.read(second.read_rule).model_dump()


@router.put("/second-opinions", responses=gives(SecondTable), operation_id="put_second_opinions")
async def put_rule(
    wanted: SecondTable, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say which cases get a second opinion, and what happens where two people disagree."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        second.write_rule(connection, wanted, who, at)
        return wanted.model_dump()

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/second-opinions/wanted", responses=gives(SecondWanted), operation_id="want_second_opinion")
async def want(
    wanted: Wanted, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Ask for a second opinion on cases that nobody has decided yet, whatever the rule says."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return {"changed": second.want(connection, wanted.case_ids, who, at)}

    return send(await here.change(await call_of(request, who, key), change))


@router.get("/disagreements", responses=gives(All[Disagreement]))
def list_disagreements(here: Here, who: Lead) -> dict[str, Any]:
    """Cases that wait for the lead's word, the oldest first, with everybody's answer."""
    return {"items": [_listed(one) for one in here.read(lead_word.lead_list)]}


@router.post("/disagreements/settle", responses=gives(Placed), operation_id="settle_disagreement")
async def settle(
    wanted: Settled, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Make one of the answers the decision. `let_through` says the same as with any decision."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        decision = known_class(wanted.decision, classes_of(here))
        chosen, chance = lead_word.settle(connection, wanted.case_id, decision, who, at)
        facts = {"case_id": wanted.case_id, "status": "decided", "maker": chosen.maker}
        answer = {**facts, "decision": wanted.decision}
        return answer if chance is None else {**answer, "let_through": True}

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/disagreements/ask", responses=gives(Placed), operation_id="ask_one_more")
async def ask(
    wanted: OneMore, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Ask one more person, who sees no more than the others did."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        maker = lead_word.ask_one_more(connection, wanted.case_id, wanted.to, who, at)
        return {"case_id": wanted.case_id, "status": "assigned", "maker": maker}

    return send(await here.change(await call_of(request, who, key), change))


def _listed(found: Listed) -> dict[str, Any]:
    return {
        "case_id": found.case_id,
        "since": as_time(found.since),
        "why": found.why,
        "features": found.features,
        "label": found.label,
        "machine": found.machine,
        "answers": [
            {"maker": one.maker, "decision": one.said, "at": as_time(one.at)} for one in found.answers
        ],
    }
