"""Whether new cases still look like those that a model was fitted on.

A *profile* is what is remembered of a column: the shares of its deciles or of its most common levels. The
*population stability index* compares shares p (then) and q (now): sum (q - p) ln(q / p). Below 0.1 little has
changed, above 0.25 much has. With few cases it is large by chance alone, so `is_real` asks whether chance
could have done it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]

BINS = 10
LEVELS = 12
CHANCE = 1e-6
"""Drift that chance would bring up more often than this is no drift."""


def profile(values: pd.Series) -> dict[str, Any]:
    """What to remember of a column, as plain data: its bins, their shares, and of how many cases."""
    numeric = pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)
    known: dict[str, Any]
    if numeric:
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        inner = np.nanquantile(numbers, np.arange(1, BINS) / BINS) if np.isfinite(numbers).any() else []
        known = {"edges": [float(edge) for edge in np.unique(inner)]}
    else:
        common = values.dropna().astype("str").value_counts().index[:LEVELS]
        known = {"levels": sorted(str(level) for level in common)}
    found = counts(known, values)
    return {**known, "shares": (found / max(found.sum(), 1)).tolist(), "cases": int(found.sum())}


def counts(known: Mapping[str, Any], values: pd.Series) -> Array:
    """Cases in each bin of a profile; the last bin is missing values, and the one before other levels."""
    if "edges" in known:
        edges = np.asarray(known["edges"], np.float64)
        numbers = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        place = np.searchsorted(edges, numbers, side="left")
        place[np.isnan(numbers)] = len(edges) + 1
        return np.bincount(place, minlength=len(edges) + 2).astype(np.float64)
    position = {level: k for k, level in enumerate(known["levels"])}
    size = len(position)
    text = values.astype("object")
    place = np.array([size + 1 if pd.isna(v) else position.get(str(v), size) for v in text], np.int64)
    return np.bincount(place, minlength=size + 2).astype(np.float64)


def stability(before: ArrayLike, now: ArrayLike) -> float:
    """The population stability index of two rows of counts; half a case is added to every bin."""
    old, new = np.asarray(before, np.float64), np.asarray(now, np.float64)
    used = (old + new) > 0
    p = (old[used] + 0.5) / (old[used] + 0.5).sum()
    q = (new[used] + 0.5) / (new[used] + 0.5).sum()
    return float(((q - p) * np.log(q / p)).sum())


def is_real(index: float, before: ArrayLike, now: ArrayLike, chance: float = CHANCE) -> bool:
    """Whether an index this large is more than chance: without drift it follows a chi-square, scaled."""
    old, new = np.asarray(before, np.float64), np.asarray(now, np.float64)
    bins = int(((old + new) > 0).sum())
    if bins < 2 or not old.sum() or not new.sum():
        return False
    scaled = index / (1.0 / old.sum() + 1.0 / new.sum())
    return bool(scaled > stats.chi2.ppf(1.0 - chance, bins - 1))


def drift(
    profiles: Mapping[str, Mapping[str, Any]], frame: pd.DataFrame, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """For every column that has a profile: `index` (its stability index) and `real`; the largest first."""
    rows = []
    for name in names if names is not None else profiles:
        known = profiles[name]
        before = np.asarray(known["shares"], np.float64) * known["cases"]
        now = counts(known, frame[name])
        index = stability(before, now)
        rows.append({"column": name, "index": index, "real": is_real(index, before, now)})
    table = pd.DataFrame(rows, columns=["column", "index", "real"]).set_index("column")
    return table.sort_values("index", ascending=False, kind="stable")
