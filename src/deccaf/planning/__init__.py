"""From beliefs to a plan.

- `intake`: new cases from files and tables, cast once, on their way to a model.
- `scored`: what is believed about them.
- `planner`: the plan of least cost within everyone's limits, under `constraints`, verified.
- `plan`: who decides what, and what that costs; `random_sharing`: the yardstick beside it.
- `what_if`: the same cases with other limits. `explain`: why a case went where it went.
"""

from deccaf.planning.explain import Explanation
from deccaf.planning.plan import Plan, Summary
from deccaf.planning.planner import make_plan
from deccaf.planning.scored import Scored
from deccaf.planning.what_if import WhatIf, what_if

__all__ = ["Explanation", "Plan", "Scored", "Summary", "WhatIf", "make_plan", "what_if"]
