"""Bins of a feature, their quantiles, and the codes by which other features see them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from deccaf.simulate.baf import CATEGORIES, INTEGERS
from worldfit.specs import Spec

STEPS = 4  # quantile steps inside a bin


@dataclass
class Link:
    """A feature under construction; `to_json` is its final form."""

    spec: Spec
    edges: np.ndarray  # bin k is [edges[k], edges[k+1])
    nodes: np.ndarray
    score: np.ndarray
    code: np.ndarray
    base: np.ndarray = field(default_factory=lambda: np.zeros(0))
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Bin of each value."""
        last = len(self.edges) - 2
        return np.clip(np.searchsorted(self.edges, values, side="right") - 1, 0, last)

    @property
    def middle(self) -> np.ndarray:
        """Mean value inside each bin."""
        return (self.nodes[:, :-1] + self.nodes[:, 1:]).mean(axis=1) / 2

    def to_json(self) -> dict[str, Any]:
        """The feature as ``world.json`` has it."""
        categorical = self.spec.name in CATEGORIES
        bins: list[Any] = list(CATEGORIES.get(self.spec.name, ()))
        if not categorical:
            bins = [
                significant(row[0], 17) if np.ptp(row) == 0 else [significant(v, 6) for v in row]
                for row in self.nodes
            ]
        item = {
            "name": self.spec.name,
            "bins": bins,
            "base": rounded(self.base),
            "score": rounded(self.score),
        }
        if self.code is not self.score:
            item["code"] = rounded(self.code)
        item["weights"] = {k: rounded(w) for k, w in self.weights.items()}
        return item


def significant(value: float, digits: int) -> float:
    """`value` rounded to significant digits."""
    return float(f"{value:.{digits}g}")


def rounded(array: np.ndarray) -> Any:
    """Nested lists of three decimals; adding zero turns -0.0 into 0.0."""
    return (np.round(np.asarray(array, dtype=float), 3) + 0.0).tolist()


def build(spec: Spec, values: np.ndarray, low: float, high: float) -> Link:
    """Cut a feature into bins and code them; `low` and `high` are the published ends of its range."""
    if spec.name in CATEGORIES:
        spec = replace(spec, levels=tuple(map(float, range(len(CATEGORIES[spec.name])))))
    if spec.levels:
        levels = np.asarray(spec.levels)
        middle = (levels[1:] + levels[:-1]) / 2
        edges = np.concatenate([[-np.inf], middle, [np.inf]])
        nodes = np.repeat(levels[:, None], STEPS + 1, axis=1)
    else:
        edges, nodes = quantile_bins(spec, values, low, high)
    link = Link(spec, edges, nodes, np.zeros(0), np.zeros(0))
    share = np.bincount(link.encode(values), minlength=len(nodes)) + 0.3
    share = share / share.sum()
    middles = nodes.mean(axis=1)
    smooth = polynomials(spec, middles, share)
    if spec.one_hot:
        link.score = np.delete(np.eye(len(nodes)), int(share.argmax()), axis=1)
        link.code = link.score if spec.levels else smooth
    else:
        link.score = link.code = smooth
    link.base = np.log(share)
    return link


def spread(values: np.ndarray) -> np.ndarray:
    """Sorted values; ties of an integer v are spread evenly over (v - 0.5, v + 0.5)."""
    levels, counts = np.unique(values, return_counts=True)
    place = np.concatenate([(np.arange(c) + 0.5) / c - 0.5 for c in counts])
    return np.repeat(levels, counts) + place


def quantile_bins(spec: Spec, values: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Bins of similar mass inside each segment, thinner at the ends of the range."""
    whole = spec.name in INTEGERS
    ordered = spread(values) if whole else np.sort(values)
    low, high = (low - 0.5, high + 0.5) if whole else (low, high)
    borders = np.concatenate([[low], spec.cuts, [high]])
    edges = [low]
    for left, right in itertools.pairwise(borders):
        part = ordered[(ordered >= left) & (ordered < right)]
        count = max(1, round(spec.bins * len(part) / len(ordered)))
        inner = np.linspace(0, 1, count + 1)[1:-1]
        if count >= 6:
            inner = np.union1d(inner, [0.01, 0.99, 0.35 / count, 1 - 0.35 / count])
        inner = inner[(inner * len(part) >= 15) & ((1 - inner) * len(part) >= 15)]
        cut = np.quantile(part, inner) if len(inner) else np.zeros(0)
        if whole:
            cut = np.unique(np.floor(cut) + 0.5)
        edges += [c for c in cut if left < c < right] + [right]
    bounds = np.unique(edges)
    return bounds, np.asarray([bin_nodes(spec, ordered, a, b) for a, b in itertools.pairwise(bounds)])


def bin_nodes(spec: Spec, ordered: np.ndarray, left: float, right: float) -> np.ndarray:
    """Quantiles of the values inside [left, right); constant for a bin with a single value."""
    part = ordered[(ordered >= left) & (ordered < right)]
    if spec.name in INTEGERS and right - left == 1:
        return np.full(STEPS + 1, (left + right) / 2)
    if len(part) and np.ptp(part) == 0:
        return np.full(STEPS + 1, part[0])
    shares = np.linspace(0, 1, STEPS + 1)
    nodes = np.quantile(part, shares) if len(part) else left + (right - left) * shares
    # A cut stands in an empty valley: beside it a bin ends where the data does, elsewhere at its edge.
    nodes[0] = nodes[0] if left in spec.cuts else left
    nodes[-1] = nodes[-1] if right in spec.cuts else right
    return nodes


def polynomials(spec: Spec, middles: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Segment indicators and, inside each segment, Legendre polynomials of the rank, unit variance."""
    segment = np.searchsorted(np.asarray(spec.cuts), middles)
    columns = []
    for s in range(len(spec.cuts) + 1):
        inside = segment == s
        mass = share[inside].sum()
        if s and inside.any():
            columns.append(inside.astype(float))
        degree = (
            0
            if inside.sum() < 2
            else spec.degree
            if mass > 0.3
            else 2
            if mass > 0.1
            else 1
            if mass > 0.02
            else 0
        )
        degree = min(degree, int(inside.sum()) - 1)
        weight = np.where(inside, share, 0)
        rank = 2 * (np.cumsum(weight) - weight / 2) / max(mass, 1e-12) - 1
        for d in range(1, degree + 1):
            columns.append(np.where(inside, np.polynomial.legendre.Legendre.basis(d)(rank), 0.0))
    matrix = np.stack(columns, axis=1)
    matrix -= share @ matrix
    return matrix / np.sqrt(share @ matrix**2)


def as_numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    """A column as numbers; categories by their position among the levels."""
    if name in CATEGORIES:
        return pd.Categorical(table[name], categories=list(CATEGORIES[name])).codes.astype(float)
    return table[name].to_numpy(dtype=float)
