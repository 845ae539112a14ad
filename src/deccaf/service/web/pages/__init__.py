"""The pages: what a lead reads in the morning, and where a reviewer works through their queue.

Rendered here, without a script of their own in the page: htmx asks for the parts that change. `access` signs
people in, `render` turns templates into answers, `charts` draws, `words` says what a number means; then one
module for each page.
"""

from deccaf.service.web.pages.routes import routers

__all__ = ["routers"]
