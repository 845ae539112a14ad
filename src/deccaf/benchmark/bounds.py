"""A bound that no policy can reach, registered like any other policy."""

from __future__ import annotations

from deccaf.policies import Beliefs, Decided, Room, policy

WITHOUT_LIMITS = "oracle-without-limits"


@policy(WITHOUT_LIMITS, needs=("true_q",))
def oracle_without_limits(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Every case to whoever errs at least cost, whatever their room: what limits cost is the rest."""
    return Decided(beliefs.loss(beliefs.true_q).argmin(axis=1), beliefs.machine_says())
