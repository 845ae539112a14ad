"""Prices before the solution: from a sample, with an estimate of how far each may be off.

A small sample is solved exactly by flow. For many cases a larger one follows, on which Newton steps correct
the prices. The box around the prices is a few standard errors wide, maker by maker. Makers with so little
capacity that a sample says nothing about them are priced on all cases, one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from deccaf.assign.exact import duals, newton
from deccaf.assign.exact.flow import Limits, solve_flow
from deccaf.assign.exact.scan import (
    Arcs,
    Bools,
    Floats,
    Ints,
    Losses,
    all_arcs,
    keep_arcs,
    least_priced,
    map_chunks,
    most_arcs,
    nearest_rows,
)
from deccaf.assign.stored import Mask

ERRORS = 3.5  # half-width of the box, in standard errors
FIRST_SAMPLE_ARCS = 100_000
SECOND_SAMPLE_ARCS = 400_000
OPEN_ARCS = 3.0  # most arcs of open cases, per case, that a box may leave in the whole matrix
BYTES_PER_ARC = 150  # that an open arc of a box needs; all of them must fit beside the matrix
CHEAP_ARCS = 20_000  # open arcs that cost next to nothing
TIED_SHARE = 0.02  # of the sampled cases with tied makers, beyond the one per maker that any optimum has
WELL_PLACED = 0.02  # share of the cases in the wrong place that Newton steps can be trusted to sort out
MANY = 100  # makers
ALIKE = 0.08  # part of the box that is left when it leaves an acceptable number of arcs
RARE = 15.0  # cases a maker would get in the last sample: below this, the sample does not price it
RARE_SHARE = 0.05  # of the cases, that makers left out of the sample may have in all


@dataclass(frozen=True)
class Estimate:
    """Prices, how far off each may be, and how much tie rule was added to the losses to make them smooth."""

    prices: Floats
    box: Floats
    tie: float = 0.0
    left: float = 0.0  # cases that these prices put in the wrong place, on the last sample
    alike: bool = False  # many makers so much alike that no box leaves few arcs: the prices are rough


def sample_sizes(n: int, makers: int) -> list[int]:
    """One small sample to solve exactly, and for many cases one in between to correct it on."""
    small = min(max(500, 30 * makers), max(2 * makers, FIRST_SAMPLE_ARCS // makers), n)
    return [small, int((small * n) ** 0.5)] if n > 40 * small else [small]


def estimate(losses: Losses, limits: Limits, seed: int, tie_size: float) -> Estimate:
    """Prices and boxes, for all makers."""
    rare = _rare(losses, limits)
    if not rare.any():
        return _from_samples(losses, limits, seed, tie_size)
    upper, lower = np.where(rare, 0, limits.upper), np.where(rare, 0, limits.lower)
    total = int(np.clip(limits.total, lower.sum(), upper.sum()))
    common = replace(losses, closed=np.union1d(losses.closed, np.flatnonzero(rare)))
    found = _from_samples(common, Limits(lower, upper, total), seed, tie_size)
    best = least_priced(common, found.prices, found.tie)
    makers = np.flatnonzero(rare)
    most = 2 * limits.upper[makers] + 20
    nearest = nearest_rows(losses, best, np.zeros(len(rare)), makers, most, found.tie)
    for j, (_, above) in zip(makers, nearest, strict=True):
        found.prices[j], found.box[j] = _price_alone(limits, int(j), -above)
    return found


def _rare(losses: Losses, limits: Limits) -> Bools:
    last = sample_sizes(*losses.shape)[-1]
    rare = (limits.upper > 0) & (limits.upper * last < RARE * limits.total)
    few = limits.upper[rare].sum() <= RARE_SHARE * limits.total
    if rare.any() and few and losses.eligible is not None:  # and no case depends on them
        others = np.flatnonzero(~rare & (limits.upper > 0))
        few = all(map_chunks(partial(_have_choice, losses.eligible, others), losses.values))
    return rare if few else np.zeros_like(rare)


def _have_choice(eligible: Mask, makers: Ints, start: int, stop: int) -> bool:
    return bool(eligible[start:stop][:, makers].any(axis=1).all())


def _price_alone(limits: Limits, j: int, saving: Floats) -> tuple[float, float]:
    """A rare maker gets the cases that save most there: its price lies between the last and the next."""
    lower, upper = int(limits.lower[j]), int(limits.upper[j])
    saving = saving if len(saving) else np.zeros(1)
    beyond = 2 * saving[-1] - saving[0] - np.abs(saving).max()  # if even the last candidate must be kept

    def edge(count: int) -> float:
        following = saving[count] if count < len(saving) else beyond
        return float(saving[min(max(count, 1), len(saving)) - 1] + following) / 2

    price = edge(upper) if lower == upper or edge(upper) > 0 else min(0.0, edge(lower)) if lower else 0.0
    target = min(lower if price < 0 else upper, len(saving))
    near = saving[target // 2 : 2 * target + 10]
    return price, float(np.abs(near - price).max(initial=0.0))


def _from_samples(losses: Losses, limits: Limits, seed: int, tie_size: float) -> Estimate:
    """Small sample, then a larger one.

    Where many cases are indifferent, loads jump with prices and say little about them. Adding the tie rule,
    as large as the differences between makers that are not tied, smooths the jumps.
    """
    n, makers = losses.shape
    first, *others = sample_sizes(n, makers)
    rng = np.random.default_rng([seed, 0x5A])
    rows, more = _draw(rng, n, first), [_draw(rng, n, size) for size in others]

    def at(tie: float) -> Estimate:
        found, _ = _solve_sample(losses, limits, rows, others[0] if others else n, tie)
        return _correct_on_sample(losses, limits, found, more[0]) if more else found

    found, runner_up = _solve_sample(losses, limits, rows, others[0] if others else n, 0.0)
    if found.alike:
        return found
    if np.count_nonzero(runner_up <= tie_size) <= makers + TIED_SHARE * first:
        return _correct_on_sample(losses, limits, found, more[0]) if more else found
    found = at(_smoothing(runner_up, tie_size))
    if found.tie > tie_size and np.median(found.box) < found.tie / 2:  # no room on the way down: start lower
        lower = at(found.tie / 16)
        found = lower if lower.left <= WELL_PLACED * limits.total else found
    return found


def _draw(rng: np.random.Generator, n: int, size: int) -> Ints:
    """A sample of rows in order, so that reading them moves forward through memory."""
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def _smoothing(runner_up: Floats, tie_size: float) -> float:
    """As large as the differences that are not ties: their step on a grid, a small part of them otherwise."""
    apart = runner_up[(runner_up > tie_size) & np.isfinite(runner_up)]
    if not len(apart):
        return tie_size
    return max(float(np.quantile(apart, 0.01)), float(np.quantile(apart, 0.2)) / 2)


def _solve_sample(
    losses: Losses, limits: Limits, rows: Ints, following: int, tie: float
) -> tuple[Estimate, Floats]:
    """Prices from an exact solution, and each sampled case's distance to its second choice."""
    sample, m, makers = losses.take(rows), len(rows), losses.shape[1]
    arcs, zero = all_arcs(sample), np.zeros(makers)
    value = arcs.value(zero, tie)
    wide = np.full(makers, max(float(value.max(initial=0.0)), newton.TINY))
    flow = solve_flow(arcs, value, limits, zero, wide, _supply(limits.total, len(arcs.rows)))
    prices = duals.box_prices(arcs, value, flow, limits, zero, wide)
    now = newton.balance(arcs, limits, zero, prices, tie, limits.total / m, 0.2)
    box = np.minimum(ERRORS * now.standard_errors(limits, limits.total / m, m / following), wide)
    most = _most_open(losses) if following == losses.shape[0] else SECOND_SAMPLE_ARCS
    smaller = affordable(arcs, arcs.value(prices, tie), box, most * m / following)
    alike = makers >= MANY and float(smaller.sum()) < ALIKE * float(box.sum())
    return Estimate(prices, smaller, tie, alike=alike), now.runner_up


def _correct_on_sample(losses: Losses, limits: Limits, found: Estimate, rows: Ints) -> Estimate:
    """Newton steps, again with more room for prices that ran into their box; a flow if they get nowhere."""
    sample, weight = losses.take(rows), limits.total / len(rows)
    centre, box, zero = found.prices, found.box, np.zeros(len(found.prices))
    for _ in range(4):
        arcs = keep_arcs(sample, centre, box, found.tie)
        shift = newton.correct(arcs, limits, centre, zero, box, found.tie, weight).shift
        hit = np.abs(shift) > 0.9 * box
        if not hit.any():
            break
        centre, box, shift = centre + shift, np.where(hit, 4 * box, box), zero
    now = newton.balance(arcs, limits, centre, shift, found.tie, weight, 0.2)
    if now.left > WELL_PLACED * limits.total and found.tie == 0:
        shift = _flow_prices(arcs, limits, centre, box)
        now = newton.balance(arcs, limits, centre, shift, found.tie, weight, 0.2)
    errors = ERRORS * now.standard_errors(limits, weight, len(rows) / losses.shape[0])
    box = np.minimum(np.maximum(errors, found.tie), box)
    box = affordable(arcs, arcs.value(shift, found.tie), box, _most_open(losses) / weight)
    return Estimate(centre + shift, box, found.tie, now.left)


def _flow_prices(arcs: Arcs, limits: Limits, centre: Floats, box: Floats) -> Floats:
    """Prices of the sample's open cases by an exact flow, as moves away from `centre`."""
    supply = _supply(limits.total, len(arcs.settled))
    done = arcs.settled >= 0
    load = np.bincount(arcs.settled[done], supply[done], minlength=len(centre)).astype(np.int64)
    weighted = replace(arcs, load=load)
    flow = solve_flow(weighted, arcs.cost, limits, centre, box, supply[arcs.rows])
    return duals.box_prices(weighted, arcs.cost, flow, limits, centre, box)


def _supply(total: int, cases: int) -> Ints:
    """Share out all cases over those of a sample."""
    supply = np.full(cases, total // cases)
    supply[: total - supply.sum()] += 1
    return supply


def _most_open(losses: Losses) -> float:
    """Arcs of open cases that time and memory allow."""
    n, makers = losses.shape
    beside = makers * losses.values.dtype.itemsize / BYTES_PER_ARC
    return max(min(min(OPEN_ARCS, beside) * n, most_arcs(n)), CHEAP_ARCS)


def affordable(arcs: Arcs, value: Floats, box: Floats, most: float) -> Floats:
    """Shrink a box until it leaves an acceptable number of arcs open (a later round can widen it)."""
    for _ in range(40):
        stays = value - box[arcs.maker] <= arcs.least(value + box[arcs.maker])[arcs.case]
        count = np.bincount(arcs.case[stays], minlength=len(arcs.rows))
        if count[count > 1].sum() <= most:
            break
        box = box * 0.7
    return box
