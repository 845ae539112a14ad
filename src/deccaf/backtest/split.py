"""Which cases are learned from and which are tested on, who was there, and how much room everybody has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.capacity import ONE_BATCH, Capacity
from deccaf.data.cases import Cases, latest_share
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.decisions import Decisions
from deccaf.data.folds import fold_of, units_of
from deccaf.data.history import MANY_GROUPS, History, splitting_group
from deccaf.data.review import review_costs
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.evaluate.propensity import estimate_propensities, given_propensities_notes
from deccaf.models.texts.spaces import encoded, with_spaces
from deccaf.policies import Room

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rooms = list[tuple[Ints, Room]]
"""Batches: positions among the test cases, and everybody's room."""

MANY = 1.5
"""Decisions per case from which on outcomes are known often enough."""
FEW_DECISIONS = 30
LEAST = 100
"""Decisions that a backtest needs."""
_GROUP_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Split:
    """Masks of test cases, one per refit, and why they are what they are."""

    kind: str
    why: str
    folds: tuple[Mask, ...]

    def sentence(self) -> str:
        """Which split was used, and why."""
        count = "once" if len(self.folds) == 1 else f"{len(self.folds)} times"
        how = {
            "time": "the latest cases were tested on, all earlier ones learned from",
            "group": "whole groups were tested on, all others learned from",
            "random": "random cases were tested on, the others learned from",
        }[self.kind]
        return f"Split by {self.kind}, {count}: {how}; {self.why}."


@dataclass(frozen=True, eq=False)
class Chances:
    """With what chance the person of each decision got the case, and who was there at the time."""

    propensity: Array
    by_lot: Mask
    """Decisions whose propensity was recorded: these were given by lot, or by a rule with known chances."""
    present: Mask | None
    """(decisions, people): who was there at the time; None: everybody."""


@dataclass(frozen=True, eq=False)
class Part:
    """One split of the history."""

    history: History
    config: Config
    costs: Costs
    experts: tuple[str, ...]
    test: Mask
    train: Mask
    label: Ints | None = None
    """What the truth is taken for when costs are counted; None: as the history has it."""

    @property
    def cases(self) -> Cases:
        """All cases, of both parts."""
        return self.history.cases

    @property
    def log(self) -> Decisions:
        """All decisions, of both parts."""
        return self.history.log

    @property
    def position(self) -> Ints:
        """For every decision, the position of its case."""
        return self.history.case

    @cached_property
    def rows(self) -> Ints:
        """Positions of the test cases."""
        return np.flatnonzero(self.test)

    @cached_property
    def place(self) -> Ints:
        """For every test case by its position, its place among the test cases."""
        return np.cumsum(self.test) - 1

    @cached_property
    def truth(self) -> Ints:
        """The truth of the test cases."""
        return np.asarray(self.history.label if self.label is None else self.label)[self.rows]

    @cached_property
    def stands(self) -> Array:
        """How many cases each test case stands for."""
        every = self.history.stands
        return np.ones(len(self.rows)) if every is None else every[self.rows]

    @cached_property
    def cost_table(self) -> Array:
        """(test cases or 1, K, K): what each decision costs, by truth."""
        return self.costs.array(self.cases.amounts.iloc[self.rows])

    @cached_property
    def review(self) -> Array:
        """(test cases, experts): what it costs to ask each."""
        cases = self.cases
        known = pd.concat([cases.groups, cases.amounts, cases.features], axis=1).iloc[self.rows]
        paid = review_costs(self.config.review_cost, self.experts, known)
        return np.broadcast_to(paid, (len(self.rows), len(self.experts)))

    @cached_property
    def decisions(self) -> Ints:
        """Positions in the log of the decisions on test cases."""
        return np.flatnonzero(self.test[self.position])

    @cached_property
    def expert(self) -> Ints:
        """For every decision of the log, the position of its expert."""
        return np.asarray(pd.Index(self.experts).get_indexer(pd.Index(self.log.expert)), np.int64)

    @cached_property
    def loads(self) -> Array:
        """How many test cases each expert really decided."""
        weight = self.stands[self.place[self.position[self.decisions]]]
        return np.bincount(self.expert[self.decisions], weight, len(self.experts)).astype(np.float64)


def of_truth(table: Array, truth: Ints) -> Array:
    """(cases, K): what each decision costs, given the truth."""
    return np.asarray(np.broadcast_to(table, (len(truth), *table.shape[1:]))[np.arange(len(truth)), truth])


def usable(history: History) -> tuple[History, list[str]]:
    """Cases whose truth is known, or hidden by the decision; with notes on what was left out."""
    known = history.label >= 0
    if history.guess is not None:
        known |= np.isfinite(history.guess[:, 0])
    notes = []
    if not known.all():
        notes.append(f"{(~known).sum():,} cases without a label yet were left out")
        history = history.take(known)
    cases, log = history.cases, history.log
    undecided = len(cases) - log.case.nunique()
    if undecided:
        notes.append(f"{undecided:,} labelled cases that nobody decided teach the machine only")
    few = log.expert.value_counts()
    few = few[few < FEW_DECISIONS]
    if len(few):
        notes.append(
            f"{len(few)} experts have fewer than {FEW_DECISIONS} decisions; the least has {few.min()}"
        )
    missing = cases.features.isna().mean()
    if missing.max() > 0.2:
        notes.append(f"feature {missing.idxmax()!r} is missing in {missing.max():.0%} of the cases")
    if len(log) < LEAST:
        raise DataError(f"a backtest needs at least {LEAST} decisions on labelled cases, got {len(log)}")
    return history, notes


def one_each(history: History, seed: int) -> tuple[History, int]:
    """One decision per case, drawn at random; gives how many others were left out.

    A recorded propensity becomes P(got the case) x P(this one of its decisions was drawn).
    """
    order = np.random.default_rng(seed).permutation(len(history.log))
    rows = np.sort(order[np.unique(history.case[order], return_index=True)[1]])
    each = history.take(np.arange(len(history.cases)), rows)
    if each.log.propensity is not None:
        made = np.bincount(history.case, minlength=len(history.cases))[each.case]
        each = replace(each, log=replace(each.log, propensity=each.log.propensity / made))
    return each, len(history.log) - len(rows)


def split_of(cases: Cases, kind: str, folds: int | None, test_share: float, seed: int) -> Split:
    """Masks of test cases. Time: the latest cases, tested by the cases before."""
    group = splitting_group(cases)
    why = "as was asked for"
    if kind == "auto":
        kind = "group" if group is not None else "time" if cases.time is not None else "random"
        why = {
            "group": f"rows of one {group.name!r} belong together" if group is not None else "",
            "time": "cases have a time, and plans are for the future",
            "random": "cases have neither a time nor groups of rows that belong together (name them under "
            "[columns] time or group if they do: a random split is kind to every model)",
        }[kind]
    if kind == "time":
        if cases.time is None:
            raise ConfigError("--split time: the cases have no time column; name it under [columns] time")
        if (folds or 1) > 1:
            raise ConfigError("--split time has one split; use --test-share for its size")
        return Split(kind, why, (latest_share(cases.time, test_share),))
    if kind == "group" and group is None:
        raise ConfigError(
            f"--split group: [columns] group names no column with at least {MANY_GROUPS} groups"
        )
    units = units_of(len(cases), None if kind == "random" else group)
    count, folds = int(units.max()) + 1, folds or _GROUP_FOLDS
    if folds < 2 or count < folds:
        raise ConfigError(f"--folds {folds}: expected at least 2, and {count} groups allow at most {count}")
    place = fold_of(len(cases), folds, group=units, seed=seed)
    return Split(kind, why, tuple(place == fold for fold in range(folds)))


def chances_of(history: History, seed: int) -> tuple[Chances, list[str]]:
    """Propensities as recorded, estimated where they are not; with what makes them doubtful."""
    log = history.log
    given = np.full(len(log), np.nan)
    if log.propensity is not None:
        given[:] = log.propensity
    blank = np.isnan(given)
    notes = [] if blank.all() else given_propensities_notes(given[~blank])
    if not blank.any():
        return Chances(given, ~blank, None), notes
    time = log.time if log.time is not None else history.time
    when = (
        None if time is None else time.to_numpy() if log.time is not None else time.to_numpy()[history.case]
    )
    codes = np.asarray(pd.Index(log.experts).get_indexer(pd.Index(log.expert)), np.int64)
    # what was given by lot was not given as the rest was: a rule is learned from the rest alone
    rows = np.flatnonzero(blank)
    group = None if history.group is None else history.group.to_numpy()[history.case][rows]
    told = encoded(history, with_spaces(history.schema, history.features, seed)).features
    found = estimate_propensities(
        told.iloc[history.case[rows]],
        codes[rows],
        len(log.experts),
        seed,
        group,
        None if when is None else when[rows],
    )
    given[rows] = found.of(codes[rows])
    how = "everybody's share of the work" if found.random else "a model of who got which case"
    how += "" if found.present is None else " among those present"
    which = "propensities were not given" if blank.all() else f"{len(rows):,} propensities were not given"
    present = None
    if found.present is not None:
        present = np.ones((len(log), len(log.experts)), bool)
        present[rows] = found.present
    return Chances(given, ~blank, present), [*notes, f"{which}: estimated as {how}", *found.notes()]


def batches_of(cases: Cases, batch: str | None, capacity: Capacity | None) -> pd.Series | None:
    """The batch of every case, or None where all are planned together."""
    several = capacity is not None and capacity.batches != (ONE_BATCH,)
    if batch is None:
        if several and cases.batch is None:
            raise ConfigError("the roster has batches, but the cases have no batch column; use --batch")
        return cases.batch if several else None
    time = cases.time
    if batch in ("day", "week", "month"):
        if time is None or not pd.api.types.is_datetime64_any_dtype(time.dtype):
            raise ConfigError(f"--batch {batch}: the cases have no time column that holds dates")
        plain = time.dt.tz_localize(None) if time.dt.tz is not None else time
        if batch == "day":
            return pd.Series(plain.dt.strftime("%Y-%m-%d"))
        return pd.Series(plain.dt.to_period("W" if batch == "week" else "M").astype(str))
    known = {str(name): cases.groups[name].astype(str) for name in cases.groups}
    if time is not None:
        known[str(time.name)] = time.astype(str)
    if cases.batch is not None:
        known["batch"] = cases.batch
    if batch not in known:
        raise ConfigError(
            f"--batch {batch}: expected day, week, month or one of {', '.join(known) or 'no column'}"
            + did_you_mean(batch, known)
        )
    return known[batch]


def rooms_of(
    part: Part,
    share: float,
    eligible: Mask | None,
    capacity: Capacity | None = None,
    batch: pd.Series | None = None,
) -> Rooms:
    """Everybody's room in each batch: a share of what they really had, or of the roster's limits.

    The machine has no limit but the roster's. A roster's limits are for whole batches: where a part of a
    batch is tested, that part of the limits is used.
    """
    names = np.full(len(part.rows), ONE_BATCH) if batch is None else batch.to_numpy()[part.rows]
    codes, levels = pd.factorize(names, sort=True)
    whole = None if batch is None else batch.value_counts()
    rooms: Rooms = []
    for code, name in enumerate(levels):
        mine = np.flatnonzero(codes == code)
        size = len(mine)
        if capacity is None:
            upper = np.append(size, whole_shares(share * _loads(part, mine)))
            lower = np.zeros(len(upper), np.int64)
        else:
            lower, upper = _roster(
                part, capacity, str(name), size, size if whole is None else int(whole[name]), share
            )
        may = None if eligible is None else eligible[mine]
        label = "test part" if batch is None else f"batch {name}"
        rooms.append((mine, Room(lower, np.minimum(upper, size), may, label)))
    return rooms


def _loads(part: Part, mine: Ints) -> Array:
    """How many of these test cases each expert really decided."""
    here = np.zeros(len(part.rows), bool)
    here[mine] = True
    made = part.decisions[here[part.place[part.position[part.decisions]]]]
    return np.bincount(part.expert[made], minlength=len(part.experts)).astype(np.float64)


def _roster(
    part: Part, capacity: Capacity, name: str, size: int, whole: int, share: float
) -> tuple[Ints, Ints]:
    """Limits of a batch of which `size` of `whole` cases are tested, with this share of everybody's room."""
    lower, upper = capacity.limits((MACHINE, *part.experts), whole, name)
    if share == 1.0 and size == whole:
        return lower, upper
    people = whole_shares(share * size / whole * upper[1:].astype(np.float64))
    least = np.minimum(np.floor(share * size / whole * lower[1:]).astype(np.int64), people)
    return np.append(0, least), np.append(size, people)


def whole_shares(shares: Array) -> Ints:
    """Whole numbers next to the shares, with the shares' total: the largest remainders are rounded up.

    Where everybody has decided a few cases only, rounding down would leave the team without any room. Equal
    remainders go by lot, always the same.
    """
    whole = np.floor(shares + 1e-9).astype(np.int64)
    spare = int(np.floor(shares.sum() + 1e-9)) - int(whole.sum())
    lot = np.random.default_rng(0).permutation(len(shares))
    order = np.lexsort((lot, -(shares - whole).round(9)))
    whole[order[:spare]] += 1
    return whole
