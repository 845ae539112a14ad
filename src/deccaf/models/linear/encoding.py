"""Features as columns of numbers, for linear models and for trees."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.rows import CaseRows
from deccaf.data.schema import require_columns
from deccaf.models.positions import Positions

Array = NDArray[np.float64]
_KNOTS = 256
_CLIP = 5.0
_MANY = 2_000
"""Values from which on it pays to prepare for finding their knots."""
_FEW = 16
"""Cases up to which they are encoded value by value."""
_KNOWN: ContextVar[dict[tuple[int, int], tuple[Any, Any, Array]] | None] = ContextVar("known", default=None)


@contextmanager
def encoded_once() -> Iterator[None]:
    """Within it, what the same encoder makes of the same table is made once; neither may change meanwhile."""
    before = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(before)


@dataclass(frozen=True)
class _Number:
    """A number enters by its rank and, where it takes more than two values, by its size as well.

    Ranks make features comparable and tame heavy tails; the standardised size keeps what a rank loses (how
    far out in the tail a score lies).
    """

    name: str
    knots: Array
    ranks: Array
    mean: float
    deviation: float
    missing: float
    """Share of the training values that were missing."""

    @classmethod
    def fit(cls, values: Array, name: str) -> _Number:
        known = np.sort(values[~np.isnan(values)])
        if not len(known):
            return cls(name, np.zeros(1), np.zeros(1), 0.0, 0.0, 1.0)
        distinct = np.unique(known)
        if len(distinct) > _KNOTS:
            places = np.linspace(0, len(known) - 1, _KNOTS).round().astype(np.int64)
            distinct = np.unique(known[places])
        below, upto = np.searchsorted(known, distinct, "left"), np.searchsorted(known, distinct, "right")
        ranks = (below + upto) / (2 * len(known)) - 0.5
        missing = 1.0 - len(known) / len(values)
        spread = float(known.std()) if len(distinct) > 1 else 0.0
        return cls(name, distinct, ranks, float(known.mean()), spread, missing)

    def columns(self, values: Array) -> list[Array]:
        unknown = np.isnan(values)
        blocks = []
        if len(self.knots) > 1:
            blocks.append(np.where(unknown, 0.0, self._rank(values)))
        if len(self.knots) > 2 and self.deviation > 0:
            size = np.clip((values - self.mean) / self.deviation, -_CLIP, _CLIP)
            blocks.append(np.where(unknown, 0.0, size))
        if 0 < self.missing < 1:
            blocks.append(unknown - self.missing)
        return blocks

    def _rank(self, values: Array) -> Array:
        """What np.interp gives between the knots, to the last bit."""
        positions, slopes = self._between if len(values) >= _MANY else (None, None)
        if positions is None or slopes is None:
            return np.asarray(np.interp(values, self.knots, self.ranks))
        inside = np.clip(values, self.knots[0], self.knots[-1])
        knot = np.clip(positions.of(inside) - 1, 0, len(slopes) - 1)
        inside -= self.knots.take(knot)
        inside *= slopes.take(knot)
        inside += self.ranks.take(knot)
        return inside

    @cached_property
    def _between(self) -> tuple[Positions | None, Array | None]:
        """To find the knot at or before a value, and the slope behind each; None: no float holds it."""
        with np.errstate(over="ignore"):
            slopes = np.append(np.diff(self.ranks) / np.diff(self.knots), 0.0)
        return (Positions(self.knots, upto=True), slopes) if np.isfinite(slopes).all() else (None, None)

    def row(self, value: float, knots: list[float], ranks: list[float]) -> list[float]:
        """`columns` for one value, given the arrays as lists."""
        unknown = value != value
        out = []
        if len(knots) > 1:
            out.append(0.0 if unknown else _interpolated(value, knots, ranks))
        if len(knots) > 2 and self.deviation > 0:
            size = (value - self.mean) / self.deviation
            out.append(0.0 if unknown else min(max(size, -_CLIP), _CLIP))
        if 0 < self.missing < 1:
            out.append(unknown - self.missing)
        return out

    def to_dict(self) -> dict[str, Any]:
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**plain, "knots": self.knots.tolist(), "ranks": self.ranks.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Number:
        arrays = {name: np.asarray(data[name], np.float64) for name in ("knots", "ranks")}
        return cls(**{**data, **arrays})


@dataclass(frozen=True)
class _Category:
    """A category enters by one centred column for each level that is not too rare."""

    name: str
    levels: tuple[str, ...]
    shares: Array

    @classmethod
    def fit(cls, values: pd.Series, rarest: int) -> _Category:
        counts = values.value_counts()
        levels = tuple(str(level) for level in values.cat.categories if counts[level] >= rarest)
        return cls(str(values.name), levels, np.array([counts[level] / len(values) for level in levels]))

    def columns(self, codes: NDArray[np.int64]) -> list[Array]:
        return [(codes == k) - share for k, share in enumerate(self.shares)]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "levels": list(self.levels), "shares": self.shares.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Category:
        return cls(data["name"], tuple(data["levels"]), np.asarray(data["shares"], np.float64))


class LinearEncoder:
    """Turn a table of numbers (float64) and categories into a matrix of centred columns.

    Parameters
    ----------
    rarest
        Levels with fewer training cases get no column of their own.

    Attributes
    ----------
    parts_ : one encoding per feature, in order
    groups_ : for each column of the matrix, which kind of column of which feature it is; a model shrinks
        the columns of one group alike
    """

    def __init__(self, rarest: int = 20) -> None:
        self.rarest = rarest

    def fit(self, features: pd.DataFrame) -> LinearEncoder:
        """Learn ranks, sizes and levels."""
        parts: list[_Number | _Category] = []
        for name in features.columns:
            if isinstance(features[name].dtype, pd.CategoricalDtype):
                parts.append(_Category.fit(features[name], self.rarest))
            else:
                parts.append(_Number.fit(features[name].to_numpy(np.float64), str(name)))
        return self._set(parts)

    def transform(self, features: pd.DataFrame | CaseRows) -> Array:
        """One row per case; unknown values and levels stand at the centre."""
        known = _KNOWN.get()
        if known is None:
            return self._encoded(features)
        key = (id(self), id(features))
        if key not in known:  # with both, so that neither id is given again
            known[key] = (self, features, self._encoded(features))
        return known[key][2]

    def _encoded(self, features: pd.DataFrame | CaseRows) -> Array:
        if isinstance(features, CaseRows):
            if len(features) <= _FEW:
                return self._few(features)
        else:
            require_columns(features, [part.name for part in self.parts_])
        blocks = [block for part in self.parts_ for block in _columns(part, features)]
        return np.column_stack(blocks) if blocks else np.zeros((len(features), 0))

    @property
    def widths(self) -> list[int]:
        """How many columns each feature has."""
        return [
            len(part.levels) if isinstance(part, _Category) else len(part.columns(np.zeros(0)))
            for part in self.parts_
        ]

    def only(self, features: Sequence[int]) -> LinearEncoder:
        """The same for some of the features, by position."""
        return LinearEncoder(self.rarest)._set([self.parts_[place] for place in features])

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain lists, for a file."""
        return [part.to_dict() for part in self.parts_]

    @classmethod
    def from_dict(cls, data: Sequence[Mapping[str, Any]]) -> LinearEncoder:
        """Rebuild what `to_dict` gave."""
        return cls()._set(
            [_Category.from_dict(item) if "levels" in item else _Number.from_dict(item) for item in data]
        )

    def _few(self, features: CaseRows) -> Array:
        """The same matrix for a few cases, value by value: a call of NumPy costs more than a value here."""
        rows: list[list[float]] = [[] for _ in range(len(features))]
        for part, (knots, ranks) in zip(self.parts_, self._lists, strict=True):
            if isinstance(part, _Category):
                for row, code in zip(rows, features.places(part.name, part.levels).tolist(), strict=True):
                    row += [(code == k) - share for k, share in enumerate(ranks)]
            else:
                for row, value in zip(rows, features.numbers(part.name).tolist(), strict=True):
                    row += part.row(value, knots, ranks)
        return np.array(rows, np.float64).reshape(len(rows), len(self.groups_))

    def _set(self, parts: Sequence[_Number | _Category]) -> LinearEncoder:
        self.parts_ = list(parts)
        self._lists = [
            ([], part.shares.tolist())
            if isinstance(part, _Category)
            else (part.knots.tolist(), part.ranks.tolist())
            for part in parts
        ]
        groups: list[int] = []
        for part in parts:
            first = max(groups, default=-1) + 1
            if isinstance(part, _Category):
                groups += [first] * len(part.levels)
            else:
                groups += range(first, first + len(part.columns(np.zeros(0))))
        self.groups_ = np.array(groups, np.int64)
        return self


class TreeEncoder:
    """Features as one float matrix for trees: categories by the place of their level, unknown as missing.

    The levels are those of the training table, whatever order a later table lists them in.
    """

    def fit(self, features: pd.DataFrame) -> TreeEncoder:
        """Remember names and levels."""
        self.levels_: dict[str, list[str] | None] = {
            str(name): [str(level) for level in features[name].cat.categories]
            if isinstance(features[name].dtype, pd.CategoricalDtype)
            else None
            for name in features.columns
        }
        return self

    @property
    def categorical(self) -> list[int]:
        """Positions of the columns that are categories."""
        return [place for place, levels in enumerate(self.levels_.values()) if levels is not None]

    def transform(self, features: pd.DataFrame | CaseRows, extra: int = 0) -> Array:
        """One row per case, with `extra` empty columns at the end for what a model adds."""
        if not isinstance(features, CaseRows):
            require_columns(features, list(self.levels_))
        matrix = np.empty((len(features), len(self.levels_) + extra))
        for place, (name, levels) in enumerate(self.levels_.items()):
            if levels is None:
                matrix[:, place] = _numbers(features, name)
            else:
                codes = _codes(features, name, levels)
                matrix[:, place] = np.where(codes < 0, np.nan, codes)
        return matrix

    def to_dict(self) -> dict[str, Any]:
        """Names and levels, for a file."""
        return {"levels": self.levels_}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TreeEncoder:
        """Rebuild what `to_dict` gave."""
        encoder = cls()
        encoder.levels_ = dict(data["levels"])
        return encoder


def _interpolated(value: float, knots: list[float], ranks: list[float]) -> float:
    """What np.interp gives."""
    after = bisect_right(knots, value)
    if after == 0:
        return ranks[0]
    if after == len(knots) or knots[after - 1] == value:
        return ranks[after - 1]
    slope = (ranks[after] - ranks[after - 1]) / (knots[after] - knots[after - 1])
    return slope * (value - knots[after - 1]) + ranks[after - 1]


def _columns(part: _Number | _Category, features: pd.DataFrame | CaseRows) -> list[Array]:
    if isinstance(part, _Category):
        return part.columns(_codes(features, part.name, part.levels))
    return part.columns(_numbers(features, part.name))


def _numbers(features: pd.DataFrame | CaseRows, name: str) -> Array:
    if isinstance(features, CaseRows):
        return features.numbers(name)
    return features[name].to_numpy(np.float64)


def _codes(features: pd.DataFrame | CaseRows, name: str, levels: Sequence[str]) -> NDArray[np.int64]:
    """Position of each value among the levels, -1 where it is none of them."""
    if isinstance(features, CaseRows):
        return features.places(name, levels)
    values, known = features[name], pd.Index(list(levels), dtype=object)
    if isinstance(values.dtype, pd.CategoricalDtype):
        places = known.get_indexer(pd.Index(values.cat.categories.astype(object)))
        codes = values.cat.codes.to_numpy()
        return np.where(codes < 0, -1, np.append(places, -1)[codes]).astype(np.int64)
    return known.get_indexer(pd.Index(values.astype(object))).astype(np.int64)
