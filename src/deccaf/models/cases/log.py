"""Labelled cases ready for learning: codes instead of names, only cases that can teach something."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CaseLog:
    """One row per case: its features, its truth, and how much it counts."""

    features: pd.DataFrame
    label: Ints
    weight: Array
    classes: int = 2

    def __len__(self) -> int:
        return len(self.label)

    @property
    def target(self) -> Ints:
        """What is predicted."""
        return self.label

    @property
    def stratum(self) -> Ints:
        """All cases are calibrated together."""
        return np.zeros(len(self), np.int64)

    def take(self, rows: NDArray[np.bool_]) -> CaseLog:
        """Some of the cases."""
        return replace(self, features=self.features[rows], label=self.label[rows], weight=self.weight[rows])
