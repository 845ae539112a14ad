"""What it would cost to share cases at random: the yardstick that every page and command compares with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

ROWS = 16_384
"""Cases that are looked at together; sums do not depend on where the losses lie."""


def random_cost(loss: Any, loads: ArrayLike, eligible: Any = None) -> float:
    """Expected cost if everybody kept the number of cases they have, but got random ones.

    `loss` is cases x makers and `loads` the cases of each maker; random cases are drawn among those that a
    maker may get (`eligible`, and where the loss is finite). Both may be kept in files.
    """
    losses, count = (
        loss if hasattr(loss, "shape") else np.asarray(loss, np.float64),
        np.asarray(loads, np.float64),
    )
    sums, allowed = np.zeros(len(count)), np.zeros(len(count))
    for start in range(0, len(losses), ROWS):
        part = slice(start, start + ROWS)
        block = np.asarray(losses[part], np.float64)
        may = np.isfinite(block)
        if eligible is not None:
            may &= eligible[part]
        sums += np.where(may, block, 0.0).sum(axis=0)
        allowed += may.sum(axis=0)
    return float(count @ (sums / np.maximum(allowed, 1)))
