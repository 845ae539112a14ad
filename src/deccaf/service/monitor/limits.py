"""From where on a measure is an alert: limits that a lead can change, each change in the trail."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import sqlalchemy as sa
from pydantic import Field

from deccaf.evaluate.sequential import FALSE_DAYS
from deccaf.service.ledger import trail
from deccaf.service.monitor.checks import INDEX_LIMIT
from deccaf.service.store.fields import Strict
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import read_setting, write_setting

_NAME = "watch limits"


@dataclass(frozen=True)
class Limits:
    """What is in force."""

    drift: float = INDEX_LIMIT
    """Population stability index of a feature, or of the score."""
    label_days: float = 60.0
    """Days that the slowest tenth of the labels may take."""
    false_days: float = FALSE_DAYS
    """Days between false alerts about anybody's errors, and about the truth: on average at least so many."""


class NewLimits(Strict):
    """Limits to put in force; what is left out stays."""

    drift: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] | None = None
    label_days: Annotated[float, Field(gt=0, le=3650, allow_inf_nan=False)] | None = None
    false_days: Annotated[float, Field(ge=10, le=1e6, allow_inf_nan=False)] | None = None


def read_limits(connection: sa.Connection) -> Limits:
    """The limits in force."""
    return Limits(**(read_setting(connection, _NAME) or {}))


def change_limits(connection: sa.Connection, wanted: NewLimits, who: Actor, at: float) -> Limits:
    """Put other limits in force, from the next look on."""
    before = asdict(read_limits(connection))
    given = {name: value for name, value in wanted.model_dump().items() if value is not None}
    now = {**before, **given}
    if now != before:
        write_setting(connection, _NAME, now)
        trail.record(connection, "watch limits changed", at, who, **now)
    return Limits(**now)
