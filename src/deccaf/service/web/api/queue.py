"""The reviewer's day: the next case, a decision, or back with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from deccaf.client.answers import CaseInHand, Claimed, FirstAnswered, NoteMade, Parked, Placed, Queue
from deccaf.data.costs import MACHINE
from deccaf.service.core import Service
from deccaf.service.decide.arrivals import placed_json
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.ledger import assignments, case_records, claims
from deccaf.service.ledger.claims import Claim
from deccaf.service.ledger.review import opinion, parking, second, undo
from deccaf.service.store.fields import MAKER, Class, Maker, Strict, known_class
from deccaf.service.store.keys import Actor
from deccaf.service.web.api.case_json import case_json
from deccaf.service.web.api.common import (
    Anyone,
    IdempotencyKey,
    LeadOrReviewer,
    Limit,
    call_of,
    gives,
    problems,
    send,
)
from deccaf.service.web.common import CasePath, Here, as_time, classes_of

router = APIRouter(prefix="/v1", tags=["queue"], responses=problems(404, 409))

OnBehalf = Annotated[str | None, Query(pattern=MAKER, description="A lead acts for this expert.")]


class Decision(Strict):
    """What was decided, and how long it took."""

    decision: Class
    seconds: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] | None = None
    expert: Maker | None = None
    """A lead decides for this expert; a machine's key decides as the machine."""


class FirstAnswer(Strict):
    """What somebody would decide, before they see what the machine thinks."""

    decision: Class
    expert: Maker | None = None


class HandBack(Strict):
    """Why a case goes back."""

    reason: Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")] = ""
    expert: Maker | None = None


class Named(Strict):
    """For whom a lead acts; a reviewer need not say."""

    expert: Maker | None = None


class Note(Strict):
    """Something worth knowing about a case."""

    text: Annotated[str, Field(min_length=1, max_length=parking.LONGEST_NOTE, pattern=r"^[^\x00]*$")]
    expert: Maker | None = None


class NextCase(Strict):
    """Ask for the next case."""

    expert: Maker | None = None


@dataclass(frozen=True)
class Work:
    """A change that somebody makes about their own queue, or a lead for them."""

    request: Request
    here: Service
    who: Actor
    key: str | None

    async def do(
        self, me: str, change: Callable[[sa.Connection, str, float], dict[str, Any] | None], status: int = 200
    ) -> Response:
        """Make the change for somebody once, whatever is sent again, and answer."""
        call = await call_of(self.request, self.who, self.key)
        return send(await self.here.change(call, lambda c, at: change(c, me, at), status))


async def _work(request: Request, here: Here, who: LeadOrReviewer, key: IdempotencyKey = None) -> Work:
    return Work(request, here, who, key)


async def _work_of_anyone(request: Request, here: Here, who: Anyone, key: IdempotencyKey = None) -> Work:
    return Work(request, here, who, key)


Mine = Annotated[Work, Depends(_work)]
"""What all routes of a reviewer share."""


@router.post(
    "/queue/next",
    responses=gives(CaseInHand) | {204: {"description": "Nothing is assigned to you now."}},
    operation_id="claim_next_case",
)
async def next_case(wanted: NextCase, work: Mine) -> Response:
    """Claim the next case; an open claim is given again. A claim that runs out goes to somebody else."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any] | None:
        claim = claims.claim_next(connection, me, work.who, at, work.here.claim_seconds)
        if claim is None:
            return None
        reviewer = Actor(work.who.key_id, "reviewer", me)
        case = case_records.read_case(connection, claim.case_id, reviewer)
        says = None if case.live is None else case.live.machine_says
        machine = opinion.visible(connection, claim.case_id, me, says)
        until = as_time(claim.claimed_until)
        return {**case_json(case, reviewer), "claimed_until": until, "machine": machine}

    return await work.do(_expert(work.who, wanted.expert), change)


@router.get("/queue", responses=gives(Queue), operation_id="get_queue")
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
            "parked_until": as_time(case.parked_until),
            **({} if case.due is None else {"due": as_time(case.due)}),
        }
        for case in queue.items
    ]
    return {"expert": me, "waiting": queue.waiting, "decided": queue.decided, "items": items}


@router.post("/cases/{case_id:path}/decision", responses=gives(Placed), operation_id="decide_case")
async def decide(
    case_id: CasePath, wanted: Decision, work: Annotated[Work, Depends(_work_of_anyone)]
) -> Response:
    """Decide a case that is yours; once.

    `let_through` says that a reject is let through by lot (see `[labels] let_through`): act as if the case
    had been accepted, and send its label when it is known.
    """
    who = work.who

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        decision = known_class(wanted.decision, classes_of(work.here))
        chance = claims.decide(connection, case_id, me, decision, wanted.seconds, who, at)
        answer = {"case_id": case_id, "status": "decided", "maker": me, "decision": wanted.decision}
        if who.role == "lead" and second.answer_of(connection, case_id, me) is not None:
            answer["status"] = "assigned"  # others are asked too, which nobody who is asked should know
        return answer if chance is None else {**answer, "let_through": True}

    return await work.do(MACHINE if who.role == "machine" else _expert(who, wanted.expert), change)


@router.post("/cases/{case_id:path}/first-answer", responses=gives(FirstAnswered))
async def answer_first(case_id: CasePath, wanted: FirstAnswer, work: Mine) -> Response:
    """Where the machine is shown after the first answer: say yours, and see what it would decide."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        decision = known_class(wanted.decision, classes_of(work.here))
        opinion.answer_first(connection, case_id, me, decision, work.who, at)
        live = assignments.live_of(connection, case_id)
        machine = opinion.visible(connection, case_id, me, None if live is None else live.machine_says)
        first = opinion.first_answer(connection, case_id, me)
        return {"case_id": case_id, "first": first, "machine": machine}

    return await work.do(_expert(work.who, wanted.expert), change)


@router.post("/cases/{case_id:path}/hand-back", responses=gives(Placed), operation_id="hand_back_case")
async def hand_back(case_id: CasePath, wanted: HandBack, work: Mine) -> Response:
    """Give a case back; it goes to the next best with room, or waits."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        placed = claims.hand_back(connection, case_id, me, wanted.reason, work.who, at, work.here.rng)
        if placed is None or work.who.role == "reviewer":
            return {"case_id": case_id, "status": "waiting" if placed is None else "assigned"}
        return placed_json(placed, None, None)

    return await work.do(_expert(work.who, wanted.expert), change)


@router.post("/cases/{case_id:path}/undo", responses=gives(Claimed))
async def undo_decision(case_id: CasePath, wanted: Named, work: Mine) -> Response:
    """Take back your last decision, for ten minutes: the case is in your hands again, both stay on record."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        return _claim(undo.undo(connection, case_id, me, work.who, at, work.here.claim_seconds))

    return await work.do(_expert(work.who, wanted.expert), change)


@router.post("/cases/{case_id:path}/park", responses=gives(Parked), operation_id="park_case")
async def park(case_id: CasePath, wanted: HandBack, work: Mine) -> Response:
    """Put a case aside: it stays yours, and does not come up again before you take it up or a day is over."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        until = parking.park(connection, case_id, me, wanted.reason, work.who, at)
        return {"case_id": case_id, "status": "assigned", "parked_until": as_time(until)}

    return await work.do(_expert(work.who, wanted.expert), change)


@router.post("/cases/{case_id:path}/take-up", responses=gives(Claimed), operation_id="take_up_case")
async def take_up(case_id: CasePath, wanted: Named, work: Mine) -> Response:
    """Take a case of your queue in hand, parked or not; the one that you had goes back to your queue."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        return _claim(parking.take_up(connection, case_id, me, work.who, at, work.here.claim_seconds))

    return await work.do(_expert(work.who, wanted.expert), change)


@router.post("/cases/{case_id:path}/extend", responses=gives(Claimed), operation_id="extend_claim")
async def extend(case_id: CasePath, wanted: Named, work: Mine) -> Response:
    """More time for the case in hand, counted from now."""

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        return _claim(parking.extend(connection, case_id, me, work.who, at, work.here.claim_seconds))

    return await work.do(_expert(work.who, wanted.expert), change)


@router.post(
    "/cases/{case_id:path}/note",
    status_code=201,
    responses=gives(NoteMade, 201),
    operation_id="add_case_note",
)
async def add_note(case_id: CasePath, wanted: Note, work: Mine) -> Response:
    """Write something down about a case, in its trail: a reviewer about their own, a lead about any."""
    by = wanted.expert if work.who.role == "lead" else _expert(work.who, wanted.expert)

    def change(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
        parking.add_note(connection, case_id, by, wanted.text, work.who, at)
        return {"case_id": case_id, "by": by, "text": wanted.text}

    return await work.do(by or "", change, 201)


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "case_id": claim.case_id,
        "status": "assigned",
        "claimed_until": as_time(claim.claimed_until),
    }


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
