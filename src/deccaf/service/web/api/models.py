"""Models: upload, activate, roll back, refit in the background."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, ValidationError

from deccaf.client.answers import (
    All,
    InForce,
    JobAsked,
    LearningSettings,
    Model,
    ModelMade,
    ModelNote,
    ModelNoteMade,
    Models,
    Page,
)
from deccaf.client.answers import Job as JobAnswer
from deccaf.data.config import Config
from deccaf.data.display import DisplayTable
from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.imports import reading
from deccaf.service.jobs import kinds, records
from deccaf.service.jobs.learning import SETTING
from deccaf.service.jobs.records import Job
from deccaf.service.ledger import trail, versions
from deccaf.service.ledger.review import opinion
from deccaf.service.ledger.versions import Version
from deccaf.service.reports import candidate_report
from deccaf.service.reports.candidate_report import Compared
from deccaf.service.store.fields import NAME, Name, Strict
from deccaf.service.store.idempotency import Answer, Call
from deccaf.service.store.listing import Cut
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.store.settings import read_setting, write_setting
from deccaf.service.web.api.common import (
    After,
    Anyone,
    IdempotencyKey,
    Lead,
    Limit,
    call_of,
    gives,
    page_json,
    problems,
    receive_file,
    send,
)
from deccaf.service.web.common import Here, Id, as_time, in_reader, model_file

router = APIRouter(prefix="/v1", tags=["models"], responses=problems(404, 409))


class Refit(Strict):
    """Fit a new model on the ledger's cases, decisions and labels."""

    name: Name = "refit"
    activate: bool = False


class NewNote(Strict):
    """What is to be known about a model."""

    text: Annotated[str, Field(min_length=1, max_length=2_000)]


class Settings(Strict):
    """How to learn: the tables `columns`, `costs`, `model` and `labels` of a configuration file.

    And `waiting`: what it costs that cases wait, which decides in which order people work.
    """

    columns: dict[str, Any] | None = None
    costs: dict[str, Any]
    model: dict[str, Any] | None = None
    labels: dict[str, Any] | None = None
    waiting: dict[str, Any] | None = None


@router.post(
    "/models",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    responses=gives(ModelMade, 201),
)
async def upload_model(
    request: Request,
    here: Here,
    who: Lead,
    name: Annotated[str, Query(pattern=NAME)] = "model",
    key: IdempotencyKey = None,
) -> Response:
    """Upload a model file (`.deccaf`); it is checked before anything of it is used, and not activated yet."""
    with scratch_folder() as folder:
        path, digest = await receive_file(request, folder, ".deccaf")

        def check() -> tuple[bytes, dict[str, Any]]:
            facts = reading.check_model(path)
            return path.read_bytes(), facts

        def change(
            connection: sa.Connection, at: float, model: tuple[bytes, dict[str, Any]]
        ) -> dict[str, Any]:
            content, facts = model
            return _version(versions.add_version(connection, name, "upload", digest, content, facts, who, at))

        call = Call(who, key, hashlib.sha256(f"model {request.url.query} {digest}".encode()).hexdigest())
        return send(await here.prepared_change(call, check, change, 201, in_reader))


@router.get("/models", responses=gives(Models))
def list_models(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All models, and which is active."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        found = versions.list_versions(connection, Cut(limit, after))
        return {**page_json(found, _version), "active": versions.active_id(connection)}

    return here.read(look)


@router.get("/models/{model_id}", responses=gives(Model))
def get_model(model_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """One model and when it was put in force."""

    def look(connection: sa.Connection) -> dict[str, Any]:
        times = versions.activations(connection, model_id)
        return {
            **_version(versions.read_version(connection, model_id)),
            "active": versions.active_id(connection) == model_id,
            "activations": [{"at": as_time(time.at), "kind": time.kind} for time in times],
        }

    return here.read(look)


@router.get(
    "/models/{model_id}/file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def get_model_file(model_id: Id, here: Here, who: Lead) -> Response:
    """The model file, as `deccaf fit` writes it."""
    return model_file(here, model_id)


@router.get("/models/{model_id}/comparison", responses=gives(Compared))
def compare_model(model_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """A model beside the one in force: calibration, and how many open cases would go from whom to whom."""
    after = here.models.version(model_id)
    found = candidate_report.compare(here.read, here.models.active, after, time.time())
    return asdict(found)


@router.get("/models/{model_id}/notes", responses=gives(All[ModelNote]), operation_id="list_model_notes")
def list_notes(model_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """What was noted on a model, the latest first."""
    found = here.read(lambda connection: candidate_report.notes(connection, model_id))
    return {"items": [{"at": as_time(note.at), "by": note.by, "text": note.text} for note in found]}


@router.post(
    "/models/{model_id}/notes",
    status_code=201,
    responses=gives(ModelNoteMade, 201),
    operation_id="add_model_note",
)
async def add_note(
    model_id: Id, wanted: NewNote, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Write a note on a model; it stays in the trail."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        versions.read_version(connection, model_id)
        candidate_report.add_note(connection, model_id, wanted.text, who, at)
        return {"model": model_id, "text": wanted.text}

    return send(await here.change(await call_of(request, who, key), change, 201))


@router.post("/models/{model_id}/activate", responses=gives(InForce), operation_id="activate_model")
async def activate(
    model_id: Id, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Put a model in force: for the next case here, within a second in every process."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        versions.put_in_force(connection, model_id, who, at)
        return {"active": model_id}

    return send(await _then_load(here, await call_of(request, who, key), change))


@router.post("/models/roll-back", responses=gives(InForce), operation_id="roll_back_model")
async def roll_back(request: Request, here: Here, who: Lead, key: IdempotencyKey = None) -> Response:
    """Put the model in force that was in force before this one."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return {"active": versions.roll_back(connection, who, at)}

    return send(await _then_load(here, await call_of(request, who, key), change))


@router.post("/models/refit", status_code=202, responses=gives(JobAsked, 202), operation_id="refit_model")
async def refit(
    wanted: Refit, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Fit a new model in the background; the job survives a restart of the service."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        return {"job": kinds.ask(connection, "refit", wanted.model_dump(), who, at), "state": "queued"}

    return send(await here.change(await call_of(request, who, key), change, 202))


@router.get("/jobs", responses=gives(Page[JobAnswer]))
def list_jobs(here: Here, who: Lead, limit: Limit = 100, after: After = None) -> dict[str, Any]:
    """All background jobs."""
    return page_json(here.read(lambda c: records.list_jobs(c, Cut(limit, after))), _job)


@router.get("/jobs/{job_id}", responses=gives(JobAnswer))
def get_job(job_id: Id, here: Here, who: Lead) -> dict[str, Any]:
    """One background job."""
    return _job(here.read(lambda connection: records.read_job(connection, job_id)))


@router.get("/settings", responses=gives(LearningSettings))
def get_settings(here: Here, who: Lead) -> dict[str, Any]:
    """How refits learn."""
    return {"learning": here.read(lambda connection: read_setting(connection, SETTING))}


@router.put("/settings", responses=gives(LearningSettings))
async def put_settings(
    wanted: Settings, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say how refits learn: which column plays which part, and what errors cost."""
    tables = {name: value for name, value in wanted.model_dump().items() if value is not None}
    try:
        Config.model_validate(tables).costs.build()
    except (ValidationError, ConfigError, ValueError) as error:
        raise invalid("bad-settings", str(error)[:1000]) from error

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        write_setting(connection, SETTING, tables)
        trail.record(connection, "settings changed", at, who, **tables)
        return {"learning": tables}

    return send(await here.change(await call_of(request, who, key), change))


@router.get("/display", responses=gives(DisplayTable))
def get_display(here: Here, who: Anyone) -> dict[str, Any]:
    """How cases are shown: the table `[display]` of a configuration."""
    return here.read(opinion.read_display).model_dump()


@router.put("/display", responses=gives(DisplayTable))
async def put_display(
    wanted: DisplayTable, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say how cases are shown, and who sees what the machine thinks."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        opinion.write_display(connection, wanted, who, at)
        return wanted.model_dump()

    return send(await here.change(await call_of(request, who, key), change))


async def _then_load(here: Service, call: Call, change: Any) -> Answer:
    answer = await here.change(call, change)
    await to_thread.run_sync(here.models.refresh)
    return answer


def _version(version: Version) -> dict[str, Any]:
    return {
        "id": version.id,
        "name": version.name,
        "source": version.source,
        "sha256": version.sha256,
        "size": version.size,
        "summary": version.summary,
        "created_at": as_time(version.created_at),
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "state": job.state,
        "attempts": job.attempts,
        "params": job.params,
        "result": job.result,
        "created_at": as_time(job.created_at),
        "finished_at": as_time(job.finished_at),
    }
