"""What waiting costs in a plan: who takes which case and when, what that costs, what will be late.

`read_waits` brings the columns `due` and `waiting_cost` and the `[waiting]` table together. `Waits.planned`
settles who and when together (`assign.waiting.schedule`); `Waits.shown` puts a plan that is settled in order.
Where waiting costs nothing, the plan is the one that is made without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem
from deccaf.assign.waiting.harm import ROUNDING, Harm
from deccaf.assign.waiting.schedule import Schedule, in_order, schedule
from deccaf.data.config import ConstraintsTable, ServiceLevelTable, WaitingTable
from deccaf.data.schema import Columns
from deccaf.data.times import parse_times
from deccaf.errors import CapacityError, ConfigError, DataError, show
from deccaf.planning.minutes import handling_minutes, numbers
from deccaf.planning.plan import Plan, Waited
from deccaf.planning.scored import Scored

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 8
"""How often the price of a service level is halved, once one is found that keeps it."""
DEAREST = 2.0**20
"""Above this many times the mean loss a service level is given up."""


@dataclass(frozen=True, eq=False)
class Queued:
    """Cases that somebody has already and keeps: what is planned comes before, between or after them."""

    harm: Harm
    maker: Ints
    hours: Array
    """(cases, makers)"""
    priority: Ints

    def alone(self, makers: int) -> Array:
        """What their waiting costs each maker's cases without the plan."""
        none = np.zeros((len(self.maker), makers))
        return self.by_maker(
            in_order(none, self.harm, self.hours, self.maker, 0, self.priority).finish, makers
        )

    def by_maker(self, finish: Array, makers: int) -> Array:
        """What their waiting costs if they are done then."""
        return np.asarray(np.bincount(self.maker, self.harm.cost(finish), makers), np.float64)

    def joined(self, problem: AssignmentProblem) -> AssignmentProblem:
        """The problem with these cases as further rows, which may only go to who has them."""
        cases, makers = problem.shape
        own = np.zeros((len(self.maker), makers), np.bool_)
        own[np.arange(len(own)), self.maker] = True
        load = np.bincount(self.maker, minlength=makers)
        may = np.ones((cases, makers), np.bool_) if problem.eligible is None else problem.eligible
        return replace(
            problem,
            loss=np.vstack([np.asarray(problem.loss, np.float64), np.zeros(own.shape)]),
            upper=problem.upper + load,
            lower=problem.lower + load,
            eligible=np.vstack([may, own]),
            cases=None,
        )


@dataclass(frozen=True, eq=False)
class Waits:
    """What waiting costs the cases of a plan, and how long they take."""

    harm: Harm
    hours: Array
    """(cases, makers)"""
    start: pd.Timestamp | None = None
    """When the plan begins, where due times are dates."""
    levels: tuple[tuple[ServiceLevelTable, NDArray[np.bool_]], ...] = ()
    """Service levels, with the cases that each is about."""
    priority: Ints | None = None
    promises: Harm | None = None
    """The same with what service levels put on a case: it makes the order, and is no cost."""
    queued: Queued | None = None
    """What everybody has already, where the plan is for a running day."""

    @property
    def counts(self) -> bool:
        """Whether it has a say in who gets which case."""
        return self.harm.priced or bool(self.levels)

    def planned(
        self, problem: AssignmentProblem, rows: Ints, time_limit: float, seed: int
    ) -> tuple[Schedule, Harm, pd.DataFrame]:
        """Who and when for a batch, what waiting costs with promises, and what each constraint costs."""
        cases, before_plan = len(rows), 0.0
        harm, hours, priority = self._with_queue(self.harm, rows)
        if self.queued is not None:
            problem = self.queued.joined(problem)
            before_plan = float(self.queued.alone(problem.shape[1]).sum())
        options: dict[str, Any] = {"time_limit": time_limit, "seed": seed}
        found, costs = schedule(problem, harm, hours, 0, priority, **options), []
        if self.priority is not None:
            queue = None if self.queued is None else self._levels(np.zeros(cases, np.int64))
            free = schedule(problem, harm, hours, 0, queue, **options)
            costs.append(_price("priority", found.cost, free.cost, True))
        for level, members in self.levels:
            mine = np.concatenate([members[rows], np.zeros(len(harm) - cases, np.bool_)])
            before, price = found.cost, harm.broken
            harm, found = _kept(problem, harm, hours, priority, level, mine, found, options)
            paid = _without_promises(found, harm)
            costs.append(_price(level.name, paid, before, paid > before + 1e-9))
            allowed = int((1.0 - level.share) * mine.sum() + 1e-9)  # promises that may be broken
            bound = found.bound - allowed * float((harm.broken - price).max(initial=0.0))
            found = replace(found, waiting=paid - found.loss, bound=bound)
        # of what is queued already, only what it waits more because of the plan is the plan's
        found = replace(found, waiting=found.waiting - before_plan, bound=found.bound - before_plan)
        return _first(found, cases), harm.take(slice(cases)), pd.DataFrame(costs)

    def _with_queue(self, harm: Harm, rows: Ints) -> tuple[Harm, Array, Ints | None]:
        """Cases of the plan, and after them what everybody has already."""
        mine, hours = harm.take(rows), self.hours[rows]
        priority = None if self.priority is None else self.priority[rows]
        if self.queued is None:
            return mine, hours, priority
        level = np.zeros(len(rows), np.int64) if priority is None else priority
        together = Harm.concat([mine, self.queued.harm])
        return together, np.vstack([hours, self.queued.hours]), self._levels(level)

    def _levels(self, mine: Ints) -> Ints:
        return mine if self.queued is None else np.concatenate([mine, self.queued.priority])

    def promising(self, parts: Sequence[tuple[Ints, Harm]]) -> Waits:
        """The same, with what each batch's service levels put on its cases."""
        promised, broken = np.full(len(self.harm), np.inf), np.zeros(len(self.harm))
        for rows, harm in parts:
            promised[rows], broken[rows] = harm.promised, harm.broken
        return replace(self, promises=replace(self.harm, promised=promised, broken=broken))

    def take(self, rows: Ints) -> Waits:
        """The same for some of the cases."""
        return replace(
            self,
            harm=self.harm.take(rows),
            hours=self.hours[rows],
            levels=tuple((level, members[rows]) for level, members in self.levels),
            priority=None if self.priority is None else self.priority[rows],
        )

    def shown(self, plan: Plan, scored: Scored) -> Plan:
        """The plan with everybody's order, when each case is expected to be done, and what waiting costs."""
        positions = {name: j for j, name in enumerate(scored.makers)}
        maker = np.array([positions[name] for name in plan.frame["maker"]], np.int64)
        columns, waited = self.ordered(maker, scored.makers, np.asarray(plan.batch))
        extended = plan.extended(**columns)
        return extended.summed(replace(extended.summary, waiting=waited))

    def ordered(
        self, maker: Ints, makers: Sequence[str], batches: NDArray[Any]
    ) -> tuple[dict[str, Any], Waited]:
        """Everybody's order where it is settled who does what, as columns of a plan, and what it costs."""
        ordering = self.harm if self.promises is None else self.promises
        place, finish = np.zeros(len(maker), np.int64), np.zeros(len(maker))
        delayed = np.zeros(len(makers))
        for batch in dict.fromkeys(batches.tolist()):
            rows = np.flatnonzero(batches == batch)
            harm, hours, priority = self._with_queue(ordering, rows)
            who = maker[rows] if self.queued is None else np.concatenate([maker[rows], self.queued.maker])
            found = in_order(np.zeros((len(harm), len(makers))), harm, hours, who, 0, priority)
            place[rows], finish[rows] = found.place[: len(rows)], found.finish[: len(rows)]
            if self.queued is not None:
                delayed += self.queued.by_maker(found.finish[len(rows) :], len(delayed))
                delayed -= self.queued.alone(len(delayed))
        cost, late = self.harm.cost(finish), np.asarray(self.harm.is_late(finish))
        order: Any = pd.arrays.IntegerArray(place, place == 0)
        columns = {"order": order, "finish": self._clock(finish), "late": late, "waiting_cost": cost}
        return columns, self._waited(makers, maker, finish, cost, late, delayed)

    def _clock(self, hours: Array) -> Any:
        """Hours from the start as times, where the start is one."""
        if self.start is None:
            return hours
        return self.start + pd.to_timedelta(np.round(hours * 3600.0), unit="s")

    def _waited(
        self,
        makers: Sequence[str],
        maker: Ints,
        finish: Array,
        cost: Array,
        late: NDArray[np.bool_],
        delayed: Array,
    ) -> Waited:
        helped = with_help(finish)
        saved, in_time = cost - self.harm.cost(helped), late & ~np.asarray(self.harm.is_late(helped))
        count = len(makers)
        table = pd.DataFrame(
            {
                "hours": np.bincount(maker, self.hours[np.arange(len(maker)), maker], count),
                "late": np.bincount(maker, late, count).astype(np.int64),
                "waiting": np.bincount(maker, cost, count) + delayed,
                "hour_saves": np.bincount(maker, saved, count),
                "hour_in_time": np.bincount(maker, in_time, count).astype(np.int64),
            },
            index=pd.Index(list(makers), name="maker"),
        )
        last = float(finish.max(initial=0.0))
        return Waited(float(cost.sum() + delayed.sum()), int(late.sum()), last, table)


def _first(found: Schedule, cases: int) -> Schedule:
    """The part of a schedule that is about its first cases; totals stay."""
    rows = slice(cases)
    return replace(
        found,
        maker=found.maker[rows],
        place=found.place[rows],
        start=found.start[rows],
        finish=found.finish[rows],
        priced=found.priced[rows],
    )


def with_help(finish: Array, hours: float = 1.0) -> Array:
    """When cases are done if somebody as quick works beside their maker for the first hours."""
    return np.where(finish <= 2 * hours, finish / 2, finish - hours)


def read_waits(
    scored: Scored,
    roles: Columns,
    table: WaitingTable | None,
    constraints: ConstraintsTable | None,
    pace: Mapping[str, float],
    start: Any = None,
) -> Waits | None:
    """What waiting costs these cases; None: nothing is said about it.

    `start` is when everybody begins, where due times are dates (now, unless said).
    """
    known = scored.columns
    there = {part: name for part, name in roles.waiting.items() if known is not None and name in known}
    there = {part: name for part, name in there.items() if known is not None and known[name].notna().any()}
    asked = constraints is not None and constraints.on_order
    if table is None and not there and not asked:
        return None
    if scored.stored:
        if table is None and not asked and "waiting_cost" not in there:
            return None  # due times that cost nothing
        raise ConfigError(
            "waiting: orders are planned in memory; leave out scratch (--scratch), or the columns "
            f"{' and '.join(map(repr, roles.waiting.values()))} and [waiting], or plan fewer cases at a time"
        )
    urgency = table or WaitingTable()
    begin, due = _due(None if "due" not in there else known[there["due"]], scored.ids, start)  # type: ignore[index]
    harm = _harm(scored, urgency, due, None if "waiting_cost" not in there else known[there["waiting_cost"]])  # type: ignore[index]
    waits = Waits(harm, np.zeros((len(harm), len(scored.makers))), begin)
    waits = _with_constraints(waits, constraints, known)
    if table is None and not waits.counts and not pace:
        return None  # nothing costs anything, and nobody knows how long cases take
    minutes = handling_minutes(
        urgency.minutes, known, len(harm), scored.makers, pace, "waiting", scored.machines
    )
    return replace(waits, hours=minutes / 60.0)


def _with_constraints(
    waits: Waits, constraints: ConstraintsTable | None, known: pd.DataFrame | None
) -> Waits:
    if constraints is None or not constraints.on_order:
        return waits
    cases, levels = len(waits.harm), []
    for level in constraints.service_level:
        members = np.ones(cases, np.bool_)
        if level.group:
            assert known is not None
            members = (known[level.group].astype("str") == level.value).to_numpy(np.bool_)
            if not members.any():
                raise DataError(
                    f"[constraints.service_level] {level.name}: no case has {level.value!r} in column "
                    f"{level.group!r}, whose first value is {show(known[level.group].iloc[0])}"
                )
        levels.append((level, members))
    priority = None
    if constraints.priority is not None:
        found = numbers(constraints.priority.column, known, cases)
        priority = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return replace(waits, levels=tuple(levels), priority=priority)


def _harm(scored: Scored, table: WaitingTable, due: Array, costs: pd.Series | None) -> Harm:
    """What waiting costs every case: its own columns first, then its kind's, then what holds for all."""
    kinds = None
    if table.kind:
        assert scored.columns is not None
        kinds = scored.columns[table.kind].astype("str").to_numpy(object)
        stray = [name for name in table.kinds if name not in set(kinds.tolist())]
        if len(stray) == len(table.kinds) and stray:
            raise DataError(
                f"[waiting] kinds: column {table.kind!r} holds none of {', '.join(map(repr, stray))}, "
                f"first value: {show(kinds[0])}"
            )
    own = np.full(len(due), np.nan) if costs is None else _waiting_costs(costs, scored.ids)
    return harm_of(table, kinds, due, own, np.zeros(len(due)))


def harm_of(table: WaitingTable, kinds: NDArray[Any] | None, due: Array, rate: Array, since: Array) -> Harm:
    """What waiting costs cases by the rules of a table, on a clock of hours.

    `due` (infinite: none) and `rate` (NaN: none) are what cases say themselves; `since` is when each began to
    wait, from where rules count.
    """

    def of(part: str, default: float) -> Array:
        general = getattr(table, part)
        values = np.full(len(due), default if general is None else general, np.float64)
        for name, own in table.kinds.items():
            value = getattr(own, part)
            if value is not None and kinds is not None:
                values[kinds == name] = value
        return values

    hour = np.where(np.isnan(rate), of("cost", 0.0), rate)
    when = np.where(np.isinf(due), since + of("due", np.inf), due)
    return Harm.of(len(due), hour, when, of("late", 0.0), of("late_per_hour", 0.0), since)


def harm_of_case(
    case: Mapping[str, Any], names: Mapping[str, str], table: WaitingTable, now: float, start: Any = None
) -> Harm:
    """What waiting costs one case that comes `now`, in hours from the `start` of the day.

    `names` says what `due` and `waiting_cost` are called in it.
    """
    ids = pd.Index([case.get("case_id")], dtype=object)

    def given(part: str) -> pd.Series | None:
        value = case.get(names.get(part, ""))
        return None if value is None else pd.Series([value], name=names[part])

    due, own = given("due"), given("waiting_cost")
    if due is not None and start is None and not pd.api.types.is_number(due.iloc[0]):
        raise DataError(f"{names['due']}: {show(due.iloc[0])} is no number of hours; for dates say --start")
    hours = np.full(1, np.inf) if due is None else _due(due, ids, start)[1]
    rate = np.full(1, np.nan) if own is None else _waiting_costs(own, ids)
    kinds = np.array([str(case.get(table.kind))], dtype=object) if table.kind else None
    return harm_of(table, kinds, hours, rate, np.full(1, now))


def _waiting_costs(values: pd.Series, ids: pd.Index) -> Array:
    """Costs an hour, NaN where none is given."""
    found = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = (np.isnan(found) & values.notna().to_numpy()) | (found < 0) | np.isinf(found)
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"column {values.name!r}: {wrong.sum()} value(s) are no cost of an hour, a number from 0 on, "
            f"first: {show(values.iloc[first])} in case {show(ids[first])}"
        )
    return found


def _due(values: pd.Series | None, ids: pd.Index, start: Any) -> tuple[pd.Timestamp | None, Array]:
    """When the plan begins, where due times are dates, and hours from there; infinite: never late."""
    cases = len(ids)
    if values is None:
        return (None if start is None else _moment(start)), np.full(cases, np.inf)
    dates = pd.api.types.is_datetime64_any_dtype(values.dtype)
    plain = values.isna() if dates else pd.to_numeric(values, errors="coerce")
    if not dates and plain.notna().sum() == values.notna().sum():
        hours = plain.to_numpy(np.float64, na_value=np.nan)
        return (None if start is None else _moment(start)), np.where(np.isnan(hours), np.inf, hours)
    times = parse_times(values).values
    begin = _moment("now" if start is None else start)
    zone = getattr(times.dtype, "tz", None)
    begin = begin.tz_localize(zone) if zone is not None and begin.tzinfo is None else begin
    if zone is None and begin.tzinfo is not None:
        begin = begin.tz_localize(None)
    hours = ((times - begin) / pd.Timedelta(hours=1)).to_numpy(np.float64, na_value=np.nan)
    return begin, np.where(np.isnan(hours), np.inf, hours)


def _moment(text: Any) -> pd.Timestamp:
    try:
        return pd.Timestamp(text)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"start {text}: is no time such as 2026-05-04 08:00") from error


def _kept(
    problem: AssignmentProblem,
    harm: Harm,
    hours: Array,
    priority: Ints | None,
    level: ServiceLevelTable,
    members: NDArray[np.bool_],
    found: Schedule,
    options: Mapping[str, Any],
) -> tuple[Harm, Schedule]:
    """The least price on breaking a promise with which a service level is kept, and the plan with it."""

    def share(plan: Schedule) -> float:
        return float((plan.finish[members] <= level.hours + ROUNDING).mean()) if members.any() else 1.0

    def tried(price: float) -> tuple[Harm, Schedule]:
        # a promise of an earlier level stays where it is the stricter
        promised = np.where(members, np.minimum(harm.promised, level.hours), harm.promised)
        dearer = replace(harm, promised=promised, broken=np.where(members, harm.broken + price, harm.broken))
        return dearer, schedule(problem, dearer, hours, 0, priority, **options)

    if share(found) >= level.share:
        return harm, found
    scale = max(found.cost / max(len(harm), 1), 1e-6)
    low, high, most = 0.0, scale, share(found)
    best = tried(high)
    while share(best[1]) < level.share:
        most, low, high = max(most, share(best[1])), high, high * 4
        if high > DEAREST * scale:
            raise CapacityError(
                f"{problem.name + ': ' if problem.name else ''}service level {level.name}: at most "
                f"{most:.1%} can be; lower the share, give more hours, or let the machine decide more"
            )
        best = tried(high)
    for _ in range(STEPS):
        middle = tried(0.5 * (low + high))
        if share(middle[1]) >= level.share:
            best, high = middle, 0.5 * (low + high)
        else:
            low = 0.5 * (low + high)
    return best


def _without_promises(found: Schedule, harm: Harm) -> float:
    """What a plan costs, prices of promises apart."""
    plain = replace(harm, broken=np.zeros(len(harm)))
    return found.loss + float(plain.cost(found.finish).sum())


def _price(name: str, cost: float, before: float, binds: bool) -> dict[str, Any]:
    return {
        "constraint": name,
        "with": cost,
        "without": before,
        "price": cost - before,
        "binds": "yes" if binds else "",
    }


def as_assignment(found: Schedule, problem: AssignmentProblem, seconds: float) -> Assignment:
    """A schedule as planners know assignments."""
    return Assignment(
        found.maker.astype(np.int32),
        found.cost,
        found.prices,
        max(found.cost - found.bound, 0.0),
        "waiting",
        seconds,
        problem.cases,
        problem.makers,
    )
