"""Who gets what: cases to decision makers at least total loss, within everyone's limits.

A *maker* is one column of the loss: a person, or the machine. A *limit* is the least (`lower`) and the
most (`upper`) cases a maker gets. A *price* is what one more unit of a maker's upper limit would save. The
*gap* is how far from the optimum a plan can at most be, proved by the prices.

    from deccaf.assign import solve
    plan = solve(loss, upper)          # cases x makers, one upper limit per maker
    plan.maker, plan.objective, plan.prices, plan.gap

Inside: `problem` (inputs and result), `solve` (choice of method), `transport` (the exact solver) on top of
`scan` (passes over the matrix), `pricing` and `newton` (prices), `refine` (the open cases), `flow`
(OR-Tools), `duals` (shadow prices, certificate) and `hurry` (when time is up); `feasibility` (why there is
no plan), `verify`, `general` (CP-SAT, LP).

`constrained` grants `wishes` that break this structure, by a programme of `columns` (`relax`, `opinions`,
`random_quota`); `stream` routes one case at a time, with a `forecast` and `bids`.
"""

from deccaf.assign.constrained.constraints import Balance, GroupBand, HandlingMinutes, RandomQuota, Reviewers
from deccaf.assign.constrained.opinions import Opinions
from deccaf.assign.constrained.random_quota import RandomDraw
from deccaf.assign.constrained.solver import ConstrainedPlan, WishPrice, grant_wishes, solve_constrained
from deccaf.assign.problem import Assignment, AssignmentProblem
from deccaf.assign.solve import solve, solve_batches, solve_problem
from deccaf.assign.stream.assigner import Regret, Routed, StreamAssigner
from deccaf.assign.stream.forecast import Forecast
from deccaf.assign.verify import verify

__all__ = [
    "Assignment",
    "AssignmentProblem",
    "Balance",
    "ConstrainedPlan",
    "Forecast",
    "GroupBand",
    "HandlingMinutes",
    "Opinions",
    "RandomDraw",
    "RandomQuota",
    "Regret",
    "Reviewers",
    "Routed",
    "StreamAssigner",
    "WishPrice",
    "grant_wishes",
    "solve",
    "solve_batches",
    "solve_constrained",
    "solve_problem",
    "verify",
]
