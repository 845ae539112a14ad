"""*Set-up*: from an empty installation to the first plan; later, where files come in and shifts open."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.datastructures import FormData

from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.imports import case_import
from deccaf.service.imports.case_import import Checked
from deccaf.service.large_changes import File
from deccaf.service.ledger import shifts
from deccaf.service.ledger.shifts import NewShift, RosterPlace
from deccaf.service.reports.installation import Installation, read_installation
from deccaf.service.store.idempotency import Call
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.web.common import Here, in_reader, number, whole_number
from deccaf.service.web.pages.access import LeadHere, Visitor, checked_form, keep_upload
from deccaf.service.web.pages.learning.lesson import LessonForm, read_form
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.pages.uploads import file_name, file_of, file_suffix

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/setup")
def setup(here: Here, visitor: LeadHere) -> Response:
    """The way to the first plan, with what is done already."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    state, lesson = _state(here)
    return page("setup.html", visitor, state=state, lesson=lesson, today=today)


@router.get("/setup/progress")
def progress(here: Here, visitor: LeadHere) -> Response:
    """How far the first model is."""
    here.models.refresh()
    state, lesson = _state(here)
    return page("setup_model.html", visitor, state=state, lesson=lesson)


@router.post("/setup/shift")
async def open_shift(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Today's shift with everybody's capacity."""
    form = await checked_form(request, visitor)
    start = datetime.now(UTC)
    try:
        wanted = _shift(form, start)
    except (ValidationError, OverflowError) as error:
        raise invalid("bad-shift", "capacities and hours must be numbers from 0 on") from error
    await here.writer.run(lambda c: shifts.open_shift(c, wanted, visitor.actor, start.timestamp()))
    return go("/setup#cases")


@router.post("/setup/cases")
async def bring_cases(request: Request, here: Here, visitor: LeadHere) -> Response:
    """A file of cases for the next plan: checked first (preview), then entered."""
    form = await checked_form(request, visitor)
    file, name, look = file_of(form), file_name(form), form.get("do") != "enter"
    with scratch_folder() as folder:
        path = await keep_upload(file, folder, file_suffix(name))
        size, model = (here.limits.rows, here.limits.columns), here.models.active
        first = await in_reader(case_import.read_cases, path, folder / "rows", size, model, look=look)
    if look:
        checked = await to_thread.run_sync(here.read, lambda c: case_import.without_known(c, first))
        return _preview(visitor, checked)

    def accept(checked: Checked) -> None:
        if not checked.arrivals:
            raise invalid("nothing-new", "no row of the file can be entered: see the preview")
        if checked.rejected and form.get("skip") != "yes":
            raise invalid(
                "bad-rows", f"{checked.rejected} of {checked.rows} rows cannot be used: see the preview"
            )

    await to_thread.run_sync(here.large.enter_file, Call(visitor.actor), File(first, name, accept))
    return go("/")


def _state(here: Service) -> tuple[Installation, LessonForm]:
    return here.read(lambda c: (read_installation(c, time.time()), read_form(here, c)))


def _shift(form: FormData, start: datetime) -> NewShift:
    roster = [
        RosterPlace(maker=name.removeprefix("of:"), capacity=capacity)
        for name, value in form.items()
        if name.startswith("of:") and (capacity := whole_number("capacity", value)) is not None
    ]
    hours, random = number("hours", form.get("hours", "8")), number("by lot", form.get("random", "5"))
    return NewShift(
        name=str(form.get("name", "")),
        team=str(form.get("team", "")),
        starts_at=start,
        ends_at=start + timedelta(hours=8.0 if hours is None else hours),
        expected_cases=whole_number("expected cases", form.get("expected")),
        random_share=(random or 0.0) / 100.0,
        roster=tuple(roster),
    )


def _preview(visitor: Visitor, checked: Checked) -> Response:
    columns = list(checked.head[0]) if checked.head else []
    return page(
        "preview.html",
        visitor,
        checked=checked,
        errors=checked.errors[:20],
        columns=columns,
        rows=[list(row.values()) for row in checked.head],
    )
