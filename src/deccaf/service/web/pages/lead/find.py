"""*Cases*: those that are looked for, sorted, as a page and as CSV; the question stands in the address."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Response

from deccaf.service.ledger import case_records, people
from deccaf.service.ledger.moving.priority import LEVELS, NAMES
from deccaf.service.ledger.record.search import find_cases
from deccaf.service.web.common import Here, classes_of
from deccaf.service.web.pages.access import LeadHere
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.questions import Cases, case_file

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_ROWS = 100


@router.get("/cases")
def cases(here: Here, visitor: LeadHere, asked: Cases, moved: int = 0, stayed: int = 0) -> Response:
    """The latest cases, those that are looked for, or the one whose whole id was given."""
    question, name = asked.question(), asked.find.strip()
    if name and not asked.narrow("find") and here.read(lambda c: case_records.known_cases(c, [name])):
        return go(f"/cases/{quote(name, safe='')}")
    found, team = here.read(
        lambda c: (find_cases(c, question, asked.mark, MOST_ROWS), people.list_experts(c))
    )
    return page(
        "find.html",
        visitor,
        asked=asked,
        found=found,
        team=team,
        classes=classes_of(here),
        levels=list(LEVELS),
        level_of=NAMES,
        here_again=asked.link("/cases", after=asked.after),
        csv=asked.link("/cases.csv"),
        following=None if found.next is None else asked.link("/cases", after=str(found.next)),
        first=asked.link("/cases"),
        moved=moved,
        stayed=stayed,
    )


@router.get("/cases.csv")
def cases_file(here: Here, visitor: LeadHere, asked: Cases) -> Response:
    """All cases that are looked for, not only the first page."""
    return case_file(here, asked.question())
