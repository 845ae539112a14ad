"""Decide who decides.

deccaf learns from history how each reviewer decides, and assigns every new case to the person or to the
machine, so that the expected cost of errors is least and nobody gets more work than they can do.
"""

from typing import TYPE_CHECKING, Any

from deccaf.capacity import Capacity
from deccaf.costs import MACHINE, Costs, expected_loss
from deccaf.errors import (
    CapacityError,
    ConfigError,
    DataError,
    DeccafError,
    DeccafWarning,
    ModelFileError,
    SolverError,
)
from deccaf.schema import Columns, Schema
from deccaf.tables import Cases, Decisions

if TYPE_CHECKING:
    from deccaf.system import DeCCaF, Plan

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
    "ModelFileError",
    "Plan",
    "Schema",
    "SolverError",
    "__version__",
    "expected_loss",
]


def __getattr__(name: str) -> Any:
    """The estimator is imported when it is asked for: its libraries take seconds."""
    if name in {"DeCCaF", "Plan"}:
        from deccaf import system

        return getattr(system, name)
    raise AttributeError(f"module 'deccaf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
