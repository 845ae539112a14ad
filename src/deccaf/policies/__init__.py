"""Ways to decide who decides: deccaf, the paper's methods, rivals, and what one would do without any.

`base` has what all share, `known` deccaf and the paper's, `rivals` those of other papers, `bands` plans that
treat groups alike.
"""

from deccaf.policies.bands import deccaf_banded
from deccaf.policies.base import POLICIES as POLICIES
from deccaf.policies.base import (
    Beliefs,
    Correctness,
    Decided,
    Policy,
    Registered,
    Room,
    find,
    greedy,
    optimal,
    policy,
    without_limits,
)
from deccaf.policies.known import MIXTURES as MIXTURES
from deccaf.policies.known import (
    deccaf,
    deccaf_blind,
    deccaf_paper,
    deccaf_paper_refit,
    deccaf_paper_without_limits,
    deccaf_without_limits,
    full_rejection,
    hem_as_released,
    hem_greedy,
    machine,
    mixture,
    only_classifier,
    only_classifier_fixed,
    oracle,
    oracle_without_limits,
    ova,
    ova_as_released,
    ova_optimal,
    random,
    random_experts,
    rejection,
)
from deccaf.policies.rivals import RIVALS as RIVALS

__all__ = [
    "Beliefs",
    "Correctness",
    "Decided",
    "Policy",
    "Registered",
    "Room",
    "deccaf",
    "deccaf_banded",
    "deccaf_blind",
    "deccaf_paper",
    "deccaf_paper_refit",
    "deccaf_paper_without_limits",
    "deccaf_without_limits",
    "find",
    "full_rejection",
    "greedy",
    "hem_as_released",
    "hem_greedy",
    "machine",
    "mixture",
    "only_classifier",
    "only_classifier_fixed",
    "optimal",
    "oracle",
    "oracle_without_limits",
    "ova",
    "ova_as_released",
    "ova_optimal",
    "policy",
    "random",
    "random_experts",
    "rejection",
    "without_limits",
]
