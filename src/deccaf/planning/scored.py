"""What is believed about cases that wait for a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Opinions
from deccaf.data.costs import Class

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Everything about the cases that a planner looks at."""

    ids: pd.Index
    makers: tuple[str, ...]
    """The machine, then the experts of the roster."""
    loss: Array
    """(cases, makers): expected cost; infinite where a maker may not get a case."""
    objective: Array
    """(cases, makers): what the plan minimises."""
    says: Ints
    """What the machine would decide, as positions in `classes`."""
    classes: tuple[Class, ...]
    notes: tuple[str, ...] = ()
    """What the lead should know about the cases and the roster."""
    batch: pd.Series | None = None
    """The batch of each case; None: all are one."""
    columns: pd.DataFrame | None = None
    """The columns of the cases that constraints name."""
    opinions: Opinions | None = None
    """What everyone would say on every case, where constraints look at that."""
