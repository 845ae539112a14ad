"""What a model file remembers of the history that a model was fitted on: facts for people and for checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.costs import Costs
from deccaf.data.history import History
from deccaf.evaluate.drift import profile
from deccaf.evaluate.people import tally


def training_facts(
    history: History, method: str, costs: Costs, features: pd.DataFrame | None = None
) -> dict[str, Any]:
    """Counts, shares, the profile of every feature, everybody's decisions, the time span, as plain data.

    `features` are what is to be told of, where the history has texts or vectors.
    """
    features = history.features if features is None else features
    known = history.label >= 0
    shares = np.bincount(history.label[known], minlength=len(costs.classes)) / max(known.sum(), 1)
    facts: dict[str, Any] = {
        "method": method,
        "cases": len(history.label),
        "without_label": int((~known).sum()),
        "class_shares": {str(name): float(share) for name, share in zip(costs.classes, shares, strict=True)},
        "decisions": {
            str(name): int(count) for name, count in history.expert.value_counts().sort_index().items()
        },
        "people": tally(history, len(costs.classes), features),
        "profile": {str(name): profile(features[name]) for name in features},
    }
    if history.time is not None and len(history.time):
        facts["time"] = [_plain_time(history.time.min()), _plain_time(history.time.max())]
    return facts


def _plain_time(value: Any) -> Any:
    """A number, or a date as text."""
    return value.item() if hasattr(value, "item") else value if isinstance(value, int | float) else str(value)
