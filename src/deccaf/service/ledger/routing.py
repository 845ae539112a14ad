"""Who gets a case that cannot wait: the least loss + price among those with room (no database)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Choice(NamedTuple):
    """A maker's position, the chance that this one was chosen, and whether it was drawn by lot."""

    position: int
    propensity: float
    by_lot: bool


def choose(
    losses: Floats, prices: Floats, room: Floats, random_share: float, rng: np.random.Generator
) -> Choice | None:
    """The maker of least loss + price with room, or by lot in `random_share` of the cases; None: nobody.

    A loss that is not finite says that the maker may not get the case. The propensity is the chance that
    the chosen one is chosen, so that experts can be judged, and models trained, on a fair sample.
    """
    bids = np.where((room > 0) & np.isfinite(losses), losses + prices, np.inf)
    best = int(bids.argmin())
    if not np.isfinite(bids[best]):
        return None
    if random_share <= 0:
        return Choice(best, 1.0, False)
    able = np.flatnonzero(np.isfinite(bids))
    by_lot = bool(rng.random() < random_share)
    chosen = int(rng.choice(able)) if by_lot else best
    return Choice(chosen, random_share / len(able) + (1.0 - random_share) * (chosen == best), by_lot)
