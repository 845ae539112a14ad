"""*How cases are shown*: the table `[display]`, and who sees what the machine thinks."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from deccaf.data.config import explain_error
from deccaf.data.display import DisplayTable
from deccaf.service.core import Service
from deccaf.service.ledger import case_records, people, shifts
from deccaf.service.ledger.review import opinion
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import LeadHere, Visitor, checked_form
from deccaf.service.web.pages.casework import facts
from deccaf.service.web.pages.render import PageRoute, go, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MODES = (
    ("", "as for the others"),
    ("hidden", "hidden"),
    ("after", "after the first answer"),
    ("shown", "shown at once"),
)


@router.get("/setup/display")
def show(here: Here, visitor: LeadHere, saved: bool = False) -> Response:
    """The table as it is in force, and how the latest case looks with it."""
    display = here.read(opinion.read_display)
    return _page(here, visitor, display, _toml(display), saved=saved)


@router.post("/setup/display")
async def keep(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Look at a table, or put it in force."""
    form = await checked_form(request, visitor)
    text = str(form.get("toml", ""))
    fields = {key: str(value) for key, value in form.items()}
    try:
        display = _read(text, fields)
    except RefusedTextError as error:
        wrong = str(error)
        now = await to_thread.run_sync(here.read, opinion.read_display)
        return await to_thread.run_sync(lambda: _page(here, visitor, now, text, wrong=wrong))
    if form.get("do") != "keep":
        return await to_thread.run_sync(lambda: _page(here, visitor, display, text))
    await here.writer.run(lambda c: opinion.write_display(c, display, visitor.actor, time.time()))
    return go("/setup/display?saved=true")


class RefusedTextError(Exception):
    """Why a table cannot be used."""


def _read(text: str, fields: dict[str, str]) -> DisplayTable:
    try:
        tables = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise RefusedTextError(f"The table cannot be read: {error}") from error
    table = tables.pop("display", {})
    if tables or not isinstance(table, dict):
        raise RefusedTextError(
            f"Only the table [display] belongs here, not {', '.join(tables) or 'a value'}."
        )
    if "machine" in table:
        raise RefusedTextError("Say who sees what the machine thinks in the fields above, not in the table.")
    machine: dict[str, Any] = {"default": fields.get("machine", "hidden")}
    for kind in ("people", "shifts"):
        start = f"{kind}:"
        named = {key.removeprefix(start): mode for key, mode in fields.items() if key.startswith(start)}
        machine[kind] = {name: mode for name, mode in named.items() if mode}
    try:
        return DisplayTable.model_validate({**table, "machine": machine})
    except ValidationError as error:
        raise RefusedTextError(explain_error(error, DisplayTable, "display")) from error


def _page(
    here: Service,
    visitor: Visitor,
    display: DisplayTable,
    toml: str,
    wrong: str | None = None,
    saved: bool = False,
) -> Response:
    def read(connection: sa.Connection) -> Any:
        running = shifts.current_shift(connection, time.time())
        shift = None if running is None else shifts.read_shift(connection, running).name
        latest = case_records.latest_cases(connection, None, 2**62, 1)
        case = None if not latest else case_records.read_case(connection, latest[0].case_id, visitor.actor)
        return people.active_experts(connection), shift, case

    team, shift, case = here.read(read)
    machine = display.machine
    named: list[tuple[str, str, str]] = [("Everybody", "machine", machine.default)]
    for name in dict.fromkeys([*([shift] if shift else []), *machine.shifts]):
        named.append((f"Shift {name}", f"shifts:{name}", machine.shifts.get(name) or ""))
    named += [(visitor.called(name), f"people:{name}", machine.people.get(name) or "") for name in team]
    look = None if case is None else facts.look(case.case.case_id, case.features, display, here.models.active)
    return page(
        "display.html",
        visitor,
        200 if wrong is None else 422,
        images=() if look is None else look.hosts,
        machine=named,
        modes=MODES,
        toml=toml,
        wrong=wrong,
        saved=saved,
        columns=[] if case is None else list(case.features),
        case_id=None if case is None else case.case.case_id,
        look=look,
    )


def _toml(display: DisplayTable) -> str:
    """The table as a configuration file has it, without who sees the machine."""
    table = display.model_dump(exclude_defaults=True, exclude={"machine"})
    lists = {name: table.pop(name) for name in ("field", "link", "image") if name in table}
    parts = ["[display]", *_lines(table)]
    for name, rows in lists.items():
        for row in rows:
            parts += ["", f"[[display.{name}]]", *_lines(row)]
    return "\n".join(parts) + "\n"


def _lines(table: dict[str, Any]) -> Iterable[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            inner = ", ".join(
                f"{json.dumps(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()
            )
            yield f"{key} = {{ {inner} }}"
        else:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
