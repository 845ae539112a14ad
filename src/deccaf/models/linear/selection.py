"""Which features a linear model gets to see, where there is no room for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def most_informative(
    matrix: Array, widths: Sequence[int], target: Ints, known: Ints, weight: Array, room: int
) -> list[int]:
    """The features that say most about a target given what is known, as many as there is room for.

    By score tests: how far each column goes with what the known class leaves unexplained.
    """
    left = np.eye(int(target.max()) + 1)[target]
    for y in np.unique(known):
        rows = known == y
        left[rows] -= np.average(left[rows], axis=0, weights=weight[rows])
    pull = ((weight[:, None] * matrix).T @ left) ** 2
    spread = (weight[:, None] * matrix**2).sum(axis=0)
    score = (pull / np.maximum(spread[:, None], 1e-12)).sum(axis=1)
    ends = np.cumsum(widths)
    by_feature = np.array([score[end - width : end].sum() for end, width in zip(ends, widths, strict=True)])
    kept = []
    for place in np.argsort(-by_feature, kind="stable").tolist():
        if widths[place] <= room:  # a category with very many levels must not crowd out all else
            kept.append(place)
            room -= widths[place]
    return sorted(kept)
