"""Decide who decides.

deccaf learns from history how each reviewer decides, and assigns every new case to the person or to the
machine, so that the expected cost of errors is least and nobody gets more work than they can do.
"""

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
    "DeccafError",
    "DeccafWarning",
    "Decisions",
    "ModelFileError",
    "Schema",
    "SolverError",
    "__version__",
    "expected_loss",
]
