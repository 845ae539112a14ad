"""Numbers as people write them, and sentences that give their meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deccaf.data.amounts import UNITS, amount, cost, number
from deccaf.data.costs import Costs
from deccaf.planning.comparing import SAME, is_worse
from deccaf.service.reports.shift_report import MakerLoad


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


def unit(costs: Costs | None, in_unit: str = UNITS) -> str:
    """What one unit of cost is."""
    if costs is None:
        return "Costs are in the unit of the losses that came with the cases."
    if costs.columns:
        return f"Costs are in the unit of {', '.join(costs.columns)}, which every case brings along."
    matrix = costs.array()[0]
    parts = [
        f"deciding {decision} when the truth is {truth} costs {cost(float(matrix[y, m]), in_unit)}"
        for y, truth in enumerate(costs.classes)
        for m, decision in enumerate(costs.classes)
        if y != m and len(costs.classes) <= 3
    ]
    return (
        "What errors cost: " + ", ".join(parts) + "."
        if parts
        else "Costs are in the unit of the model's cost table."
    )


def plan_warnings(summary: Mapping[str, Any], in_unit: str = "") -> list[str]:
    """Why a plan is no good: the machine alone, or the plan without its wishes, would cost less."""
    mine, machine, plain = (summary.get(key) for key in ("cost", "machine_cost", "plain_cost"))
    if mine is not None and summary.get("waiting"):
        mine += summary["waiting"]["cost"]
    found = []
    if mine is not None and machine is not None and is_worse(mine, machine):
        found.append(
            f"This plan costs {versus(mine, machine, 'the machine alone', in_unit)}: let the machine decide, "
            "or lower what people must get."
        )
    if mine is not None and plain is not None and is_worse(mine, plain):
        asked = [] if not summary.get("constraints") else ["its constraints"]
        asked += ["its cases by lot"] if summary.get("by_lot") else []
        wishes = " and ".join(asked) or "what was asked for"
        found.append(f"This plan costs {versus(mine, plain, f'the same plan without {wishes}', in_unit)}.")
    return found


def versus(mine: float, other: float | None, name: str, in_unit: str = "") -> str:
    """How a cost compares with another."""
    if other is None or not other:
        return f"nothing is known yet about {name}"
    change = 1 - mine / other
    if abs(change) < SAME:
        return f"as much as {name} ({cost(other, in_unit)})"
    return f"{percent(abs(change))} {'less' if change > 0 else 'more'} than {name} ({cost(other, in_unit)})"


def cost_finding(mine: float, machine: float | None, chance: float | None, in_unit: str = "") -> str:
    """The title of the comparison of costs."""
    if machine is None and chance is None:
        return "No case has been given to anybody yet"
    alone = versus(mine, machine, "the machine alone", in_unit)
    return f"Today costs {alone}, {versus(mine, chance, 'random sharing', in_unit)}"


def next_hour(load: MakerLoad, worth: float) -> str:
    """What one more hour of somebody would save at most, for a column that says so."""
    if not load.active:
        return "out of use"
    if load.absent:
        return "away today"
    if worth:
        return amount(worth)
    is_full = load.capacity is not None and load.used >= load.capacity
    return "nothing that can be foreseen" if is_full else "nothing: time to spare"


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
    if isinstance(value, float):
        return number(value)
    return "missing" if value is None else value


def is_long(value: Any) -> bool:
    """Whether a feature is a text that needs room of its own."""
    return isinstance(value, str) and (len(value) > 60 or "\n" in value)
