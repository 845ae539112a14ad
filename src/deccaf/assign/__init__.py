"""Who gets what: cases to decision makers at least total loss, within everyone's limits.

A *maker* is one column of the loss: a person, or the machine. A *limit* is the least (`lower`) and the
most (`upper`) cases a maker gets. A *price* is what one more unit of a maker's upper limit would save. The
*gap* is how far from the optimum a plan can at most be, proved by the prices.

    from deccaf.assign import solve
    plan = solve(loss, upper)          # cases x makers, one upper limit per maker
    plan.maker, plan.objective, plan.prices, plan.gap

Inside: `problem` (inputs and result), `solve` (choice of method), `exact` (the solver), `feasibility` (why
there is no plan), `verify`.

`constrained` plans under constraints that break this structure; `stream` routes one case at a time, with a
`forecast` and bid prices; `waiting` counts what waiting costs, and says in which order to work; `staffing`
finds how many hours of whom to have.
"""

from typing import TYPE_CHECKING

from deccaf.assign.problem import Assignment, AssignmentProblem
from deccaf.assign.solve import solve, solve_batches, solve_problem
from deccaf.assign.verify import verify
from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.assign.constrained.constraints import (
        Balance,
        GroupBand,
        HandlingMinutes,
        RandomQuota,
        Reviewers,
    )
    from deccaf.assign.constrained.opinions import Opinions
    from deccaf.assign.constrained.random_quota import RandomDraw
    from deccaf.assign.constrained.solver import (
        ConstrainedPlan,
        ConstraintPrice,
        solve_constrained,
        solve_constrained_problem,
    )
    from deccaf.assign.stream.assigner import Regret, Routed, StreamAssigner
    from deccaf.assign.stream.forecast import Forecast
    from deccaf.assign.waiting.harm import Harm
    from deccaf.assign.waiting.queues import Queues
    from deccaf.assign.waiting.schedule import Schedule, schedule

__all__ = [
    "Assignment",
    "AssignmentProblem",
    "Balance",
    "ConstrainedPlan",
    "ConstraintPrice",
    "Forecast",
    "GroupBand",
    "HandlingMinutes",
    "Harm",
    "Opinions",
    "Queues",
    "RandomDraw",
    "RandomQuota",
    "Regret",
    "Reviewers",
    "Routed",
    "Schedule",
    "StreamAssigner",
    "schedule",
    "solve",
    "solve_batches",
    "solve_constrained",
    "solve_constrained_problem",
    "solve_problem",
    "verify",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.assign.constrained.constraints": "Balance GroupBand HandlingMinutes RandomQuota Reviewers",
        "deccaf.assign.constrained.opinions": "Opinions",
        "deccaf.assign.constrained.random_quota": "RandomDraw",
        "deccaf.assign.constrained.solver": "ConstrainedPlan ConstraintPrice "
        "solve_constrained solve_constrained_problem",
        "deccaf.assign.stream.assigner": "Regret Routed StreamAssigner",
        "deccaf.assign.stream.forecast": "Forecast",
        "deccaf.assign.waiting.harm": "Harm",
        "deccaf.assign.waiting.queues": "Queues",
        "deccaf.assign.waiting.schedule": "Schedule schedule",
    },
)
