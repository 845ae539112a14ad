"""*Set-up*: from an empty installation to the first plan; later, where files come in and shifts open."""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile

from deccaf.data.config import Config
from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.decide import registry
from deccaf.service.errors import conflict, invalid
from deccaf.service.imports import case_import, past_import, reading
from deccaf.service.jobs import jobs
from deccaf.service.ledger import ledger
from deccaf.service.store import tables as t
from deccaf.service.web.api.common import Here
from deccaf.service.web.api.models import read_setting, write_setting
from deccaf.service.web.api.shifts import NewShift, RosterPlace, new_shift
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

STEPS = ("history", "model", "shift", "cases")
_COPY = 1 << 20


def steps_left(connection: sa.Connection) -> list[str]:
    """What an installation lacks before its first day; empty once there was a shift with people on it."""
    if connection.execute(sa.select(t.shifts.c.id).where(t.shifts.c.state == "open").limit(1)).scalar():
        return []
    done = {
        "history": connection.execute(sa.select(t.experts.c.name).limit(1)).scalar() is not None,
        "model": registry.active_model(connection) is not None,
    }
    return [step for step in STEPS if not done.get(step, False)]


@router.get("/setup")
def setup(here: Here, visitor: LeadHere) -> Response:
    """The way to the first plan, with what is done already."""
    return page("setup.html", visitor, **here.read(_state))


@router.get("/setup/progress")
def progress(here: Here, visitor: LeadHere) -> Response:
    """How far the first model is."""
    here.models.refresh()
    return page("setup_model.html", visitor, **here.read(_state))


@router.post("/setup/history")
async def bring_history(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A file of decided and labelled cases: looked at first (preview), then entered."""
    form = await checked_form(request, visitor)
    frame, name = await _table(here, form)
    past = await to_thread.run_sync(past_import.check_past, frame)
    if form.get("do") != "enter":
        checked = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, past.checked))
        return _preview(visitor, checked, frame, sorted(set(past.experts)))
    await here.writer.run(lambda c: past_import.enter_past(c, past, name, visitor.actor, time.time()))
    return go("/setup#model")


@router.post("/setup/model")
async def first_model(request: Request, here: Here, visitor: LeadHere) -> Response:
    """What errors cost, and a model fitted on the history, in the background."""
    form = await checked_form(request, visitor)
    try:
        prices = {key: float(str(form.get(key))) for key in ("false_positive", "false_negative")}
        Config.model_validate({"costs": prices}).costs.build()
    except (ValueError, ValidationError, ConfigError) as error:
        raise invalid("bad-costs", "both costs must be numbers above 0") from error

    def change(connection: sa.Connection) -> None:
        at, c = time.time(), t.jobs.c
        running = sa.select(c.id).where(c.kind == "refit", c.state.in_(("queued", "running"))).limit(1)
        if connection.execute(running).scalar() is not None:
            raise conflict("refit-runs", "a model is being fitted already")
        write_setting(connection, "learning", json.dumps({"costs": prices}))
        ledger.record(connection, "settings changed", at, visitor.actor, costs=prices)
        params = {"name": "first model", "activate": True}
        job = jobs.enqueue(connection, "refit", params, visitor.actor.key_id, at)
        ledger.record(connection, "refit asked for", at, visitor.actor, job=job)

    await here.writer.run(change)
    return go("/setup#model")


@router.post("/setup/shift")
async def open_shift(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Today's shift with everybody's capacity."""
    form = await checked_form(request, visitor)
    start = datetime.now(UTC)
    try:
        wish = _shift(form, start)
    except (ValidationError, ValueError) as error:
        raise invalid("bad-shift", "capacities and hours must be whole numbers from 0 on") from error
    await here.writer.run(lambda c: new_shift(c, wish, visitor.actor, start.timestamp()))
    return go("/setup#cases")


@router.post("/setup/cases")
async def bring_cases(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A file of cases for the next plan: looked at first (preview), then entered."""
    form = await checked_form(request, visitor)
    frame, name = await _table(here, form)
    looked = await to_thread.run_sync(case_import.check_frame, frame, here.models.active)
    if form.get("do") != "enter":
        checked = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, looked))
        return _preview(visitor, checked, frame, [])

    def change(connection: sa.Connection) -> None:
        checked = case_import.without_known(connection, looked)
        if not checked.arrivals:
            raise invalid("nothing-new", "no row of the file can be entered: see the preview")
        if checked.rejected and form.get("skip") != "yes":
            raise invalid(
                "bad-rows", f"{checked.rejected} of {checked.rows} rows cannot be used: see the preview"
            )
        case_import.enter(connection, checked, name, visitor.actor, time.time())

    await here.writer.run(change)
    return go("/")


def _state(connection: sa.Connection) -> dict[str, Any]:
    c, a = t.cases.c, t.activations.c
    labelled = sa.select(sa.func.count()).select_from(t.cases).where(c.label.is_not(None))
    waiting = sa.select(sa.func.count()).select_from(t.cases).where(c.status == "waiting")
    experts = sa.select(t.experts.c.name).where(t.experts.c.active).order_by(t.experts.c.name)
    active = connection.execute(
        sa.select(t.models.c.name, t.models.c.summary)
        .join_from(t.models, t.activations, t.models.c.id == a.model_id)
        .order_by(a.id.desc())
        .limit(1)
    ).one_or_none()
    job = connection.execute(sa.select(t.jobs).order_by(t.jobs.c.id.desc()).limit(1)).one_or_none()
    learning = read_setting(connection, "learning")
    return {
        "left": steps_left(connection),
        "labelled": connection.execute(labelled).scalar_one(),
        "waiting": connection.execute(waiting).scalar_one(),
        "experts": list(connection.execute(experts).scalars()),
        "team": connection.execute(sa.select(t.teams.c.name).order_by(t.teams.c.id).limit(1)).scalar(),
        "active": None if active is None else {"name": active.name, **json.loads(active.summary)},
        "job": job,
        "failed": json.loads(job.result).get("error") if job is not None and job.state == "failed" else None,
        "running": job is not None and job.state in ("queued", "running"),
        "costs": {} if learning is None else json.loads(learning)["costs"],
        "shift": ledger.current_shift(connection, time.time()),
        "today": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _shift(form: FormData, start: datetime) -> NewShift:
    roster = [
        RosterPlace(maker=name.removeprefix("of:"), capacity=int(str(value)))
        for name, value in form.items()
        if name.startswith("of:") and str(value).strip()
    ]
    expected = str(form.get("expected", "")).strip()
    return NewShift(
        name=str(form.get("name", "")),
        team=str(form.get("team", "")),
        starts_at=start,
        ends_at=start + timedelta(hours=float(str(form.get("hours", "8")))),
        expected_cases=int(expected) if expected else None,
        random_share=float(str(form.get("random", "5"))) / 100.0,
        roster=tuple(roster),
    )


async def _table(here: Service, form: FormData) -> tuple[Any, str]:
    """The uploaded file as a frame, read where it can do no harm."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise invalid("no-file", "choose a CSV or parquet file first")
    name = file.filename
    suffix = ".parquet" if name.lower().endswith(".parquet") else ".csv"
    with tempfile.TemporaryDirectory(prefix="deccaf-upload-") as folder:
        path = Path(folder) / f"upload{suffix}"
        with path.open("wb") as out:
            while part := await file.read(_COPY):
                out.write(part)
        frame = await to_thread.run_sync(reading.read_table, path, here.limits.rows, here.limits.columns)
    return frame, "".join(ch for ch in name if ch.isprintable())[:200]


def _preview(visitor: Any, checked: case_import.Checked, frame: Any, experts: list[str]) -> Response:
    head = frame.head(5).astype("object").where(frame.head(5).notna(), None)
    return page(
        "preview.html",
        visitor,
        checked=checked,
        errors=checked.errors[:20],
        columns=[str(name) for name in head.columns],
        rows=head.to_numpy().tolist(),
        experts=experts,
    )
