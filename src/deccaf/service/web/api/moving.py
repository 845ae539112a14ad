"""Moving work: reassignment, priority, coming back from an absence; what each costs, before it is done."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response

from deccaf.client.lead_answers import CameBack, Moved, PriorityChanged
from deccaf.service.ledger.moving import absence, priority, reassignment
from deccaf.service.ledger.moving.priority import Priority
from deccaf.service.ledger.moving.reassignment import Reassignment
from deccaf.service.ledger.moving.weighing import Weighed
from deccaf.service.store.fields import MAKER, Maker, Strict
from deccaf.service.web.api.common import IdempotencyKey, Lead, call_of, gives, problems, send
from deccaf.service.web.common import Here, Id

router = APIRouter(prefix="/v1", tags=["moving work"], responses=problems(404, 409))


class Back(Strict):
    """Somebody is back; with their work: what their absence took away and nobody has begun."""

    maker: Maker
    with_work: bool = True


@router.post("/reassignments/preview", responses=gives(Moved), operation_id="preview_reassignment")
def preview(wanted: Reassignment, here: Here, who: Lead) -> dict[str, Any]:
    """Who would get the cases, and their expected loss before and after. Nothing is written."""
    return weighed_json(here.read(lambda connection: reassignment.preview(connection, wanted)))


@router.post("/reassignments", responses=gives(Moved))
async def reassign(
    wanted: Reassignment, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Move open cases to a person, or to the best with room by loss and price.

    What cannot be moved stays, and `refused` says why; where nothing can, the answer is 409.
    """

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return weighed_json(reassignment.reassign(connection, wanted, who, at))

    return send(await here.change(await call_of(request, who, key), change))


@router.post("/priorities", responses=gives(PriorityChanged))
async def set_priority(
    wanted: Priority, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say how urgent cases are; queues are worked through in this order, then the oldest first."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        changed = priority.set_priority(connection, wanted, who, at)
        return {"priority": wanted.priority, "changed": changed}

    return send(await here.change(await call_of(request, who, key), change))


@router.get("/shifts/{shift_id}/absence", responses=gives(Moved))
def preview_absence(
    shift_id: Id, here: Here, who: Lead, maker: Annotated[str, Query(pattern=MAKER)]
) -> dict[str, Any]:
    """Where somebody's cases would go if they left now; those in `refused` would wait."""
    return weighed_json(here.read(lambda c: absence.preview_absence(c, shift_id, maker)))


@router.post("/shifts/{shift_id}/return", responses=gives(CameBack))
async def come_back(
    shift_id: Id, wanted: Back, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Undo an absence: what it took away and is still open and unclaimed goes back, as room allows."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        found = absence.come_back(connection, shift_id, wanted.maker, wanted.with_work, who, at)
        return {"maker": wanted.maker, "returned": found.count, "kept": found.kept}

    return send(await here.change(await call_of(request, who, key), change))


def weighed_json(found: Weighed) -> dict[str, Any]:
    """A move as JSON."""
    return {
        "moved": [
            {
                "case_id": move.case_id,
                "from": move.holding.live.maker,
                "to": move.maker,
                "before": move.before,
                "after": move.after,
            }
            for move in found.moves
        ],
        "refused": [{"case_id": refusal.case_id, "why": refusal.why} for refusal in found.refused],
        "before": found.before,
        "after": found.after,
    }
