"""What to hold out to choose between models: the latest time, whole groups, or folds where data are few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.cases import latest_share
from deccaf.data.folds import fold_of, units_of
from deccaf.errors import DataError

Mask = NDArray[np.bool_]

_ENOUGH = 1000
_FOLDS = 5


def described(masks: Sequence[Mask], time: pd.Series | None, group: pd.Series | None) -> str:
    """What was held out to choose between models, and why not by time where it was not."""
    if not masks:
        return "nothing: there is only one row or group"
    mask, share = masks[0], float(np.mean([one.mean() for one in masks]))
    what = "random cases" if group is None else "random groups, none of them split"
    how = f"{share:.0%} of the cases, {what}" if len(masks) == 1 else f"{len(masks)} folds of {what}"
    if time is None:
        return f"{how}: there is no time column"
    times = time.to_numpy()
    if len(masks) == 1 and times[mask].min() >= times[~mask].max():
        return f"the latest {share:.0%} of the cases by time, from {times[mask].min()} on"
    return f"{how}: there are too few cases (or times) to hold out the latest"


def holdouts(
    rows: int,
    *,
    time: pd.Series | None = None,
    group: pd.Series | None = None,
    share: float = 0.25,
    seed: int = 0,
) -> list[Mask]:
    """Masks of held-out rows, each to be predicted by a model of the other rows.

    A long log has one mask: the latest rows, about `share` of them, or random ones where there is no time. A
    short one (fewer than 1,000 rows to hold out) has five random folds, which use all of it. Groups are not
    split, by time neither: a group came when its first row did. A single row (or group) cannot be held out:
    an empty list.
    """
    units = units_of(rows, group)
    if time is not None:
        try:
            came = time if group is None else time.groupby(units).transform("min")
            latest = latest_share(came, share)
        except DataError:  # one single time: nothing is later
            latest = np.zeros(rows, bool)
        if latest.sum() >= _ENOUGH:
            return [latest]
    count = int(units.max(initial=-1)) + 1
    folds = min(_FOLDS, count)
    if folds < 2:
        return []
    if time is None and share * rows >= _ENOUGH and share * count >= 1:
        place = np.random.default_rng(seed).permutation(count)
        return [np.asarray(place[units] < share * count)]
    place = fold_of(rows, folds, group=units, seed=seed)
    return [np.asarray(place == fold) for fold in range(folds)]
