"""Search budgets: how many settings are tried on held-out rows before a model is chosen, and from where.

`quick` tries the few settings that a model comes with, `standard` and `paper` draw more from its space. The
methods of the paper take `paper` at its word: they make the appendix's searches, trial by trial
(`deccaf.models.paper.searching`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deccaf.errors import ConfigError, did_you_mean

BUDGETS = {"quick": 0, "standard": 20, "paper": 120}
"""Settings that are drawn beside those that the models come with."""
PUBLISHED = "paper"
"""The budget of the paper's appendix."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole numbers if both are; uniform, or so in the log."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ConfigError(f"range from {self.low} to {self.high}: empty, or not positive where it is log")

    @property
    def whole(self) -> bool:
        """Whether these are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Choice:
    """One of a few options."""

    options: tuple[bool | int | float | str, ...]


Space = Mapping[str, Any]
"""Parameter: a `Range`, a `Choice`, or the one value that it always has."""


def candidates(
    known: Sequence[Mapping[str, Any]], space: Space, budget: str, seed: int
) -> list[Mapping[str, Any]]:
    """The settings that a model chooses from: those it comes with, and as many drawn as the budget has."""
    if budget not in BUDGETS:
        hint = did_you_mean(str(budget), BUDGETS)
        raise ConfigError(f"budget: expected one of {', '.join(BUDGETS)}, got {budget!r}{hint}")
    rng = np.random.default_rng(seed)
    return [*known, *[_drawn(space, rng) for _ in range(BUDGETS[budget])]]


def _drawn(space: Space, rng: np.random.Generator) -> dict[str, Any]:
    return {name: _value(values, rng) for name, values in space.items()}


def _value(values: Any, rng: np.random.Generator) -> Any:
    if isinstance(values, Choice):
        return values.options[int(rng.integers(len(values.options)))]
    if not isinstance(values, Range):
        return values
    if values.log:
        drawn = float(np.exp(rng.uniform(np.log(values.low), np.log(values.high))))
    else:
        drawn = float(rng.uniform(values.low, values.high))
    return round(drawn) if values.whole else drawn
