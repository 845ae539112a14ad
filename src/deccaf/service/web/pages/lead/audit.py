"""*Audit*: the whole trail, filtered, as a page and as CSV; a person's data, and its erasure."""

from __future__ import annotations

import time

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from deccaf.service.core import Service
from deccaf.service.ledger import people
from deccaf.service.ledger.record import erasure
from deccaf.service.ledger.record.audit import kinds, read_trail
from deccaf.service.store.keys import Actor, list_keys
from deccaf.service.store.listing import Cut
from deccaf.service.web.common import Here
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.questions import Named, Trail, data_file, trail_file

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_ROWS = 100
MOST_KEYS = 500


@router.get("/audit")
def audit(here: Here, visitor: LeadHere, asked: Trail) -> Response:
    """The newest lines that are looked for."""
    question = asked.question()
    found, names, team, keys = here.read(
        lambda c: (
            read_trail(c, question, asked.mark, MOST_ROWS),
            kinds(c),
            people.list_experts(c),
            list_keys(c, Cut(MOST_KEYS)).items,
        )
    )
    return page(
        "audit.html",
        visitor,
        asked=asked,
        found=found,
        kinds=names,
        team=team,
        keys=keys,
        csv=asked.link("/audit.csv"),
        following=None if found.next is None else asked.link("/audit", after=str(found.next)),
        first=asked.link("/audit"),
    )


@router.get("/audit.csv")
def audit_file(here: Here, visitor: LeadHere, asked: Trail) -> Response:
    """All lines that are looked for."""
    return trail_file(here, asked.question())


@router.get("/person/data")
def person_file(here: Here, visitor: LeadHere, name: Named) -> Response:
    """Everything that is kept about somebody, in one file."""
    return data_file(here, name)


@router.post("/person/erase")
async def erase(request: Request, here: Here, visitor: LeadHere) -> Response:
    """Replace somebody's name by a pseudonym everywhere, once it was typed in again."""
    form = await checked_form(request, visitor)
    name = str(form.get("name", "")).replace("\x00", "")
    erasure.confirm(name, str(form.get("again", "")))
    done = await erase_now(here, name, visitor.actor)
    return go(f"/audit?person={done.pseudonym}")


async def erase_now(here: Service, name: str, who: Actor) -> erasure.Erased:
    """Erase, and let this process forget what it remembers under the name."""
    rewritten = await to_thread.run_sync(here.read, lambda c: erasure.rewritten_models(c, name))
    done = await here.writer.run(lambda c: erasure.erase(c, name, rewritten, who, time.time(), here.rng))
    here.keys.forget()
    await to_thread.run_sync(here.models.refresh)
    return done
