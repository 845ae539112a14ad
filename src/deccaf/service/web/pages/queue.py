"""*Queue*: a reviewer's next case, a decision with one key, and how far they are."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response

from deccaf.service.core import Service
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.ledger import ledger
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import MAKER, Here, as_json, known_class
from deccaf.service.web.pages.access import AnyoneHere, Visitor, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LONGEST = 100_000.0


@router.get("/queue")
def queue(here: Here, visitor: AnyoneHere, expert: str | None = Query(None, pattern=MAKER)) -> Response:
    """The case in hand, or the way to the next one. A lead chooses whose queue to look at."""
    if visitor.is_lead and expert is None:
        return page("queues.html", visitor, queues=here.read(_all_queues))
    me = _whose(visitor, expert)
    found = here.read(lambda connection: _look(connection, me, time.time()))
    classes = here.models.active.classes if here.models.active else (0, 1)
    return page("queue.html", visitor, me=me, classes=classes, now=time.time(), **found)


@router.post("/queue/next")
async def take(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Take the next case."""
    form = await checked_form(request, visitor)
    me = _whose(visitor, _text(form.get("expert")))
    await here.writer.run(lambda c: ledger.claim_next(c, me, visitor.actor, time.time(), here.claim_seconds))
    return go(_back(visitor, me))


@router.post("/queue/decide")
async def decide(request: Request, here: Here, visitor: AnyoneHere) -> Response:
    """Write the decision down, and take the next case at once."""
    form = await checked_form(request, visitor)
    me, case_id = _whose(visitor, _text(form.get("expert"))), str(form.get("case", ""))
    seconds = _seconds(form.get("shown"))
    said = None if form.get("back") else _decision(here, form.get("decision"))

    def change(connection: sa.Connection) -> None:
        at = time.time()
        if said is None:
            ledger.hand_back(connection, case_id, me, "handed back", visitor.actor, at, here.rng)
        else:
            ledger.decide(connection, case_id, me, said, seconds, visitor.actor, at)
        ledger.claim_next(connection, me, visitor.actor, at, here.claim_seconds)

    await here.writer.run(change)
    return go(_back(visitor, me))


def _look(connection: sa.Connection, me: str, at: float) -> dict[str, Any]:
    a, d = t.assignments.c, t.decisions.c
    shift = ledger.current_shift(connection, at)
    since = 0.0
    if shift is not None:
        since = connection.execute(sa.select(t.shifts.c.starts_at).where(t.shifts.c.id == shift)).scalar_one()
    claimed = sa.select(a.case_id).where(a.maker == me, a.state == "claimed", a.claimed_until > at)
    case_id = connection.execute(claimed.order_by(a.id).limit(1)).scalar()
    case = None
    if case_id is not None:
        row = connection.execute(sa.select(t.cases).where(t.cases.c.case_id == case_id)).one()
        case = {"case_id": row.case_id, "features": as_json(row.features), "arrived_at": row.arrived_at}
    counted = sa.select(sa.func.count()).where(a.maker == me, a.state.in_(("assigned", "claimed")))
    done = sa.select(sa.func.count(), sa.func.avg(d.seconds)).where(d.maker == me, d.at >= since)
    decided, seconds = connection.execute(done).one()
    waiting = connection.execute(counted).scalar_one()
    latest = sa.select(*d["case_id", "decision", "at"]).where(d.maker == me).order_by(d.at.desc()).limit(5)
    return {
        "case": case,
        "waiting": waiting,
        "decided": decided,
        "seconds": seconds,
        "latest": [(r.case_id, as_json(r.decision), r.at) for r in connection.execute(latest)],
    }


def _all_queues(connection: sa.Connection) -> list[Any]:
    a, e = t.assignments.c, t.experts.c
    counted = (
        sa.select(a.maker, sa.func.count().label("cases"), sa.func.min(a.created_at).label("oldest"))
        .where(a.state.in_(("assigned", "claimed")))
        .group_by(a.maker)
        .subquery()
    )
    query = sa.select(e.name, e.display, counted.c.cases, counted.c.oldest).outerjoin_from(
        t.experts, counted, counted.c.maker == e.name
    )
    return list(connection.execute(query.where(e.active).order_by(e.name)).all())


def _whose(visitor: Visitor, named: str | None) -> str:
    if visitor.actor.role == "reviewer":
        if named not in (None, "", visitor.actor.expert):
            raise RefusedError(403, "not-yours", "a reviewer acts for nobody else")
        assert visitor.actor.expert is not None
        return visitor.actor.expert
    if not named:
        raise invalid("no-expert", "say whose queue this is")
    return named


def _decision(here: Service, given: Any) -> str:
    """The place of a button in the model's classes, as the decision that it stands for."""
    classes = here.models.active.classes if here.models.active else (0, 1)
    if not isinstance(given, str) or not given.isdigit() or int(given) >= len(classes):
        raise invalid("no-decision", "choose one of the decisions")
    return known_class(classes[int(given)], classes)


def _seconds(shown: Any) -> float | None:
    try:
        return min(max(time.time() - float(shown), 0.0), _LONGEST)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _back(visitor: Visitor, me: str) -> str:
    return f"/queue?expert={me}" if visitor.is_lead else "/queue"
