"""*Models*: versions, how each has done while in force, activate, roll back, fit anew, upload."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import UploadFile

from deccaf.data.costs import Costs
from deccaf.service.decide import registry
from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.imports import reading
from deccaf.service.jobs import jobs
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import Here, Id
from deccaf.service.web.api.models import add_model, put_in_force
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

LATEST = 10_000


@router.get("/models")
def models(here: Here, visitor: LeadHere) -> Response:
    """All versions, the newest first."""
    costs = None if here.models.active is None else here.models.active.system.costs_
    return page("models.html", visitor, **here.read(lambda connection: _look(connection, costs)))


@router.get("/models/jobs")
def job_list(here: Here, visitor: LeadHere) -> Response:
    """The part of the page that moves while a model is fitted."""
    return page("jobs.html", visitor, jobs=here.read(_jobs))


@router.post("/models/backtest")
async def ask_backtest(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Test on the ledger's history what plans would have cost, in the background."""
    await checked_form(request, visitor)
    await here.writer.run(lambda c: _enqueue(c, "backtest", {"name": "backtest"}, visitor.actor))
    return go("/models")


@router.get("/models/backtests/{job_id}")
def backtest_report(job_id: Id, here: Here, visitor: LeadHere) -> Response:
    """The whole report of a backtest; it has pictures and a style of its own, and may run nothing."""
    r = t.backtest_reports.c
    found = here.read(lambda c: c.execute(sa.select(r.html).where(r.job_id == job_id)).scalar())
    if found is None:
        raise not_found("report of a backtest", job_id)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
    return HTMLResponse(found, headers={"Content-Security-Policy": policy})


@router.post("/models/refit")
async def refit(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Fit a new model on everything that is labelled, in the background."""
    form = await checked_form(request, visitor)
    params = {"name": str(form.get("name") or "refit")[:100], "activate": form.get("activate") == "yes"}

    await here.writer.run(lambda c: _enqueue(c, "refit", params, visitor.actor))
    return go("/models")


def _enqueue(connection: sa.Connection, kind: str, params: dict[str, Any], who: Actor) -> None:
    """One job of a kind at a time."""
    at, c = time.time(), t.jobs.c
    running = sa.select(c.id).where(c.kind == kind, c.state.in_(("queued", "running"))).limit(1)
    if connection.execute(running).scalar() is not None:
        raise conflict(f"{kind}-runs", f"a {kind} runs already")
    job = jobs.enqueue(connection, kind, params, who.key_id, at)
    ledger.record(connection, f"{kind} asked for", at, who, job=job)


@router.post("/models/{model_id}/activate")
async def activate(model_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put a version in force (going back to an earlier one is the same)."""
    await checked_form(request, visitor)

    def change(connection: sa.Connection) -> None:
        if connection.execute(sa.select(t.models.c.id).where(t.models.c.id == model_id)).scalar() is None:
            raise not_found("model", model_id)
        put_in_force(connection, model_id, "activate", visitor.actor, time.time())

    await here.writer.run(change)
    await to_thread.run_sync(here.models.refresh)
    return go("/models")


@router.post("/models/upload")
async def upload(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A model file from `deccaf fit`, checked where it can do no harm before it is stored."""
    form = await checked_form(request, visitor)
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise invalid("no-file", "choose a model file (.deccaf) first")
    with tempfile.TemporaryDirectory(prefix="deccaf-upload-") as folder:
        path = Path(folder) / "upload.deccaf"
        path.write_bytes(await file.read())
        await to_thread.run_sync(reading.check_model, path)
        content = path.read_bytes()
    found = await to_thread.run_sync(registry.load, content)
    digest = hashlib.sha256(content).hexdigest()
    name = "".join(ch for ch in Path(file.filename).stem if ch.isprintable())[:100] or "model"
    await here.writer.run(
        lambda c: add_model(c, name, "upload", digest, content, found.training_, visitor.actor, time.time())
    )
    return go("/models")


def _look(connection: sa.Connection, costs: Costs | None) -> dict[str, Any]:
    m, a = t.models.c, t.activations.c
    rows = connection.execute(
        sa.select(*m["id", "name", "source", "size", "summary", "created_at"]).order_by(m.id.desc()).limit(50)
    ).all()
    times: dict[int, list[Any]] = {}
    for row in connection.execute(sa.select(*a["model_id", "at", "kind"]).order_by(a.id)):
        times.setdefault(row.model_id, []).append(row)
    done = _in_force(connection, costs)
    active = registry.active_model(connection)
    versions = [
        {
            "id": row.id,
            "name": row.name,
            "source": row.source,
            "size": row.size,
            "created_at": row.created_at,
            "facts": json.loads(row.summary),
            "active": row.id == active,
            "times": times.get(row.id, []),
            "done": done.get(row.id),
        }
        for row in rows
    ]
    return {"versions": versions, "jobs": _jobs(connection)}


def _in_force(connection: sa.Connection, costs: Costs | None) -> dict[int, dict[str, Any]]:
    """For the latest labels: what the cases of each model were expected to cost, and what they did cost."""
    a, d, c = t.assignments.c, t.decisions.c, t.cases.c
    latest = sa.select(t.labels.c.case_id).order_by(t.labels.c.id.desc()).limit(LATEST).subquery()
    query = (
        sa.select(a.model_id, d.decision, c.label, sa.func.count(), sa.func.sum(a.expected_loss))
        .join_from(latest, t.cases, c.case_id == latest.c.case_id)
        .join(t.assignments, sa.and_(a.case_id == c.case_id, a.state == "decided"))
        .join(t.decisions, d.case_id == c.case_id)
        .where(a.model_id.is_not(None))
        .group_by(a.model_id, d.decision, c.label)
    )
    prices = _prices(costs)
    found: dict[int, dict[str, Any]] = {}
    for model, said, truth, count, expected in connection.execute(query):
        entry = found.setdefault(int(model), {"labelled": 0, "expected": 0.0, "cost": 0.0})
        entry["labelled"] += count
        entry["expected"] += float(expected)
        entry["cost"] += count * prices.get((truth, said), 0.0)
    if not prices:
        found = {model: {**entry, "cost": None} for model, entry in found.items()}
    return found


def _prices(costs: Costs | None) -> dict[tuple[str, str], float]:
    """The cost of every truth and decision, as the ledger writes them; empty where cases bring their own."""
    if costs is None or costs.columns:
        return {}
    matrix, names = costs.array()[0], [json.dumps(name) for name in costs.classes]
    return {(y, m): float(matrix[j, k]) for j, y in enumerate(names) for k, m in enumerate(names)}


def _jobs(connection: sa.Connection) -> list[dict[str, Any]]:
    rows = connection.execute(sa.select(t.jobs).order_by(t.jobs.c.id.desc()).limit(5)).all()
    return [
        {
            "id": row.id,
            "kind": row.kind,
            "state": row.state,
            "created_at": row.created_at,
            "finished_at": row.finished_at,
            "params": json.loads(row.params),
            "result": json.loads(row.result) if row.result else {},
        }
        for row in rows
    ]
