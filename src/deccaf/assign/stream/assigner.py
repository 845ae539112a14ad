"""Cases that cannot wait: each is routed the moment it arrives, against bid prices.

A case goes to the maker with the least loss + price. The prices are the shadow prices of plans for the rest
of the day, with the capacity that is left: forecast cases stand for those to come, cases already seen today
correct how many these are and how hard, and everything is priced anew as the day goes on.

    desk = StreamAssigner(["machine", "ann", "bob"], upper=[inf, 40, 25], forecast=Forecast.of_days(days))
    desk.route(loss_row, case="a17").maker
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.assign.solve import solve
from deccaf.assign.stream.bid_prices import greedy_cost
from deccaf.assign.stream.forecast import Forecast, checked_rows, plain_rows, rows_from_plain
from deccaf.assign.stream.outlook import FEWEST_TODAY, MOST_TODAY, Today, mean_prices
from deccaf.errors import CapacityError, ConfigError, DataError, did_you_mean, show

REPRICE_SHARE = 8  # prices are renewed after this part of the remaining cases, or of the remaining day,
FEWEST_BETWEEN = 2  # but not after fewer cases than these
LEARN_SHARE = 4  # or after this part of the cases seen: they say what today is like
FORMAT = 1
NO_LIMIT = 2**40  # sums of these are still exact

LimitsLike = ArrayLike | Mapping[str, float]


class Routed(NamedTuple):
    """Where a case went: the maker's name and column, its loss, and the price of the maker's time then."""

    maker: str
    position: int
    loss: float
    price: float


@dataclass(frozen=True)
class Regret:
    """What the day cost, beside the best plan in hindsight and beside greedy routing in the same order."""

    cost: float
    hindsight: float
    greedy: float

    @property
    def share(self) -> float:
        """Excess over the hindsight optimum, as a share of it."""
        return _excess(self.cost, self.hindsight)

    @property
    def greedy_share(self) -> float:
        """The same for greedy."""
        return _excess(self.greedy, self.hindsight)


class StreamAssigner:
    """Routes one case at a time; never above an upper limit.

    `upper` and `lower` are the day's limits by maker, in order or by name (no `upper` by name: nothing for
    this maker; `inf`: no limit). Lower limits are held for certain where the forecast's number of arrivals is
    exact and everyone may take everything, and aimed at otherwise. A loss of infinity means that the maker
    may not get the case.

    Losses of routed cases are kept (8 bytes per case and maker) so that a case can be handed back and the
    regret be computed. `to_dict` and `from_dict` save and restore everything in mid-day: the assignments
    that follow are the same.
    """

    def __init__(
        self,
        makers: Sequence[str],
        upper: LimitsLike,
        lower: LimitsLike | None = None,
        forecast: Forecast | None = None,
        seed: int = 0,
    ):
        self.makers = tuple(str(name) for name in makers)
        if not self.makers or len(set(self.makers)) != len(self.makers):
            raise ConfigError(f"makers: expected different names, got {list(self.makers)}")
        self._column = {name: j for j, name in enumerate(self.makers)}
        count = len(self.makers)
        self.forecast = forecast or Forecast.of(np.empty((0, count)))
        if self.forecast.loss.shape[1] != count:
            raise DataError(f"forecast: {self.forecast.loss.shape[1]} columns for {count} makers")
        self.seed = seed
        self.upper, self.lower = self._limits(upper, "upper"), np.zeros(count, np.int64)
        if lower is not None:
            self.lower = self._limits(lower, "lower")
        self.used = np.zeros(count, np.int64)
        self._check_limits()
        self.now: float | None = None
        self._prices = np.zeros(count)
        self._repricings = 0
        self._rows: list[Floats] = []  # of every case routed, handed back or not
        self._took: list[int] = []  # its maker, -1 where it was handed back
        self._at: list[float] = []  # where in the pattern of the day it came
        self._place: dict[str, int] = {}  # of a case by name
        self._seen = 0  # cases that arrived; one that was handed back arrived once
        self._reprice()

    @property
    def prices(self) -> Floats:
        """The price of one unit of each maker's time now; infinite where there is none left."""
        return np.where(self.room > 0, self._prices, np.inf)

    @property
    def room(self) -> Ints:
        """Cases that each maker may still get."""
        room: Ints = np.maximum(self.upper - self.used, 0)
        return room

    @property
    def owed(self) -> Ints:
        """Cases that each maker must still get."""
        owed: Ints = np.minimum(np.maximum(self.lower - self.used, 0), self.room)
        return owed

    @property
    def routed(self) -> NDArray[np.int64]:
        """The maker's column of every case in order of routing; -1 where it was handed back."""
        return np.asarray(self._took, np.int64)

    def route(
        self,
        loss: ArrayLike,
        case: str | None = None,
        at: float | None = None,
        *,
        waiting: ArrayLike | None = None,
    ) -> Routed:
        """Give a case to a maker. `case` names it, so that it can be handed back; `at` is the time, 0 to 1.

        `waiting` is what it would cost with each maker that the case, and others for its sake, wait
        (`deccaf.assign.Queues.bids`); it counts in this bid alone. Raises `CapacityError` where nobody who
        may take it has room.
        """
        row = self._row(loss, "loss")
        wait = None if waiting is None else self._row(waiting, "waiting")
        if case is not None and case in self._place:
            raise DataError(f"case {case!r} was routed before; hand it back first")
        if at is not None:
            self._set_clock(at)
        return self._route(row, case, wait)

    def hand_back(self, case: str, *, waiting: ArrayLike | None = None) -> Routed:
        """Somebody could not decide a case: their unit is free again, and the case goes to somebody else."""
        wait = None if waiting is None else self._row(waiting, "waiting")
        if case not in self._place:
            raise DataError(f"case {case!r} was never routed by name" + did_you_mean(case, self._place))
        place = self._place[case]
        taken, row = self._took[place], self._rows[place].copy()
        row[taken] = np.inf
        if not ((row < np.inf) & (self.room > 0)).any():
            raise CapacityError(
                f"case {case!r}: nobody but {self.makers[taken]!r} may take it and has room; raise a limit"
            )
        self._took[place] = -1
        self.used[taken] -= 1
        self._seen -= 1
        self._open()
        return self._route(row, case, wait)

    def absent(self, maker: str) -> None:
        """A maker goes home: no more cases, whatever the limits said."""
        j = self._known(maker)
        self.change({maker: int(self.used[j])}, {maker: 0})

    def change(self, upper: Mapping[str, float], lower: Mapping[str, float] | None = None) -> None:
        """New limits of the day for some makers, in cases of the whole day; who has more keeps them."""
        most, least = self.upper.copy(), self.lower.copy()
        for table, values, name in ((most, upper, "upper"), (least, lower or {}, "lower")):
            for maker, value in values.items():
                table[self._known(maker)] = _whole(value, name, maker)
        most = np.maximum(most, self.used)
        least = np.minimum(least, most)
        before = self.upper, self.lower
        self.upper, self.lower = most, least
        try:
            self._check_limits()
        except CapacityError:
            self.upper, self.lower = before
            raise
        self._reprice()

    def regret(self) -> Regret:
        """The cost so far against the best plan for the same cases in hindsight, and against greedy."""
        kept = np.flatnonzero(self.routed >= 0)
        rows = np.stack([self._rows[k] for k in kept]) if len(kept) else np.empty((0, len(self.makers)))
        took = self.routed[kept]
        upper, lower = np.maximum(self.upper, self.used), np.minimum(self.lower, self.used)
        eligible = np.isfinite(rows)
        plan = solve(np.where(eligible, rows, 0.0), upper, lower, eligible)
        cost = float(rows[np.arange(len(rows)), took].sum())
        return Regret(cost, plan.objective, greedy_cost(rows, upper, lower))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists, numbers and names, for a JSON file."""
        return {
            "format": FORMAT,
            "makers": list(self.makers),
            "upper": self.upper.tolist(),
            "lower": self.lower.tolist(),
            "used": self.used.tolist(),
            "prices": self._prices.tolist(),
            "repricings": self._repricings,
            "seen": self._seen,
            "total": self._total,
            "now": self.now,
            "next_case": self._next_case,
            "next_time": self._next_time,
            "seed": self.seed,
            "forecast": self.forecast.to_dict(),
            "took": list(self._took),
            "at": list(self._at),
            "rows": plain_rows(np.stack(self._rows)) if self._rows else [],
            "cases": dict(self._place),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StreamAssigner:
        """Rebuild what `to_dict` gave; what follows is as if there had been no break."""
        if data.get("format") != FORMAT:
            raise DataError(f"stream state: format {show(data.get('format'))}, this version reads {FORMAT}")
        try:
            makers = data["makers"]
            stream = cls(
                makers,
                data["upper"],
                data["lower"],
                Forecast.from_dict(data["forecast"], len(makers)),
                int(data["seed"]),
            )
            stream.used = np.asarray(data["used"], np.int64)
            stream._prices = np.asarray(data["prices"], np.float64)
            stream._repricings, stream._seen = int(data["repricings"]), int(data["seen"])
            stream._total = float(data.get("total", stream._total))
            stream.now = data["now"]
            stream._next_case, stream._next_time = int(data["next_case"]), data["next_time"]
            stream._took = [int(j) for j in data["took"]]
            stream._at = [float(at) for at in data.get("at", [0.0] * len(stream._took))]
            stream._rows = list(rows_from_plain(data["rows"], len(makers)))
            stream._place = {str(case): int(place) for case, place in data["cases"].items()}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"stream state: {error!r} is missing or unusable") from error
        stream._open()
        return stream

    def _row(self, values: ArrayLike, name: str) -> Floats:
        row = np.array(values, np.float64)
        if row.shape != (len(self.makers),):
            raise DataError(f"{name}: expected {len(self.makers)} numbers, one per maker, got {row.shape}")
        return row

    def _route(self, row: Floats, case: str | None, waiting: Floats | None) -> Routed:
        if self._seen >= self._next_case or (self.now is not None and self.now >= self._next_time):
            self._reprice(row)
        value = row + self._bid if waiting is None else row + self._bid + waiting
        j = int(value.argmin())
        best = value[j]
        if not -np.inf < best < np.inf:
            j = self._second_choice(row, case, waiting)
        if case is not None:
            self._place[case] = len(self._took)
        self._rows.append(row)
        self._took.append(j)
        self._at.append(self._place_in_day())
        self._seen += 1
        self._take(j)
        return Routed(self.makers[j], j, float(row[j]), float(self._prices[j]))

    def _take(self, j: int) -> None:
        self.used[j] += 1
        if self._owing and self.used[j] <= self.lower[j]:
            self._owing -= 1
        if self.used[j] >= (self.lower[j] if self._tight else self.upper[j]):
            self._bid[j] = np.inf
        if self._tight != (0 < self._owing >= self._left()):
            self._open()

    def _second_choice(self, row: Floats, case: str | None, waiting: Floats | None) -> int:
        """Nobody who is owed cases may take this one, or nobody at all."""
        checked_rows(row[None])
        value = row + self.prices + (0.0 if waiting is None else waiting)
        j = int(value.argmin())
        if not value[j] < np.inf:
            who = ", ".join(name for name, may in zip(self.makers, row < np.inf, strict=True) if may)
            raise CapacityError(
                f"{'the case' if case is None else f'case {case!r}'}: nobody who may take it has room"
                f" ({who}); raise an upper limit or let the machine decide"
            )
        return j

    def _left(self) -> float:
        """Cases still to come, as they were counted when prices were made."""
        if self.forecast.exact or self.now is None:
            return self.forecast.remaining(self._seen, self.now)
        return max(self._total - self._seen, 1.0)

    def _place_in_day(self) -> float:
        """Where in the pattern of the day the next case stands: by the clock, or by the order of arrival."""
        if self.now is not None and (self.forecast.clock or not len(self.forecast.at)):
            return self.now
        return min(self._seen / max(self._total, 1.0), 1.0)

    def _open(self) -> None:
        """Who may get the next case: all with room, or those who are owed all that will come."""
        owed, self._bid = self.owed, self.prices
        self._owing = int(owed.sum())
        self._tight = 0 < self._owing >= self._left()
        if self._tight:
            self._bid[owed == 0] = np.inf

    def _reprice(self, arriving: Floats | None = None) -> None:
        """Price the capacity that is left against what is to come; these prices are the bids.

        Where nothing was known before the day, the case that is arriving tells too what cases are like.
        """
        left = self.forecast.remaining(self._seen, self.now)
        self._total = self._seen + left if self.now is not None else max(self.forecast.arrivals, 1.0)
        self._next_case = self._seen + self._step(left)
        self._next_time = 1.0 if self.now is None else self.now + max(1.0 - self.now, 0.0) / REPRICE_SHARE
        if self.now is not None and self.now >= 1.0:
            self._next_time = np.inf
        known, at = self._rows[-MOST_TODAY:], self._at[-MOST_TODAY:]
        if arriving is not None and self.now is not None and not len(self.forecast.loss):
            known, at = [*known, arriving], [*at, self.now]
        rows = np.stack(known) if known else np.empty((0, len(self.makers)))
        today = Today(rows, np.array(at), self._seen, self.now, self._place_in_day())
        self._prices = mean_prices(
            self.forecast,
            today,
            self.room,
            self.owed,
            self.upper < NO_LIMIT,
            self._prices,
            [self.seed, self._repricings],
        )
        self._repricings += 1
        self._open()

    def _step(self, left: float) -> int:
        """Cases until prices are renewed: sooner where little is known or little is left."""
        step = int(left) // REPRICE_SHARE
        if not len(self.forecast.loss) or self.now is not None:
            step = min(step, self._seen // LEARN_SHARE + (FEWEST_TODAY if len(self.forecast.loss) else 0))
        return max(step, FEWEST_BETWEEN)

    def _set_clock(self, at: float) -> None:
        if not 0.0 <= at <= 1.0:
            raise DataError(f"at: expected a share of the day from 0 to 1, got {at}")
        if self.now is None:
            self._next_time = at  # there is a clock: count anew what is to come
        self.now = at if self.now is None else max(at, self.now)  # a late entry does not turn the clock back

    def _known(self, maker: str) -> int:
        if maker not in self._column:
            raise DataError(f"{maker!r} is not one of the makers" + did_you_mean(maker, self.makers))
        return self._column[maker]

    def _limits(self, values: LimitsLike, name: str) -> Ints:
        if isinstance(values, Mapping):
            table = dict.fromkeys(self.makers, 0.0)
            table.update({self.makers[self._known(maker)]: value for maker, value in values.items()})
            values = list(table.values())
        numbers = list(np.asarray(values, np.float64))
        if len(numbers) != len(self.makers):
            raise ConfigError(f"{name}: {len(numbers)} limits for {len(self.makers)} makers")
        return np.array([_whole(v, name, m) for v, m in zip(numbers, self.makers, strict=True)], np.int64)

    def _check_limits(self) -> None:
        wrong = np.flatnonzero(self.lower > self.upper)
        if len(wrong):
            j = int(wrong[0])
            raise ConfigError(f"{self.makers[j]}: lower limit {self.lower[j]} above upper {self.upper[j]}")
        if not self.forecast.exact:
            return
        arrivals, room = round(self.forecast.arrivals), sum(self.upper.tolist())
        if room < arrivals:
            raise CapacityError(
                f"{arrivals} cases in all, capacity {room}; raise upper limits or let the machine decide"
            )
        asked = int(np.maximum(self.lower, self.used).sum())
        if asked > arrivals:
            raise CapacityError(f"{arrivals} cases in all, but lower limits ask for {asked}; lower them")


def _whole(value: float, name: str, maker: str) -> int:
    if value == np.inf:
        return NO_LIMIT
    if not (np.isfinite(value) and value >= 0 and value == round(value)):
        raise ConfigError(f"{name} limit of {maker}: expected a whole number of cases from 0 on, got {value}")
    return min(int(value), NO_LIMIT)


def _excess(cost: float, best: float) -> float:
    return (cost - best) / abs(best) if best else 0.0
