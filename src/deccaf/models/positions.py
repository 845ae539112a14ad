"""Where values stand among a few hundred edges: what `np.searchsorted` says, many times as fast.

The range of the edges is cut into thousands of cells of one width. A value's cell is a product and a rounding
away; all edges of the cells before it lie below the value, and it is compared with those of its own cell, one
or two. Cells rise with the value, so the answer is exact. Where a long tail would make the cells too wide,
they cover the range without its ends, and what lies there is searched for as usual.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.intp]

_CELLS = 4_096
_CROWD = 2
"""Edges of one cell, at most."""
_ENDS = (0.0, 0.02, 0.05, 0.15)
"""Share of the edges at either end that the cells need not cover: the first with which no cell is crowded."""


class Positions:
    """How many of the sorted `edges` lie below a value, or, with `upto`, at or below it."""

    def __init__(self, edges: Array, *, upto: bool = False) -> None:
        self.edges, self._upto = edges, upto
        self._own: list[Array] = []
        """The first edge of every cell, the second...; NaN, which nothing is beyond, where there is none."""
        for share in _ENDS if len(edges) > 1 else ():
            if self._cut(int(share * len(edges))):
                break

    def _cut(self, ends: int) -> bool:
        """Cells without so many edges at either end; whether none of them is crowded."""
        low, high = float(self.edges[ends]), float(self.edges[-1 - ends])
        with np.errstate(over="ignore"):
            self._low, self._scale = low, _CELLS / np.float64(high - low)
        if not (0.0 < high - low < np.inf and np.isfinite(self._scale)):
            return False
        count = np.bincount(self._cells(self.edges), minlength=_CELLS + 3)
        if count[1:-1].max() > _CROWD:
            return False
        most = int(count[1:-1].max())
        self._far = max(count[0], count[-1]) > most
        self._before: Places = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.intp)
        for k in range(most):
            own = np.full(len(count), np.nan)
            own[count > k] = self.edges[self._before[count > k] + k]
            self._own.append(own)
        return True

    def of(self, values: Array) -> Places:
        """One for each value; anything for NaN."""
        if not self._own:
            return self._searched(values)
        cell = self._cells(values)
        found = self._before.take(cell)
        beyond = np.greater_equal if self._upto else np.greater
        for own in self._own:
            found += beyond(values, own.take(cell))
        if self._far:
            far = np.flatnonzero((cell == 0) | (cell == _CELLS + 2))
            found[far] = self._searched(values[far])
        return found

    def _searched(self, values: Array) -> Places:
        return np.searchsorted(self.edges, values, "right" if self._upto else "left")

    def _cells(self, values: Array) -> Places:
        """From 1 on; 0 and the last one hold what lies before and behind."""
        with np.errstate(over="ignore"):
            scaled = values - self._low
            scaled *= self._scale
        scaled += 1.0
        np.fmax(scaled, 0.0, out=scaled)
        return np.minimum(scaled, _CELLS + 2, out=scaled).astype(np.intp)
