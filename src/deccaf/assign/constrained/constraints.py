"""What a real desk asks for beside limits on cases; each constraint is one frozen description, checked here.

- `HandlingMinutes`: cases take different minutes, and everybody has so many.
- `Reviewers`: several different people see a case, not those who clash, one of them a senior.
- `GroupBand`: groups of customers are treated alike, within a band.
- `Balance`: nobody gets only the hardest cases.
- `RandomQuota`: some cases go to people at random, so that they can be judged on a fair sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike, NDArray

from deccaf.assign.constrained.columns import Block, Columns
from deccaf.assign.constrained.opinions import Opinions
from deccaf.assign.exact.scan import Bools, Floats, Ints
from deccaf.assign.problem import AssignmentProblem
from deccaf.errors import ConfigError, DataError, did_you_mean

Makers = Sequence[Any]
"""Makers by name where the loss is a frame, else by column."""


class Constraint(Protocol):
    """What all constraints have: a name for messages, and rows."""

    @property
    def name(self) -> str:
        """What messages and tables call it."""

    def block(self, problem: AssignmentProblem, columns: Columns) -> Block | None:
        """The rows that it adds, or None."""


@dataclass(frozen=True, eq=False)
class HandlingMinutes:
    """Nobody gets more minutes of work than they have.

    `minutes` is cases x makers, or one number per case. `capacity` is minutes by maker, in order or by name;
    who is not named has no limit.
    """

    minutes: ArrayLike
    capacity: ArrayLike | Mapping[Any, float]
    name: str = "handling minutes"

    def block(self, problem: AssignmentProblem, columns: Columns) -> Block:
        """One row per maker."""
        table = per_pair(self.minutes, problem, self.name, "minutes")
        if not (np.isfinite(table) & (table >= 0)).all():
            raise DataError(f"{self.name}: minutes must be finite and not negative")
        if isinstance(self.capacity, Mapping):
            most = np.full(problem.shape[1], np.inf)
            for maker, value in self.capacity.items():
                most[positions([maker], problem, self.name)] = value
        else:
            most = np.asarray(self.capacity, np.float64)
        if most.shape != (problem.shape[1],) or not (most >= 0).all():
            raise ConfigError(
                f"{self.name}: expected minutes from 0 on for each of {problem.shape[1]} makers"
            )
        matrix = by_maker(columns, problem.shape[1], table)
        return Block(self.name, matrix, np.full(len(most), -np.inf), most, maker_names(problem))


@dataclass(frozen=True, eq=False)
class Reviewers:
    """How many different makers see a case: a number for all cases, or one per case (1 to 3).

    With `up_to` the plan may give a case more reviewers, up to this number, where that is worth their time.
    `conflicts` are pairs that may not share a case. `one_of` are the seniors: a case with several reviewers
    has at least one of them. `among` are those who may be one of several (all, unless said). With `opinions`
    the cost of a pair or triple follows from its decision rule; without, it is the mean of its members'.
    """

    count: ArrayLike = 2
    opinions: Opinions | None = None
    conflicts: Sequence[Sequence[Any]] = ()
    one_of: Makers | None = None
    among: Makers | None = None
    up_to: int | None = None
    name: str = "reviewers"

    def counts(self, problem: AssignmentProblem) -> Ints:
        """The least number for every case."""
        count = np.broadcast_to(np.asarray(self.count), (problem.shape[0],))
        if not np.isin(count, (1, 2, 3)).all() or self.up_to not in (None, 1, 2, 3):
            wrong = self.up_to if np.isin(count, (1, 2, 3)).all() else count.max()
            raise ConfigError(f"{self.name}: a case can have 1, 2 or 3 reviewers, not {wrong}")
        return count.astype(np.int64)

    def sets(self, problem: AssignmentProblem, size: int) -> NDArray[np.int32]:
        """The pairs or triples that may share a case."""
        makers = problem.shape[1]
        if size == 1:
            return np.arange(makers, dtype=np.int32)[:, None]
        usable = np.arange(makers) if self.among is None else positions(self.among, problem, self.name)
        barred = {tuple(sorted(positions(pair, problem, self.name).tolist())) for pair in self.conflicts}
        seniors = None if self.one_of is None else set(positions(self.one_of, problem, self.name).tolist())
        found = [
            group
            for group in combinations(sorted(usable.tolist()), size)
            if not any(pair in barred for pair in combinations(group, 2))
            and (seniors is None or seniors.intersection(group))
        ]
        if not found:
            raise ConfigError(f"{self.name}: conflicts and seniors leave no group of {size}")
        return np.array(found, np.int32)

    def block(self, problem: AssignmentProblem, columns: Columns) -> None:
        """No rows: it says which columns there are."""


@dataclass(frozen=True, eq=False)
class GroupBand:
    """The rates of all groups lie within a band: none is more than `within` above another.

    `group` is one label per case. `measure` is `deferral` (the share of the group's cases that go to
    `people`), `fpr` or `fnr` (its expected false-positive or false-negative rate, which needs `opinions`; the
    denominators are the group's expected numbers of negatives and positives, which no plan changes).
    """

    group: ArrayLike
    within: float
    measure: Literal["deferral", "fpr", "fnr"] = "deferral"
    people: Makers | None = None
    opinions: Opinions | None = None
    name: str = "group band"

    def block(self, problem: AssignmentProblem, columns: Columns) -> Block:
        """One row per group, around a free level."""
        code, names = self._codes(problem)
        share, base = self._entries(problem, columns)
        total = np.bincount(code, base, minlength=len(names))
        if (total <= 0).any():
            raise DataError(f"{self.name}: group {names[int(total.argmin())]!r} has no case that counts")
        row = code[columns.case]
        entry = share / total[row]
        matrix = scipy.sparse.csr_array(
            (entry, (row, np.arange(len(columns)))), shape=(len(names), len(columns))
        )
        ones = np.ones(len(names))
        return Block(self.name, matrix, 0 * ones, self.within * ones, names, -ones, (0.0, 1.0))

    def rates(self, problem: AssignmentProblem, columns: Columns, chosen: Ints) -> dict[str, float]:
        """The rate of every group under a plan."""
        block = self.block(problem, columns)
        values = np.asarray(block.matrix[:, chosen].sum(axis=1)).ravel()
        return dict(zip(block.parts, values.tolist(), strict=True))

    def _codes(self, problem: AssignmentProblem) -> tuple[Ints, list[str]]:
        labels = np.asarray(self.group)
        if labels.shape != (problem.shape[0],):
            raise DataError(f"{self.name}: expected one group label per case, got shape {labels.shape}")
        if pd.isna(labels).any():
            raise DataError(f"{self.name}: {pd.isna(labels).sum()} cases have no group")
        if not (np.isfinite(self.within) and self.within >= 0):
            raise ConfigError(f"{self.name}: within must be a distance from 0 on, got {self.within}")
        code, names = pd.factorize(labels, sort=True)
        return code.astype(np.int64), [str(name) for name in names]

    def _entries(self, problem: AssignmentProblem, columns: Columns) -> tuple[Floats, Floats]:
        if self.measure == "deferral":
            if self.people is None:
                raise ConfigError(f"{self.name}: deferral needs `people`, the makers that are human")
            human: Bools = np.zeros(problem.shape[1] + 1, np.bool_)  # the last is -1, nobody
            human[positions(self.people, problem, self.name)] = True
            share = np.asarray(human[columns.members].any(axis=1), np.float64)
            return share, np.ones(problem.shape[0])
        if self.measure not in ("fpr", "fnr"):
            raise ConfigError(f"{self.name}: measure must be deferral, fpr or fnr, got {self.measure!r}")
        if self.opinions is None:
            raise ConfigError(f"{self.name}: {self.measure} needs `opinions`")
        share = self.opinions.wrong(columns.case, columns.members, self.measure)
        return share, self.opinions.positives(self.measure)


@dataclass(frozen=True, eq=False)
class Balance:
    """The mean difficulty of what each of `makers` gets lies within `within` of `around`.

    Difficulty is the expected loss, or `difficulty` (per case, or cases x makers). `around` is the mean over
    what these makers get in the plan without constraints, unless given.
    """

    within: float
    makers: Makers | None = None
    difficulty: ArrayLike | None = None
    around: float | None = None
    name: str = "balance"

    def block(self, problem: AssignmentProblem, columns: Columns) -> Block:
        """Two rows per maker: sums of difficulty less its highest mean, at most 0, and less its lowest."""
        if self.around is None or not (np.isfinite(self.within) and self.within >= 0):
            raise ConfigError(f"{self.name}: within must be a distance from 0 on, got {self.within}")
        table = self.table(problem)
        who = self.who(problem)
        names = [maker_names(problem)[j] for j in who]
        high = by_maker(columns, problem.shape[1], table - self.around - self.within)[who]
        low = by_maker(columns, problem.shape[1], table - self.around + self.within)[who]
        none, zero = np.full(len(who), np.inf), np.zeros(len(who))
        parts = [f"{name}: {side}" for side in ("not too hard", "not too easy") for name in names]
        return Block(
            self.name, scipy.sparse.vstack([high, low]), np.append(-none, zero), np.append(zero, none), parts
        )

    def table(self, problem: AssignmentProblem) -> Floats:
        """Difficulty of every case for every maker."""
        return per_pair(
            problem.loss if self.difficulty is None else self.difficulty, problem, self.name, "difficulty"
        )

    def who(self, problem: AssignmentProblem) -> Ints:
        """Whose work is balanced."""
        return (
            np.arange(problem.shape[1]) if self.makers is None else positions(self.makers, problem, self.name)
        )


@dataclass(frozen=True, eq=False)
class RandomQuota:
    """A share of the cases, drawn at random, goes to random makers among `among` (all, unless said)."""

    share: float
    seed: int = 0
    among: Makers | None = None
    name: str = "random quota"

    def block(self, problem: AssignmentProblem, columns: Columns) -> None:
        """No rows: it says which columns the drawn cases have."""


def positions(makers: Makers, problem: AssignmentProblem, name: str) -> Ints:
    """Columns of makers given by name or by column."""
    if problem.makers is None:
        found = np.asarray(makers)
        if found.dtype == np.bool_ and found.shape == (problem.shape[1],):
            return np.flatnonzero(found)
        if found.dtype.kind not in "iu" or (found < 0).any() or (found >= problem.shape[1]).any():
            raise ConfigError(
                f"{name}: makers must be columns from 0 to {problem.shape[1] - 1}, got {makers}"
            )
        return found.astype(np.int64)
    places = problem.makers.get_indexer(pd.Index(list(makers)))
    if (places < 0).any():
        stray = str(list(makers)[int((places < 0).argmax())])
        raise ConfigError(
            f"{name}: {stray!r} is not one of the makers" + did_you_mean(stray, maker_names(problem))
        )
    return places.astype(np.int64)


def maker_names(problem: AssignmentProblem) -> list[str]:
    """All makers as the user calls them."""
    return [problem.maker_name(j) for j in range(problem.shape[1])]


def per_pair(values: ArrayLike, problem: AssignmentProblem, name: str, what: str) -> Floats:
    """A table of cases x makers from one, or from one number per case."""
    table = np.asarray(values, np.float64)
    if table.shape == (problem.shape[0],):
        table = table[:, None]
    if table.ndim != 2 or table.shape[0] != problem.shape[0] or table.shape[1] not in (1, problem.shape[1]):
        raise DataError(f"{name}: {what} must be one number per case, or cases x makers, got {table.shape}")
    return np.broadcast_to(table, problem.shape)


def by_maker(columns: Columns, makers: int, table: Floats | None = None) -> Any:
    """Rows by maker: 1, or the table's number, for every column that the maker is in."""
    column, case, maker = columns.pairs()
    entry = np.ones(len(column)) if table is None else table[case, maker]
    return scipy.sparse.csr_array((entry, (maker, column)), shape=(makers, len(columns)))
