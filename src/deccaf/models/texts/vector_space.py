"""Vectors as numbers: every place scaled to mean 0 and deviation 1, then the leading principal components.

One column more says how far a vector lies from those learned from (the root mean square of its scaled
places, about 1 for a usual one). A missing vector stands at 0, and its distance is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.vectors import LONGEST_VECTOR, stacked_vectors
from deccaf.errors import DataError, ModelFileError

Array = NDArray[np.float64]

DIRECTIONS = 32
MOST_VECTORS = 20_000
"""A space is learned from so many vectors, drawn at random where there are more."""
DISTANCE = "distance"


@dataclass(frozen=True, eq=False)
class VectorSpace:
    """Mean and deviation of every place, and the directions (directions, width)."""

    name: str
    mean: Array
    deviation: Array
    directions: Array

    @classmethod
    def fit(cls, vectors: pd.Series, width: int, seed: int) -> VectorSpace:
        """Learn from vectors; places that never differ are left as they are."""
        present = vectors.dropna()
        if present.empty:
            raise DataError(f"column {vectors.name!r}: all vectors are missing")
        if len(present) > MOST_VECTORS:
            present = present.sample(MOST_VECTORS, random_state=seed).sort_index(kind="stable")
        matrix, _ = stacked_vectors(present, width)
        deviation = matrix.std(axis=0)
        deviation[deviation < 1e-12] = 1.0
        mean = matrix.mean(axis=0)
        size = min(DIRECTIONS, int((matrix != mean).any(axis=0).sum()), len(matrix) - 1)
        directions = np.zeros((0, width))
        if size > 0:
            from sklearn.decomposition import PCA

            directions = PCA(size, random_state=seed).fit((matrix - mean) / deviation).components_
        return cls(str(vectors.name), mean, deviation, np.ascontiguousarray(directions))

    @property
    def columns(self) -> list[str]:
        """The distance, then the directions."""
        return [f"{self.name}[{part}]" for part in (DISTANCE, *(k + 1 for k in range(len(self.directions))))]

    @property
    def familiar(self) -> str:
        """The column that tells how like those learned from a vector is."""
        return f"{self.name}[{DISTANCE}]"

    @property
    def told(self) -> list[str]:
        """The columns that mean something to people."""
        return [self.familiar]

    def transform(self, values: pd.Series) -> Array:
        """(cases, columns)."""
        matrix, missing = stacked_vectors(values, len(self.mean))
        scaled = (matrix - self.mean) / self.deviation
        found = np.column_stack([np.sqrt((scaled**2).mean(axis=1)), scaled @ self.directions.T])
        found[missing] = 0.0
        found[missing, 0] = np.nan
        return found

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "kind": "vector",
            "mean": self.mean,
            "deviation": self.deviation,
            "directions": self.directions,
        }

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any]) -> VectorSpace:
        """Rebuild what `to_dict` gave; what no space can be is a `ModelFileError`."""
        mean, deviation, directions = data["mean"], data["deviation"], data["directions"]
        shaped = mean.ndim == 1 and 1 <= len(mean) <= LONGEST_VECTOR and deviation.shape == mean.shape
        if not shaped or directions.ndim != 2 or directions.shape[1] != len(mean):
            raise ModelFileError(f"the space of {name!r} has parts of different shapes")
        if len(directions) > DIRECTIONS or not (deviation > 0).all():
            raise ModelFileError(f"the space of {name!r} has too many directions, or deviations not above 0")
        return cls(name, mean, deviation, directions)
