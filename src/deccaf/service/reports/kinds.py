"""Kinds of cases that reports look at apart: the columns that a lead has named, each with few values.

These are `[columns] group` and `[waiting] kind` of the settings; where neither is named, the categories among
the features of the model in force.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.service.decide.registry import Model
from deccaf.service.store.settings import LEARNING, read_setting

MOST_VALUES = 12
"""A column with more is no kind of case."""
MOST_COLUMNS = 3
MISSING = "missing"

Names = NDArray[np.object_]


def kind_columns(connection: sa.Connection, model: Model | None) -> tuple[str, ...]:
    """The columns that tell kinds of cases apart."""
    settings = read_setting(connection, LEARNING) or {}
    named = [*(settings.get("columns") or {}).get("group", ()), (settings.get("waiting") or {}).get("kind")]
    if model is not None and not any(named):
        features = model.system.schema_.features
        named = [*model.system.columns_.group, *[one.name for one in features if one.kind == "category"]]
    return tuple(dict.fromkeys(name for name in named if name))[:MOST_COLUMNS]


def kinds_of(features: Sequence[str], columns: Sequence[str]) -> dict[str, Names]:
    """By column, the kind of each case (features as JSON); of columns with more than one value, but few."""
    cases = [json.loads(text) for text in features]
    found = {}
    for name in columns:
        values = [case.get(name) for case in cases]
        each = np.array([MISSING if value is None else str(value) for value in values], dtype=object)
        if 1 < len(set(each.tolist())) <= MOST_VALUES:
            found[name] = each
    return found
