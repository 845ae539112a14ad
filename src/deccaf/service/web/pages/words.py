"""Numbers as people write them, and sentences that give their meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deccaf.data.costs import Costs
from deccaf.planning.comparing import SAME, is_worse
from deccaf.service.reports.shift_report import MakerLoad


def amount(value: float | None) -> str:
    """A cost, with as many digits as carry meaning."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if 0 < size < 0.1:
        return f"{value:.2g}"
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A share."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f} %"


def count(number: int, one: str, many: str | None = None) -> str:
    """3 cases, 1 case."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """A stretch of time."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def unit(costs: Costs | None) -> str:
    """What one unit of cost is."""
    if costs is None:
        return "Costs are in the unit of the losses that came with the cases."
    if costs.columns:
        return f"Costs are in the unit of {', '.join(costs.columns)}, which every case brings along."
    matrix = costs.array()[0]
    parts = [
        f"deciding {decision} when the truth is {truth} costs {amount(float(matrix[y, m]))}"
        for y, truth in enumerate(costs.classes)
        for m, decision in enumerate(costs.classes)
        if y != m and len(costs.classes) <= 3
    ]
    return (
        "Cost units: " + ", ".join(parts) + "."
        if parts
        else "Costs are in the unit of the model's cost table."
    )


def plan_warnings(summary: Mapping[str, Any]) -> list[str]:
    """Why a plan is no good: the machine alone, or the plan without its wishes, would cost less."""
    cost, machine, plain = (summary.get(key) for key in ("cost", "machine_cost", "plain_cost"))
    found = []
    if cost is not None and machine is not None and is_worse(cost, machine):
        found.append(
            f"This plan costs {versus(cost, machine, 'the machine alone')}: let the machine decide, or lower "
            "what people must get."
        )
    if cost is not None and plain is not None and is_worse(cost, plain):
        asked = [] if not summary.get("constraints") else ["its constraints"]
        asked += ["its cases by lot"] if summary.get("by_lot") else []
        wishes = " and ".join(asked) or "what was asked for"
        found.append(f"This plan costs {versus(cost, plain, f'the same plan without {wishes}')}.")
    return found


def versus(cost: float, other: float | None, name: str) -> str:
    """How a cost compares with another."""
    if other is None or not other:
        return f"nothing is known yet about {name}"
    change = 1 - cost / other
    if abs(change) < SAME:
        return f"as much as {name} ({amount(other)})"
    return f"{percent(abs(change))} {'less' if change > 0 else 'more'} than {name} ({amount(other)})"


def cost_finding(cost: float, machine: float | None, chance: float | None) -> str:
    """The title of the comparison of costs."""
    if machine is None and chance is None:
        return "No case has been given to anybody yet"
    return (
        f"Today costs {versus(cost, machine, 'the machine alone')}, {versus(cost, chance, 'random sharing')}"
    )


def next_hour(load: MakerLoad, worth: float) -> str:
    """What one more hour of somebody would save."""
    if not load.active:
        return f"{load.maker} is out of use and gets no cases."
    if load.absent:
        return f"{load.maker} is away today."
    if not worth:
        return f"{load.maker} has time to spare: one more hour would save nothing today."
    return f"One more hour of {load.maker} would save up to {amount(worth)} today."


def load_finding(loads: Sequence[MakerLoad]) -> str:
    """The title of the capacity bars."""
    there = [load for load in loads if not load.absent]
    if not there:
        return "Nobody is at work"
    full = [load for load in there if load.capacity is not None and load.used >= load.capacity]
    limits = sum(load.capacity or 0 for load in there)
    used = sum(load.used for load in there if load.capacity is not None)
    left = f"{percent(1 - used / limits)} of the team's time is left" if limits else "nobody has a limit"
    return f"{len(full)} of {len(there)} people are full; {left}"


def fact(value: Any) -> Any:
    """A feature as a person reads it: a text whole, a vector by its length."""
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return "missing" if value is None else value


def is_long(value: Any) -> bool:
    """Whether a feature is a text that needs room of its own."""
    return isinstance(value, str) and (len(value) > 60 or "\n" in value)
