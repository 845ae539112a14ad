"""A span for every request, under its route and never under its path: paths hold case ids."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deccaf import tracing


class TracedMiddleware:
    """Pure ASGI, and there only while traces are on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with tracing.request_span(scope["method"], headers) as span:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        tracing.failed(span)
                await send(message)

            await self.app(scope, receive, noted)
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                span.set_attribute("http.route", route)
                span.update_name(f"{scope['method']} {route}")
