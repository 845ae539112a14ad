"""The lottery of a plan: cases that are given out at random, and the chance with which everybody got theirs.

People can be compared on a random sample, and models keep learning from it. Cases are drawn among those that
everybody with room may get, mostly where it costs least (near-ties first), and dealt as evenly as room
allows, whoever they would have gone to: everybody's draws are cases of one kind. The plan is then the best
one for all the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.constrained.random_quota import even_shares, inclusion, whole_numbers

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


def draw_lottery(
    allowed: Bools, room: Ints, share: float, rng: np.random.Generator, cost: Floats | None = None
) -> Lottery:
    """Draw `share` of the cases that everybody with room may get, and deal them evenly.

    `cost` is what a draw of each case costs (`draw_costs`); without it all cases are alike.
    """
    cases, makers = allowed.shape
    lottery = no_lottery(cases, makers)
    able, pool = _pool(allowed, room)
    chance = np.full(len(pool), share) if cost is None else inclusion(cost[pool], share)
    wanted = int(share * len(pool) + rng.random())  # whole, and right in the mean
    count = min(wanted, len(pool), int(np.minimum(room[able], len(pool)).sum()))
    if not count:
        return lottery
    each = np.minimum(chance * count / chance.sum(), 1.0)
    drawn = rng.permutation(pool[whole_numbers(each, rng) > 0])
    shares = even_shares(len(drawn), room[able])
    lottery.maker[drawn] = np.repeat(able, whole_numbers(shares, rng))
    lottery.share[pool] = chance * min(1.0, count / (share * len(pool))) if count < wanted else chance
    lottery.chance[able] = shares / len(drawn)
    return lottery


@dataclass(frozen=True)
class LotCost:
    """What a lottery would cost more than the plan without it, in expectation, before anything is drawn."""

    share: float
    cases: float
    """How many would be drawn, on average."""
    cost: float
    """Where it costs least."""
    even: float
    """With equal chances for all cases."""


def draw_costs(objective: Floats, prices: Floats, allowed: Bools, room: Ints) -> Floats:
    """What it costs more to give each case to anybody with room, all alike, than to whom the plan chose.

    At the prices of a plan, so that the time of people who are full counts; 0 for cases outside the lottery.
    """
    able, pool = _pool(allowed, room)
    found = np.zeros(len(allowed))
    if len(pool):
        total = np.where(allowed[pool], objective[pool] + prices, np.inf)
        found[pool] = total[:, able].mean(axis=1) - total.min(axis=1)
    return found


def expected_lot(cost: Floats, allowed: Bools, room: Ints, share: float) -> LotCost:
    """What a lottery would cost, before it is drawn."""
    _, pool = _pool(allowed, room)
    chance = inclusion(cost[pool], share)
    even = share * float(cost[pool].sum())
    return LotCost(share, float(chance.sum()), float(chance @ cost[pool]), even)


def _pool(allowed: Bools, room: Ints) -> tuple[Ints, Ints]:
    """Who has room, and the cases that all of these may get."""
    able = np.flatnonzero((room > 0) & allowed.any(axis=0))
    return able, np.flatnonzero(allowed[:, able].all(axis=1)) if len(able) else able


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
