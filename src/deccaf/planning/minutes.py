"""How long a case takes whom: from a number, a column of the cases, or the seconds of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE
from deccaf.errors import ConfigError, DataError

Array = NDArray[np.float64]


def handling_minutes(
    asked: float | str | None,
    columns: pd.DataFrame | None,
    cases: int,
    makers: Sequence[str],
    pace: Mapping[str, float],
    table: str,
    machines: Mapping[str, float] | None = None,
) -> Array:
    """(cases, makers): minutes of every case and maker; the machine takes none.

    Other `machines` take the minutes that are given for them, whatever a case asks of people. `pace` is cases
    an hour, by expert; who has none is taken as the team's median. `table` is the part of the configuration
    that `asked` stands in.
    """
    if asked is None:
        if not pace:
            raise ConfigError(f"[{table}] minutes: the log had no seconds; give a column or number")
        usual = float(np.median([60.0 / each for each in pace.values()]))
        each = np.array([60.0 / pace[name] if name in pace else usual for name in makers])
    else:
        each = np.ones(len(makers))
    each[[name == MACHINE for name in makers]] = 0.0
    known = np.ones(cases) if asked is None else numbers(asked, columns, cases)
    found = np.outer(known, each)
    for name, minutes in (machines or {}).items():
        if name in makers:
            found[:, list(makers).index(name)] = minutes
    return found


def numbers(asked: float | str, columns: pd.DataFrame | None, cases: int) -> Array:
    """A number for all cases, or the numbers of a column."""
    if not isinstance(asked, str):
        return np.full(cases, float(asked))
    assert columns is not None
    column = pd.to_numeric(columns[asked], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~np.isfinite(column)
    if wrong.any():
        first = columns[asked].iloc[int(wrong.argmax())]
        raise DataError(f"column {asked!r}: {wrong.sum()} values are no numbers, first: {first!r}")
    return column
