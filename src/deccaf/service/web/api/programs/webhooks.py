"""Webhooks: which addresses are told what, what they were told, and telling it again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deccaf.client.answers import Page
from deccaf.client.lead_answers import Delivery as DeliveryAnswer
from deccaf.client.lead_answers import Webhook, WebhookMade, Webhooks
from deccaf.service.ledger.webhooks import changes, hooks, outbox
from deccaf.service.ledger.webhooks.hooks import Hook, Told
from deccaf.service.ledger.webhooks.outbox import Delivery
from deccaf.service.store.fields import Strict
from deccaf.service.web.api.common import After, IdempotencyKey, Lead, Limit, call_of, gives, problems, send
from deccaf.service.web.common import Here, Id, as_time

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], responses=problems(404, 409))

Address = Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s\x00-\x20]+$")]


class NewWebhook(Strict):
    """An address, and what it is told."""

    url: Address = Field(examples=["https://example.org/deccaf"])
    events: Annotated[list[Told], Field(min_length=1, max_length=len(hooks.TOLD))] = Field(
        default_factory=lambda: list(hooks.TOLD)  # type: ignore[arg-type]
    )


@router.post("", status_code=201, responses=gives(WebhookMade, 201))
async def add_webhook(
    wanted: NewWebhook, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Tell an address what happens from now on. The secret that signs it is in this answer only."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return _hook(changes.add(connection, wanted.url, tuple(dict.fromkeys(wanted.events)), who, at))

    answer = await here.change(await call_of(request, who, key), change, 201)
    hooks.forget(here.engine)
    made = json.loads(answer.body)
    told = await to_thread.run_sync(here.read, hooks.list_hooks)
    secret = next(hook.secret for hook in told if hook.id == made["id"])
    return send(replace(answer, body=json.dumps({**made, "secret": secret})))


@router.get("", responses=gives(Webhooks))
def list_webhooks(here: Here, who: Lead) -> dict[str, Any]:
    """All addresses, those that were ended too."""
    return {"items": [_hook(hook) for hook in here.read(hooks.list_hooks)]}


@router.delete("/{webhook_id}", responses=gives(Webhook))
async def end_webhook(
    webhook_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Tell an address no more; what waits for it is given up."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        ended = changes.end(connection, webhook_id, who, at)
        return _hook(replace(ended, ended_at=ended.ended_at or at))

    answer = await here.change(await call_of(request, who, key), change)
    hooks.forget(here.engine)
    return send(answer)


@router.get("/deliveries", responses=gives(Page[DeliveryAnswer]))
def list_deliveries(
    here: Here,
    who: Lead,
    webhook: Annotated[int | None, Query(ge=1, le=2**31, description="Of one address only.")] = None,
    limit: Limit = 100,
    after: After = None,
) -> dict[str, Any]:
    """What addresses were told, the newest first; kept for a week."""
    found = here.read(lambda c: outbox.latest(c, limit, after, webhook))
    return {
        "items": [delivery_json(one) for one in found],
        "next": found[-1].id if len(found) == limit else None,
    }


@router.post("/deliveries/{delivery_id}/send-again", responses=gives(DeliveryAnswer))
async def send_again(
    delivery_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Tell it once more, with the same id."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        found = outbox.send_again(connection, delivery_id, at)
        return delivery_json(replace(found, state="waiting", attempts=0, done_at=None))

    return send(await here.change(await call_of(request, who, key), change))


def _hook(hook: Hook) -> dict[str, Any]:
    times = {"created_at": as_time(hook.created_at), "ended_at": as_time(hook.ended_at)}
    return {"id": hook.id, "url": hook.shown, "events": list(hook.kinds), **times}


def delivery_json(found: Delivery) -> dict[str, Any]:
    """A delivery as JSON."""
    return {
        "id": found.id,
        "delivery": found.uid,
        "webhook": found.hook_id,
        "event": found.kind,
        "case_id": found.case_id,
        "state": found.state,
        "attempts": found.attempts,
        "at": as_time(found.at),
        "done_at": as_time(found.done_at),
        "status": found.status,
        "said": found.said,
        "body": json.loads(found.body),
    }
