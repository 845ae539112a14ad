"""*Models*: versions, how each has done while in force, activate, roll back, fit anew, upload."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import UploadFile

from deccaf.service.errors import invalid
from deccaf.service.imports import reading
from deccaf.service.jobs import backtest, kinds, records
from deccaf.service.ledger import versions
from deccaf.service.reports.model_report import report_versions
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.web.common import Here, Id, in_reader
from deccaf.service.web.pages.access import LeadHere, checked_form, keep_upload
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

LATEST_JOBS = 5


@router.get("/models")
def models(here: Here, visitor: LeadHere) -> Response:
    """All versions, the newest first."""
    costs = None if here.models.active is None else here.models.active.system.costs_
    found, jobs = here.read(lambda c: (report_versions(c, costs), records.latest_jobs(c, LATEST_JOBS)))
    return page("models.html", visitor, versions=found, jobs=jobs)


@router.get("/models/jobs")
def job_list(here: Here, visitor: LeadHere) -> Response:
    """The part of the page that moves while a model is fitted."""
    return page("jobs.html", visitor, jobs=here.read(lambda c: records.latest_jobs(c, LATEST_JOBS)))


@router.post("/models/backtest")
async def ask_backtest(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Test on the ledger's history what plans would have cost, in the background."""
    await checked_form(request, visitor)
    await here.writer.run(
        lambda c: kinds.ask(c, "backtest", {"name": "backtest"}, visitor.actor, time.time())
    )
    return go("/models")


@router.get("/models/backtests/{job_id}")
def backtest_report(job_id: Id, here: Here, visitor: LeadHere) -> Response:
    """The whole report of a backtest; it has pictures and a style of its own, and may run nothing."""
    found = here.read(lambda connection: backtest.read_report(connection, job_id))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
    return HTMLResponse(found, headers={"Content-Security-Policy": policy})


@router.post("/models/refit")
async def refit(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Fit a new model on everything that is labelled, in the background."""
    form = await checked_form(request, visitor)
    params = {"name": str(form.get("name") or "refit")[:100], "activate": form.get("activate") == "yes"}
    await here.writer.run(lambda c: kinds.ask(c, "refit", params, visitor.actor, time.time()))
    return go("/models")


@router.post("/models/{model_id}/activate")
async def activate(model_id: Id, request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put a version in force (going back to an earlier one is the same)."""
    await checked_form(request, visitor)
    await here.writer.run(lambda c: versions.put_in_force(c, model_id, visitor.actor, time.time()))
    await to_thread.run_sync(here.models.refresh)
    return go("/models")


@router.post("/models/upload")
async def upload(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A model file from `deccaf fit`, checked where it can do no harm before it is stored."""
    form = await checked_form(request, visitor)
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise invalid("no-file", "choose a model file (.deccaf) first")
    with scratch_folder() as folder:
        path = await keep_upload(file, folder, ".deccaf")
        facts = await in_reader(reading.check_model, path)
        content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    name = "".join(ch for ch in Path(file.filename).stem if ch.isprintable())[:100] or "model"
    who = visitor.actor
    await here.writer.run(
        lambda c: versions.add_version(c, name, "upload", digest, content, facts, who, time.time())
    )
    return go("/models")
