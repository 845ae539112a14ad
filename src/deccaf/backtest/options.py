"""How to test: what a user may choose about a backtest, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deccaf.backtest.policies import BLIND, registered
from deccaf.data.capacity import Capacity
from deccaf.errors import ConfigError

DEFAULT = ("full-rejection", "machine", "random", "deccaf-paper", BLIND, "deccaf")
PERIODS = ("day", "week", "month")
"""Batches by the calendar, where the cases' times are dates."""


@dataclass(frozen=True)
class Options:
    """How to test."""

    policies: tuple[str, ...] = DEFAULT
    capacity_share: float | None = None
    """Share of everybody's observed load; None: the team can review half of the cases."""
    capacity: Capacity | None = None
    """A real roster instead; where it has one batch only, these are everybody's limits in every batch."""
    batch: str | None = None
    """What is planned together: a column (`batch`, the time column, a group column), or a `day`, `week` or
    `month` of the calendar. None: the `batch` column where the roster has batches, else all test cases."""
    split: Literal["auto", "time", "group", "random"] = "auto"
    folds: int | None = None
    """Refits; None: one for time, five for groups."""
    test_share: float = 0.25
    draws: int = 3
    """Draws of one decision per training case, where cases have several."""
    seed: int = 0
    confidence: float = 0.95
    worth: float = 0.02
    """The least gain worth having, as a share of what the alternative costs."""

    def __post_init__(self) -> None:
        if self.capacity_share is not None and not self.capacity_share > 0:
            raise ConfigError(f"capacity share: expected more than 0, got {self.capacity_share}")
        if self.capacity is not None and self.capacity_share is not None:
            raise ConfigError("give a roster or a capacity share, not both")
        if not 0 < self.test_share < 1 or self.draws < 1 or (self.folds is not None and self.folds < 1):
            raise ConfigError("test share must lie between 0 and 1, folds and draws must be at least 1")
        if not 0 < self.worth < 1 or not 0 < self.confidence < 1:
            raise ConfigError("a gain worth having and the confidence must lie between 0 and 1")
        if "deccaf" not in self.policies:
            raise ConfigError("policies: 'deccaf' must be among them, it is what is tested")
        for name in self.policies:
            registered(name)
