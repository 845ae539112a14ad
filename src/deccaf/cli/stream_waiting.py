"""What waiting costs on the day of a stream: everybody's queue as it is expected to be, and bids from it.

A stream is not told when somebody is done. Everybody is taken to work through their queue without a break,
each case as long as it usually takes them, in the order of the index; so the queue of any moment is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Harm, Queues
from deccaf.data.config import WaitingTable
from deccaf.data.costs import MACHINE
from deccaf.data.schema import Columns
from deccaf.errors import ConfigError, DataError
from deccaf.planning.minutes import handling_minutes
from deccaf.planning.waiting import harm_of_case

Floats = NDArray[np.float64]
Line = Mapping[str, Any]

STATE = "waiting"
"""The part of a stream's state that is kept here."""
_CLOCK = (
    "waiting is counted on a clock: say with --hours how long the day is, and with `at` when each case comes"
)


@dataclass(frozen=True)
class Rules:
    """What is known about waiting before the day begins."""

    names: Mapping[str, str]
    """What `due` and `waiting_cost` are called in a line."""
    table: WaitingTable
    pace: Mapping[str, float]
    """Cases an hour, by expert, as the model knows it."""
    hours: float | None = None
    """How long the day is; None: there is no clock."""
    start: str | None = None
    """When it begins, where due times are dates."""
    machines: Mapping[str, float] = field(default_factory=dict)
    """Minutes of a case by machine; 0: it answers at once."""

    @classmethod
    def of(
        cls,
        roles: Columns,
        features: Sequence[str],
        table: WaitingTable | None,
        pace: Mapping[str, float],
        hours: float | None,
        start: str | None,
    ) -> Rules:
        """A column that the model takes for a feature says nothing about waiting."""
        if hours is None and table is not None and table.priced:
            raise ConfigError(f"[waiting]: {_CLOCK}")
        names = {part: name for part, name in roles.waiting.items() if name not in features}
        return cls(names, table or WaitingTable(), pace, hours, start)


@dataclass(frozen=True, eq=False)
class Came:
    """A case that came."""

    case: str
    now: float
    harm: Harm
    hours: Floats
    """With each maker."""
    loss: Floats
    maker: int = -1
    """Who got it; -1: nobody yet, or it was handed back."""


class Day:
    """Everybody's queue on a running day."""

    def __init__(self, makers: Sequence[str], rules: Rules) -> None:
        self.makers, self.rules = tuple(makers), rules
        at_once = {MACHINE, *(name for name, minutes in rules.machines.items() if not minutes)}
        self._instant = [place for place, name in enumerate(makers) if name in at_once]
        self._queues: Queues | None = None
        self._log: list[Came] = []
        self._known: dict[str, Came] = {}
        self._now = 0.0

    def arriving(self, line: Line, case: str, loss: Sequence[float]) -> Came | None:
        """What waiting costs a case that comes now; None: nothing, and there is no clock."""
        rules = self.rules
        if rules.hours is None:
            if harm_of_case(line, rules.names, rules.table, 0.0, rules.start or "now").priced:
                named = " and ".join(sorted(set(rules.names.values()) & line.keys()))
                raise DataError(f"{named}: {_CLOCK}")
            return None
        at = line.get("at")
        if not isinstance(at, int | float):
            raise DataError(f"at: missing; {_CLOCK}")
        now = max(self._now, float(at) * rules.hours)
        harm = harm_of_case(line, rules.names, rules.table, now, rules.start)
        frame = pd.DataFrame([line])
        asked = rules.table.minutes
        if isinstance(asked, str) and asked not in frame:
            raise DataError(f"{asked}: missing; [waiting] minutes names it")
        minutes = handling_minutes(asked, frame, 1, self.makers, rules.pace, "waiting", rules.machines)
        return Came(case, now, harm, minutes[0] / 60.0, np.asarray(loss, np.float64))

    def bids(self, came: Came) -> Floats:
        """What waiting costs with each maker, in their order."""
        self._work_on(came.now)
        queues = self._opened(came)
        return queues.bids(came.harm, came.hours, came.now)

    def placed(self, came: Came, maker: int) -> None:
        """The case is in somebody's queue now."""
        self._now = came.now
        self._known[came.case] = went = replace(came, maker=maker)
        self._log.append(went)
        self._opened(came).add(came.case, maker, came.harm, came.hours, _finite(came.loss), came.now)

    def back(self, case: str) -> Came | None:
        """A case that is to be handed back, as it comes again now; None: its waiting is not counted."""
        went = self._known.get(case)
        return None if went is None else replace(went, now=self._now, maker=-1)

    def take_back(self, case: str) -> None:
        """The case is in nobody's queue any more."""
        went = self._known[case]
        queues = self._opened(went)
        if case in queues.of(went.maker):
            queues.remove(case)
        self._log.append(replace(went, now=self._now, maker=-1))

    def to_dict(self) -> list[list[Any]]:
        """All that happened, for a JSON file."""
        return [
            [one.case, one.maker, one.now, _plain(_harm_row(one.harm)), _plain(one.hours), _plain(one.loss)]
            for one in self._log
        ]

    def go_on(self, log: Sequence[Sequence[Any]]) -> None:
        """Let everything happen again that `to_dict` gave."""
        try:
            for case, maker, now, harm, hours, loss in log:
                rows = [[value] for value in _back(harm)]
                came = Came(str(case), float(now), Harm(*map(np.array, rows)), _back(hours), _back(loss))
                if maker < 0:
                    self.take_back(came.case)
                else:
                    self._work_on(came.now)
                    self.placed(came, int(maker))
        except (TypeError, ValueError) as error:
            raise DataError(f"stream state: {STATE}: {error}") from error

    def _opened(self, came: Came) -> Queues:
        if self._queues is None:  # what a case usually takes is known with the first
            assert self.rules.hours is not None
            usual, end = np.maximum(came.hours, 1e-6), self.rules.hours
            self._queues = Queues(len(self.makers), usual, self._instant, end)
        return self._queues

    def _work_on(self, now: float) -> None:
        """Everybody goes on with their queue until now."""
        queues = self._queues
        if queues is None:
            return
        for maker in range(len(self.makers)):
            while waiting := queues.of(maker):
                since = min(self._known[str(case)].now for case in waiting)
                begin = max(float(queues.free[maker]), since)
                if begin > now:
                    break
                case = queues.next(maker, begin)
                assert case is not None
                queues.remove(case)
                queues.free[maker] = begin + self._known[str(case)].hours[maker]


def _finite(loss: Floats) -> Floats:
    """Who may not get a case would save nothing by it."""
    return np.where(np.isfinite(loss), loss, np.max(loss, where=np.isfinite(loss), initial=0.0))


def _harm_row(harm: Harm) -> Floats:
    return np.concatenate([np.atleast_1d(getattr(harm, name)) for name in harm.__dataclass_fields__])


def _plain(values: Floats) -> list[float | None]:
    """JSON has no infinity."""
    return [value if value < np.inf else None for value in values.tolist()]


def _back(values: Sequence[float | None]) -> Floats:
    return np.array([np.inf if value is None else value for value in values], np.float64)
