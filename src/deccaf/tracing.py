"""Traces for OpenTelemetry: what a request spends its time on, from HTTP to the database.

Off unless the standard variables ask for traces (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_EXPORTER`).
While they are off nothing of OpenTelemetry is imported here, and a span costs the look at one name. Spans
say how many and how long, never who or which case: no ids, names, values or messages of errors. Needs the
extra `otel`.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from deccaf.errors import ConfigError
from deccaf.optional import extra

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_NOTHING: AbstractContextManager[Any] = nullcontext()
_QUIET = {"record_exception": False, "set_status_on_exception": False}
"""Messages of errors name cases and people."""
_tracer: Any = None
_provider: Any = None


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter != "none" and bool(exporter or any(environment.get(name) for name in _ENDPOINTS))


def start(environment: Mapping[str, str] = os.environ) -> bool:
    """Begin, if traces are wanted; whether they are."""
    global _tracer, _provider
    if _tracer is not None or not wanted(environment):
        return _tracer is not None
    with extra("otel", "traces"):
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    exporter = _exporter(environment)
    name = environment.get("OTEL_SERVICE_NAME") or "deccaf"
    _provider = TracerProvider(resource=Resource.create({"service.name": name}))
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("deccaf")
    return True


def stop() -> None:
    """Send what waits, and be off again."""
    global _tracer, _provider
    provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        provider.shutdown()


def is_on() -> bool:
    """Whether anybody wants traces."""
    return _tracer is not None


def span(name: str, of: Sequence[Any] = (), **attributes: Any) -> AbstractContextManager[Any]:
    """What happens inside, under what is under way; or the first of `of`, linked with the others."""
    if _tracer is None:
        return _NOTHING
    from opentelemetry import trace

    parent, *others = of or [None]
    links = [trace.Link(trace.get_current_span(one).get_span_context()) for one in others]
    held = {f"deccaf.{key}": value for key, value in attributes.items()}
    found: AbstractContextManager[Any] = _tracer.start_as_current_span(
        f"deccaf.{name}", context=parent, links=links, attributes=held, **_QUIET
    )
    return found


def traced(name: str) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """A function whose calls are spans."""

    def around(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        @wraps(function)
        def inner(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
            if _tracer is None:
                return function(*args, **kwargs)
            with span(name):
                return function(*args, **kwargs)

        return inner

    return around


def under_way() -> Any:
    """What is under way here, for `span(of=...)` in another thread; None while traces are off."""
    if _tracer is None:
        return None
    from opentelemetry import context

    return context.get_current()


def carried(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """A function that another thread calls as if it were here."""
    if _tracer is None:
        return function
    context = contextvars.copy_context()

    def inner(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        return context.run(function, *args, **kwargs)

    return inner


def request_span(method: str, headers: Mapping[str, str]) -> AbstractContextManager[Any]:
    """An HTTP request that came in, in the trace of its sender where the headers name one."""
    from opentelemetry import propagate, trace

    found: AbstractContextManager[Any] = _tracer.start_as_current_span(
        method,
        context=propagate.extract(headers),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method},
        **_QUIET,
    )
    return found


def query_begins(statement: str, system: str) -> Any:
    """A statement to the database, as part of what is under way; None where nothing is (housekeeping)."""
    from opentelemetry import trace

    if _tracer is None or not trace.get_current_span().is_recording():
        return None
    verb = statement.split(maxsplit=1)[0].upper() if statement.strip() else "QUERY"
    held = {"db.system.name": system, "db.operation.name": verb, "db.query.text": statement[:2000]}
    return _tracer.start_span(verb, kind=trace.SpanKind.CLIENT, attributes=held)


def failed(span: Any) -> None:
    """Something went wrong inside of it."""
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)


def _exporter(environment: Mapping[str, str]) -> Any:
    kind = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if kind != "otlp":
        raise ConfigError(f"OTEL_TRACES_EXPORTER={kind}: expected otlp, console or none")
    if protocol != "http/protobuf":
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: traces go over http/protobuf")
    with extra("otel", "traces"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return OTLPSpanExporter()
