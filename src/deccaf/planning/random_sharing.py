"""What it would cost to share cases at random: the yardstick that every page and command compares with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def random_cost(loss: ArrayLike, loads: ArrayLike, eligible: NDArray[np.bool_] | None = None) -> float:
    """Expected cost if everybody kept the number of cases they have, but got random ones.

    `loss` is cases x makers and `loads` the cases of each maker; random cases are drawn among those that a
    maker may get (`eligible`, and where the loss is finite).
    """
    losses, count = np.asarray(loss, np.float64), np.asarray(loads, np.float64)
    allowed = np.isfinite(losses)
    if eligible is not None:
        allowed &= eligible
    sums = np.where(allowed, losses, 0.0).sum(axis=0)
    means = sums / np.maximum(allowed.sum(axis=0), 1)
    return float(count @ means)
