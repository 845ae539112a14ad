"""Decide who decides.

deccaf learns from history how each reviewer decides, and assigns every new case to the person or to the
machine, so that the expected cost of errors is least and nobody gets more work than they can do.
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.data.capacity import Capacity
    from deccaf.data.cases import Cases
    from deccaf.data.costs import MACHINE, Costs, expected_loss
    from deccaf.data.decisions import Decisions
    from deccaf.data.history import History
    from deccaf.data.schema import Columns, Schema
    from deccaf.errors import (
        CapacityError,
        ConfigError,
        DataError,
        DeccafError,
        DeccafWarning,
        DriftError,
        ModelFileError,
        SolverError,
    )
    from deccaf.estimator import DeCCaF
    from deccaf.evaluate.scorer import make_cost_scorer
    from deccaf.planning import Plan

__version__ = "0.2.0"

__all__ = [
    "MACHINE",
    "Capacity",
    "CapacityError",
    "Cases",
    "Columns",
    "ConfigError",
    "Costs",
    "DataError",
    "DeCCaF",
    "DeccafError",
    "DeccafWarning",
    "Decisions",
    "DriftError",
    "History",
    "ModelFileError",
    "Plan",
    "Schema",
    "SolverError",
    "__version__",
    "expected_loss",
    "make_cost_scorer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.data.capacity": "Capacity",
        "deccaf.data.costs": "MACHINE Costs expected_loss",
        "deccaf.data.history": "History",
        "deccaf.data.schema": "Columns Schema",
        "deccaf.data.cases": "Cases",
        "deccaf.data.decisions": "Decisions",
        "deccaf.errors": "CapacityError ConfigError DataError DeccafError "
        "DeccafWarning DriftError ModelFileError SolverError",
        "deccaf.estimator": "DeCCaF",
        "deccaf.evaluate.scorer": "make_cost_scorer",
        "deccaf.planning": "Plan",
    },
)
