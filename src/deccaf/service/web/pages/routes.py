"""All pages, in the order of the menu."""

from deccaf.service.web.pages import cases, models, queue, setup, signing, team, today, watch

routers = tuple(part.router for part in (signing, today, queue, cases, team, models, watch, setup))
