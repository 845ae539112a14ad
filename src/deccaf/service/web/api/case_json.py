"""A case as JSON, for everybody who may see it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from deccaf.service.ledger.assignments import Live, Reason
from deccaf.service.ledger.case_records import Case, CaseFile
from deccaf.service.ledger.moving.priority import NAMES
from deccaf.service.store.keys import Actor
from deccaf.service.web.common import as_time


def brief_json(case: Case) -> dict[str, Any]:
    """A case in a list."""
    return {
        "id": case.id,
        "case_id": case.case_id,
        "status": case.status,
        "arrived_at": as_time(case.arrived_at),
        "label": case.label,
    }


def case_json(found: CaseFile, who: Actor) -> dict[str, Any]:
    """Everything on record about a case; a reviewer sees no label, no losses and no history."""
    due = {} if found.due is None else {"due": as_time(found.due)}
    facts = {**brief_json(found.case), "features": found.features, **due}
    if who.role == "reviewer":
        assert found.live is not None, "a reviewer sees only what is theirs"
        return {**facts, "label": None, "claimed_until": as_time(found.live.claimed_until)}
    decision = found.decision
    return {
        **facts,
        "excluded": found.excluded,
        "priority": NAMES[found.priority],
        **({} if found.waiting_cost is None else {"waiting_cost": found.waiting_cost}),
        "assignment": None if found.live is None else _assignment(found.live, found.reason),
        "decision": None if decision is None else {**asdict(decision), "at": as_time(decision.at)},
        "history": [
            {"at": as_time(e.at), "kind": e.kind, "maker": e.maker, "key": e.key, "data": e.data}
            for e in found.events
        ],
    }


def _assignment(live: Live, reason: Reason | None) -> dict[str, Any]:
    return {
        "maker": live.maker,
        "state": live.state,
        "shift": live.shift_id,
        "expected_loss": live.expected_loss,
        "price": live.price,
        "created_at": as_time(live.created_at),
        "claimed_until": as_time(live.claimed_until),
        "reason": None if reason is None else _reason(reason),
    }


def _reason(reason: Reason) -> dict[str, Any]:
    """With the objective only where it is not the loss."""
    found = asdict(reason)
    if reason.objective is None:
        del found["objective"]
    return found
