"""The lottery of a plan: cases that are given out at random, and the chance with which everybody got theirs.

People can be compared on a random sample, and models keep learning from it. Cases are drawn with equal
chances among those that everybody with room may get, and dealt as evenly as room allows; the plan is then
the best one for all the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.constrained.random_quota import even_shares, whole_numbers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Lottery:
    """Who got a case by lot."""

    maker: Ints
    """The maker drawn for each case; -1: none, the plan decides."""
    share: Floats
    """The chance that each case had of being drawn."""
    chance: Floats
    """The chance of each maker, once a case is drawn."""

    def propensity(self, losses: Floats, prices: Floats, chosen: NDArray[np.integer[Any]]) -> Floats:
        """The chance of the maker that each case has: by lot, or by the plan at its prices.

        `losses` are infinite where a maker may not get the case.
        """
        planned = np.where(self.maker < 0, chosen, (losses + prices).argmin(axis=1))
        return np.asarray((1.0 - self.share) * (planned == chosen) + self.share * self.chance[chosen])


def no_lottery(cases: int, makers: int) -> Lottery:
    """Everything as the plan has it."""
    return Lottery(np.full(cases, -1, np.int64), np.zeros(cases), np.zeros(makers))


def draw_lottery(allowed: Bools, room: Ints, share: float, rng: np.random.Generator) -> Lottery:
    """Draw `share` of the cases that everybody with room may get, and deal them evenly."""
    cases, makers = allowed.shape
    lottery = no_lottery(cases, makers)
    able = np.flatnonzero((room > 0) & allowed.any(axis=0))
    pool = np.flatnonzero(allowed[:, able].all(axis=1)) if len(able) else able
    wanted = int(share * len(pool) + rng.random())  # whole, and right in the mean
    count = min(wanted, len(pool), int(np.minimum(room[able], len(pool)).sum()))
    if not count:
        return lottery
    drawn = rng.permutation(pool)[:count]
    shares = even_shares(count, room[able])
    lottery.maker[drawn] = np.repeat(able, whole_numbers(shares, rng))
    lottery.share[pool] = min(share, count / len(pool)) if count < wanted else share
    lottery.chance[able] = shares / count
    return lottery


def lottery_of(drawn: Ints, chance: Floats, allowed: Bools, makers: int) -> Lottery:
    """The lottery of a plan whose constraints asked for random cases: its draws, and their chances.

    `drawn` is the maker of each drawn case (-1: none), `chance` what that maker's chance was.
    """
    lottery = no_lottery(len(drawn), makers)
    pool = allowed[:, 1:].any(axis=1)  # people only: the machine is no part of it
    lottery.maker[:] = drawn
    lottery.share[pool] = (drawn >= 0).sum() / max(int(pool.sum()), 1)
    for maker in np.unique(drawn[drawn >= 0]):
        lottery.chance[maker] = chance[drawn == maker].mean()
    return lottery
