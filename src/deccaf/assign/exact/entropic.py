"""First prices, by smoothing: cases share themselves out over makers, more sharply step by step.

With exp(-(loss + price) / size) as a case's liking for a maker, prices that bring every load to its limit
are found by scaling (Sinkhorn), one matrix product a step. At a large `size` all makers share all cases, so
prices find their level at once; it is then made smaller until it tells a case's best makers apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.exact.flow import Limits
from deccaf.assign.exact.scan import Floats, Ints, Losses
from deccaf.threads import one_thread

SHARPEN = 3.0
LEVELS = (4, 12)  # at least and at most so many sizes
STEPS = 20
NEAR_ENOUGH = 0.05  # of the size, by which prices may still move
FARTHEST = -200.0  # beyond this exp is 0
NEAREST = 4  # makers of a case that the last size tells apart


def entropic_prices(sample: Losses, limits: Limits, supply: Ints) -> Floats:
    """Prices at which the sampled cases, `supply` units each, about fill the makers' limits."""
    cases, makers = sample.shape
    prices: Floats = np.zeros(makers)
    block = sample.priced(0, cases, prices)
    block -= block.min(axis=1)[:, None]
    mean = np.mean(block, axis=1, where=np.isfinite(block))
    size = float(np.median(mean[mean > 0])) if (mean > 0).any() else 0.0
    units = supply.astype(np.float32)
    with one_thread(), np.errstate(over="ignore"):
        for level in range(LEVELS[1] if size > 0 else 0):
            above = block + prices
            above -= above.min(axis=1)[:, None]
            if level >= LEVELS[0] and size < _apart(above) / 2:
                break
            np.maximum(above * (-1 / size), FARTHEST, out=above)
            prices = _balance(np.exp(above, dtype=np.float32), units, limits, prices, size)
            size /= SHARPEN
    return prices


def _apart(above: NDArray[np.float64]) -> float:
    """How much worse than the best the last of its nearest makers is, for the median case."""
    some = above[:: max(1, len(above) // 500)]
    last = min(NEAREST, some.shape[1]) - 1
    return float(np.median(np.partition(some, last, axis=1)[:, last]))


def _balance(
    kernel: NDArray[np.float32], units: NDArray[np.float32], limits: Limits, prices: Floats, size: float
) -> Floats:
    """Scale until loads meet limits: full where the price is positive, at the least where it is negative."""
    upper, lower = np.log(np.maximum(limits.upper, 1e-3)), np.log(np.maximum(limits.lower, 1e-9))
    now = prices
    for _ in range(STEPS):
        scale = np.exp((prices - now) / size).astype(np.float32)
        load = np.log(np.maximum(scale * ((units / np.maximum(kernel @ scale, 1e-30)) @ kernel), 1e-9))
        full = now + size * (load - upper)
        least = now + size * (load - lower)
        new = np.where((limits.room == 0) | (full > 0), full, np.minimum(least, 0.0))
        new[(limits.upper == 0) | ((limits.lower == 0) & (new < 0))] = 0.0
        moved, now = float(np.abs(new - now).max()), new
        if moved < NEAR_ENOUGH * size:
            break
    return now
