"""Random sharing: what the same work would cost if it were dealt at random; plans are compared with it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def random_cost(loss: ArrayLike, loads: ArrayLike, eligible: NDArray[np.bool_] | None = None) -> float:
    """Expected cost if everybody kept the number of cases they have, and these were random ones.

    `loss` is (cases, makers), `loads` the cases of every maker, the machine first. A maker's cases are random
    among those they may get (`eligible`; by default all): the sum over makers of load times mean loss.
    """
    table, load = np.asarray(loss, np.float64), np.asarray(loads, np.float64)
    allowed = np.ones(table.shape, np.bool_) if eligible is None else eligible
    means = np.where(allowed, table, 0.0).sum(axis=0) / np.maximum(allowed.sum(axis=0), 1)
    return float(load @ means)
