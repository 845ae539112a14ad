"""*People*: who there is, their keys and roles; and one person's page."""

from __future__ import annotations

import time
from typing import Any, get_args

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import FormData

from deccaf.service.core import Service
from deccaf.service.errors import conflict, invalid
from deccaf.service.ledger import people, roster, trail
from deccaf.service.ledger.machines import seats
from deccaf.service.monitor.health import DAY
from deccaf.service.reports.person_report import report_person
from deccaf.service.store import keys
from deccaf.service.store.fields import Maker, Name
from deccaf.service.store.listing import Cut
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import LeadHere, Visitor, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.questions import Named

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_KEYS = 1_000
MOST_DAYS = 3_650
"""That a key is good for, unless it is good for ever."""
LONGEST = 200


@router.get("/people")
def team(here: Here, visitor: LeadHere) -> Response:
    """Everybody, and all keys."""
    return _page(here, visitor)


@router.post("/people")
async def add(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Add a person; a team that is not known yet is made."""
    form = await checked_form(request, visitor)
    name, team = _field(form, "name", Maker), _field(form, "team", Name)
    display = _text(form, "display") or name

    def change(connection: sa.Connection) -> None:
        at = time.time()
        if team not in [known.name for known in people.list_teams(connection, Cut(1_000)).items]:
            people.add_team(connection, team, visitor.actor, at)
        people.add_expert(connection, name, team, display, visitor.actor, at)

    await here.writer.run(change)
    return go("/people")


@router.post("/people/change")
async def change_person(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Rename somebody, put them out of use, or back; the key in models and trail stays."""
    form = await checked_form(request, visitor)
    name, display = _text(form, "name"), _text(form, "display") or None
    active = {"yes": True, "no": False}.get(_text(form, "active"))

    def change(connection: sa.Connection) -> None:
        roster.change_expert(connection, name, display, active, visitor.actor, time.time(), here.rng)

    await here.writer.run(change)
    here.keys.forget()
    return go(_back(form))


@router.post("/people/keys")
async def add_key(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Make a key; its secret is on this page once, and nowhere else."""
    form = await checked_form(request, visitor)
    role, person = _text(form, "role"), _text(form, "person") or None
    if role not in keys.ROLES:
        raise invalid("unknown-role", f"{role!r} is no role: choose {', '.join(keys.ROLES)}")
    label = _field(form, "label", Name) if _text(form, "label") else person or role
    days = _text(form, "days")
    if days and not (days.isdecimal() and 1 <= int(days) <= MOST_DAYS):
        raise invalid("bad-days", f"a key is good for 1 to {MOST_DAYS} days, or for ever; nothing was made")

    def change(connection: sa.Connection) -> str:
        at, expert = time.time(), person if role == "reviewer" else None
        until = at + int(days) * DAY if days else None
        made, secret = keys.create_key(connection, label, role, expert, at, expires_at=until)
        trail.record(connection, "key added", at, visitor.actor, None, None, expert, key=made, role=role)
        return secret

    answer = _page(here, visitor, secret=await here.writer.run(change), for_whom=label, role=role)
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.post("/people/keys/revoke")
async def revoke(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Put a key out of use; whoever is signed in with it is signed out."""
    form = await checked_form(request, visitor)
    number = _text(form, "key")
    if not number.isdecimal():
        raise invalid("no-key", "say which key")

    def change(connection: sa.Connection) -> None:
        if int(number) == visitor.actor.key_id:
            raise conflict("own-key", "a key cannot revoke itself; use another lead's key")
        at = time.time()
        keys.revoke_key(connection, int(number), at)
        trail.record(connection, "key revoked", at, visitor.actor, key=int(number))

    await here.writer.run(change)
    here.keys.forget()
    return go(_back(form))


@router.get("/person")
def person(here: Here, visitor: LeadHere, name: Named) -> Response:
    """One person: load, cost, calibration, learning curve, disagreements, keys."""
    found, mine = here.read(
        lambda c: (report_person(c, name, here.models.active, time.time()), _keys_of(c, name))
    )
    return page("person.html", visitor, found=found, keys=mine, own=visitor.actor.key_id)


def _page(here: Service, visitor: Visitor, **more: Any) -> Response:
    """The page of all people, with a new key's secret where one was just made."""
    team, machines, teams, known = here.read(
        lambda c: (
            people.list_experts(c),
            seats.machine_names(c),
            people.list_teams(c, Cut(1_000)).items,
            keys.list_keys(c, Cut(MOST_KEYS)).items,
        )
    )
    held: dict[str, int] = {}
    for key in known:
        if key.expert is not None and key.revoked_at is None:
            held[key.expert] = held.get(key.expert, 0) + 1
    values = {"secret": None, "for_whom": "", "role": "", **more}
    return page(
        "people.html",
        visitor,
        team=team,
        machines=machines,
        teams=teams,
        keys=known,
        held=held,
        own=visitor.actor.key_id,
        **values,
    )


def _keys_of(connection: sa.Connection, name: str) -> list[keys.Key]:
    return [key for key in keys.list_keys(connection, Cut(MOST_KEYS)).items if key.expert == name]


def _text(form: FormData, name: str) -> str:
    return str(form.get(name, "")).replace("\x00", "").strip()[:LONGEST]


def _field(form: FormData, name: str, kind: Any) -> str:
    """A field that the API takes too, refused with its name."""
    try:
        return str(TypeAdapter(kind).validate_python(_text(form, name)))
    except ValidationError as error:
        pattern = get_args(kind)[1].metadata[0].pattern if get_args(kind) else ""
        detail = f"{name}: {_text(form, name)!r} cannot be used; it must fit {pattern}"
        raise invalid("bad-field", detail) from error


def _back(form: FormData) -> str:
    path = str(form.get("back", ""))
    return path if path.startswith(("/people", "/person?")) and "\\" not in path else "/people"
