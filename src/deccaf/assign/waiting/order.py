"""In which order somebody should work: what waiting costs, and what is lost by never getting to it, an hour.

Without due times the order of greatest rate per hour of work is the best there is (Smith, 1956). With them
cases are listed one after the other by an index: the rate, and the price of being late the more the nearer it
comes. A case whose moment has passed and that grows no dearer has no hurry any more. Several horizons of
"near" are tried, and single cases then moved, as long as that is cheaper.
"""

from __future__ import annotations

import numpy as np

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.assign.waiting.harm import Harm

HORIZONS = (0.5, 1.5, 4.0, 12.0)
"""What is near, in mean hours of work of a case."""
USUAL = 3.0
"""The same, where one has to do."""
MOST_LISTED = 2_000
"""Cases of one person that are listed one after the other; more go by the index at the start."""
MOST_MOVED = 60
"""Cases of one person among which single ones are moved,"""
MOST_ROUNDS = 6
"""and how often all are tried."""
_SOON = 1e-9


def urgency(harm: Harm, hours: Floats, now: Floats | float, near: Floats | float) -> Floats:
    """What an hour's delay of each case costs, by and large: its rate, and lateness by how near it is."""
    slack = harm.due - now - hours
    fading = np.exp(-np.maximum(slack, 0.0) / near)
    jump = np.where(slack >= -_SOON, harm.late, 0.0) / near
    found = harm.rate + (jump + harm.late_rate) * fading
    if harm.broken.any():
        room = harm.promised - now - hours
        kept = np.where(room >= -_SOON, harm.broken, 0.0) / near
        found = found + kept * np.exp(-np.maximum(room, 0.0) / near)
    return np.asarray(found, np.float64)


def index(harm: Harm, hours: Floats, now: float, near: Floats | float) -> Floats:
    """Urgency per hour of somebody's time: the greatest is taken up first."""
    return np.asarray(urgency(harm, hours, now, near) / np.maximum(hours, _SOON), np.float64)


def best_order(harm: Harm, hours: Floats, start: float = 0.0, priority: Ints | None = None) -> Ints:
    """The order in which one person, free from `start` on, should do these cases.

    What costs the same is done in the order of due times, then as it came.

    Cases of a higher `priority` come before all others.
    """
    if priority is not None and len(priority) and (priority != priority[0]).any():
        parts = []
        for level in np.unique(priority)[::-1]:
            mine = np.flatnonzero(priority == level)
            parts.append(mine[best_order(harm.take(mine), hours[mine], start)])
            start += float(hours[mine].sum())
        return np.concatenate(parts)
    if not harm.dated or len(harm) < 2:
        return np.lexsort((harm.due, -harm.rate / np.maximum(hours, _SOON)))
    mean = max(float(hours.mean()), _SOON)
    found = [_listed(harm, hours, start, horizon * mean) for horizon in HORIZONS]
    found.append(np.argsort(harm.due, kind="stable"))
    costs = [total(harm, hours, order, start) for order in found]
    order = found[int(np.argmin(costs))]
    return _moved(harm, hours, order, start) if len(order) <= MOST_MOVED else order


def finish_times(hours: Floats, order: Ints, start: float) -> Floats:
    """When each case is done, in the order of the cases."""
    done = np.empty(len(order))
    done[order] = start + np.cumsum(hours[order])
    return done


def total(harm: Harm, hours: Floats, order: Ints, start: float) -> float:
    """What waiting costs in this order."""
    return float(harm.cost(finish_times(hours, order, start)).sum())


def _listed(harm: Harm, hours: Floats, start: float, near: float) -> Ints:
    if len(harm) > MOST_LISTED:
        return np.argsort(-index(harm, hours, start, near), kind="stable")
    left, now, order = np.arange(len(harm)), start, np.empty(len(harm), np.int64)
    for place in range(len(harm)):
        some = harm.take(left)
        best = int(index(some, hours[left], now, near).argmax())
        order[place] = left[best]
        now += hours[left[best]]
        left = np.delete(left, best)
    return order


def _moved(harm: Harm, hours: Floats, order: Ints, start: float) -> Ints:
    """Single cases taken out and put elsewhere, as long as that is cheaper."""
    size = len(order)
    place, column = np.arange(size)[:, None], np.arange(size)[None]
    pattern = np.where(column < place, column, np.where(column == place, size - 1, column - 1))
    cost = total(harm, hours, order, start)
    for _ in range(MOST_ROUNDS):
        before = cost
        for case in order.copy():
            tries = np.append(order[order != case], case)[pattern]
            done = start + np.cumsum(hours[tries], axis=1)
            sums = harm.take(tries).cost(done).sum(axis=1)
            best = int(sums.argmin())
            if sums[best] < cost - _SOON:
                order, cost = tries[best], float(sums[best])
        if cost == before:
            break
    return order
