"""Mean losses of a shift's live assignments, by maker: what random sharing and the machine alone would cost.

Sums are kept between requests and brought up to date from the assignments that came or went since, as a
page asks every few seconds about the same shift. Whoever adds assignments of a shift holds its lock, so
that within a shift they become visible in the order of their ids; but a plan that is committed in pieces is
seen when it is whole. Then the sums lack something that the roster knows of, and are made anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.service.ledger import shifts
from deccaf.service.ledger.assignments import loss_matrix
from deccaf.service.store import tables as t

_KEPT = 4
_CHUNK = 5_000
_AT_ONCE = 500


@dataclass
class _Sums:
    """Of the assignments of one shift up to an id; `gone` are those among them that hold no case any more."""

    until: int = 0
    live: int = 0
    gone: set[int] = field(default_factory=set)
    total: dict[str, float] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def add(self, connection: sa.Connection, rows: Sequence[Any], makers: Sequence[str], sign: int) -> None:
        self.live += sign * len(rows)
        loss = loss_matrix(connection, rows, makers)
        known = np.isfinite(loss)
        totals, counts = np.where(known, loss, 0.0).sum(axis=0), known.sum(axis=0)
        for maker, total, count in zip(makers, totals.tolist(), counts.tolist(), strict=True):
            self.total[maker] = self.total.get(maker, 0.0) + sign * total
            self.count[maker] = self.count.get(maker, 0) + sign * count


class LiveLosses:
    """The mean losses of shifts that were asked for lately."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Sums] = OrderedDict()
        self._lock = threading.Lock()

    def means(self, connection: sa.Connection, shift_id: int) -> dict[str, float]:
        """By maker the mean loss over the live cases that they could get; who could get none is left out."""
        with self._lock:
            sums = self._kept.setdefault(shift_id, _Sums())
            if not sums.count.keys() <= set(shifts.roster_makers(connection, shift_id)):
                sums = self._kept[shift_id] = _Sums()  # somebody has another name now
            self._kept.move_to_end(shift_id)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            if not _update(connection, shift_id, sums):
                sums = self._kept[shift_id] = _Sums()
                _update(connection, shift_id, sums)
            return {maker: sums.total[maker] / n for maker, n in sums.count.items() if n}


def _update(connection: sa.Connection, shift_id: int, sums: _Sums) -> bool:
    """Add what came and take away what went; whether the sums are of as many cases as the roster says."""
    a = t.assignments.c
    roster = shifts.read_roster(connection, shift_id)
    makers, used = [seat.maker for seat in roster], sum(seat.cases for seat in roster)
    columns = sa.select(*a["id", "state", "losses", "pricing_id"]).where(a.shift_id == shift_id)
    while rows := connection.execute(columns.where(a.id > sums.until).order_by(a.id).limit(_CHUNK)).all():
        live = [row for row in rows if row.state in t.LIVE]
        sums.add(connection, live, makers, 1)
        sums.gone.update(row.id for row in rows if row.state not in t.LIVE)
        sums.until = rows[-1].id
    if sums.live == used:
        return True  # nobody has lost a case since
    ended = sa.select(a.id).where(a.shift_id == shift_id, a.id <= sums.until, a.state.not_in(t.LIVE))
    left = sorted(set(connection.execute(ended).scalars()) - sums.gone)
    for start in range(0, len(left), _AT_ONCE):
        part = left[start : start + _AT_ONCE]
        sums.add(connection, connection.execute(columns.where(a.id.in_(part))).all(), makers, -1)
        sums.gone.update(part)
    return sums.live == used
