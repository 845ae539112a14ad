"""Everybody's queue on a running day: what a further case would cost in waiting, and what to take up next.

A case that joins a queue waits for what goes before it, and keeps waiting what comes after it. Both are
reckoned with the index of `order`: from the queue as it is, and from those still to come, taken to be like
those of the last hour. Of these the more urgent overtake the case, and all who come while there is a queue
wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import ArrayLike

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.assign.waiting.harm import Harm
from deccaf.assign.waiting.order import USUAL, index, urgency

UNSURE = 0.3
"""How far off the time is that work will take: this share of it."""
WINDOW = 1.0
"""Hours back that tell what will come next."""
MOST_LOADED = 0.9
"""Nobody's queue is taken to last longer than with so much work an hour."""
TO_COME = 0.5
"""How much of their delay those still to come really have: some overtake."""
Name = str | int

_FIELDS = tuple(field.name for field in fields(Harm))
_HOURS, _SAVING = len(_FIELDS), len(_FIELDS) + 1


class Queues:
    """Cases that somebody has and nobody has begun, by maker.

    `instant` are makers who decide at once (the machine): they have no queue. Times are hours on one clock.
    """

    def __init__(self, makers: int, usual: ArrayLike, instant: Sequence[int] = (0,), end: float = np.inf):
        self.usual = np.broadcast_to(np.asarray(usual, np.float64), (makers,)).copy()
        """Hours that a case usually takes each of them."""
        self.end = end
        """When the day ends: what is not done by then is lost to them, and what they would have saved."""
        self.free = np.zeros(makers)
        """When each will be done with what they have in hand."""
        self.instant = np.zeros(makers, np.bool_)
        self.instant[list(instant)] = True
        self.start = np.nan
        """When the first case came."""
        self._recent: deque[tuple[float, int, float, float, float]] = deque()
        self._table = np.empty((64, len(_FIELDS) + 2))
        self._maker = np.empty(64, np.int64)
        self._case: list[Name] = []
        self._each: list[tuple[Floats, Floats]] = []

    def __len__(self) -> int:
        return len(self._case)

    def bids(self, harm: Harm, hours: Floats, now: float) -> Floats:
        """For one case: what waiting costs, its own and that of others, with each maker.

        `hours` is how long it takes each of them.
        """
        count = len(self.usual)
        begin = np.maximum(self.free, now)
        queued, maker, took = self._harm(), self._maker[: len(self)], self._hours()
        near = USUAL * np.maximum(self.usual, 1e-6)
        own = index(harm, hours, now, near)
        rank = index(queued, took, now, near[maker])
        ahead = rank >= own[maker]
        overtaking, load, flow = self._inflow(own, now)
        wait = begin - now + np.bincount(maker[ahead], took[ahead], count)
        wait = wait / (1.0 - np.minimum(overtaking, MOST_LOADED))
        done = now + wait + hours
        found = harm.expected(done, UNSURE * (done - now)) - harm.cost(np.array([now]))
        if len(self):
            found = found + self._others(queued, maker, took, rank, ahead, begin, hours, now)
        work = begin - now + np.bincount(maker, took, count) + hours
        busy = np.minimum(work / (1.0 - np.minimum(load, MOST_LOADED)), max(self.end - now, 0.0))
        found = found + TO_COME * hours * flow * busy
        found[self.instant] = 0.0
        return np.asarray(found, np.float64)

    def _inflow(self, own: Floats, now: float) -> tuple[Floats, Floats, Floats]:
        """Of the last hour: work an hour by maker that would overtake the case, all work, and what an hour's
        delay costs the cases that came."""
        while self._recent and self._recent[0][0] < now - WINDOW:
            self._recent.popleft()
        none = np.zeros(len(own))
        if not self._recent:
            return none, none, none
        _, maker, hours, rank, urgent = np.array(self._recent).T
        who = maker.astype(np.int64)
        window = min(max(now - self.start, 0.25 * WINDOW), WINDOW)
        over = rank > own[who]
        return (
            np.bincount(who[over], hours[over], len(own)) / window,
            np.bincount(who, hours, len(own)) / window,
            np.bincount(who, urgent, len(own)) / window,
        )

    def add(
        self,
        case: Name,
        maker: int,
        harm: Harm,
        hours: Floats,
        loss: Floats | None = None,
        now: float | None = None,
    ) -> None:
        """Put a case into somebody's queue; `hours` and `loss` are those of every maker.

        `now` is when it came, if that is not when it began to wait.
        """
        if not self.instant[maker]:
            losses = np.zeros(len(hours)) if loss is None else np.asarray(loss, np.float64)
            came = None if now is None else np.array([now])
            self.fill([case], np.array([maker]), harm, np.asarray(hours)[None], losses[None], came)

    def fill(
        self,
        cases: Sequence[Name],
        maker: Ints,
        harm: Harm,
        hours: Floats,
        loss: Floats | None = None,
        now: Floats | None = None,
    ) -> None:
        """Many at once, none of them with a maker who decides at once; tables are cases x makers."""
        count, first = len(cases), len(self)
        while first + count > len(self._maker):
            self._table, self._maker = np.repeat(self._table, 2, axis=0), np.repeat(self._maker, 2)
        each = np.zeros(hours.shape) if loss is None else np.asarray(loss, np.float64)
        here = np.arange(count)
        took, saving = hours[here, maker], np.zeros(count)
        if self.instant.any():
            saving = each[:, self.instant].min(axis=1) - each[here, maker]
        columns = [*(getattr(harm, name) for name in _FIELDS), took, saving]
        self._table[first : first + count] = np.column_stack(columns)
        self._maker[first : first + count] = maker
        self._case += list(cases)
        self._each += list(zip(hours, each, strict=True))
        came = harm.since if now is None else now
        if count and np.isnan(self.start):
            self.start = float(came.min())
        near = USUAL * np.maximum(self.usual, 1e-6)[maker]
        urgent = urgency(harm, took, came, near)
        rank = urgent / np.maximum(took, 1e-9)
        recent = zip(
            came.tolist(), maker.tolist(), took.tolist(), rank.tolist(), urgent.tolist(), strict=True
        )
        self._recent.extend(sorted(recent))

    def remove(self, case: Name) -> None:
        """Take a case out of whatever queue it is in."""
        place = self._case.index(case)
        last = len(self) - 1
        self._table[place:last], self._maker[place:last] = (
            self._table[place + 1 : last + 1].copy(),
            self._maker[place + 1 : last + 1].copy(),
        )
        del self._case[place], self._each[place]

    def of(self, maker: int) -> list[Name]:
        """Somebody's cases, as they came."""
        return [self._case[place] for place in np.flatnonzero(self._maker[: len(self)] == maker)]

    def next(self, maker: int, now: float) -> Name | None:
        """The case that this maker should take up now; None: there is none."""
        mine = np.flatnonzero(self._maker[: len(self)] == maker)
        if not len(mine):
            return None
        rows = self._table[mine]
        harm = Harm(*rows[:, :_HOURS].T)
        ranks = next_index(harm, rows[:, _HOURS], rows[:, _SAVING], now, self.end, float(self.usual[maker]))
        return self._case[int(mine[ranks.argmax()])]

    def help(self, maker: int, now: float) -> Name | None:
        """The case of another's queue that this maker, who has nothing to do, should take; None: none.

        Worth it is what it costs less, in errors and in waiting, its own and that of those behind it.
        """
        if not len(self):
            return None
        owner, took, queued = self._maker[: len(self)], self._hours(), self._harm()
        hours, loss = (np.array([each[k] for each in self._each]) for k in (0, 1))
        here = np.arange(len(self))
        rank = index(queued, took, now, (USUAL * np.maximum(self.usual, 1e-6))[owner])
        done = self._finish(owner, took, rank, np.maximum(self.free, now))
        mine = now + hours[:, maker]
        gain = loss[here, owner] - loss[:, maker] + took * _behind(owner, rank, rank * took)
        gain += queued.expected(done, UNSURE * (done - now)) - queued.expected(mine, UNSURE * (mine - now))
        worth: Floats = np.where(gain > 0, gain / np.maximum(hours[:, maker], 1e-9), 0.0)
        best = int(worth.argmax())
        return self._case[best] if worth[best] > 0 else None

    def _finish(self, maker: Ints, took: Floats, rank: Floats, begin: Floats) -> Floats:
        """When each case is expected to be done, in the order of the index."""
        order = np.lexsort((-rank, maker))
        work = np.cumsum(took[order])
        first = np.searchsorted(maker[order], np.arange(len(begin)))
        before = np.concatenate([[0.0], work])[first]
        done = np.empty(len(order))
        done[order] = work - before[maker[order]] + begin[maker[order]]
        return done

    def _harm(self) -> Harm:
        return Harm(*self._table[: len(self), :_HOURS].T)

    def _hours(self) -> Floats:
        return self._table[: len(self), _HOURS]

    def _others(
        self,
        queued: Harm,
        maker: Ints,
        took: Floats,
        rank: Floats,
        ahead: np.ndarray,
        begin: Floats,
        hours: Floats,
        now: float,
    ) -> Floats:
        """What those wait more for whom the new case comes before."""
        done = self._finish(maker, took, rank, begin)
        behind = np.flatnonzero(~ahead)
        some, theirs = queued.take(behind), done[behind]
        spread = UNSURE * (theirs - now)
        more = some.expected(theirs + hours[maker[behind]], spread) - some.expected(theirs, spread)
        return np.asarray(np.bincount(maker[behind], more, len(begin)), np.float64)


def _behind(owner: Ints, rank: Floats, urgent: Floats) -> Floats:
    """What an hour's delay costs those behind each case in its queue."""
    order = np.lexsort((-rank, owner))
    after = np.cumsum(urgent[order][::-1])[::-1] - urgent[order]
    last = np.searchsorted(owner[order], owner[order], side="right") - 1
    behind = np.empty(len(order))
    behind[order] = after - after[last]
    return behind


def next_index(harm: Harm, hours: Floats, saving: Floats, now: float, end: float, usual: float) -> Floats:
    """What each case of one person is worth now, per hour of their time: waiting, and their saving if there
    may be no time for it later."""
    rank = index(harm, hours, now, USUAL * usual)
    left, work = end - now, float(hours.sum())
    if np.isfinite(left) and work > 0:
        # the share of the queue that will not be reached before the day ends, per hour that is left
        missed = max(1.0 - left / work, 0.0)
        rank = rank + missed * np.maximum(saving, 0.0) / np.maximum(hours, 1e-9) / max(left, usual)
    return np.asarray(rank, np.float64)
