"""Cases of the same weekday in earlier weeks, and of the days before: what a drift is compared with.

They are read only where cases differ from training. A week in which the alert was in force already is no
measure of how things should be.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd
import sqlalchemy as sa

from deccaf.service.decide.registry import Model
from deccaf.service.monitor import checks, windows
from deccaf.service.monitor.alerts import in_force
from deccaf.service.monitor.health import DAY

WEEKS = 4


class Earlier:
    """The window that is checked, shifted back by weeks and by days."""

    def __init__(
        self, connection: sa.Connection, model: Model, since: float, at: float, limit: float
    ) -> None:
        self._connection, self._model, self._since, self._at = connection, model, since, at
        self._limit = limit

    def confirmed(
        self, found: list[tuple[str, float, bool]], frame: pd.DataFrame
    ) -> list[tuple[str, float, bool]]:
        """The drift of the features; alerts only where the same weekday was not like that."""
        profiles = self._model.system.training_.get("profile") or {}
        return [
            (name, index, is_odd and self._unlike(name, profiles[name], frame))
            for name, index, is_odd in found
        ]

    def score_too(self, frame: pd.DataFrame, reference: dict[str, Any]) -> bool:
        """Whether scores that moved are also unlike those of the same weekday."""

        def score(cases: pd.DataFrame) -> pd.Series:
            return pd.Series(checks.class_chances(self._model, cases)[:, -1])

        weeks = self._weeks_without("drift score")
        return checks.unlike_its_weekday(score, reference, frame, weeks, self._days, self._limit)

    def _unlike(self, name: str, known: dict[str, Any], frame: pd.DataFrame) -> bool:
        def column(cases: pd.DataFrame) -> pd.Series:
            return checks.as_seen(self._model, cases)[name]

        weeks = self._weeks_without(f"drift {name}")
        return checks.unlike_its_weekday(column, known, frame, weeks, self._days, self._limit)

    def _weeks_without(self, alert: str) -> list[pd.DataFrame]:
        return [
            frame
            for back, frame in self._weeks.items()
            if not in_force(self._connection, alert, self._at - back)
        ]

    @cached_property
    def _weeks(self) -> dict[float, pd.DataFrame]:
        return self._read([7 * DAY * k for k in range(1, WEEKS + 1)])

    @cached_property
    def _days(self) -> list[pd.DataFrame]:
        return list(self._read([DAY * k for k in range(1, checks.DAYS_BEFORE + 1)]).values())

    def _read(self, back: list[float]) -> dict[float, pd.DataFrame]:
        """The cases of earlier windows that have enough."""
        found = {
            b: windows.latest_cases(self._connection, self._since - b, self._at - b, self._model)
            for b in back
        }
        return {b: frame for b, frame in found.items() if len(frame) >= checks.FEWEST_CASES}
