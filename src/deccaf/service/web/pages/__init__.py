"""The pages: what a lead reads in the morning, and where a reviewer works through their queue.

Rendered here, without a script of their own in the page: htmx asks for the parts that change. `access`
signs people in, `render` turns templates into answers, `charts` draws, `words` puts numbers into
sentences; then one module for each page: `signing`, `today`, `plan`, `queue`, `cases`, `team`, `models`,
`monitoring`, `setup`. `casework` is how a case looks to whoever decides it, `learning` has histories and
candidates, with the pages in `lead` a lead acts beyond today, `programs` is about programs that talk with
the service, `openid` signs people in with an account of the house, `uploads` reads files of forms.

A page is a module with a router, a template, and a line in `routers`; what it shows comes from the floors
below.
"""

from deccaf.service.web.pages import cases, models, monitoring, plan, queue, setup, signing, team, today
from deccaf.service.web.pages.casework import display
from deccaf.service.web.pages.lead import audit, find, move, next_week, opinions, staff
from deccaf.service.web.pages.learning import candidate, lesson, past, trying_out
from deccaf.service.web.pages.openid import sign_in
from deccaf.service.web.pages.programs import api_docs, deliveries

_DESK = (signing, sign_in, today, next_week, plan, queue, opinions, find, move, cases, team, staff, audit)
_LEARNING = (models, monitoring, setup, past, lesson, candidate, trying_out)
_PAGES = (*_DESK, *_LEARNING, display, deliveries, api_docs)
routers = tuple(page.router for page in _PAGES)
"""All pages, in the order of the menu."""

__all__ = ["routers"]
