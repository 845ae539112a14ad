"""`DeCCaF`: fit on history, score new cases, plan them, explain the plan; save and load.

Inside: `estimator` (the public class), `frames` (tables in and out), `learned` (the models of a method),
`plan` (who decides what), `explain`, `model_file`.
"""

from deccaf.system.estimator import DeCCaF
from deccaf.system.explain import Explanation
from deccaf.system.plan import Plan, Summary

__all__ = ["DeCCaF", "Explanation", "Plan", "Summary"]
