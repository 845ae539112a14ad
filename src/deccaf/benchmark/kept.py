"""What models predict of the test month, as columns of a table: K classes, every number kept once.

Of chances that sum to 1 all but one are kept, and the last is the rest: for the truth that of the first
class, for decisions that of the right one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import Class

Array = NDArray[np.float64]


def with_first(others: Array) -> Array:
    """(cases, K) chances, from those of all classes but the first: (cases, K - 1), or (cases) if K = 2."""
    rest = others.reshape(len(others), -1)
    return np.column_stack([1.0 - rest.sum(axis=1), rest])


def truth_columns(name: str, p: Array, classes: Sequence[Class]) -> dict[str, Array]:
    """(cases, K) chances of the truth."""
    return {f"{name}:{classes[k]}": p[:, k] for k in range(1, len(classes))}


def read_truth(table: pd.DataFrame, name: str, classes: Sequence[Class]) -> Array:
    """What `truth_columns` kept."""
    return with_first(table[[f"{name}:{label}" for label in classes[1:]]].to_numpy(np.float64))


def expert_columns(name: str, chance: Array, experts: Sequence[str]) -> dict[str, Array]:
    """(cases, experts): one number for everybody."""
    return {f"{name}:{expert}": chance[:, j] for j, expert in enumerate(experts)}


def read_experts(table: pd.DataFrame, name: str, experts: Sequence[str]) -> Array:
    """What `expert_columns` kept."""
    return table[[f"{name}:{expert}" for expert in experts]].to_numpy(np.float64)


def decision_columns(q: Array, experts: Sequence[str], classes: Sequence[Class]) -> dict[str, Array]:
    """(cases, experts, K truths, K decisions): the chances of every error."""
    found: dict[str, Array] = {}
    for y, m in _errors(len(classes)):
        found |= expert_columns(f"{classes[y]}>{classes[m]}", q[:, :, y, m], experts)
    return found


def read_decisions(table: pd.DataFrame, experts: Sequence[str], classes: Sequence[Class]) -> Array:
    """What `decision_columns` kept."""
    q = np.zeros((len(table), len(experts), len(classes), len(classes)))
    for y, m in _errors(len(classes)):
        q[:, :, y, m] = read_experts(table, f"{classes[y]}>{classes[m]}", experts)
    own = np.arange(len(classes))
    q[:, :, own, own] = 1.0 - q.sum(axis=3)
    return q


def _errors(classes: int) -> list[tuple[int, int]]:
    return [(y, m) for y in range(classes) for m in range(classes) if y != m]
