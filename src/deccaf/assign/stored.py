"""Matrices that are larger than memory: in files, read by blocks of rows.

A `StoredMatrix` is indexed as the solver indexes an array (blocks, samples of rows, single cells, a column);
what it gives is an array in memory. Reading, not mapping, keeps the process as small as its buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deccaf.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WINDOW = 4096  # rows that are read at once
GAP_BYTES = 1 << 17  # between two wanted rows: to read less along with them is quicker than another call


class Mask(Protocol):
    """Who may do what: an array, or something that is indexed like one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...


class Matrix(Mask, Protocol):
    """Losses: an array, or something that is indexed like one."""

    @property
    def size(self) -> int:
        """Cells."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the cells."""


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """Rows of `width` floats, in files that follow each other."""

    parts: tuple[Path, ...]
    ends: Ints
    """The row after the last of each file."""
    width: int
    rows: Ints | None = field(default=None, repr=False)
    """The rows that count, in order, where these are not all."""

    @classmethod
    def of(cls, parts: Sequence[Path], width: int) -> StoredMatrix:
        """Whole rows of float64 in every file."""
        counts = []
        for part in parts:
            rows, rest = divmod(part.stat().st_size, 8 * width)
            if rest:
                raise DataError(f"{part}: does not hold whole rows of {width} numbers; remove it")
            counts.append(rows)
        return cls(tuple(parts), np.cumsum(counts, dtype=np.int64), width)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self.width

    @property
    def size(self) -> int:
        """Cells."""
        return len(self) * self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        """Double precision."""
        return np.dtype(np.float64)

    def __len__(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return int(self.ends[-1]) if len(self.ends) else 0

    def subset(self, rows: Ints) -> StoredMatrix:
        """Some of the rows, in order."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def __getitem__(self, key: Any, /) -> Any:
        if isinstance(key, tuple):
            rows, columns = key
            if isinstance(rows, slice):
                return np.concatenate(
                    [block[:, columns] for _, block in self._windows(rows)] or [np.empty(0)]
                )
            return self._cells(np.asarray(rows), np.asarray(columns))
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1 and self.rows is None:
                return self._block(start, max(stop, start))
            key = np.arange(start, stop, step)
        return self._taken(self._stored(np.asarray(key)))

    def _stored(self, rows: Ints) -> Ints:
        return rows if self.rows is None else self.rows[rows]

    def _windows(self, rows: slice) -> Iterator[tuple[int, Floats]]:
        start, stop, _ = rows.indices(len(self))
        for at in range(start, stop, WINDOW):
            yield at, self[at : min(at + WINDOW, stop)]

    def _block(self, start: int, stop: int) -> Floats:
        """Rows that follow each other in the files."""
        out = np.empty((stop - start, self.width))
        place = int(np.searchsorted(self.ends, start, side="right"))
        at = start
        while at < stop:
            first = int(self.ends[place - 1]) if place else 0
            until = min(stop, int(self.ends[place]))
            with self.parts[place].open("rb", buffering=0) as file:
                file.seek(8 * self.width * (at - first))
                _fill(file, out[at - start : until - start], self.parts[place])
            at, place = until, place + 1
        return out

    def _taken(self, rows: Ints) -> Floats:
        """Any rows, in any order."""
        if len(rows) > 1 and not (np.diff(rows) >= 0).all():
            order = np.argsort(rows, kind="stable")
            result = np.empty((len(rows), self.width))
            result[order] = self._taken(rows[order])
            return result
        result = np.empty((len(rows), self.width))
        for part in _runs(rows, self.width):
            near = rows[part]
            block = self._block(int(near[0]), int(near[-1]) + 1)
            result[part] = block if len(block) == len(near) else block[near - near[0]]
        return result

    def _cells(self, rows: Ints, columns: Ints) -> Any:
        if rows.ndim == 0:
            return self._taken(self._stored(rows[None]))[0, int(columns)]
        rows = self._stored(rows)
        if len(rows) > 1 and not (np.diff(rows) >= 0).all():
            order = np.argsort(rows, kind="stable")
        else:
            order = np.arange(len(rows))
        rows, columns = rows[order], np.broadcast_to(columns, rows.shape)[order]
        result = np.empty(len(rows))
        for part in _runs(rows, self.width):
            near = rows[part]
            block = self._block(int(near[0]), int(near[-1]) + 1)
            result[order[part]] = block[near - near[0], columns[part]]
        return result


@dataclass(frozen=True, eq=False)
class StoredMask:
    """Who may do what, beside a stored matrix: where losses are finite, and not barred.

    `listed` are the rows, in order, that `allowed` has a row for; elsewhere everybody may.
    """

    matrix: StoredMatrix
    listed: Ints
    allowed: Bools

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.matrix.shape

    def __len__(self) -> int:
        return len(self.matrix)

    def subset(self, rows: Ints) -> StoredMask:
        """Some of the rows, in order."""
        place = np.searchsorted(rows, self.listed)
        kept = np.flatnonzero(rows[np.minimum(place, len(rows) - 1)] == self.listed)
        return StoredMask(self.matrix.subset(rows), place[kept], self.allowed[kept])

    def __getitem__(self, key: Any, /) -> Bools:
        found: Bools = np.asarray(np.isfinite(self.matrix[key]))
        if not len(self.listed):
            return found
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        asked = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        place = np.minimum(np.searchsorted(self.listed, asked), len(self.listed) - 1)
        here = np.flatnonzero(self.listed[place] == asked)
        if isinstance(columns, np.ndarray):
            found[here] &= self.allowed[place[here], columns[here]]
        else:
            found[here] &= self.allowed[place[here]][:, columns]
        return found


def _fill(file: Any, out: Floats, path: Path) -> None:
    """Read until the buffer is full."""
    view = memoryview(out.reshape(-1).view(np.uint8).data)
    while len(view):
        count = file.readinto(view)
        if not count:
            raise DataError(f"{path}: ends too early; remove it")
        view = view[count:]


def _runs(rows: Ints, width: int) -> Iterator[slice]:
    """Parts of sorted rows that are read at once: near each other, and not too many."""
    if not len(rows):
        return
    far = np.flatnonzero(np.diff(rows) > GAP_BYTES // (8 * width)) + 1
    for first, last in zip([0, *far.tolist()], [*far.tolist(), len(rows)], strict=True):
        at = first
        while at < last:
            until = int(np.searchsorted(rows[at:last], rows[at] + WINDOW)) + at
            yield slice(at, until)
            at = until
