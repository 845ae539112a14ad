"""Is it alive, is it ready, what are its numbers."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from deccaf import __version__
from deccaf.client.answers import Health, Ready
from deccaf.service.errors import RefusedError
from deccaf.service.web.api.common import LeadOrMachine, gives, problems
from deccaf.service.web.common import Here

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=gives(Health), operation_id="health")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok", "version": __version__}


@router.get("/readyz", responses=gives(Ready) | {503: problems()[503]}, operation_id="ready")
def ready(here: Here) -> dict[str, str]:
    """The database answers and has this version's schema."""
    wrong = here.ready()
    if wrong is not None:
        raise RefusedError(503, "not-ready", wrong)
    return {"status": "ready"}


@router.get("/metrics", responses=problems(), response_class=PlainTextResponse)
def metrics(here: Here, who: LeadOrMachine) -> Response:
    """Numbers for Prometheus."""
    here.metrics.longest_write.set(here.writer.longest)
    here.read(lambda connection: here.metrics.read(connection, time.time()))
    return Response(generate_latest(here.metrics.registry), media_type=CONTENT_TYPE_LATEST)
