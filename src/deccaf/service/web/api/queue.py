"""The reviewer's day: the next case, a decision, or back with it."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.data.costs import MACHINE
from deccaf.service.decide.arrivals import shown
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t
from deccaf.service.web.api.cases import shown_case
from deccaf.service.web.api.common import (
    MAKER,
    Anyone,
    CasePath,
    Class,
    Here,
    IdempotencyKey,
    LeadOrReviewer,
    Limit,
    Maker,
    Strict,
    as_time,
    call_of,
    known_class,
    problems,
    send,
)

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
    wish: NextCase, request: Request, here: Here, who: LeadOrReviewer, key: IdempotencyKey = None
) -> Response:
    """Claim the next case; an open claim is given again. A claim that runs out goes to somebody else."""
    me = _expert(who, wish.expert)

    def change(connection: sa.Connection, at: float) -> dict[str, Any] | None:
        claim = ledger.claim_next(connection, me, who, at, here.claim_seconds)
        if claim is None:
            return None
        case = shown_case(connection, claim["case_id"], Actor(who.key_id, "reviewer", me))
        return {**case, "claimed_until": as_time(claim["claimed_until"])}

    answer = await here.change(await call_of(request, who, key), change)
    return Response(status_code=204) if answer.body == "null" else send(answer)


@router.get("/queue")
def my_queue(here: Here, who: LeadOrReviewer, expert: OnBehalf = None, limit: Limit = 100) -> dict[str, Any]:
    """What is assigned to you, oldest first, and how far you are."""
    me = _expert(who, expert)

    def look(connection: sa.Connection) -> dict[str, Any]:
        c = t.assignments.c
        counted = (
            sa.select(c.state, sa.func.count()).where(c.maker == me, c.state.in_(t.LIVE)).group_by(c.state)
        )
        counts: dict[str, int] = dict(connection.execute(counted).all())
        query = sa.select(*c["case_id", "state", "created_at", "claimed_until"]).where(
            c.maker == me, c.state.in_(("assigned", "claimed"))
        )
        rows = connection.execute(query.order_by(c.id).limit(limit)).all()
        items = [
            {
                "case_id": row.case_id,
                "state": row.state,
                "assigned_at": as_time(row.created_at),
                "claimed_until": as_time(row.claimed_until),
            }
            for row in rows
        ]
        waiting = counts.get("assigned", 0) + counts.get("claimed", 0)
        return {"expert": me, "waiting": waiting, "decided": counts.get("decided", 0), "items": items}

    return here.read(look)


@router.post("/cases/{case_id}/decision")
async def decide(
    case_id: CasePath, wish: Decision, request: Request, here: Here, who: Anyone, key: IdempotencyKey = None
) -> Response:
    """Decide a case that is yours; once."""
    me = MACHINE if who.role == "machine" else _expert(who, wish.expert)
    classes = here.models.active.classes if here.models.active else ()
    said = known_class(wish.decision, classes)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        ledger.decide(connection, case_id, me, said, wish.seconds, who, at)
        return {"case_id": case_id, "status": "decided", "maker": me, "decision": wish.decision}

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/cases/{case_id}/hand-back")
async def hand_back(
    case_id: CasePath,
    wish: HandBack,
    request: Request,
    here: Here,
    who: LeadOrReviewer,
    key: IdempotencyKey = None,
) -> Response:
    """Give a case back; it goes to the next best with room, or waits."""
    me = _expert(who, wish.expert)

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        placed = ledger.hand_back(connection, case_id, me, wish.reason, who, at, here.rng)
        if placed is None or who.role == "reviewer":
            return {"case_id": case_id, "status": "waiting" if placed is None else "assigned"}
        return shown(placed, None, None)

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
