"""What the API and the pages share: the service of a request, path parameters, times, numbers, classes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, TypeVar

import sqlalchemy as sa
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Path, Request, Response

from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.ledger import versions
from deccaf.service.store.fields import CASE_ID, MAKER

Id = Annotated[int, Path(ge=1, le=2**31)]
CasePath = Annotated[str, Path(pattern=CASE_ID)]
MakerPath = Annotated[str, Path(pattern=MAKER)]


async def service_of(request: Request) -> Service:
    """The service behind the app; a coroutine, as others would wait for a thread."""
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(service_of)]

Result = TypeVar("Result")
_READERS = CapacityLimiter(2)


async def in_reader(read: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """Have a file read: two at a time, so that memory is bounded, and whoever waits holds no thread."""
    return await to_thread.run_sync(partial(read, *arguments, **options), limiter=_READERS)


def as_time(value: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601."""
    return None if value is None else datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")


_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
"""1,000: a thousand to some, one to others."""


def number(what: str, given: object) -> float | None:
    """What somebody wrote into a field for a number, with a decimal point or comma; None: nothing."""
    text = str(given or "").strip()
    if not text:
        return None
    if _THOUSANDS.fullmatch(text):
        plain = text.replace(",", "")
        raise invalid("bad-number", f"{what}: {text[:40]!r} has two readings; write {plain[:40]}, or a point")
    try:
        found = float(text.replace(",", "."))
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise invalid("bad-number", f"{what}: {text[:40]!r} is no number")
    return found


def whole_number(what: str, given: object) -> int | None:
    """The same for a number that counts something."""
    found = number(what, given)
    if found is not None and found != int(found):
        raise invalid("bad-number", f"{what}: {found:g} is no whole number")
    return None if found is None else int(found)


def classes_of(here: Service) -> tuple[int | str, ...]:
    """What can be decided, by the model in force; empty without one."""
    return here.models.active.classes if here.models.active else ()


def class_of(text: str) -> int | str:
    """A class as somebody wrote it into a field: whole numbers as such."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def model_file(here: Service, model_id: int) -> Response:
    """A version of the model as a file to keep."""

    def look(connection: sa.Connection) -> bytes:
        versions.read_version(connection, model_id)
        return versions.read_content(connection, model_id)[1]

    headers = {"Content-Disposition": f'attachment; filename="model-{model_id}.deccaf"'}
    return Response(here.read(look), media_type="application/octet-stream", headers=headers)
