"""From beliefs to a plan: `plan` (who decides what), `constraints`, `explain`."""

from deccaf.planning.explain import Explanation
from deccaf.planning.plan import Plan, Summary

__all__ = ["Explanation", "Plan", "Summary"]
