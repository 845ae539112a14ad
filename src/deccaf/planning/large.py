"""Plans of more cases than memory is meant for: their table is made part by part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment
from deccaf.planning.choices import Choices, plan_table
from deccaf.planning.plan import Plan, Summary, public_table
from deccaf.planning.scored import Scored


class LargePlan(Plan):
    """A plan whose losses lie in files; `frame` and `table` are made when they are asked for.

    `part` and `write` need little memory. The files are there as long as the plan is.
    """

    def __init__(
        self,
        scored: Scored,
        choices: Choices,
        prices: pd.DataFrame,
        summary: Summary,
        assignments: Mapping[str, Assignment],
        columns: Mapping[str, NDArray[Any]] | None = None,
        held: Any = None,
    ):
        own = {
            "scored": scored,
            "choices": choices,
            "prices": prices,
            "summary": summary,
            "assignments": assignments,
            "columns": dict(columns or {}),
            "constraints": None,
            "held": held,
        }
        self.__dict__.update(own)

    scored: Scored
    choices: Choices
    columns: dict[str, NDArray[Any]]
    held: Any
    """Keeps the folder of the losses."""

    def __len__(self) -> int:
        return len(self.choices.maker)

    def __repr__(self) -> str:
        return f"LargePlan({len(self):,} cases, {len(self.scored.makers):,} makers)"

    @property
    def ids(self) -> Any:
        """The case ids, in order."""
        return self.scored.ids

    @property
    def frame(self) -> pd.DataFrame:
        """The columns of a plan file, of all cases: as much memory as the file."""
        return self.part(slice(None))

    @property
    def table(self) -> Any:
        """`frame`, whose id goes by `case` too."""
        frame = self.frame
        return public_table(frame).set_axis(self.scored.ids.rename(None))

    @property
    def batch(self) -> NDArray[Any]:
        """The batch of each case, by name."""
        return np.asarray(self.prices.index.to_numpy()[self.choices.batch])

    def part(self, rows: slice) -> pd.DataFrame:
        """Some rows of `frame`."""
        frame = plan_table(self.scored, self.choices, self.prices.to_numpy(), rows)
        return frame.assign(**{name: values[rows] for name, values in self.columns.items()})

    def write(self, path: str | Path) -> None:
        """Write the plan file (parquet or CSV), or a folder of parquet files, whole or not at all."""
        self._write_parts(path)

    def summed(self, summary: Summary) -> Self:
        """The plan with another summary."""
        return self.changed(summary=summary)

    def extended(self, **columns: Any) -> Self:
        """The plan with further columns, one value per case."""
        return self.changed(columns={**self.columns, **columns})

    def changed(self, **what: Any) -> Self:
        """The plan with other columns, or another keeper of its files."""
        own = ("scored", "choices", "prices", "summary", "assignments", "columns", "held")
        return type(self)(**{name: getattr(self, name) for name in own} | what)
