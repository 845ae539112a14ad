"""Plans: who decides each case, what that is expected to cost, and what one more case each would save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, solve_batches, verify
from deccaf.data.capacity import ONE_BATCH, UNLIMITED, Capacity
from deccaf.data.costs import MACHINE, Class
from deccaf.data.files import write_frame
from deccaf.errors import CapacityError, DataError, show

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE = 0.01
"""A case was a close call when the runner-up was nearer than this share of the plan's mean loss."""
_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Scored:
    """What is believed about cases that wait for a plan."""

    ids: pd.Index
    makers: tuple[str, ...]
    """The machine, then the experts of the roster."""
    loss: Array
    """(cases, makers): expected cost."""
    objective: Array
    """(cases, makers): what the plan minimises."""
    says: Ints
    """What the machine would decide, as positions in `classes`."""
    classes: tuple[Class, ...]
    notes: tuple[str, ...] = ()
    """What the lead should know about the cases and the roster."""


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
    """The same if everybody's room were filled with random cases."""
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
    wishes: pd.DataFrame | None = field(default=None, repr=False)
    """With constraints: one row per batch and wish, with what it costs and which part of it binds."""

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


def make_plan(
    scored: Scored,
    capacity: Capacity,
    batch: pd.Series | None = None,
    *,
    pace: Mapping[str, float] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    solver: Callable[[AssignmentProblem, Ints], Assignment] | None = None,
) -> Plan:
    """The plan of least total loss within everyone's limits, verified; `pace` is cases per hour.

    Another `solver` takes each batch's problem and the positions of its cases.
    """
    rows = _rows_by_batch(batch, len(scored.ids))
    problems = {name: _problem(scored, capacity, name, where) for name, where in rows.items()}
    if solver is not None:
        found = [solver(problems[name], where) for name, where in rows.items()]
    else:
        found = solve_batches(list(problems.values()), time_limit=time_limit, seed=seed, n_jobs=1)
    solved = dict(zip(rows, found, strict=True))
    for name, problem in problems.items() if solver is None else ():
        verify(problem, solved[name])
    maker = np.empty(len(scored.ids), np.int64)
    second, margin = np.empty(len(maker), np.int64), np.empty(len(maker))
    for name, where in rows.items():
        maker[where] = solved[name].maker
        second[where], margin[where] = _runners_up(problems[name], solved[name])
    prices = pd.DataFrame(
        [assignment.prices for assignment in found],
        index=pd.Index(list(rows), name="batch"),
        columns=list(scored.makers),
    )
    code = np.empty(len(maker), np.int64)
    for number, where in enumerate(rows.values()):
        code[where] = number
    frame = _plan_table(scored, maker, second, prices.to_numpy()[code, maker])
    summary = _summary(scored, maker, margin, problems, rows, prices, solved, pace or {})
    names = prices.index.to_numpy()[code]
    return Plan(frame.rename(columns={"case_id": "case"}), prices, summary, solved, frame, names)


def changed(capacity: Capacity, maker: str, change: str) -> Capacity:
    """The capacity with more or less room for one maker in every batch: "+10", "-5", or "40" to set it."""
    text = change.strip()
    try:
        number = int(text)
    except ValueError:
        number = -1 if text[:1] not in "+-" else UNLIMITED
    if abs(number) >= UNLIMITED or (number < 0 and not text.startswith("-")):
        raise DataError(f"what if {maker}={change}: expected a number of cases such as +10, -5 or 40")
    capacity.absent(maker)  # says who is not on the roster
    upper, lower = capacity.upper.copy(), capacity.lower.copy()
    present = upper[maker] if text[:1] in "+-" else 0 * upper[maker]
    upper[maker] = (present + number).clip(lower=0, upper=UNLIMITED)
    lower[maker] = np.minimum(lower[maker], upper[maker])
    return Capacity(upper, lower, capacity.eligible)


def _rows_by_batch(batch: pd.Series | None, cases: int) -> dict[str, Ints]:
    """Positions of the cases of each batch, in the order of first appearance."""
    if batch is None:
        return {ONE_BATCH: np.arange(cases)}
    codes, names = pd.factorize(batch.astype(str))
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
    return {str(name): part for name, part in zip(names, parts, strict=True)}


def _problem(scored: Scored, capacity: Capacity, batch: str, rows: Ints) -> AssignmentProblem:
    name = None if batch == ONE_BATCH else batch
    lower, upper = capacity.limits(scored.makers, len(rows), name)
    whole = len(rows) == len(scored.ids)
    ids = scored.ids if whole else scored.ids[rows]
    mask = capacity.mask(ids, scored.makers)
    loss = scored.objective if whole else scored.objective[rows]
    title = "" if name is None else f"batch {batch}"
    return AssignmentProblem(loss, upper, lower, mask, ids, pd.Index(scored.makers), title)


def _runners_up(problem: AssignmentProblem, solved: Assignment) -> tuple[Ints, Array]:
    """The maker who would get each case if the chosen one could not (-1: nobody), and by how much it is
    dearer, prices included."""
    cases = problem.shape[0]
    second, margin = np.full(cases, -1, np.int64), np.full(cases, np.inf)
    for start in range(0, cases, _ROWS):
        part = slice(start, start + _ROWS)
        total = problem.loss[part] + solved.prices
        total[:, problem.upper == 0] = np.inf
        if problem.eligible is not None:
            total[~problem.eligible[part]] = np.inf
        own, here = solved.maker[part], np.arange(len(total))
        chosen = total[here, own].copy()
        total[here, own] = np.inf
        best = total.argmin(axis=1)
        reach = total[here, best] - chosen
        second[part], margin[part] = np.where(np.isfinite(reach), best, -1), reach
    return second, margin


def _plan_table(scored: Scored, maker: Ints, second: Ints, price: Array) -> pd.DataFrame:
    here, names = np.arange(len(maker)), np.array(scored.makers, dtype=object)
    other = np.where(second < 0, 0, second)
    decided = pd.Series(np.array(scored.classes, dtype=object)[scored.says]).where(maker == 0, None)
    numbers = all(isinstance(name, int) for name in scored.classes)
    return pd.DataFrame(
        {
            "case_id": scored.ids,
            "maker": pd.Series(names[maker]).astype("str").to_numpy(),
            "expected_loss": scored.loss[here, maker],
            "runner_up": pd.Series(names[other]).where(second >= 0, None).astype("str").to_numpy(),
            "runner_up_loss": np.where(second < 0, np.nan, scored.loss[here, other]),
            "price": price,
            "decision": decided.astype("Int64" if numbers else "str").array,
        },
    )


def _summary(
    scored: Scored,
    maker: Ints,
    margin: Array,
    problems: Mapping[str, AssignmentProblem],
    rows: Mapping[str, Ints],
    prices: pd.DataFrame,
    solved: Mapping[str, Assignment],
    pace: Mapping[str, float],
) -> Summary:
    typical = float(np.mean([a.objective for a in solved.values()])) * len(solved) / max(len(maker), 1)
    room = np.sum([problem.upper for problem in problems.values()], axis=0).astype(np.float64)
    sizes = sum(len(where) for where in rows.values())
    free = (room >= sizes) & (np.array(scored.makers) == MACHINE)
    mean_price = prices.mean(axis=0).to_numpy()
    hours = np.array([pace.get(name, np.nan) for name in scored.makers])
    table = pd.DataFrame(
        {
            "cases": np.bincount(maker, minlength=len(scored.makers)),
            "capacity": np.where(free, np.nan, room),
            "price": mean_price,
            "next_hour": mean_price * hours,
        },
        index=pd.Index(scored.makers, name="maker"),
    )
    own = scored.loss[np.arange(len(maker)), maker]
    return Summary(
        cases=len(maker),
        makers=table,
        cost=float(own.sum()),
        machine_cost=float(scored.loss[:, 0].sum()),
        random_cost=sum(_random_cost(scored.loss[rows[name]], problems[name]) for name in rows),
        close_calls=int((margin < CLOSE * abs(typical)).sum()),
        gap=float(sum(assignment.gap for assignment in solved.values())),
        notes=scored.notes,
    )


def _random_cost(loss: Array, problem: AssignmentProblem) -> float:
    """Expected cost if the lower limits, then everybody's room, were filled with random cases.

    The machine gets what is left. Where not everyone may get everything, a maker's cases are random among
    those it may get.
    """
    cases = len(loss)
    if not cases:
        return 0.0
    spare = (problem.upper - problem.lower).astype(np.float64)
    left = cases - float(problem.lower.sum())
    people = spare[1:].sum()
    share = min(1.0, left / people) if people else 0.0
    load = problem.lower.astype(np.float64)
    load[1:] += share * spare[1:]
    load[0] += cases - load.sum()
    if problem.eligible is None:
        means = loss.mean(axis=0)
    else:
        allowed = np.maximum(problem.eligible.sum(axis=0), 1)
        means = np.where(problem.eligible, loss, 0.0).sum(axis=0) / allowed
    return float(load @ means)


def _change(cost: float, other: float) -> str:
    if other <= 0:
        return "free"
    saved = 1.0 - cost / other
    return f"the plan saves {saved:.1%}" if saved >= 0 else f"the plan costs {-saved:.1%} more"


def roster_notes(known: Sequence[str], capacity: Capacity) -> list[str]:
    """Who on the roster was never seen, who was seen and is not on it, and whether nobody has any room."""
    roster = [name for name in capacity.makers if name != MACHINE]
    new = [name for name in roster if name not in set(known)]
    away = [name for name in known if name not in set(roster)]
    notes = []
    if new:
        notes.append(f"never seen, taken as the team's average: {_listed(new)}")
    if away:
        notes.append(f"not on the roster, gets nothing: {_listed(away)}")
    if roster and not capacity.upper[roster].to_numpy().any():
        notes.append("nobody on the roster has any capacity: the machine decides everything")
    return notes


def check_batches(capacity: Capacity, batch: pd.Series | None) -> None:
    """Every batch of the cases has a row in the capacity table."""
    if batch is None or capacity.batches == (ONE_BATCH,):
        return
    names = [name for name in pd.unique(batch.astype(str)) if name not in set(capacity.batches)]
    if names:
        raise CapacityError(
            f"batch {names[0]!r} has no row in the capacity table ({len(names)} batch(es) of the cases "
            f"have none; the table has {len(capacity.batches)}: {_listed(capacity.batches)})"
        )


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
