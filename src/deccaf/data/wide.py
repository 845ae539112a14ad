"""Tables with a column per person, as published sets of decisions have them (FiFAR, OpenL2D), made long.

Only what cannot be meant otherwise is taken for wide, and a note says so; anything else is left as it is, and
whoever checks the table says what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from deccaf.data.costs import Class
from deccaf.data.values import class_codes
from deccaf.errors import DataError, warn

_LOG = {"expert_id", "decision"}
_ROSTER = {"expert_id", "upper"}
_BATCH, _SIZE = "batch_id", "batch_size"


def long_decisions(frame: pd.DataFrame, classes: Sequence[Class]) -> pd.DataFrame:
    """One row per decision, from `case_id` and a column of decisions for each person; blanks are none.

    Columns of numbers that are no decisions, such as a model's score, are left out and named.
    """
    if _LOG & set(frame) or "case_id" not in frame:
        return frame
    others = [name for name in frame if name != "case_id"]
    people = [name for name in others if _decisions(frame[name], frame["case_id"], classes)]
    rest = [name for name in others if name not in people]
    if len(people) < 2 or not all(pd.api.types.is_numeric_dtype(frame[name].dtype) for name in rest):
        return frame
    left = f"; left out, as they hold no decisions: {', '.join(map(repr, rest))}" if rest else ""
    warn(f"decisions: a column for each of {len(people)} people, {people[0]!r} to {people[-1]!r}{left}")
    table = frame.melt("case_id", people, "expert_id", "decision")
    return table[table["decision"].notna()].reset_index(drop=True)


def long_capacity(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per batch and person, from `batch_id` and a column of cases for each person.

    `batch_size`, where it is there, is not a person.
    """
    if _ROSTER & set(frame) or _BATCH not in frame:
        return frame
    people = [name for name in frame if name not in (_BATCH, _SIZE)]
    if not people:
        return frame
    warn(f"capacity: a column for each of {len(people)} people, {people[0]!r} to {people[-1]!r}")
    table = frame.rename(columns={_BATCH: "batch"}).melt("batch", people, "expert_id", "upper")
    return table[table["upper"].notna()].reset_index(drop=True)


def _decisions(values: pd.Series, case: pd.Series, classes: Sequence[Class]) -> bool:
    """Whether a column holds decisions and nothing else."""
    try:
        return bool((class_codes(values, classes, case) >= 0).any())
    except DataError:
        return False
