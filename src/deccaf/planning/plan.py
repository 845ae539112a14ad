"""Plans: who decides each case and why, what that is expected to cost, what one more case would save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment
from deccaf.data.amounts import cost
from deccaf.data.files import write_frame, write_frames
from deccaf.data.notebook import card
from deccaf.errors import DataError, show
from deccaf.evaluate.drift import Unlike
from deccaf.optional import drawn
from deccaf.planning.advice import AdviceSummary
from deccaf.planning.terms import Terms

PART = 500_000
"""Cases in a file of a folder."""

Why = Literal["best", "room", "constraint", "lot"]
"""Why a case went to its maker: nobody on the roster is cheaper; somebody is, but is full; somebody is and
has room, but a minimum load, an eligibility or a constraint stands against it; it was drawn at random."""


@dataclass(frozen=True, eq=False)
class Waited:
    """What waiting is expected to cost in a plan."""

    cost: float
    late: int
    """Cases that will be done after they are due."""
    hours: float
    """When the last one is done, from the start of the plan."""
    makers: pd.DataFrame
    """One row per maker: `hours` of work, `late` cases, what `waiting` costs, and what it would change if
    somebody as quick worked beside them for the first hour: `hour_saves`, and how many cases would be in time
    after all, `hour_in_time`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        makers = self.makers.reset_index().to_dict("records")
        return {"cost": self.cost, "late": self.late, "hours": self.hours, "makers": makers}

    def lines(self, errors: float, unit: str) -> list[str]:
        """Sentences for people."""
        both = cost(errors + self.cost, unit, 2)
        said = [
            f"errors {errors:,.2f} + waiting {self.cost:,.2f} = {both}; the last case is done after "
            f"{self.hours:.1f} h, {self.late:,} cases will be late"
        ]
        best = self.makers.sort_values("hour_saves", ascending=False, kind="stable").iloc[:1]
        for name, row in best[best["hour_saves"] > 0].iterrows():
            said.append(
                f"one more hour of {name} would save {cost(row['hour_saves'], unit, 2)} of waiting, and "
                f"{row['hour_in_time']:.0f} of the late cases would be in time"
            )
        return said


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
    """No plan within the limits is better than this one by more than `gap`, in what the plan minimises."""
    objective: float
    """What the plan minimises: the expected cost, except for the paper's methods."""
    notes: tuple[str, ...] = ()
    terms: Terms | None = None
    """The costs that the plan was made with."""
    warnings: tuple[Unlike, ...] = ()
    """How the cases are unlike those that the model learned from; the plan is then a guess."""
    cost_interval: tuple[float, float] | None = None
    """Where the cost lies with a chance of 90 %, as the level of the truths may be off next; None: no times
    to learn it from."""

    waiting: Waited | None = None
    """What waiting costs beside errors; None: nothing is said about it."""
    advice: AdviceSummary | None = None
    """What it is worth to ask machines before it is decided who decides; None: nobody asked."""

    @property
    def total(self) -> float:
        """Errors, reviews and waiting."""
        return self.cost + (0.0 if self.waiting is None else self.waiting.cost)

    @property
    def unit(self) -> str:
        """What costs are counted in; empty: nobody has named it."""
        return "" if self.terms is None else self.terms.costs.unit

    def lines(self) -> list[str]:
        """Sentences for people."""
        mine = cost(self.cost, self.unit, 2)
        saved = [
            f"{name} {cost(other, self.unit, 2)} ({_change(self.cost, other)})"
            for name, other in (("the machine alone", self.machine_cost), ("random cases", self.random_cost))
        ]
        return [
            *self.warning_lines(),
            f"{self.cases:,} cases, expected cost {mine}{self._ends()}; {'; '.join(saved)}",
            *([] if self.waiting is None else self.waiting.lines(self.cost, self.unit)),
            *([f"costs: {self.terms.words()}"] if self.terms is not None else []),
            f"proved: no plan within the limits is better by more than {self.gap:.3g}{self._share()}",
            *([] if self.advice is None else self.advice.lines(self.unit)),
            f"{self.close_calls:,} close calls ({self.close_calls / max(self.cases, 1):.1%} of the cases)",
            *self.notes,
        ]

    def warning_lines(self) -> list[str]:
        """How the cases are unlike those that the model learned from, in sentences."""
        if not self.warnings:
            return []
        head = (
            "warning: these cases are unlike those that the model learned from; do not trust the costs below"
        )
        return [head, *[f"warning: {unlike.said}" for unlike in self.warnings]]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        makers = self.makers.astype(object).where(self.makers.notna(), None).reset_index()
        return {
            "cases": self.cases,
            "cost": self.cost,
            "cost_interval": None if self.cost_interval is None else list(self.cost_interval),
            "machine_cost": self.machine_cost,
            "random_cost": self.random_cost,
            "close_calls": self.close_calls,
            "gap": self.gap,
            "makers": makers.to_dict("records"),
            "notes": list(self.notes),
            "costs": None if self.terms is None else self.terms.to_dict(),
            "warnings": [unlike.to_dict() for unlike in self.warnings],
            **({} if self.waiting is None else {"waiting": self.waiting.to_dict()}),
            **({} if self.advice is None else {"advice": self.advice.to_dict()}),
        }

    def _ends(self) -> str:
        if self.cost_interval is None:
            return ""
        low, high = self.cost_interval
        return f" ({low:,.2f} to {cost(high, self.unit, 2)}, as the level of the truths may be off)"

    def _share(self) -> str:
        return f" ({100 * self.gap / self.objective:.2g} %)" if self.objective > 0 else ""


@dataclass(frozen=True)
class Choice:
    """What a plan says of one case."""

    maker: str
    runner_up: str | None
    why: Why
    prices: Mapping[str, float]
    """By maker, in the case's batch."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Who decides each case."""

    table: Any
    """One row per case, of the kind and with the index of the table of cases: the columns of a plan file
    (`frame`), and `case`, which is `case_id` again."""
    prices: pd.DataFrame
    """Batches x makers: what one more case for this maker in this batch would save."""
    summary: Summary
    assignments: Mapping[str, Assignment] = field(repr=False)
    """The certified assignment of each batch, by its name."""
    frame: pd.DataFrame = field(repr=False)
    """What a plan file holds: `case_id`, `maker`, `expected_loss`, `runner_up`, `runner_up_loss`, `price`,
    `decision` where the machine decides, `why`, and from a model `p_CLASS`, `loss_low` and `loss_high`. Where
    something is said about waiting: `order` (the place in the maker's order), `finish` (hours from the start,
    or a time), `late`, and `waiting_cost`, what the case's waiting is expected to cost. With advice:
    `advice`, the machine to ask before it is decided who decides, and `advice_saves`, what that is expected
    to save."""
    batch: NDArray[Any] = field(repr=False)
    """The batch of each case, by name."""
    constraints: pd.DataFrame | None = field(default=None, repr=False)
    """With constraints: one row per batch and constraint, with what it costs and which part of it binds."""
    priced: NDArray[np.float64] | None = field(default=None, repr=False)
    """Where waiting counts: cases x makers, the loss and what waiting costs, the case's own and that of
    others, all others staying where they are."""

    def plot(self) -> Any:
        """Who gets how much, what room is left, whose time is worth most: a matplotlib figure.

        It needs the extra `report`.
        """
        return drawn("plans", "plan_picture", self)

    def _repr_html_(self) -> str:
        makers = self.summary.makers.rename(
            columns={"price": "next case saves", "next_hour": "next hour saves"}
        )
        return card("Plan", self.summary.lines(), makers.dropna(axis=1, how="all"))

    def about(self, case: Any) -> Choice:
        """What the plan says of a case."""
        found = np.flatnonzero(self.ids.astype(str) == str(case))
        if not len(found):
            raise DataError(f"the plan has no case {show(case)}")
        row = self.part(slice(found[0], found[0] + 1)).iloc[0]
        prices = self.prices.loc[self.batch[found[0]]]
        return Choice(
            str(row["maker"]),
            None if pd.isna(row["runner_up"]) else str(row["runner_up"]),
            row["why"],
            {str(name): float(price) for name, price in prices.items()},
        )

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def ids(self) -> Any:
        """The case ids, in order."""
        return self.frame["case_id"]

    def part(self, rows: slice) -> pd.DataFrame:
        """Some rows of `frame`."""
        return self.frame.iloc[rows]

    def summed(self, summary: Summary) -> Self:
        """The plan with another summary."""
        return replace(self, summary=summary)

    def extended(self, **columns: Any) -> Self:
        """The plan with further columns, one value per case."""
        frame = self.frame.assign(**columns)
        return replace(self, frame=frame, table=public_table(frame))

    def write(self, path: str | Path) -> None:
        """Write the plan file (parquet or CSV), or a folder of parquet files, whole or not at all."""
        if Path(path).suffix:
            write_frame(self.frame, path)
        else:
            self._write_parts(path)

    def _write_parts(self, path: str | Path) -> None:
        parts = (self.part(slice(start, start + PART)) for start in range(0, max(len(self), 1), PART))
        write_frames(parts, path)


def public_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a plan file as `Plan.table` has them: the id goes by `case` and by `case_id`."""
    table = frame.rename(columns={"case_id": "case"})
    return table.assign(case_id=frame["case_id"])


def _change(mine: float, other: float) -> str:
    if other <= 0:
        return "free"
    saved = 1.0 - mine / other
    return f"the plan saves {saved:.1%}" if saved >= 0 else f"the plan costs {-saved:.1%} more"
