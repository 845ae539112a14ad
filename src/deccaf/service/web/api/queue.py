"""The reviewer's day: the next case, a decision, or back with it."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.data.costs import MACHINE
from deccaf.service.decide.arrivals import placed_json
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.ledger import case_records, claims
from deccaf.service.store.fields import MAKER, Class, Maker, Strict
from deccaf.service.store.keys import Actor
from deccaf.service.web.api.case_json import case_json
from deccaf.service.web.api.common import (
    Anyone,
    IdempotencyKey,
    LeadOrReviewer,
    Limit,
    call_of,
    problems,
    send,
)
from deccaf.service.web.common import CasePath, Here, as_time, classes_of, known_class

router = APIRouter(prefix="/v1", tags=["queue"], responses=problems(404, 409))

OnBehalf = Annotated[str | None, Query(pattern=MAKER, description="A lead acts for this expert.")]


class Decision(Strict):
    """What was decided, and how long it took."""

    decision: Class
    seconds: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] | None = None
    expert: Maker | None = None
    """A lead decides for this expert; a machine's key decides as the machine."""


class HandBack(Strict):
    """Why a case goes back."""

    reason: Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")] = ""
    expert: Maker | None = None


class NextCase(Strict):
    """Ask for the next case."""

    expert: Maker | None = None


@router.post("/queue/next", responses={204: {"description": "Nothing is assigned to you now."}})
async def next_case(
    wanted: NextCase, request: Request, here: Here, who: LeadOrReviewer, key: IdempotencyKey = None
) -> Response:
    """Claim the next case; an open claim is given again. A claim that runs out goes to somebody else."""
    me = _expert(who, wanted.expert)

    def change(connection: sa.Connection, at: float) -> dict[str, Any] | None:
        claim = claims.claim_next(connection, me, who, at, here.claim_seconds)
        if claim is None:
            return None
        reviewer = Actor(who.key_id, "reviewer", me)
        case = case_records.read_case(connection, claim.case_id, reviewer)
        return {**case_json(case, reviewer), "claimed_until": as_time(claim.claimed_until)}

    answer = await here.change(await call_of(request, who, key), change)
    return send(answer)


@router.get("/queue")
def my_queue(here: Here, who: LeadOrReviewer, expert: OnBehalf = None, limit: Limit = 100) -> dict[str, Any]:
    """What is assigned to you, oldest first, and how far you are."""
    me = _expert(who, expert)
    queue = here.read(lambda connection: claims.read_queue(connection, me, limit))
    items = [
        {
            "case_id": case.case_id,
            "state": case.state,
            "assigned_at": as_time(case.assigned_at),
            "claimed_until": as_time(case.claimed_until),
        }
        for case in queue.items
    ]
    return {"expert": me, "waiting": queue.waiting, "decided": queue.decided, "items": items}


@router.post("/cases/{case_id}/decision")
async def decide(
    case_id: CasePath, wanted: Decision, request: Request, here: Here, who: Anyone, key: IdempotencyKey = None
) -> Response:
    """Decide a case that is yours; once.

    `let_through` says that a reject is let through by lot (see `[labels] let_through`): act as if the case
    had been accepted, and send its label when it is known.
    """
    me = MACHINE if who.role == "machine" else _expert(who, wanted.expert)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        decision = known_class(wanted.decision, classes_of(here))
        chance = claims.decide(connection, case_id, me, decision, wanted.seconds, who, at)
        answer = {"case_id": case_id, "status": "decided", "maker": me, "decision": wanted.decision}
        return answer if chance is None else {**answer, "let_through": True}

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/cases/{case_id}/hand-back")
async def hand_back(
    case_id: CasePath,
    wanted: HandBack,
    request: Request,
    here: Here,
    who: LeadOrReviewer,
    key: IdempotencyKey = None,
) -> Response:
    """Give a case back; it goes to the next best with room, or waits."""
    me = _expert(who, wanted.expert)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        placed = claims.hand_back(connection, case_id, me, wanted.reason, who, at, here.rng)
        if placed is None or who.role == "reviewer":
            return {"case_id": case_id, "status": "waiting" if placed is None else "assigned"}
        return placed_json(placed, None, None)

    return send(await here.change(await call_of(request, who, key), change))


def _expert(who: Actor, named: str | None) -> str:
    """Whose queue is meant: a reviewer's own, or the one that a lead names."""
    if who.role == "reviewer":
        if named is not None and named != who.expert:
            raise RefusedError(403, "not-yours", "a reviewer acts for nobody else")
        assert who.expert is not None
        return who.expert
    if named is None:
        raise invalid("no-expert", "a lead says for which expert")
    return named
