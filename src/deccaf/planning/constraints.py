"""Plans under a `[constraints]` table: what it asks for, with the columns and beliefs that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from deccaf.assign import (
    Assignment,
    AssignmentProblem,
    Balance,
    ConstrainedPlan,
    GroupBand,
    HandlingMinutes,
    Opinions,
    RandomQuota,
    Reviewers,
    solve_constrained_problem,
)
from deccaf.assign.constrained.constraints import Constraint
from deccaf.data.config import BandTable, ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.errors import ConfigError
from deccaf.planning.minutes import handling_minutes, numbers
from deccaf.planning.plan import Plan, public_table
from deccaf.planning.scored import Scored

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


_Asked = TypeVar("_Asked", bound=BaseModel)


def read_constraints(given: ConstraintsTable | Mapping[str, Any]) -> ConstraintsTable:
    """A `[constraints]` table, or the same as a mapping."""
    return read_table(given, ConstraintsTable, "constraints")


def read_table(given: _Asked | Mapping[str, Any], kind: type[_Asked], name: str) -> _Asked:
    """A table of the configuration, or the same as a mapping."""
    if isinstance(given, kind):
        return given
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name}: {where}: {first['msg']}") from error


@dataclass(eq=False)
class ConstrainedPlanner:
    """Solves each batch under its constraints, and remembers what they cost."""

    table: ConstraintsTable
    scored: Scored
    pace: Mapping[str, float]
    """Cases an hour, by expert, where the log had seconds."""
    time_limit: float
    solved: list[tuple[Ints, str, ConstrainedPlan]] = field(default_factory=list)

    @property
    def makers(self) -> tuple[str, ...]:
        """The machine, then the experts."""
        return self.scored.makers

    @property
    def opinions(self) -> Opinions | None:
        """What everyone would say on every case."""
        return self.scored.opinions

    @property
    def columns(self) -> pd.DataFrame:
        """The columns that the table names, one row per case."""
        assert self.scored.columns is not None
        return self.scored.columns

    @property
    def people(self) -> list[str]:
        """Everyone but machines."""
        return [name for name in self.makers if name != MACHINE and name not in self.scored.machines]

    @property
    def reviewers(self) -> list[str]:
        """Who may be among several reviewers of a case."""
        if self.table.reviewers is None or not self.table.reviewers.machines:
            return self.people
        return [name for name in self.makers if name != MACHINE]

    def __call__(self, problem: AssignmentProblem, rows: Ints) -> Assignment:
        """The plan of one batch, as a plain assignment to the first reviewer."""
        plan = solve_constrained_problem(problem, self.constraints(rows), self.time_limit)
        self.solved.append((rows, problem.name, plan))
        first = plan.maker if plan.maker.ndim == 1 else plan.maker[:, 0]
        return Assignment(
            first,
            plan.objective,
            plan.prices,
            plan.gap,
            "constraints",
            plan.seconds,
            problem.cases,
            problem.makers,
        )

    def loads(self) -> list[Ints]:
        """Cases by maker in each batch, further reviewers counted."""
        every = [plan.maker[plan.maker >= 0] for _, _, plan in self.solved]
        return [np.bincount(one, minlength=len(self.makers)) for one in every]

    def constraints(self, rows: Ints) -> list[Constraint]:
        """The constraints for some cases."""
        table = self.table
        found: list[Constraint] = []
        opinions = None if self.opinions is None else self.opinions.take(rows)
        if table.minutes is not None:
            found.append(HandlingMinutes(self._minutes(rows), table.minutes.capacity))
        if table.reviewers is not None:
            asked = table.reviewers
            count = self._numbers(asked.count, rows) if isinstance(asked.count, str) else asked.count
            rule = None if opinions is None else replace(opinions, rule=asked.rule)
            found.append(
                Reviewers(
                    count, rule, asked.conflicts, one_of=asked.one_of, among=self.reviewers, up_to=asked.up_to
                )
            )
        for band in table.band:
            group = self._groups(band, rows)
            name = f"{band.measure} by {band.group}"
            found.append(GroupBand(group, band.within, band.measure, self.people, opinions, name))
        if table.balance is not None:
            found.append(Balance(table.balance.within, makers=self.people, around=table.balance.around))
        if table.random is not None:
            found.append(RandomQuota(table.random.share, table.random.seed, among=self.people))
        return found

    def extended(self, plan: Plan) -> Plan:
        """The plan with its other reviewers, its random cases, and the price of each constraint."""
        frame, cost = plan.frame.copy(), np.empty(len(plan.frame))
        names, prices = np.array(self.makers, dtype=object), []
        for rows, batch, found in self.solved:
            cost[rows] = found.loss
            prices.append(found.table.assign(batch=batch.removeprefix("batch ") or "all"))
        several = [found.maker.shape[1] for _, _, found in self.solved if found.maker.ndim == 2]
        for slot in range(1, max(several, default=1)):
            other = np.full(len(frame), -1)
            for rows, _, found in self.solved:
                if found.maker.ndim == 2 and found.maker.shape[1] > slot:
                    other[rows] = found.maker[:, slot]
            shown = pd.Series(names[other], index=frame.index).where(other >= 0, None).astype("str")
            frame[f"reviewer_{slot + 1}"] = shown
        if self.table.random is not None:
            chance = np.full(len(frame), np.nan)
            for rows, _, found in self.solved:
                chance[rows] = np.nan if found.draw is None else found.draw.chance
            frame["random"], frame["propensity"] = np.isfinite(chance), chance
            frame.loc[frame["random"], "why"] = "lot"
        if several:
            frame["expected_loss"] = cost
        if "reviewer_2" in frame:
            frame.loc[frame["reviewer_2"].notna(), "why"] = "constraint"
        summary = replace(plan.summary, cost=float(frame["expected_loss"].sum()))
        table = public_table(frame)
        constraints = pd.concat(prices, ignore_index=True)
        constraints = constraints[["batch", "constraint", "with", "without", "price", "binds"]]
        return replace(plan, frame=frame, table=table, summary=summary, constraints=constraints)

    def _minutes(self, rows: Ints) -> Array:
        """Minutes of every case and maker; the machine takes none."""
        assert self.table.minutes is not None
        asked = self.table.minutes.minutes
        known = self.columns.iloc[rows] if isinstance(asked, str) else None
        none = dict.fromkeys(self.scored.machines, 0.0)  # machines have no hours
        return handling_minutes(asked, known, len(rows), self.makers, self.pace, "constraints.minutes", none)

    def _numbers(self, asked: float | str, rows: Ints) -> Array:
        return numbers(asked, self.columns, len(self.columns))[rows]

    def _groups(self, band: BandTable, rows: Ints) -> NDArray[Any]:
        if not band.cut:
            return self.columns[band.group].astype("str").fillna("missing").to_numpy(object)[rows]
        cuts = sorted(band.cut)
        names = [f"below {cuts[0]:g}", *[f"{a:g} to {b:g}" for a, b in pairwise(cuts)]]
        names.append(f"{cuts[-1]:g} and more")
        return np.array(names, dtype=object)[np.digitize(self._numbers(band.group, rows), cuts)]


def needs_opinions(table: ConstraintsTable) -> bool:
    """Whether the constraints look at how everyone decides, not only at losses."""
    return table.reviewers is not None or any(band.measure != "deferral" for band in table.band)
