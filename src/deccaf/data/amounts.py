"""Costs and other numbers as people read them: the one place that chooses digits and names the unit.

The report of a backtest, the command line and the service's pages all write costs with `cost`; what the unit
is called comes from `[costs] unit` of the configuration and travels with `Costs`.
"""

from __future__ import annotations

import math
from typing import Any

UNITS = "units"
"""What costs are counted in where nobody has named it."""
_PLAIN = 1e15
"""Whole numbers up to here are written out."""


def amount(value: float | None) -> str:
    """A cost, with as many digits as carry meaning."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if 0 < size < 0.1:
        return number(value, 2)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2}f}"


def cost(value: Any, unit: str = "", digits: int | None = None) -> str:
    """A cost (a number, or None) with its unit; `digits` after the point, else as many as carry meaning."""
    known = value is not None and math.isfinite(value)
    shown = amount(value) if digits is None or not known else f"{float(value):,.{digits}f}"
    return f"{shown} {unit}" if unit and known else shown


def named(words: str, unit: str) -> str:
    """What a column or an axis of costs is called: `Cost`, or `Cost, EUR`."""
    return f"{words}, {unit}" if unit else words


def number(value: float, digits: int = 6) -> str:
    """A number with at most so many digits that carry meaning, and no exponent where one can do without."""
    if not math.isfinite(value):
        return "missing" if math.isnan(value) else str(value)
    if value == int(value) and abs(value) < _PLAIN:
        return str(int(value))
    size = math.floor(math.log10(abs(value)))
    if size < -5 or size > 15:
        return f"{value:.{max(digits - 1, 1)}e}"
    text = f"{value:.{max(digits - 1 - size, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
