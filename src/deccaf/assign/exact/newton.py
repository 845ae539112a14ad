"""Newton steps on the makers' prices, over the open arcs.

A price set is right when every maker, taking the cases that like it best, ends up with its load. The density
of cases at the boundary between two makers tells how loads answer to prices: a J x J Laplacian. It serves
twice: for Newton steps towards the right loads, and for the size of the error that sampling leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deccaf.assign.exact.flow import Limits
from deccaf.assign.exact.scan import Arcs, Bools, Floats, Ints, narrow

STEPS = 10
ENOUGH = 30  # cases to estimate a density from
BANDWIDTH = 0.3  # share of the open cases whose runner-up is counted as near, at first
EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny) * 1e20


@dataclass(frozen=True)
class Balance:
    """Where the cases go at some prices, and how that would change."""

    shift: Floats
    load: Floats
    error: Floats  # load beyond what the price wants
    held: Bools  # makers within their limits at price 0
    laplacian: Floats
    runner_up: Floats  # how much worse each open case's second choice is

    @property
    def left(self) -> float:
        """Cases in the wrong place."""
        return float(np.abs(self.error).sum())

    def settled(self, weight: float) -> bool:
        """Whether hardly a case is in the wrong place, and nowhere more than a few."""
        return self.left <= 3 * weight * len(self.load) and float(np.abs(self.error).max()) <= 10 * weight

    def matrix(self) -> Floats:
        """The Laplacian with a light ridge, for makers whose boundaries hardly show."""
        diagonal = np.diag(self.laplacian)
        ridge = 1e-6 * np.maximum(diagonal, max(float(diagonal.mean()), TINY))
        result: Floats = self.laplacian + np.diag(ridge)
        return result

    def reach(self) -> Floats:
        """How far prices may still be off: what the load errors ask for, and the next few cases."""
        matrix, moving, change = self.matrix(), ~self.held, np.zeros(len(self.load))
        change[moving] = _solve(matrix[np.ix_(moving, moving)], self.error[moving])
        if moving.any() and self.loose(self.held):
            change[moving] -= np.median(change[moving])
        result: Floats = 3 * np.abs(change) + 8 / np.diag(matrix)
        return result

    def standard_errors(self, limits: Limits, weight: float, sampled: float) -> Floats:
        """Of prices found on a sample, where each case stands for `weight` of all.

        A maker held at price 0 well within its limits stays there. If no such maker is near, a common shift
        of all prices is left out, as it changes no choice.
        """
        load = self.load / weight
        spread = 6 * np.sqrt(load + 1) * weight
        low = (self.load - spread >= limits.lower) | (limits.lower == 0)
        moving = ~(self.held & low & (self.load + spread <= limits.upper))
        errors: Floats = np.zeros(len(load))
        if not moving.any():
            return errors
        matrix = self.matrix()[np.ix_(moving, moving)] / weight
        inverse, load = np.linalg.inv(matrix), np.maximum(load[moving], 1.0)
        with np.errstate(over="ignore"):  # where no case answers to a price, its error is infinite
            if self.loose(~moving):
                inverse -= (np.diag(matrix) / np.trace(matrix)) @ inverse
                inverse -= (inverse @ (load / load.sum()))[:, None]
            errors[moving] = np.sqrt((inverse**2 @ load) * max(1.0 - sampled, EPS))
        return errors

    def loose(self, anchored: Bools) -> bool:
        """Whether no case is near the boundary of a maker whose price is anchored."""
        ties = -self.laplacian[np.ix_(~anchored, anchored)].sum()
        return bool(ties <= 1e-6 * np.trace(self.laplacian))


def balance(
    arcs: Arcs,
    limits: Limits,
    centre: Floats,
    shift: Floats,
    tie: float = 0.0,
    weight: float = 1.0,
    share: float = BANDWIDTH,
    smoothed: bool = False,
) -> Balance:
    """Loads at `centre + shift`, and the density of cases near the boundaries.

    `weight` is how many cases each one stands for, `share` the part of the open cases that counts as near.
    """
    makers = len(shift)
    above = arcs.value(shift, tie)
    above -= arcs.least(above)[arcs.case]
    best = np.flatnonzero(above <= 0)
    best = best[np.diff(arcs.case[best], prepend=-1) != 0]
    load: Floats = (arcs.load + np.bincount(arcs.maker[best], minlength=makers)) * np.float64(weight)
    above[best] = np.inf
    runner_up = arcs.least(above)
    second = np.flatnonzero(above <= runner_up[arcs.case])  # every open case has at least two arcs
    pairs = arcs.maker[best][arcs.case[second]].astype(np.int64) * makers + arcs.maker[second]
    density = _density(pairs, above[second], makers, share, smoothed) * weight
    error, held = _errors(load, limits, centre + shift)
    return Balance(shift, load, error, held, np.diag(density.sum(axis=1)) - density, runner_up)


def _density(pairs: Ints, distance: Floats, makers: int, share: float, smoothed: bool) -> Floats:
    """Cases per unit of price at the boundary of each pair of makers, from the distance of those nearby.

    Near are the closest `share` of all, or nearly all for pairs that have few among these (unless smoothed by
    the tie rule: then those further away belong to the next step of the stairs).
    """
    if not len(distance):
        return np.zeros((makers, makers))
    cuts = [min(len(distance) - 1, max(int(part * len(distance)), 4 * makers)) for part in (share, 0.9)]
    close, far = np.partition(distance, sorted(set(cuts)))[cuts]
    near = distance <= close
    density, enough = _density_within(pairs[near], distance[near], makers, float(close), smoothed)
    if smoothed or enough.all():
        return density
    rest, _ = _density_within(pairs, np.minimum(distance, far), makers, float(far), smoothed)
    return np.where(enough, density, rest)


def _density_within(
    pairs: Ints, distance: Floats, makers: int, width: float, smoothed: bool
) -> tuple[Floats, Bools]:
    """If cases lie evenly up to some distance from the boundary, their density is their number over twice
    their mean distance, whether they reach to `width` or, between makers much alike, not nearly.
    """
    shape, width = (makers, makers), max(width, TINY)
    count = np.bincount(pairs, minlength=makers * makers).reshape(shape)
    total = np.bincount(pairs, distance, minlength=makers * makers).reshape(shape)
    # the last term: a few cases at the boundary itself, as every optimum has, are no proof of ties
    one_side = count**2 / (2 * total + (width if smoothed else 2 * width / np.maximum(count, 1)))
    both = count + count.T
    density: Floats = (count * one_side + count.T * one_side.T) / np.maximum(both, 1)
    return density, both >= ENOUGH


def _errors(load: Floats, limits: Limits, prices: Floats) -> tuple[Floats, Bools]:
    """How far each load is from where its price wants it; makers at price 0 within their limits are held."""
    fixed = limits.room == 0
    high = fixed | (load > limits.upper) | (prices > 0)
    low = ~high & ((load < limits.lower) | (prices < 0))
    target = np.where(high, limits.upper, np.where(low, limits.lower, load))
    return load - target, ~(high | low)


def correct(
    arcs: Arcs,
    limits: Limits,
    centre: Floats,
    start: Floats,
    box: Floats,
    tie: float = 0.0,
    weight: float = 1.0,
    reach: float = np.inf,
    smoothed: bool = False,
) -> Balance:
    """Damped Newton steps from `start`, inside the box, until hardly a case is in the wrong place.

    Prices stay within `reach` of the start: where few cases answer, a step would go anywhere.
    """
    low, high = np.maximum(-box, start - reach), np.minimum(box, start + reach)
    share, damping = BANDWIDTH, 1.0
    now = balance(arcs, limits, centre, start, tie, weight, share, smoothed)
    narrowed = False
    for _ in range(STEPS):
        if now.settled(weight) or now.held.all() or damping < 0.05:
            break
        shift = now.shift + damping * (_step(now, limits, centre, low, high) - now.shift)
        then = balance(arcs, limits, centre, shift, tie, weight, share / 2, smoothed)
        if then.left >= now.left:
            share, damping = share / 2, 0.4 * damping
            continue
        if then.left < 0.5 * now.left:
            share, damping = share / 2, min(1.0, 2 * damping)
        if then.left < 0.2 * now.left and not narrowed:  # the next steps are much shorter
            window = np.full(len(box), np.abs(then.shift - now.shift).max() / 2)
            arcs, narrowed = narrow(arcs, arcs.value(shift, tie), window)[0], True
        now = then
    return now


def _step(now: Balance, limits: Limits, centre: Floats, low: Floats, high: Floats) -> Floats:
    """One Newton step; a price that would change sign stops at 0, where a maker with room may stay."""
    prices, matrix = centre + now.shift, now.matrix()
    moving, change = ~now.held, np.zeros(len(centre))
    loose = now.loose(now.held)
    released = _released(now, limits, prices) if loose else None
    if released is not None:
        moving[released], change[released] = False, -prices[released]
    error = now.error if released is None else now.error - matrix @ change
    change[moving] = _solve(matrix[np.ix_(moving, moving)], error[moving])
    if loose and released is None and moving.any():
        change[moving] -= np.median(change[moving])
    new = centre + np.clip(now.shift + change, low, high)
    crosses = (limits.room > 0) & (prices * new < 0)
    result: Floats = np.where(crosses, -centre, new - centre)
    if released is not None and low[released] <= -centre[released] <= high[released]:
        result[released] = -centre[released]
    return result


def _solve(matrix: Floats, right: Floats) -> Floats:
    """Conjugate gradients for the larger systems.

    Exact enough for a Newton step, and without the threads of a dense solver, which wait for each other on a
    busy machine for far longer than they work.
    """
    if len(right) <= 64:
        return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
    scale = 1 / np.sqrt(np.diag(matrix))
    matrix = matrix * scale[:, None] * scale
    residual = right * scale
    result, direction, size = np.zeros(len(right)), residual, float(residual @ residual)
    goal = 1e-12 * size
    for _ in range(2 * len(right)):
        if size <= goal:
            break
        ahead = matrix @ direction
        step = size / float(direction @ ahead)
        result, residual = result + step * direction, residual - step * ahead
        before, size = size, float(residual @ residual)
        direction = residual + (size / before) * direction
    return result * scale


def _released(now: Balance, limits: Limits, prices: Floats) -> int | None:
    """With all prices moving and too few cases for their targets, the lowest price must fall to 0.

    Likewise the least negative one must rise to 0 when there are too many.
    """
    excess = now.error.sum()
    able = ~now.held & (limits.room > 0) & (prices >= 0 if excess < 0 else prices <= 0)
    if excess == 0 or not able.any():
        return None
    return int(np.flatnonzero(able)[np.argmin(np.abs(prices[able]))])
