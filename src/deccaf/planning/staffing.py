"""How many hours of whom next week: wages against what their decisions save, and whom to train in what.

The past weeks stand for the week to come: each past Monday, with its cases as they came, is a Monday that may
come again. `assign.staffing` finds the roster that is best for all of them together, and proves it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign.staffing import PRECISION, Hours, Roster, StaffedDay, Week
from deccaf.data.amounts import cost
from deccaf.data.cases import Cases
from deccaf.data.costs import MACHINE
from deccaf.data.frames import as_pandas
from deccaf.data.notebook import card
from deccaf.data.review import review_costs
from deccaf.data.staffing import WEEKDAYS, StaffingTable
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.optional import drawn
from deccaf.planning.minutes import handling_minutes
from deccaf.planning.scored import Scored
from deccaf.planning.training import training
from deccaf.progress import Step, silent

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CASES = 6_000
"""Past cases that are looked at; of more, every second, third, ... is."""
SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8)
"""Points of the curve, in shares of the wages that pay."""
A_DAY = "each day"


@dataclass(frozen=True, eq=False)
class Staffing:
    """A roster for the week to come, what it costs, and what else could be had."""

    hours: pd.DataFrame
    """Days x people."""
    people: pd.DataFrame
    """One row per person: `wage`, `pace` (cases an hour), `hours` and `wages` of the week, `saves` (what the
    roster would cost more without them, their wages counted) and `next_hour` (what one more hour of theirs
    would save in errors, on the day where it saves most)."""
    days: pd.DataFrame
    """One row per day: `cases` that are expected, `low` and `high` of the past days, `hours`, `errors`, and
    `machine`, what errors would cost without people."""
    curve: pd.DataFrame
    """The best roster for less and less money, and everybody for all their hours: `budget`, `hours`,
    `wages`, `errors`, `cost` and `gap`."""
    training: pd.DataFrame
    """The best lessons: `expert`, `as_good_as`, `kind`, and what that `saves` in a week of this roster."""
    errors: float
    wages: float
    gap: float
    """No roster within the limits is cheaper by more than this."""
    times: int = 1
    """How often each of `days` comes in the week."""
    unit: str = ""
    notes: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """Errors and wages of the week."""
        return self.errors + self.wages

    @property
    def machine(self) -> float:
        """The cost of errors without people."""
        return float(self.days["machine"].sum()) * self.times

    @property
    def table(self) -> pd.DataFrame:
        """The roster as rows: `day`, `expert_id`, `hours`, and `upper`, the cases that this is room for; a
        capacity file once `day` is called `batch`."""
        rows = [(day, name, hours) for day, each in self.hours.iterrows() for name, hours in each.items()]
        table = pd.DataFrame(rows, columns=["day", "expert_id", "hours"])
        room = table["hours"] * table["expert_id"].map(self.people["pace"])
        return table.assign(upper=np.floor(room + 1e-9).astype("int64"))

    def plot(self) -> Any:
        """The frontier of cost against hours: a matplotlib figure. It needs the extra `report`."""
        return drawn("staffing", "staffing_picture", self)

    def _repr_html_(self) -> str:
        return card("Staffing", self.lines(), self.people)

    def lines(self) -> list[str]:
        """Sentences for people."""
        hours, cases = self.hours.to_numpy().sum() * self.times, self.days["cases"].sum() * self.times
        said = [
            f"{cases:,.0f} cases are expected; {hours:,.1f} hours for {cost(self.wages, self.unit, 2)} leave "
            f"errors of {cost(self.errors, self.unit, 2)}, together {cost(self.cost, self.unit, 2)}",
            f"without people errors would cost {cost(self.machine, self.unit, 2)}; everybody for all their "
            f"hours {cost(self.curve['cost'].iloc[-1], self.unit, 2)} with wages",
            f"proved: no roster within the limits is cheaper by more than {self.gap:.3g} "
            f"({100 * self.gap / self.cost if self.cost else 0.0:.2g} %)",
        ]
        for row in self.training.head(1).itertuples():
            said.append(
                f"best lesson: {row.expert} as good as {row.as_good_as} on {row.kind} would save "
                f"{cost(row.saves, self.unit, 2)} a week"
            )
        return [*said, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        return {
            "cost": self.cost,
            "errors": self.errors,
            "wages": self.wages,
            "machine": self.machine,
            "gap": self.gap,
            "days_of_a_kind": self.times,
            "roster": self.table.to_dict("records"),
            "people": self.people.reset_index().to_dict("records"),
            "days": self.days.reset_index().to_dict("records"),
            "curve": self.curve.to_dict("records"),
            "training": self.training.to_dict("records"),
            "notes": list(self.notes),
        }


def staffed(
    scored: Scored,
    table: StaffingTable,
    pace: Mapping[str, float],
    *,
    machines: Mapping[str, int] | None = None,
    dates: pd.Series | None = None,
    kind: pd.Series | None = None,
    lessons: int = 5,
    precision: float = PRECISION,
    seed: int = 0,
    step: Step = silent,
) -> Staffing:
    """The best roster for days like those of `scored`, whose makers are the machine and who can be had.

    `dates` says when each case came, `kind` what kind it is of; `pace` is cases an hour, by expert. Of other
    `machines` among the makers it is said how many cases a day they can take.
    """
    past, times = past_days(table, len(scored.ids), dates)
    scored = _machines_as_one(scored, machines or {}, max((each for _, _, each in past), default=0.0))
    people = [name for name in scored.makers if name != MACHINE]
    if not people:
        raise ConfigError("[staffing] wage: nobody can be had")
    pace = {name: pace[name] for name in people if name in pace}
    minutes = handling_minutes(table.minutes, None, 1, people, pace, "staffing")[0]
    days = [_staffed_day(scored.loss, name, rows, expected) for name, rows, expected in past]
    hours = _hours(table, people, 60.0 / minutes, len(days), times)
    step("Looking for the best hours")
    week = Week(days, seed)
    best = week.best(hours, precision)
    step("Other budgets")
    curve = _curve(week, hours, best, times, precision)
    step("Lessons")
    kinds = [[_kinds(kind, rows) for rows in each] for _, each, _ in past]
    lessons_found = training(week, best, kinds, people, _reviews(scored, people), lessons)
    return Staffing(
        hours=pd.DataFrame(best.hours, index=[day.name for day in days], columns=people),
        people=_people(week, hours, best, people, times),
        days=_days(week, best, past),
        curve=curve,
        training=lessons_found.assign(saves=lessons_found["saves"] * times),
        errors=float(best.errors.sum()) * times,
        wages=best.wages * times,
        gap=best.gap * times,
        times=times,
        unit="" if scored.terms is None else scored.terms.costs.unit,
        notes=(*_notes(scored, past, dates), *scored.notes),
    )


def _machines_as_one(scored: Scored, machines: Mapping[str, int], most: float) -> Scored:
    """Machines that can take every case of a day count as one that is the best of them; others are left out.

    Machines have no hours to ask for: what nobody's hours are spent on, the best of them decides.
    """
    place = {name: column for column, name in enumerate(scored.makers)}
    there = {name: limit for name, limit in machines.items() if name in place}
    able = [place[MACHINE], *(place[name] for name, limit in there.items() if limit >= most)]
    people = [name for name in scored.makers if name != MACHINE and name not in there]
    loss = np.asarray(scored.loss, np.float64)
    together = np.column_stack([loss[:, able].min(axis=1), loss[:, [place[name] for name in people]]])
    notes = tuple(
        f"left out: machine {name!r}, which can take {limit:,} cases a day where {most:,.0f} come; with it "
        "errors cost less than is said here"
        for name, limit in there.items()
        if limit < most
    )
    return replace(scored, makers=(MACHINE, *people), loss=together, notes=(*scored.notes, *notes))


def named_column(X: Any, name: str, asked: str) -> pd.Series:
    """A column of a table of cases, or of checked `Cases`, by its name."""
    table = pd.concat([X.groups, X.features], axis=1) if isinstance(X, Cases) else as_pandas(X)
    if name not in table:
        raise DataError(f"column {name!r}: missing; {asked} asks for it{did_you_mean(name, table.columns)}")
    found = table[name]
    return found if isinstance(found, pd.Series) else found.iloc[:, 0]


Past = tuple[str, list[Ints], float]
"""A day to come: its name, the rows of each past day that stands for it, and the cases that are expected."""


def past_days(table: StaffingTable, cases: int, dates: pd.Series | None) -> tuple[list[Past], int]:
    """The days to come, and how often each comes: by weekday where there are dates, else one like another.

    A weekday on which work came in fewer than half of the weeks is closed, and a day without cases stands for
    none.
    """
    known = dates is not None and pd.api.types.is_datetime64_any_dtype(dates.dtype)
    if not known:
        if table.cases is None:
            raise ConfigError(
                "[staffing] cases: the cases have no dates to forecast from; say how many cases come a day"
            )
        return [(A_DAY, [_thinned(np.arange(cases), cases)], table.cases)], table.days
    assert dates is not None
    day = dates.dt.normalize().reset_index(drop=True)
    day = day[day > day.max() - pd.Timedelta(weeks=table.weeks)]
    held = min(table.weeks, max(1, -(-((day.max() - day.min()).days + 1) // 7)))
    found: list[Past] = []
    for number, name in enumerate(WEEKDAYS):
        mine = day[day.dt.day_of_week == number]
        rows = [part.index.to_numpy(np.int64) for _, part in mine.groupby(mine)]
        expected = table.expected.get(name)
        if expected == 0 or (expected is None and len(rows) < held / 2) or not rows:
            if expected:
                raise ConfigError(f"[staffing] expected: no {name} of the past {held} weeks had cases")
            continue
        usual = float(np.mean([len(each) for each in rows])) * table.growth
        found.append((name, rows, usual if expected is None else expected))
    total = sum(len(each) for _, rows, _ in found for each in rows)
    return [(name, [_thinned(each, total) for each in rows], expected) for name, rows, expected in found], 1


def _thinned(rows: Ints, total: int) -> Ints:
    """Every second, third, ... row where there are too many in all."""
    return rows[:: max(1, -(-total // MOST_CASES))]


def _staffed_day(loss: Array, name: str, rows: Sequence[Ints], expected: float) -> StaffedDay:
    seen = float(np.mean([len(each) for each in rows]))
    return StaffedDay(name, tuple(np.asarray(loss[each], np.float64) for each in rows), expected / seen)


def _hours(table: StaffingTable, people: Sequence[str], pace: Array, days: int, times: int) -> Hours:
    """What can be had; of the week's limits and budget, each of `times` like days gets its share."""
    most = np.array(table.each("hours", people, 0.0))
    return Hours(
        wage=np.array(table.each("wage", people, 0.0)),
        pace=pace,
        most=np.tile(most, (days, 1)),
        week=np.array(table.each("week", people, np.inf)) / times,
        step=table.step,
        budget=None if table.budget is None else table.budget / times,
    )


def _curve(week: Week, hours: Hours, best: Roster, times: int, precision: float) -> pd.DataFrame:
    """The best roster for shares of the wages that pay, the best, and everybody for all their hours."""
    points = [
        (share * best.wages, week.best(replace(hours, budget=share * best.wages), precision))
        for share in SHARES
    ]
    limit = np.minimum(1.0, hours.week / np.maximum(hours.most.sum(axis=0), 1e-12))
    everybody = week.at(hours, hours.most * limit)
    points += [(best.wages, best), (np.nan, everybody)]
    rows = [
        (budget, roster.hours.sum(), roster.wages, roster.errors.sum(), roster.cost, roster.gap)
        for budget, roster in points
    ]
    kept = [  # a little more money may buy nothing
        row
        for row, after in itertools.pairwise(rows[:-1])
        if not np.allclose([row[1], row[4]], [after[1], after[4]])
    ]
    rows = [*kept, *rows[-2:]]
    return pd.DataFrame(rows, columns=["budget", "hours", "wages", "errors", "cost", "gap"]) * times


def _people(week: Week, hours: Hours, best: Roster, people: Sequence[str], times: int) -> pd.DataFrame:
    saves = []
    for place in range(len(people)):
        without = best.hours.copy()
        without[:, place] = 0.0
        saves.append(week.at(hours, without).cost - best.cost)
    weight = np.array([[day.weight] for day in week.days])
    return pd.DataFrame(
        {
            "wage": hours.wage,
            "pace": hours.pace,
            "hours": best.hours.sum(axis=0) * times,
            "wages": best.hours.sum(axis=0) * hours.wage * times,
            "saves": np.array(saves) * times,
            "next_hour": (best.prices / weight * hours.pace).max(axis=0),
        },
        index=pd.Index(people, name="expert"),
    )


def _days(week: Week, best: Roster, past: Sequence[Past]) -> pd.DataFrame:
    nobody = np.zeros(week.people, np.int64)
    scale = [expected / np.mean([len(rows) for rows in each]) for _, each, expected in past]
    return pd.DataFrame(
        {
            "cases": [expected for _, _, expected in past],
            "low": [f * min(map(len, each)) for f, (_, each, _) in zip(scale, past, strict=True)],
            "high": [f * max(map(len, each)) for f, (_, each, _) in zip(scale, past, strict=True)],
            "hours": best.hours.sum(axis=1),
            "errors": best.errors,
            "machine": [week.errors_at(number, nobody)[0] for number in range(len(week.days))],
        },
        index=pd.Index([name for name, _, _ in past], name="day"),
    )


def _kinds(kind: pd.Series | None, rows: Ints) -> NDArray[Any]:
    if kind is None:
        return np.full(len(rows), "all cases", dtype=object)
    return kind.iloc[rows].astype(str).to_numpy(object)


def _reviews(scored: Scored, people: Sequence[str]) -> Array:
    """What asking each of them costs beside wages: it stays theirs, however well they learn to decide."""
    return review_costs(0.0 if scored.terms is None else scored.terms.review_cost, people)


def _notes(scored: Scored, past: Sequence[Past], dates: pd.Series | None) -> list[str]:
    notes = []
    if _reviews(scored, [name for name in scored.makers if name != MACHINE]).any():
        notes.append("review_cost counts beside wages; if it was meant for people's time, set it to 0 here")
    fewest = min(len(each) for _, each, _ in past)
    if dates is not None and fewest < 3:
        notes.append(f"only {fewest} past day(s) stand for some weekday: take the hours as a rough guess")
    return notes
