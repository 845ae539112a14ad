"""*Set-up*: from an empty installation to the first plan; later, where files come in and shifts open."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile

from deccaf.data.config import Config
from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.imports import case_import, past_import
from deccaf.service.imports.case_import import Checked
from deccaf.service.jobs import kinds
from deccaf.service.jobs.learning import SETTING
from deccaf.service.large_changes import File
from deccaf.service.ledger import shifts, trail
from deccaf.service.ledger.shifts import NewShift, RosterPlace
from deccaf.service.reports.installation import Installation, read_installation
from deccaf.service.store.idempotency import Call
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.store.settings import write_setting
from deccaf.service.web.common import Here, in_reader
from deccaf.service.web.pages.access import LeadHere, Visitor, checked_form, keep_upload
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/setup")
def setup(here: Here, visitor: LeadHere) -> Response:
    """The way to the first plan, with what is done already."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return page("setup.html", visitor, state=_state(here), today=today)


@router.get("/setup/progress")
def progress(here: Here, visitor: LeadHere) -> Response:
    """How far the first model is."""
    here.models.refresh()
    return page("setup_model.html", visitor, state=_state(here))


@router.post("/setup/history")
async def bring_history(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A file of decided and labelled cases: checked first (preview), then entered."""
    form = await checked_form(request, visitor)
    file, name, look = _file(form), _file_name(form), form.get("do") != "enter"
    with scratch_folder() as folder:
        path = await keep_upload(file, folder, _suffix(name))
        size = (here.limits.rows, here.limits.columns)
        past = await in_reader(past_import.read_past, path, folder / "rows", size, look=look)
    if look:
        checked = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, past.checked))
        return _preview(visitor, checked, sorted(set(past.experts)))
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
        at, who = time.time(), visitor.actor
        kinds.ask(connection, "refit", {"name": "first model", "activate": True}, who, at)
        write_setting(connection, SETTING, {"costs": prices})
        trail.record(connection, "settings changed", at, who, costs=prices)

    await here.writer.run(change)
    return go("/setup#model")


@router.post("/setup/shift")
async def open_shift(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Today's shift with everybody's capacity."""
    form = await checked_form(request, visitor)
    start = datetime.now(UTC)
    try:
        wanted = _shift(form, start)
    except (ValidationError, ValueError) as error:
        raise invalid("bad-shift", "capacities and hours must be whole numbers from 0 on") from error
    await here.writer.run(lambda c: shifts.open_shift(c, wanted, visitor.actor, start.timestamp()))
    return go("/setup#cases")


@router.post("/setup/cases")
async def bring_cases(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A file of cases for the next plan: checked first (preview), then entered."""
    form = await checked_form(request, visitor)
    file, name, look = _file(form), _file_name(form), form.get("do") != "enter"
    with scratch_folder() as folder:
        path = await keep_upload(file, folder, _suffix(name))
        size, model = (here.limits.rows, here.limits.columns), here.models.active
        first = await in_reader(case_import.read_cases, path, folder / "rows", size, model, look=look)
    if look:
        checked = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, first))
        return _preview(visitor, checked, [])

    def accept(checked: Checked) -> None:
        if not checked.arrivals:
            raise invalid("nothing-new", "no row of the file can be entered: see the preview")
        if checked.rejected and form.get("skip") != "yes":
            raise invalid(
                "bad-rows", f"{checked.rejected} of {checked.rows} rows cannot be used: see the preview"
            )

    await to_thread.run_sync(here.large.enter_file, Call(visitor.actor), File(first, name, accept))
    return go("/")


def _state(here: Service) -> Installation:
    return here.read(lambda connection: read_installation(connection, time.time()))


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


def _file(form: FormData) -> UploadFile:
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise invalid("no-file", "choose a CSV or parquet file first")
    return file


def _file_name(form: FormData) -> str:
    return "".join(ch for ch in _file(form).filename or "" if ch.isprintable())[:200]


def _suffix(name: str) -> str:
    return ".parquet" if name.lower().endswith(".parquet") else ".csv"


def _preview(visitor: Visitor, checked: Checked, experts: list[str]) -> Response:
    columns = list(checked.head[0]) if checked.head else []
    return page(
        "preview.html",
        visitor,
        checked=checked,
        errors=checked.errors[:20],
        columns=columns,
        rows=[list(row.values()) for row in checked.head],
        experts=experts,
    )
