"""*Next week*: how many hours of whom, what less money would mean, whom to train; a what-if of hours."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Response

from deccaf.errors import ConfigError
from deccaf.planning import Staffing
from deccaf.service.errors import invalid
from deccaf.service.reports import next_week as report
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import LeadHere
from deccaf.service.web.pages.render import PageRoute, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Field = Annotated[str, Query(max_length=20)]


@router.get("/next-week")
def next_week(
    here: Here,
    visitor: LeadHere,
    wage: Field = "",
    hours: Field = "",
    budget: Field = "",
    minutes: Field = "",
) -> Response:
    """The best roster for a week like the past ones, with the numbers of the form; nothing is changed."""
    given = {"wage": wage, "hours": hours, "budget": budget, "minutes": minutes}
    changes = {name: _number(name, text) for name, text in given.items() if text.strip()}
    terms = None if here.models.active is None else here.models.active.system.terms

    def look(connection: sa.Connection) -> tuple[Any, Staffing | None, str]:
        table = report.asked_for(connection, changes)
        if table is None:
            return None, None, ""
        try:
            return table, report.next_week(connection, table, terms), ""
        except ConfigError as error:
            return table, None, str(error)

    table, found, problem = here.read(look)
    shown = {**given, **({} if table is None else _plain(table))}
    return page("next_week.html", visitor, table=table, found=found, problem=problem, form=shown)


def _plain(table: Any) -> dict[str, str]:
    """What the form shows: numbers; what is set by name in the settings stays there."""
    values = {name: getattr(table, name) for name in ("wage", "hours", "budget", "minutes")}
    return {
        name: "" if value is None or isinstance(value, dict) else f"{value:g}"
        for name, value in values.items()
    }


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise invalid("bad-number", f"{name}: {text!r} is no number") from error
