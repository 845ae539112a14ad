"""Decide who decides.

deccaf learns from history how each reviewer decides, and assigns every new case to the person or to the
machine, so that the expected cost of errors is least and nobody gets more work than they can do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
        ModelFileError,
        SolverError,
    )
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


_HOMES = {
    "Capacity": "data.capacity",
    "Cases": "data.cases",
    "Columns": "data.schema",
    "Costs": "data.costs",
    "DeCCaF": "estimator",
    "Decisions": "data.decisions",
    "History": "data.history",
    "MACHINE": "data.costs",
    "Plan": "planning",
    "Schema": "data.schema",
    "expected_loss": "data.costs",
}


def __getattr__(name: str) -> Any:
    """Everything is imported when it is asked for: the libraries behind it take seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'deccaf' has no attribute {name!r}")
    found = getattr(import_module(f"deccaf.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
