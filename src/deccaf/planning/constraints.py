"""Plans under the wishes of a `[constraints]` table: wishes from the table, the cases and the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import ValidationError

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
    grant_wishes,
)
from deccaf.assign.constrained.constraints import Wish
from deccaf.data.capacity import Capacity
from deccaf.data.config import BandTable, ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.data.tables import Cases
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.planning.plan import Plan, Scored, make_plan

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def read_constraints(given: ConstraintsTable | Mapping[str, Any]) -> ConstraintsTable:
    """A `[constraints]` table, or the same as a mapping."""
    if isinstance(given, ConstraintsTable):
        return given
    try:
        return ConstraintsTable.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"constraints: {where}: {first['msg']}") from error


@dataclass(eq=False)
class Granter:
    """Solves each batch under its wishes, and remembers what they cost."""

    table: ConstraintsTable
    columns: pd.DataFrame
    """The columns that the table names, one row per case."""
    makers: tuple[str, ...]
    opinions: Opinions | None
    pace: Mapping[str, float]
    """Cases an hour, by expert, where the log had seconds."""
    time_limit: float
    solved: list[tuple[Ints, str, ConstrainedPlan]] = field(default_factory=list)

    def __post_init__(self) -> None:
        missing = [name for name in self.table.columns if name not in self.columns]
        if missing:
            hint = did_you_mean(missing[0], [str(name) for name in self.columns])
            raise DataError(f"column {missing[0]!r}: missing; [constraints] asks for it{hint}")

    @property
    def people(self) -> list[str]:
        """Everyone but the machine."""
        return [name for name in self.makers if name != MACHINE]

    def __call__(self, problem: AssignmentProblem, rows: Ints) -> Assignment:
        """The plan of one batch, as a plain assignment to the first reviewer."""
        plan = grant_wishes(problem, self.wishes(rows), self.time_limit)
        self.solved.append((rows, problem.name, plan))
        first = plan.maker if plan.maker.ndim == 1 else plan.maker[:, 0]
        return Assignment(
            first,
            plan.objective,
            plan.prices,
            plan.gap,
            "wishes",
            plan.seconds,
            problem.cases,
            problem.makers,
        )

    def wishes(self, rows: Ints) -> list[Wish]:
        """The wishes for some cases."""
        table = self.table
        found: list[Wish] = []
        opinions = None if self.opinions is None else self.opinions.take(rows)
        if table.minutes is not None:
            found.append(HandlingMinutes(self._minutes(rows), table.minutes.capacity))
        if table.reviewers is not None:
            asked = table.reviewers
            count = self._numbers(asked.count, rows) if isinstance(asked.count, str) else asked.count
            rule = None if opinions is None else replace(opinions, rule=asked.rule)
            found.append(
                Reviewers(
                    count, rule, asked.conflicts, one_of=asked.one_of, among=self.people, up_to=asked.up_to
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
        """The plan with its other reviewers, its random cases, and the price of each wish."""
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
        if several:
            frame["expected_loss"] = cost
        summary = replace(plan.summary, cost=float(frame["expected_loss"].sum()))
        table = frame.rename(columns={"case_id": "case"})
        wishes = pd.concat(prices, ignore_index=True)
        wishes = wishes[["batch", "wish", "with", "without", "price", "binds"]]
        return replace(plan, frame=frame, table=table, summary=summary, wishes=wishes)

    def _minutes(self, rows: Ints) -> Array:
        """Minutes of every case and maker; the machine takes none."""
        assert self.table.minutes is not None
        asked = self.table.minutes.minutes
        if asked is None:
            if not self.pace:
                raise ConfigError(
                    "[constraints.minutes] minutes: the log had no seconds; give a column or number"
                )
            usual = float(np.median([60.0 / pace for pace in self.pace.values()]))
            each = np.array([60.0 / self.pace[name] if name in self.pace else usual for name in self.makers])
        else:
            each = np.ones(len(self.makers))
        each[[name == MACHINE for name in self.makers]] = 0.0
        known = np.ones(len(rows)) if asked is None else self._numbers(asked, rows)
        return np.outer(known, each)

    def _numbers(self, asked: float | str, rows: Ints) -> Array:
        if not isinstance(asked, str):
            return np.full(len(rows), float(asked))
        column = pd.to_numeric(self.columns[asked], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        if not np.isfinite(column).all():
            raise DataError(f"column {asked!r}: {(~np.isfinite(column)).sum()} values are no numbers")
        return column[rows]

    def _groups(self, band: BandTable, rows: Ints) -> NDArray[Any]:
        if not band.cut:
            return self.columns[band.group].astype("str").fillna("missing").to_numpy(object)[rows]
        cuts = sorted(band.cut)
        names = [f"below {cuts[0]:g}", *[f"{a:g} to {b:g}" for a, b in pairwise(cuts)]]
        names.append(f"{cuts[-1]:g} and more")
        return np.array(names, dtype=object)[np.digitize(self._numbers(band.group, rows), cuts)]


def plan_with_wishes(
    granter: Granter, scored: Scored, capacity: Capacity, batch: pd.Series | None, seed: int
) -> Plan:
    """The plan under all wishes, batch by batch."""
    plan = make_plan(scored, capacity, batch, pace=granter.pace, seed=seed, solver=granter)
    return granter.extended(plan)


def all_columns(cases: Cases) -> pd.DataFrame:
    """Groups and features in one table; a group that is also a feature stands once."""
    return pd.concat(
        [cases.groups, cases.features.drop(columns=cases.groups.columns, errors="ignore")], axis=1
    )


def needs_opinions(table: ConstraintsTable) -> bool:
    """Whether the wishes look at how everyone decides, not only at losses."""
    return table.reviewers is not None or any(band.measure != "deferral" for band in table.band)
