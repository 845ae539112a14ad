"""Newton steps on smoothed loads: where the prices of makers that are nearly alike must go together.

Each case shares itself out over its open arcs by exp(-value / size). Loads then answer smoothly to prices,
and their derivatives, J x J, show how a surplus travels from maker to maker: prices that are off together, by
far more than neighbours differ, are put right in a few steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from deccaf.assign.exact.flow import Limits
from deccaf.assign.exact.scan import Arcs, Bools, Floats, Ints
from deccaf.threads import one_thread

STEPS = 8
HALVINGS = 4
ENOUGH = 50  # cases a maker to tell from how loads answer
NEAR_ENOUGH = 0.05  # of the size, by which prices may still move
WELL_PLACED = 3e-3  # of the cases, that may still be in the wrong place


@dataclass(frozen=True)
class Soft:
    """Loads and dual value at `prices + shift`, smoothed."""

    shift: Floats
    share: Floats  # of its case that each arc has
    value: float
    load: Floats
    off: Floats  # load beyond what the price wants
    held: Bools  # makers within their limits at price 0


def soften(arcs: Arcs, supply: Ints, limits: Limits, prices: Floats, shift: Floats, size: float) -> Soft:
    """Share out the open cases, `supply` units each."""
    there, value = prices + shift, arcs.value(shift, 0.0)
    least = arcs.least(value)
    share = np.exp((least[arcs.case] - value) / size)
    total = np.add.reduceat(share, arcs.first) if len(arcs.first) else np.empty(0)
    share /= total[arcs.case]
    load = np.bincount(arcs.maker, share * supply[arcs.case], minlength=len(shift)).astype(np.float64)
    load += arcs.load
    paid = np.maximum(there, 0) @ limits.upper - np.maximum(-there, 0) @ limits.lower
    dual = float((least - size * np.log(total)) @ supply + arcs.load @ shift - paid)
    full = (limits.room == 0) | (there > 0) | ((there == 0) & (load > limits.upper))
    least_load = ~full & ((there < 0) | (load < limits.lower))
    target = np.where(full, limits.upper, np.where(least_load, limits.lower, load))
    return Soft(shift, share, dual, load, load - target, ~(full | least_load))


def newton(
    arcs: Arcs, supply: Ints, limits: Limits, prices: Floats, size: float, width: float, reach: float
) -> Soft:
    """Steps of about `reach` at most, each of which must raise the smoothed dual value."""
    import scipy.linalg  # noqa: F401  # it brings a matrix library of its own

    now = soften(arcs, supply, limits, prices, np.zeros(len(prices)), size)
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for _ in range(STEPS):
            move = _direction(arcs, supply, now, size, width, reach)
            for halving in range(HALVINGS):
                shift = now.shift + 0.25**halving * move
                # a price that would change sign stops at 0, where a maker with room may stay
                crosses = (limits.room > 0) & ((prices + shift) * (prices + now.shift) < 0)
                then = soften(arcs, supply, limits, prices, np.where(crosses, -prices, shift), size)
                if then.value > now.value:
                    break
            else:
                return now
            moved, now = float(np.abs(then.shift - now.shift).max()), then
            if moved < NEAR_ENOUGH * size or float(np.abs(now.off).sum()) < WELL_PLACED * limits.total:
                break
    return now


def _answer(arcs: Arcs, half: Floats, makers: int) -> Floats:
    """How loads answer to prices, times the size; from part of the cases where there are many."""
    ends = np.append(arcs.first, len(arcs.maker))
    stride = max(1, len(arcs.rows) // (ENOUGH * makers))
    some = scipy.sparse.csr_array((half, arcs.maker, ends), shape=(len(arcs.rows), makers))[::stride]
    answer = -(some.T @ some).toarray() * stride
    np.einsum("jj->j", answer)[:] -= answer.sum(axis=1)
    return np.asarray(answer)


def _direction(arcs: Arcs, supply: Ints, now: Soft, size: float, width: float, reach: float) -> Floats:
    """Solve for the move that puts loads right; the ridge keeps makers that nothing ties down near."""
    makers = len(now.shift)
    answer = _answer(arcs, now.share * np.sqrt(supply[arcs.case]), makers)
    diagonal = np.einsum("jj->j", answer)
    answer /= size
    alone = np.abs(now.off) > width * diagonal
    diagonal += (
        np.abs(now.off) / (width * np.where(alone, min(reach, 0.5), reach))
        + 1e-6 * diagonal
        + 1e-9 * diagonal.mean()
        + 1e-300
    )
    free, move = ~now.held, np.zeros(makers)
    if free.any():
        try:
            move[free] = scipy.linalg.cho_solve(
                scipy.linalg.cho_factor(answer[np.ix_(free, free)]), now.off[free]
            )
        except (scipy.linalg.LinAlgError, ValueError):  # losses at the ends of what a float can hold
            return move
        if free.all() and abs(now.off.sum()) < 1e-6 * np.abs(now.off).sum():
            move -= np.median(move)  # a common move changes no choice
    return move
