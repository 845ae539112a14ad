"""The pages: what a lead reads in the morning, and where a reviewer works through their queue.

Rendered here, without a script of their own in the page: htmx asks for the parts that change. `access`
signs people in, `render` turns templates into answers, `charts` draws, `words` puts numbers into
sentences; then one module for each page: `signing`, `today`, `plan`, `queue`, `cases`, `team`, `models`,
`monitoring`, `setup`. `learning` has those about histories and candidates, `uploads` reads files of forms.

A page is a module with a router, a template, and a line in `routers`; what it shows comes from the floors
below.
"""

from deccaf.service.web.pages import cases, models, monitoring, plan, queue, setup, signing, team, today
from deccaf.service.web.pages.learning import candidate, lesson, past

routers = tuple(
    page.router
    for page in (signing, today, plan, queue, cases, team, models, monitoring, setup, past, lesson, candidate)
)
"""All pages, in the order of the menu."""

__all__ = ["routers"]
