"""What if somebody had more time, or less: the same cases planned again with other limits.

The command line, the service's drafts and the sliders of the pages all ask here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.capacity import UNLIMITED, Capacity
from deccaf.errors import DataError
from deccaf.planning.plan import Plan
from deccaf.planning.planner import make_plan
from deccaf.planning.scored import Scored


@dataclass(frozen=True, eq=False)
class WhatIf:
    """Two plans of the same cases."""

    now: Plan
    then: Plan

    @property
    def saves(self) -> float:
        """What the change saves; negative where it costs."""
        return self.now.summary.cost - self.then.summary.cost

    @property
    def table(self) -> pd.DataFrame:
        """By maker: cases now, cases then, and the difference."""
        before, after = self.now.summary.makers["cases"], self.then.summary.makers["cases"]
        makers = pd.DataFrame({"now": before, "then": after}).fillna(0).astype("int64")
        return makers.assign(change=makers["then"] - makers["now"])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        return {
            "now": self.now.summary.to_dict(),
            "then": self.then.summary.to_dict(),
            "saves": self.saves,
        }


def what_if(scored: Scored, capacity: Capacity, changes: Mapping[str, str], **options: Any) -> WhatIf:
    """Plan with the limits as they are, and changed; `options` are those of `make_plan`."""
    now = make_plan(scored, capacity, **options)
    return WhatIf(now, make_plan(scored, changed(capacity, changes), **options))


def changed(capacity: Capacity, changes: Mapping[str, str]) -> Capacity:
    """The capacity with more or less room in every batch: by maker "+10", "-5", or "40" to set it."""
    for maker, change in changes.items():
        capacity = _changed(capacity, maker, change)
    return capacity


def least_cost(scored: Scored, capacity: Capacity, **options: Any) -> float:
    """What the cases cost at best within the limits."""
    return make_plan(scored, capacity, **options).summary.cost


def _changed(capacity: Capacity, maker: str, change: str) -> Capacity:
    text = change.strip()
    try:
        number = int(text)
    except ValueError:
        number = -1 if text[:1] not in "+-" else UNLIMITED
    if abs(number) >= UNLIMITED or (number < 0 and not text.startswith("-")):
        raise DataError(f"what if {maker}={change}: expected a number of cases such as +10, -5 or 40")
    capacity.absent(maker)  # refuses who is not on the roster
    upper, lower = capacity.upper.copy(), capacity.lower.copy()
    present = upper[maker] if text[:1] in "+-" else 0 * upper[maker]
    upper[maker] = (present + number).clip(lower=0, upper=UNLIMITED)
    lower[maker] = np.minimum(lower[maker], upper[maker])
    return Capacity(upper, lower, capacity.eligible)
