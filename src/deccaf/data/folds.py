"""Folds: which rows are held out together, wherever something is chosen or tested on rows not learned from.

Rows of one group (a patient, the decisions on one case) are alike beyond what the features say, and rows of
one time are too: a choice that is made on rows whose like was learned from is too kind to what learns by
heart. So groups are never split, and where there are times and no groups folds are stretches of time.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def units_of(rows: int, group: ArrayLike | None = None) -> Ints:
    """What must stay together: the number of each row's group, or the row itself."""
    return np.arange(rows) if group is None else pd.factorize(np.asarray(group))[0].astype(np.int64)


def fold_of(
    rows: int,
    folds: int,
    *,
    group: ArrayLike | None = None,
    time: ArrayLike | None = None,
    seed: int = 0,
) -> Ints:
    """The fold of each row: whole groups at random, stretches of time, or rows at random.

    Equal times are never split; with fewer times than folds they say nothing.
    """
    if group is None and time is not None:
        slots = pd.factorize(np.asarray(time), sort=True)[0]
        if len(slots) and slots.max() + 1 >= folds:
            after = np.bincount(slots).cumsum()
            middle = after - np.bincount(slots) / 2
            place = np.minimum((middle / rows * folds).astype(np.int64), folds - 1)
            found = place[slots]
            if len(np.unique(found)) == folds:
                return np.asarray(found)
    units = units_of(rows, group)
    return np.asarray(np.random.default_rng(seed).permutation(int(units.max(initial=-1)) + 1)[units] % folds)


def error_of(values: Array, group: ArrayLike | None = None) -> float:
    """Standard error of the mean of the values, whose groups and not whose rows are independent."""
    centred = values - values.mean()
    if group is not None:
        centred = np.bincount(units_of(len(values), group), centred)
    return float(np.sqrt((centred**2).sum())) / max(len(values), 1)
