"""What hours cost and how many can be had: the `[staffing]` table of a configuration.

.. code-block:: toml

    [staffing]
    wage = { ann = 38, bob = 31 }
    hours = 8
    budget = 2500
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from deccaf.errors import ConfigError, did_you_mean

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

ByName = float | dict[str, float]
"""One number for everybody, or a number by name."""


class StaffingTable(BaseModel):
    """`[staffing]`: wages, who can be had how long, and what is expected to come."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wage: ByName
    """What an hour costs, in the unit of the costs; by name, only these people can be had."""
    hours: ByName = 8.0
    """Hours of a person in a day, at most."""
    week: ByName | None = None
    """Hours of a person in the week, at most; left out: those of all days."""
    step: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Hours come in whole multiples of this."""
    budget: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Wages of the week, at most."""
    minutes: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Minutes of a case; left out, from the seconds of the log."""
    weeks: int = Field(6, ge=1, le=52)
    """Past weeks that stand for the week to come, where the cases have dates."""
    growth: float = Field(1.0, gt=0, allow_inf_nan=False)
    """How many times the cases of these weeks are expected."""
    expected: dict[str, float] = {}
    """Cases of a weekday, where you know better."""
    cases: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Cases a day, where the cases have no dates."""
    days: int = Field(5, ge=1, le=7)
    """Days of the week, where the cases have no dates."""
    kind: str = ""
    """The column that tells the kind of a case: for what to train people in."""

    @field_validator("wage", "hours", "week")
    @classmethod
    def _from_zero(cls, value: ByName | None) -> ByName | None:
        for name, number in value.items() if isinstance(value, dict) else [("", value)]:
            if number is not None and not (math.isfinite(number) and number >= 0):
                whose = f" of {name!r}" if name else ""
                raise ValueError(f"expected a number from 0 on{whose}")
        return value

    @field_validator("expected")
    @classmethod
    def _weekdays(cls, value: dict[str, float]) -> dict[str, float]:
        for name, number in value.items():
            if name not in WEEKDAYS:
                raise ValueError(f"{name!r} is no weekday{did_you_mean(name, WEEKDAYS)}")
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(f"expected a number of cases from 0 on for {name}")
        return value

    def people(self, known: Sequence[str], machines: Collection[str] = ()) -> list[str]:
        """Who can be had: those with a wage by name, else everybody who is `known` and no machine."""
        for key in ("wage", "hours", "week"):
            named = getattr(self, key)
            for name in named if isinstance(named, dict) else ():
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise ConfigError(f"[staffing] {key}: the model knows nobody called {name!r}{hint}")
                if name in machines:
                    raise ConfigError(
                        f"[staffing] {key}: {name!r} is a machine: it has a price for each case and no hours"
                    )
        wanted = self.wage if isinstance(self.wage, dict) else known
        return [name for name in known if name in wanted and name not in machines]

    def each(self, key: str, people: Sequence[str], otherwise: float) -> list[float]:
        """A number for each of these people; `otherwise` for who is not named."""
        value: Any = getattr(self, key)
        if isinstance(value, dict):
            return [float(value.get(name, otherwise)) for name in people]
        return [otherwise if value is None else float(value)] * len(people)
