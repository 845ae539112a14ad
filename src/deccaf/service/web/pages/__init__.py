"""The pages: what a lead reads in the morning, and where a reviewer works through their queue.

Rendered here, without a script of their own in the page: htmx asks for the parts that change. `access`
signs people in, `render` turns templates into answers, `charts` draws, `words` puts numbers into
sentences; then one module for each page: `signing`, `today`, `plan`, `queue`, `cases`, `team`, `models`,
`monitoring`, `setup`; those with which a lead acts beyond today are in `lead`.

A page is a module with a router, a template, and a line in `routers`; what it shows comes from the floors
below.
"""

from deccaf.service.web.pages import cases, models, monitoring, plan, queue, setup, signing, team, today
from deccaf.service.web.pages.lead import audit, find, move, staff

_OF_THE_LEAD = (find, move, staff, audit)
routers = tuple(
    page.router
    for page in (signing, today, plan, queue, cases, *_OF_THE_LEAD, team, models, monitoring, setup)
)
"""All pages, in the order of the menu."""

__all__ = ["routers"]
