"""Plans: who decides each case, what that is expected to cost, and what one more case each would save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment
from deccaf.data.files import write_frame
from deccaf.errors import DataError, show


@dataclass(frozen=True, eq=False)
class Summary:
    """What a lead wants to know of a plan."""

    cases: int
    makers: pd.DataFrame
    """One row per maker: `cases`, `capacity` (empty: no limit), `price`, what the next case would save in the
    mean over batches, and `next_hour`, what the next hour would save, where the pace is known."""
    cost: float
    """Expected cost of the plan, reviews included."""
    machine_cost: float
    """The same if the machine decided everything."""
    random_cost: float
    """The same if everybody kept the number of cases they have, but got random ones."""
    close_calls: int
    gap: float
    """No plan within the limits is better than this one by more than `gap`."""
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Sentences for people."""
        saved = [
            f"{name} {other:,.2f} ({_change(self.cost, other)})"
            for name, other in (("the machine alone", self.machine_cost), ("random cases", self.random_cost))
        ]
        return [
            f"{self.cases:,} cases, expected cost {self.cost:,.2f}; {'; '.join(saved)}",
            f"{self.close_calls:,} close calls ({self.close_calls / max(self.cases, 1):.1%} of the cases)",
            *self.notes,
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        makers = self.makers.astype(object).where(self.makers.notna(), None).reset_index()
        return {
            "cases": self.cases,
            "cost": self.cost,
            "machine_cost": self.machine_cost,
            "random_cost": self.random_cost,
            "close_calls": self.close_calls,
            "gap": self.gap,
            "makers": makers.to_dict("records"),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """Who decides each case."""

    table: Any
    """One row per case: `case`, `maker`, `expected_loss`, `runner_up`, `runner_up_loss`, `price`, and
    `decision` where the machine decides. Of the kind and with the index of the table of cases."""
    prices: pd.DataFrame
    """Batches x makers: what one more case for this maker in this batch would save."""
    summary: Summary
    assignments: Mapping[str, Assignment] = field(repr=False)
    """The certified assignment of each batch, by its name."""
    frame: pd.DataFrame = field(repr=False)
    """The table as pandas, with `case_id`, as a plan file has it."""
    batch: NDArray[Any] = field(repr=False)
    """The batch of each case, by name."""
    constraints: pd.DataFrame | None = field(default=None, repr=False)
    """With constraints: one row per batch and constraint, with what it costs and which part of it binds."""

    def about(self, case: Any) -> tuple[str, dict[str, float]]:
        """Who decides a case, and the prices of its batch by maker."""
        found = np.flatnonzero(self.frame["case_id"].astype(str) == str(case))
        if not len(found):
            raise DataError(f"the plan has no case {show(case)}")
        prices = self.prices.loc[self.batch[found[0]]]
        return str(self.frame["maker"].iloc[found[0]]), {str(k): float(v) for k, v in prices.items()}

    def write(self, path: str | Path) -> None:
        """Write the plan file (parquet or CSV), whole or not at all."""
        write_frame(self.frame, path)


def _change(cost: float, other: float) -> str:
    if other <= 0:
        return "free"
    saved = 1.0 - cost / other
    return f"the plan saves {saved:.1%}" if saved >= 0 else f"the plan costs {-saved:.1%} more"
