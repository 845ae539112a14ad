"""All pages, in the order of the menu."""

from deccaf.service.pages import cases, queue, setup, signing, today

routers = tuple(part.router for part in (signing, today, queue, cases, setup))
