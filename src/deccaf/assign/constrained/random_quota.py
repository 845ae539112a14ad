"""The draw of a random quota: which cases, which makers, and with what chance, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.constrained.constraints import RandomQuota, positions
from deccaf.assign.exact.scan import Bools, Floats, Ints
from deccaf.assign.problem import AssignmentProblem
from deccaf.errors import CapacityError, ConfigError

_FLOOR = 0.1
"""Part of the even chance that every case keeps."""
_CHEAPEST = 2.0
"""Most draws fall on the cheapest cases: so many times as many as are drawn."""
_MOST = 0.5


@dataclass(frozen=True, eq=False)
class RandomDraw:
    """The maker of every drawn case (-1: not drawn), and how likely that was.

    `chance[i]` is the chance of this maker once the case was drawn, the propensity to log for evaluations on
    the fair sample; `share` is the chance of being drawn. Both are exact, whatever the plan does besides.
    """

    maker: NDArray[np.int64]
    chance: Floats
    share: float

    @property
    def drawn(self) -> Bools:
        """Which cases were drawn."""
        return np.asarray(self.maker >= 0)


def draw(problem: AssignmentProblem, quota: RandomQuota) -> RandomDraw:
    """Draw the cases, all alike, and deal them to the makers, all alike as far as limits allow."""
    n, makers = problem.shape
    if not 0 <= quota.share <= 1:
        raise ConfigError(f"{quota.name}: share must lie between 0 and 1, got {quota.share}")
    rng = np.random.default_rng(quota.seed)
    allowed = np.zeros(makers, np.bool_)
    allowed[np.arange(makers) if quota.among is None else positions(quota.among, problem, quota.name)] = True
    allowed &= problem.upper > 0
    mask = np.broadcast_to(allowed, problem.shape)
    if problem.eligible is not None:
        mask = mask & problem.eligible
    pool = np.flatnonzero(mask.any(axis=1))
    count = round(quota.share * n)
    if count > len(pool):
        raise CapacityError(
            f"{quota.name}: asks for {count} cases, but only {len(pool)} may go to its makers"
        )
    cases = rng.permutation(pool)[:count]
    maker, chance = np.full(n, -1, np.int64), np.full(n, np.nan)
    patterns, which = np.unique(mask[cases], axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        mine = cases[which.ravel() == k]  # in random order already
        who = np.flatnonzero(pattern)
        room = problem.upper[who] if len(patterns) == 1 else np.full(len(who), n)
        if room.sum() < len(mine):
            raise CapacityError(
                f"{quota.name}: asks for {len(mine)} cases, its makers have room for {room.sum()}"
            )
        share = even_shares(len(mine), room)
        maker[mine] = np.repeat(who, whole_numbers(share, rng))
        chance[mine] = (share / len(mine))[np.searchsorted(who, maker[mine])]
    _check_room(problem, quota, maker)
    return RandomDraw(maker, chance, count / len(pool) if len(pool) else 0.0)


def inclusion(cost: Floats, share: float) -> Floats:
    """The chance of every case to be drawn: `share` in the mean, most of it where a draw costs least.

    `cost` is what giving a case to somebody at random costs more than the plan. Every case keeps a tenth of
    the even chance, so that whatever is learned from the draws can be weighed to be true of all cases.
    """
    if not len(cost) or not 0 < share < 1:
        return np.full(len(cost), min(max(share, 0.0), 1.0))
    cost = np.asarray(cost, np.float64) - float(np.min(cost))
    scale = float(np.quantile(cost, min(_CHEAPEST * share, 0.5)))
    near = np.exp(-cost / scale) if scale > 0 else (cost <= 0).astype(np.float64)
    floor = _FLOOR * share
    chance, left = np.full(len(cost), floor), np.ones(len(cost), np.bool_)
    most = max(share, _MOST)
    for _ in range(len(cost)):  # whoever would have more than the most gets that, the others share the rest
        rest = share * len(cost) - chance[~left].sum() - floor * left.sum()
        weight = near[left].sum()
        even = np.full(int(left.sum()), rest / max(int(left.sum()), 1))
        chance[left] = floor + (near[left] * rest / weight if weight > 1e-300 else even)
        over = left & (chance > most)
        if not over.any():
            break
        chance[over] = most
        left &= ~over
    return chance


def even_shares(count: int, room: Ints) -> Floats:
    """As even as room allows: everyone the same, who has less room all of it; there is room for `count`."""
    share, left, open_ = np.zeros(len(room)), float(count), np.ones(len(room), np.bool_)
    while True:
        level = left / max(int(open_.sum()), 1)
        full = open_ & (room <= level)
        if not full.any() or left <= 0:
            return np.where(open_, level, share)
        share[full] = room[full]
        left -= float(room[full].sum())
        open_ &= ~full


def whole_numbers(share: Floats, rng: np.random.Generator) -> Ints:
    """Whole numbers around the shares whose means are the shares and whose sum is theirs."""
    order = rng.permutation(len(share))
    sums = np.cumsum(share[order])
    sums[-1] = round(float(sums[-1]))  # the whole is whole: floating point must not take one away
    whole = np.zeros(len(share), np.int64)
    whole[order] = np.diff(np.floor(sums + rng.random()).astype(np.int64), prepend=0)
    return whole


def _check_room(problem: AssignmentProblem, quota: RandomQuota, maker: NDArray[np.int64]) -> None:
    load = np.bincount(maker[maker >= 0], minlength=problem.shape[1])
    over = np.flatnonzero(load > problem.upper)
    if len(over):
        j = int(over[0])
        raise CapacityError(
            f"{quota.name}: deals {load[j]} cases to {problem.maker_name(j)}, who has room for"
            f" {problem.upper[j]}; lower the share or draw among others"
        )
