"""*Webhooks*: the addresses that are told what happens, what they were told last, and telling it again."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from deccaf.service.errors import invalid
from deccaf.service.ledger.webhooks import changes, hooks, outbox
from deccaf.service.ledger.webhooks.hooks import TOLD
from deccaf.service.web.common import Here, Id
from deccaf.service.web.pages.access import LeadHere, Visitor, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_ROWS = 100
_WORDS = {
    "case.assigned": "a case is assigned",
    "case.decided": "a case is decided",
    "case.undone": "a decision is taken back",
    "case.labelled": "the truth of a case is known",
    "alert.raised": "an alert is raised",
    "plan.committed": "a plan is committed",
    "model.activated": "a model is put in force",
}


@router.get("/webhooks")
def webhooks(here: Here, visitor: LeadHere) -> Response:
    """Addresses and the latest deliveries."""
    return _page(here, visitor)


@router.post("/webhooks")
async def add(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Tell an address from now on; its secret is shown on the page that follows, once."""
    form = await checked_form(request, visitor)
    url = str(form.get("url", "")).strip()[:2000]
    kinds = tuple(kind for kind in TOLD if form.get(kind) == "yes")
    if not kinds:
        raise invalid("no-events", "say of what the address is told; nothing was changed")

    made = await here.writer.run(lambda c: changes.add(c, url, kinds, visitor.actor, time.time()))
    hooks.forget(here.engine)
    return _page(here, visitor, made.secret)


@router.post("/webhooks/{webhook_id}/end")
async def end(webhook_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Tell an address no more."""
    await checked_form(request, visitor)
    await here.writer.run(lambda c: changes.end(c, webhook_id, visitor.actor, time.time()))
    hooks.forget(here.engine)
    return go("/webhooks")


@router.post("/webhooks/deliveries/{delivery_id}/send-again")
async def send_again(delivery_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Tell it once more, with the same id."""
    await checked_form(request, visitor)
    await here.writer.run(lambda c: outbox.send_again(c, delivery_id, time.time()))
    return go("/webhooks")


def _page(here: Here, visitor: Visitor, secret: str | None = None) -> Response:
    told, found = here.read(lambda c: (hooks.list_hooks(c), outbox.latest(c, MOST_ROWS)))
    addresses = {hook.id: hook.shown for hook in told}
    return page(
        "webhooks.html",
        visitor,
        hooks=[hook for hook in told if hook.ended_at is None],
        found=found,
        addresses=addresses,
        events=_WORDS,
        secret=secret,
    )
