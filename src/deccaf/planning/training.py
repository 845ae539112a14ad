"""Whom to train in what: what it would save if one person decided one kind of case as well as another does.

Prices bound from above what a lesson can save: a case gains at most what its new loss and price lie below the
least of all. So only the few lessons whose bounds are above the best that were solved need to be solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign.staffing import Roster, Week, solved_day

Array = NDArray[np.float64]
Kinds = Sequence[Sequence[NDArray[Any]]]
"""By day and past day: the kind of every case."""

MOST_SOLVED = 60
"""Lessons that are solved before the best so far are given."""


def training(
    week: Week, roster: Roster, kinds: Kinds, people: Sequence[str], reviews: Array, count: int = 5
) -> pd.DataFrame:
    """The lessons that save most in a week of this roster: `expert`, `as_good_as`, `kind`, `saves`."""
    if not count:
        return pd.DataFrame(columns=["expert", "as_good_as", "kind", "saves"])
    names = pd.Index(sorted({str(one) for each in kinds for past in each for one in pd.unique(past)}))
    bounds = _bounds(
        week, roster, [[names.get_indexer(pd.Index(k)) for k in each] for each in kinds], len(names), reviews
    )
    order = np.argsort(-bounds, axis=None, kind="stable")[:MOST_SOLVED]
    found: list[tuple[str, str, str, float]] = []
    for place in order:
        who, other, kind = (int(one) for one in np.unravel_index(place, bounds.shape))
        enough = sorted((row[3] for row in found), reverse=True)[:count]
        if bounds[who, other, kind] <= (enough[-1] if len(enough) == count else 1e-9):
            break
        saves = _saves(week, roster, kinds, names[kind], who, other, reviews)
        found.append((people[who], people[other], str(names[kind]), saves))
    table = pd.DataFrame(found, columns=["expert", "as_good_as", "kind", "saves"])
    table = table[table["saves"] > 0].sort_values("saves", ascending=False, kind="stable")
    return table.head(count).reset_index(drop=True)


def _bounds(
    week: Week, roster: Roster, codes: Sequence[Sequence[NDArray[Any]]], kinds: int, reviews: Array
) -> Array:
    """(person, as good as, kind): the most that a lesson can save."""
    bounds = np.zeros((week.people, week.people, kinds))
    for number, day in enumerate(week.days):
        share = day.weight / len(day.losses)
        for loss, code in zip(day.losses, codes[number], strict=True):
            if not len(loss):
                continue
            prices = np.maximum(solved_day(loss, roster.room[number], week.seed)[1], 0.0)
            least = (loss + np.append(0.0, prices)).min(axis=1)
            skill = loss[:, 1:] - reviews
            for who in np.flatnonzero(roster.room[number] > 0):
                gain = np.maximum(least[:, None] - (skill + reviews[who] + prices[who]), 0.0)
                gain[:, who] = 0.0
                for other in range(week.people):
                    bounds[who, other] += share * np.bincount(code, gain[:, other], kinds)
    return bounds


def _saves(
    week: Week, roster: Roster, kinds: Kinds, kind: str, who: int, other: int, reviews: Array
) -> float:
    """What a lesson saves in the roster, solved again."""
    saved = 0.0
    for number, day in enumerate(week.days):
        costs = []
        for loss, known in zip(day.losses, kinds[number], strict=True):
            taught, rows = loss.copy(), known == kind
            better = loss[rows, 1 + other] - reviews[other] + reviews[who]
            taught[rows, 1 + who] = np.minimum(loss[rows, 1 + who], better)
            costs.append(solved_day(taught, roster.room[number], week.seed)[0])
        saved += float(roster.errors[number]) - day.weight * float(np.mean(costs))
    return saved
