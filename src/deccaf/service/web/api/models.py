"""Models: upload, activate, roll back, refit in the background."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from deccaf.data.config import Config
from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.decide import registry
from deccaf.service.errors import conflict, invalid
from deccaf.service.imports import reading
from deccaf.service.jobs import jobs
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t
from deccaf.service.store.idempotency import Answer, Call
from deccaf.service.web.api.cases import receive_file
from deccaf.service.web.api.common import (
    After,
    Here,
    Id,
    IdempotencyKey,
    Lead,
    Limit,
    Name,
    Strict,
    as_json,
    as_time,
    call_of,
    need_one,
    page,
    problems,
    send,
)

router = APIRouter(prefix="/v1", tags=["models"], responses=problems(404, 409))

_BRIEF = ("id", "name", "source", "sha256", "size", "summary", "created_at")


class Refit(Strict):
    """Fit a new model on the ledger's cases, decisions and labels."""

    name: Name = "refit"
    activate: bool = False


class Settings(Strict):
    """How to learn: the tables `columns`, `costs` and `model` of a configuration file."""

    columns: dict[str, Any] | None = None
    costs: dict[str, Any]
    model: dict[str, Any] | None = None


@router.post(
    "/models",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_model(
    request: Request,
    here: Here,
    who: Lead,
    name: Annotated[str, Query(pattern=r"^[A-Za-z0-9_.:@+=~ -]{1,100}$")] = "model",
    key: IdempotencyKey = None,
) -> Response:
    """Upload a model file (`.deccaf`); it is checked before anything of it is used, and not activated yet."""
    with tempfile.TemporaryDirectory(prefix="deccaf-upload-") as folder:
        path, digest = await receive_file(request, Path(folder), ".deccaf")
        await to_thread.run_sync(reading.check_model, path)
        content = path.read_bytes()
    model = await to_thread.run_sync(registry.load, content)
    call = Call(who, key, digest)
    return send(
        await here.change(
            call, lambda c, at: add_model(c, name, "upload", digest, content, model.training_, who, at), 201
        )
    )


def add_model(
    connection: sa.Connection,
    name: str,
    source: str,
    digest: str,
    content: bytes,
    summary: dict[str, Any],
    who: Actor,
    at: float,
) -> dict[str, Any]:
    """Put a model file into the ledger; the same content only once."""
    known = connection.execute(sa.select(t.models.c.id).where(t.models.c.sha256 == digest)).scalar()
    if known is not None:
        raise conflict("known-model", f"this file is model {known} already", model=known)
    facts = {
        "name": name,
        "source": source,
        "sha256": digest,
        "size": len(content),
        "summary": json.dumps(summary, default=str),
        "created_at": at,
    }
    made = connection.execute(
        sa.insert(t.models).values(**facts, content=content).returning(t.models.c.id)
    ).scalar_one()
    ledger.record(connection, "model added", at, who, model=made, source=source)
    return {"id": made, **facts, "summary": summary, "created_at": as_time(at)}


@router.get("/models")
def list_models(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All models, and which is active."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        query = sa.select(*[t.models.c[name] for name in _BRIEF])
        found = page(connection, query, t.models.c.id, limit, after, _shown)
        return {**found, "active": registry.active_model(connection)}

    return here.read(look)


@router.get("/models/{model_id}")
def get_model(model_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """One model and when it was put in force."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        query = sa.select(*[t.models.c[name] for name in _BRIEF]).where(t.models.c.id == model_id)
        row = need_one(connection.execute(query).one_or_none(), "model", model_id)
        c = t.activations.c
        times = connection.execute(sa.select(*c["at", "kind"]).where(c.model_id == model_id).order_by(c.id))
        active = registry.active_model(connection) == model_id
        return {
            **_shown(row),
            "active": active,
            "activations": [{"at": as_time(r.at), "kind": r.kind} for r in times],
        }

    return here.read(look)


@router.post("/models/{model_id}/activate")
async def activate(
    model_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Put a model in force: for the next case here, within a second in every process."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        found = connection.execute(sa.select(t.models.c.id).where(t.models.c.id == model_id)).scalar()
        need_one(found, "model", model_id)
        return put_in_force(connection, model_id, "activate", who, at)

    return send(await _then_load(here, await call_of(request, who, key), change))


@router.post("/models/roll-back")
async def roll_back(request: Request, here: Here, who: Lead, key: IdempotencyKey = None) -> Response:
    """Put the model in force that was in force before this one."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        c = t.activations.c
        # Going back twice goes back twice: activations that a roll-back undid are skipped.
        stack: list[int] = []
        for row in connection.execute(sa.select(*c["model_id", "kind"]).order_by(c.id)):
            if row.kind == "roll back":
                stack.pop()
            else:
                stack.append(row.model_id)
        if len(stack) < 2:
            raise conflict("nothing-before", "no other model was in force before")
        return put_in_force(connection, stack[-2], "roll back", who, at)

    return send(await _then_load(here, await call_of(request, who, key), change))


def put_in_force(
    connection: sa.Connection, model_id: int, kind: str, who: Actor, at: float
) -> dict[str, Any]:
    """Write an activation."""
    connection.execute(
        sa.insert(t.activations).values(model_id=model_id, key_id=who.key_id, kind=kind, at=at)
    )
    ledger.record(connection, "model in force", at, who, model=model_id, by=kind)
    return {"active": model_id}


@router.post("/models/refit", status_code=202)
async def refit(wish: Refit, request: Request, here: Here, who: Lead, key: IdempotencyKey = None) -> Response:
    """Fit a new model in the background; the job survives a restart of the service."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        c = t.jobs.c
        running = sa.select(c.id).where(c.kind == "refit", c.state.in_(("queued", "running"))).limit(1)
        known = connection.execute(running).scalar()
        if known is not None:
            raise conflict("refit-runs", f"job {known} fits a model already", job=known)
        job = jobs.enqueue(connection, "refit", wish.model_dump(), who.key_id, at)
        ledger.record(connection, "refit asked for", at, who, job=job)
        return {"job": job, "state": "queued"}

    return send(await here.change(await call_of(request, who, key), change, 202))


@router.get("/jobs")
def list_jobs(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All background jobs."""
    return here.read(lambda c: page(c, sa.select(t.jobs), t.jobs.c.id, limit, after, _job))


@router.get("/jobs/{job_id}")
def get_job(job_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """One background job."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        row = connection.execute(sa.select(t.jobs).where(t.jobs.c.id == job_id)).one_or_none()
        return _job(need_one(row, "job", job_id))

    return here.read(look)


@router.get("/settings")
def get_settings(here: Here, who: Lead) -> dict[str, Any]:
    """How refits learn."""
    return here.read(lambda connection: {"learning": as_json(read_setting(connection, "learning"))})


@router.put("/settings")
async def put_settings(
    wish: Settings, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say how refits learn: which column plays which part, and what errors cost."""
    tables = {name: value for name, value in wish.model_dump().items() if value is not None}
    try:
        Config.model_validate(tables).costs.build()
    except (ValidationError, ConfigError, ValueError) as error:
        raise invalid("bad-settings", str(error)[:1000]) from error

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        write_setting(connection, "learning", json.dumps(tables))
        ledger.record(connection, "settings changed", at, who, **tables)
        return {"learning": tables}

    return send(await here.change(await call_of(request, who, key), change))


def read_setting(connection: sa.Connection, name: str) -> str | None:
    """A setting's text, or None."""
    return connection.execute(sa.select(t.settings.c.value).where(t.settings.c.name == name)).scalar()


def write_setting(connection: sa.Connection, name: str, value: str) -> None:
    """Set or replace a setting."""
    done = connection.execute(sa.update(t.settings).where(t.settings.c.name == name).values(value=value))
    if done.rowcount == 0:
        connection.execute(sa.insert(t.settings).values(name=name, value=value))


async def _then_load(here: Service, call: Call, change: Any) -> Answer:
    answer = await here.change(call, change)
    await to_thread.run_sync(here.models.refresh)
    return answer


def _shown(row: Any) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in ("id", "name", "source", "sha256", "size")}
    return {**facts, "summary": as_json(row.summary), "created_at": as_time(row.created_at)}


def _job(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "attempts": row.attempts,
        "params": as_json(row.params),
        "result": as_json(row.result),
        "created_at": as_time(row.created_at),
        "finished_at": as_time(row.finished_at),
    }
