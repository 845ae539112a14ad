"""From beliefs to a plan.

- `intake`: new cases from files and tables, cast once, on their way to a model.
- `scored`: what is believed about them; `scratch`: files for more of that than memory holds.
- `terms`: what errors and reviews cost in a plan.
- `planner`: the plan of least cost within everyone's limits, under `constraints`, verified.
- `choices`, `plan`, `large`: who decides what and why, and what that costs; `random_sharing`: the yardstick
  beside it; `intervals`: how sure the costs are.
- `waiting`: what waiting costs beside errors, in which order everybody works, what will be late; `minutes`:
  how long cases take.
- `staffing`: how many hours of whom; `training`: whom to train in what.
- `what_if`: the same cases with other limits or costs. `explain`: why a case went where it went.
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.planning.explain import Explanation
    from deccaf.planning.large import LargePlan
    from deccaf.planning.plan import Choice, Plan, Summary, Waited
    from deccaf.planning.planner import make_plan
    from deccaf.planning.scored import Scored
    from deccaf.planning.staffing import Staffing, staffed
    from deccaf.planning.terms import Terms
    from deccaf.planning.waiting import Waits, read_waits
    from deccaf.planning.what_if import Scenario, WhatIf, WhatIfs, what_ifs

__all__ = [
    "Choice",
    "Explanation",
    "LargePlan",
    "Plan",
    "Scenario",
    "Scored",
    "Staffing",
    "Summary",
    "Terms",
    "Waited",
    "Waits",
    "WhatIf",
    "WhatIfs",
    "make_plan",
    "read_waits",
    "staffed",
    "what_ifs",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.planning.explain": "Explanation",
        "deccaf.planning.large": "LargePlan",
        "deccaf.planning.plan": "Choice Plan Summary Waited",
        "deccaf.planning.planner": "make_plan",
        "deccaf.planning.scored": "Scored",
        "deccaf.planning.staffing": "Staffing staffed",
        "deccaf.planning.terms": "Terms",
        "deccaf.planning.waiting": "Waits read_waits",
        "deccaf.planning.what_if": "Scenario WhatIf WhatIfs what_ifs",
    },
)
