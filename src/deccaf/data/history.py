"""What there is to learn from: cases, their truth where it is known, and who decided what about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.tables import Cases, Decisions
from deccaf.errors import DataError, show

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class History:
    """Cases, and for every decision the position of its case."""

    features: pd.DataFrame
    label: Ints
    """Positions of classes, -1 where the truth is not known yet."""
    amounts: pd.DataFrame
    """The per-case cost columns."""
    time: pd.Series | None
    group: pd.Series | None
    """What must not be split when something is held out."""
    weight: Array | None
    case: Ints
    """For every decision, the position of its case."""
    expert: pd.Series
    decision: Ints
    decision_time: pd.Series | None = None


def check_history(cases: Cases, decisions: Decisions | None = None, now: pd.Timestamp | None = None) -> None:
    """Refuse labels from the future, and decisions made before their case was there."""
    if cases.time is None:
        return
    if pd.api.types.is_datetime64_any_dtype(cases.time.dtype) and cases.label is not None:
        today = pd.Timestamp.now(tz=cases.time.dt.tz) if now is None else now
        ahead = (cases.time > today).to_numpy() & (cases.label >= 0)
        if ahead.any():
            first = int(ahead.argmax())
            raise DataError(
                f"column {cases.time.name!r}: {ahead.sum()} labelled case(s) lie in the future, first: "
                f"{cases.time.iloc[first]} in case {show(cases.ids[first])}, and now it is {today:%Y-%m-%d}; "
                "correct the times"
            )
    if decisions is None or decisions.time is None:
        return
    came = cases.time.iloc[cases.positions(decisions.case)].reset_index(drop=True)
    try:
        backwards = (decisions.time < came).to_numpy()
    except TypeError as error:
        raise DataError(
            f"column 'time': decisions hold {decisions.time.dtype}, cases {came.dtype}; use one kind"
        ) from error
    if backwards.any():
        first = int(backwards.argmax())
        raise DataError(
            f"column 'time': {backwards.sum()} decision(s) were made before their case came, first: "
            f"{decisions.time.iloc[first]} on case {show(decisions.case.iloc[first])}, which came at "
            f"{came.iloc[first]}"
        )
