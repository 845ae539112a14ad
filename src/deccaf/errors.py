"""Everything that can go wrong for a reason the user can act on.

Each error carries the exit code of the command line, so that the codes are decided in one place:

====  ==========================================
code  meaning
====  ==========================================
0     done
1     unexpected (a bug: please report it)
2     usage: an argument or a configuration file
3     invalid data
4     no feasible plan
5     the solver gave up
6     bad model file
7     cases unlike those learned from (--strict)
====  ==========================================
"""

from __future__ import annotations

import sys
import warnings
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class DeccafError(Exception):
    """Base of all errors that deccaf raises on purpose; the message says what failed and what to do."""

    exit_code: ClassVar[int] = 1


class ConfigError(DeccafError, ValueError):
    """An argument or a configuration value that cannot be used."""

    exit_code = 2


class DataError(DeccafError, ValueError):
    """A table that cannot be used: the message names the column, the count and the first offender."""

    exit_code = 3


class CapacityError(DeccafError):
    """No plan can satisfy the limits."""

    exit_code = 4


class SolverError(DeccafError):
    """A solver stopped without a plan that it can vouch for."""

    exit_code = 5


class ModelFileError(DeccafError):
    """A model file that is damaged, foreign or too new."""

    exit_code = 6


class DriftError(DeccafError):
    """Cases that are unlike those that a model learned from, where the caller asked to be strict."""

    exit_code = 7


class DeccafWarning(UserWarning):
    """Something the user should know that does not stop the work."""


def show(value: Any) -> str:
    """A value as a person would write it: 'a17' or 2, not np.int64(2)."""
    return repr(value.item() if hasattr(value, "item") else value)


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """'; did you mean ...?' where a known name is close, whatever its case and the blanks around it."""
    names = {str(other).strip().casefold(): str(other) for other in known if str(other) != name}
    close = get_close_matches(name.strip().casefold(), list(names), n=1, cutoff=likeness)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def warn(message: str) -> None:
    """A `DeccafWarning` that points at the line of the user's which led to it, not into deccaf."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "deccaf":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeccafWarning, stacklevel=level)
