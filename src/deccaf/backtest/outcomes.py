"""What policies would have decided about the test cases: known where several experts decided, else estimated.

Both kinds have one form: for every case K terms whose mean is the share of the cases in which that class is
decided. All figures are means of these terms: costs under any cost table, rates by group, bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deccaf.backtest.policies import chances
from deccaf.backtest.split import Chances, Part, Rooms
from deccaf.evaluate.off_policy import Logged, logged
from deccaf.policies import Beliefs, Decided

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one policy decides about every test case, as terms, and what asking people costs."""

    decided: Array
    """(cases, K)."""
    own: Array
    """(cases, K): the part of it that is the machine's, which is always known."""
    review: Array
    asked: Array
    """The chance that a person is asked."""
    event: float = 0.0
    """How large one more logged decision counts, for intervals; 0 where everything is known."""
    logged: Logged | None = None
    """The weights behind an estimate."""

    @property
    def bias(self) -> float:
        """How far capped weights are likely to have moved the mean cost."""
        return 0.0 if self.logged is None else self.logged.likely_bias

    def cost(self, of: Array) -> Array:
        """Terms of the cost, where deciding m about a case costs of[case, m]."""
        return np.asarray((self.decided * of).sum(axis=1) + self.review)

    def bound(self, of: Array, people: Array) -> Array:
        """Terms of the cost, where decisions of people cost people[case, m] instead."""
        theirs = (self.decided - self.own) * people
        return np.asarray((self.own * of + theirs).sum(axis=1) + self.review)


@dataclass(frozen=True, eq=False)
class Log:
    """The one logged decision about every test case."""

    who: Ints
    decision: Ints
    propensity: Array
    by_lot: Mask
    said: Array
    """(cases, K): chances of this person's decisions given the truth, as the models have them."""
    team: Array
    """(cases, K): the same on average over the team."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What one policy does with every test case."""

    maker: Ints
    machine_says: Ints
    asked: Array
    chance: Array
    """That the policy picks the person of the log."""
    said: Array
    """(cases, K): expected decisions of the person it picks; they sum to `asked`."""
    review: Array


Table = TypeVar("Table", Log, Trace)


def joined(tables: Sequence[Table]) -> Table:
    """The tables of all splits, one below the other."""
    columns: dict[str, Any] = {
        part.name: np.concatenate([getattr(table, part.name) for table in tables])
        for part in fields(tables[0])
    }
    return type(tables[0])(**columns)


def taken(table: Table, rows: Mask) -> Table:
    """Some of the cases."""
    columns: dict[str, Any] = {part.name: getattr(table, part.name)[rows] for part in fields(table)}
    return type(table)(**columns)


def log_of(part: Part, beliefs: Beliefs, found: Chances) -> Log:
    """The logged decision about every test case, with what the models expected of it."""
    mine = part.decisions[np.argsort(part.position[part.decisions], kind="stable")]
    who, here = part.expert[mine], np.arange(len(part.rows))
    said = np.asarray(beliefs.q)[here, :, part.truth]
    return Log(
        who,
        part.log.decision[mine],
        found.propensity[mine],
        found.by_lot[mine],
        said[here, who],
        said.mean(axis=1),
    )


def trace_of(name: str, part: Part, beliefs: Beliefs, found: Decided, rooms: Rooms, who: Ints) -> Trace:
    """What a policy does with the test cases."""
    here, picks = np.arange(len(part.rows)), chances(name, found, rooms)
    said = np.asarray(beliefs.q)[here, :, part.truth]
    return Trace(
        found.maker,
        found.machine_says,
        1.0 - picks[:, 0],
        picks[here, 1 + who],
        np.einsum("ij,ijm->im", picks[:, 1:], said),
        (picks[:, 1:] * part.review).sum(axis=1),
    )


def estimated(trace: Trace, log: Log, cost_of: Array, rows: Mask | None = None) -> Outcome:
    """Doubly-robust terms with bounded weights; `rows` restricts what is learned from the log to some cases.

    Where only some cases count (those given by lot), they stand for all.
    """
    k, here = cost_of.shape[1], np.arange(len(cost_of))
    seen = np.eye(k)[log.decision]
    weights = logged(
        trace.chance,
        log.propensity,
        cost_of[here, log.decision],
        (1.0 - trace.asked) * cost_of[here, trace.machine_says],
        (log.said * cost_of).sum(axis=1),
        (trace.said * cost_of).sum(axis=1),
        trace.asked,
        _worst(log.said, cost_of),
    )
    if rows is not None:
        weights = weights.among(rows)
    bounded = weights.bounded()
    own = (1.0 - trace.asked)[:, None] * np.eye(k)[trace.machine_says]
    decided = own + trace.said + bounded.weight[:, None] * (seen - log.said)
    size = bounded.event() if trace.asked.any() else 0.0
    return Outcome(decided, own, trace.review, trace.asked, size, bounded)


def by_inverse_propensity(trace: Trace, log: Log, found: Outcome) -> Outcome:
    """The same from the log alone, without predictions."""
    assert found.logged is not None
    k = found.decided.shape[1]
    own = (1.0 - trace.asked)[:, None] * np.eye(k)[trace.machine_says]
    decided = own + found.logged.weight[:, None] * np.eye(k)[log.decision]
    return Outcome(decided, own, trace.review, trace.asked, found.event, found.logged)


def history_of(log: Log, review: Array, classes: int) -> Outcome:
    """What really happened; `review` is (cases, experts)."""
    seen = np.eye(classes)[log.decision]
    paid = review[np.arange(len(log.who)), log.who]
    return Outcome(seen, seen, paid, np.ones(len(log.who)))


def known_table(part: Part) -> Ints:
    """(test cases, experts): what each expert said, -1 where they did not."""
    said = np.full((len(part.rows), len(part.experts)), -1, np.int64)
    mine = part.decisions
    said[part.place[part.position[mine]], part.expert[mine]] = part.log.decision[mine]
    return said


def known(part: Part, said: Ints, found: Decided, classes: int) -> Outcome:
    """What a plan decides where everybody whom it may ask has decided."""
    people = found.maker > 0
    asked = said[np.arange(len(said)), np.maximum(found.maker - 1, 0)]
    decision = np.where(people, asked, found.machine_says)
    review = paid(part, found.maker)
    decided = np.eye(classes)[decision]
    return Outcome(decided, decided, review, people.astype(np.float64))


def paid(part: Part, maker: Ints) -> Array:
    """What the makers of the test cases are paid; the machine costs nothing."""
    here = np.arange(len(maker))
    return np.where(maker > 0, part.review[here, np.maximum(maker - 1, 0)], 0.0)


def known_history(part: Part, said: Ints, classes: int) -> Outcome:
    """What really happened, everybody's decision on a case counting alike."""
    made = said >= 0
    count = np.maximum(made.sum(axis=1), 1)
    decided = np.stack([(said == m).sum(axis=1) / count for m in range(classes)], axis=1)
    return Outcome(decided, decided, (made * part.review).sum(axis=1) / count, np.ones(len(said)))


def averaged(draws: Sequence[Outcome]) -> Outcome:
    """The mean over draws, case by case."""
    decided = np.mean([one.decided for one in draws], axis=0)
    return Outcome(
        decided,
        decided,
        np.mean([one.review for one in draws], axis=0),
        np.mean([one.asked for one in draws], axis=0),
    )


def stacked(parts: Sequence[Outcome]) -> Outcome:
    """The outcomes of all splits, one below the other."""
    decided = np.concatenate([part.decided for part in parts])
    return Outcome(
        decided,
        decided,
        np.concatenate([part.review for part in parts]),
        np.concatenate([part.asked for part in parts]),
    )


def _worst(said: Array, cost_of: Array) -> Array:
    """How far the predicted cost of a decision can be off at most."""
    expected = (said * cost_of).sum(axis=1)
    return np.asarray(np.maximum(expected - cost_of.min(axis=1), cost_of.max(axis=1) - expected))
