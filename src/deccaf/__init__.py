"""Decide who decides.

deccaf learns from history how each reviewer decides, and assigns every new case to the person or to the
machine, so that the expected cost of errors is least and nobody gets more work than they can do.
"""

from typing import TYPE_CHECKING, Any

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
    ModelFileError,
    SolverError,
)

if TYPE_CHECKING:
    from deccaf.estimator import DeCCaF
    from deccaf.planning import Plan

__version__ = "0.1.0"

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
    "History",
    "ModelFileError",
    "Plan",
    "Schema",
    "SolverError",
    "__version__",
    "expected_loss",
]


def __getattr__(name: str) -> Any:
    """The estimator is imported when it is asked for: its libraries take seconds."""
    if name == "DeCCaF":
        from deccaf.estimator import DeCCaF

        return DeCCaF
    if name == "Plan":
        from deccaf.planning import Plan

        return Plan
    raise AttributeError(f"module 'deccaf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
