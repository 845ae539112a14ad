"""One cost beside another, in words: more or less by its sign, never a negative percentage."""

from __future__ import annotations

import math

SAME = 0.005
"""Costs that differ by less than this share are the same."""


def direction(saved: float) -> str:
    """The word for a share that is saved, or lost: the number beside it has no sign."""
    return "more" if saved < 0 else "less"


def compared(saved: float, name: str, digits: int = 0) -> str:
    """A share that is saved against something: "12% less than the machine", "28% more than", "as much as"."""
    if round(abs(saved), digits + 2) == 0:
        return f"as much as {name}"
    return f"{abs(saved):.{digits}%} {direction(saved)} than {name}"


def is_worse(cost: float | None, other: float | None) -> bool:
    """Whether a cost is higher than another by more than nothing to speak of."""
    if cost is None or other is None or not (math.isfinite(cost) and math.isfinite(other)):
        return False
    return cost - other > SAME * abs(other) + 1e-12
