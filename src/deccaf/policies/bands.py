"""Plans that treat groups of cases alike: deccaf with the groups' error rates within a band."""

from __future__ import annotations

import numpy as np

from deccaf.assign import AssignmentProblem, GroupBand, Opinions, solve_constrained_problem
from deccaf.errors import CapacityError, ConfigError, SolverError
from deccaf.policies.base import Beliefs, Decided, Room, optimal, policy

WITHIN = 0.05
"""How far apart the expected false-positive rates of two groups may lie."""


@policy("deccaf-banded", needs=("q", "group"))
def deccaf_banded(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """deccaf with the groups' expected false-positive rates at most 5 points apart.

    Where everybody's limits do not allow that, the band is widened to twice as much, and again.
    """
    if beliefs.group is None or beliefs.q is None:
        raise ConfigError("the policy needs a decision model and groups, which are not among the beliefs")
    loss, within = beliefs.loss(beliefs.q), WITHIN
    problem = AssignmentProblem.of(loss, room.upper, room.lower, room.eligible, room.name)
    opinions = Opinions.of(beliefs.p, beliefs.q, beliefs.costs)
    while within < 1.0 and len(np.unique(beliefs.group)) > 1:
        band = GroupBand(beliefs.group, within, "fpr", opinions=opinions)
        try:
            plan = solve_constrained_problem(problem, [band], prices=False)
        except (CapacityError, SolverError):
            within *= 2
            continue
        return Decided(plan.maker.astype(np.int64), beliefs.machine_says())
    return optimal(loss, beliefs.machine_says(), room, seed)
