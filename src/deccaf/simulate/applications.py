"""Bank-account applications with the schema, the marginals, the drift and the dependences of BAF.

The generator is a chain of small conditional models. The month comes first; then, feature by feature
in a fixed order, the *bin* of the feature is drawn from

    P(bin = k | month, earlier features) ∝ exp(base[k] + score[k] · eta),   eta = codes @ weights

where every earlier feature enters by the code of its bin (one-hot for categories, segment indicators
and Legendre polynomials of the rank for numbers). A bin is a category level, a single value such as
the missing code -1, or an interval; inside an interval the value follows a short quantile table. At
last the label is drawn from a logistic model of all codes with an offset and a scale per month.

All constants are in ``world.json``, written by ``tools/fit_world.py`` from published facts about BAF
and a uniform sample of it: rates, quantiles and penalised coefficients, no data rows.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deccaf.errors import ConfigError
from deccaf.simulate.baf import CATEGORIES, COLUMNS, INTEGERS, LABEL, MONTH, MONTHS
from deccaf.threads import one_thread

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

BLOCK = 1 << 14
"""Rows drawn from one child seed; part of the definition of the output, so never tuned to `jobs`."""


@dataclass(frozen=True)
class Feature:
    """One link of the chain: its bins, how it depends on earlier ones, how later ones see it."""

    name: str
    nodes: Floats  # (bins, quantiles): equally spaced quantiles inside each bin
    base: Floats  # (bins,)
    score: Floats  # (bins, d)
    weights: Floats  # (columns of all earlier codes, d)
    code: Floats  # (bins, c)
    start: int  # first column of the code in the basis

    @property
    def stop(self) -> int:
        """One past the last column of the code in the basis."""
        return self.start + int(self.code.shape[1])

    def draw_bins(self, basis: Floats, rng: np.random.Generator) -> Ints:
        """Draw a bin for every row, given the codes of the earlier features in `basis`."""
        eta = basis[:, : self.start] @ self.weights
        logits = self.score @ eta.T + self.base[:, None]
        logits -= logits.max(axis=0)
        mass = np.exp(logits, out=logits)
        np.cumsum(mass, axis=0, out=mass)
        level = rng.random(len(eta), dtype=np.float32) * mass[-1]
        # The last bin is left out: rounding must never push a draw beyond it.
        bins: Ints = (mass[:-1] <= level).sum(axis=0, dtype=np.intp)
        return bins

    def draw_values(self, bins: Ints, rng: np.random.Generator) -> Floats | Ints:
        """Draw a value inside each row's bin; for categories the value is the bin itself."""
        if self.name in CATEGORIES:
            return bins.astype(np.int8)
        steps = self.nodes.shape[1] - 1
        place = rng.random(len(bins)) * steps
        step = place.astype(np.intp)
        flat = self.nodes.ravel()
        left = bins * (steps + 1) + step
        low = flat[left]
        value: Floats = low + (flat[left + 1] - low) * (place - step)
        return np.rint(value).astype(np.int64) if self.name in INTEGERS else value


@dataclass(frozen=True)
class Fraud:
    """P(fraud | features, month): logistic in the codes of all features."""

    weights: Floats  # (columns of the basis,)
    offset: Floats  # (months,)
    scale: Floats  # (months,)

    def index(self, basis: Floats) -> Floats:
        """Risk of each row before the month's offset and scale."""
        return (basis @ self.weights).astype(np.float64)

    def draw(self, basis: Floats, months: Ints, rng: np.random.Generator) -> Ints:
        """Draw the label of every row."""
        logit = self.offset[months] + self.scale[months] * self.index(basis)
        return (rng.random(len(months)) * (1.0 + np.exp(-logit)) < 1.0).astype(np.int64)


@dataclass(frozen=True)
class World:
    """The generator's constants, ready for arithmetic."""

    counts: Ints  # (months,) applications per million
    features: tuple[Feature, ...]
    fraud: Fraud
    width: int  # columns of the basis: the month's one-hot, then every feature's code

    @classmethod
    def parse(cls, text: str) -> World:
        """Read the constants from the text of ``world.json``."""
        raw = json.loads(text)
        codes: dict[str, slice] = {MONTH: slice(0, MONTHS)}
        features = []
        width = MONTHS
        for item in raw["features"]:
            features.append(_parse_feature(item, codes, width))
            codes[item["name"]] = slice(width, features[-1].stop)
            width = features[-1].stop
        fraud = _parse_fraud(raw["fraud"], codes, width)
        return cls(np.asarray(raw["applications"]), tuple(features), fraud, width)

    def months(self, rows: int) -> Ints:
        """Month of every row, in order: the published counts, scaled by largest remainders."""
        exact = rows * self.counts / self.counts.sum()
        counts = np.floor(exact).astype(np.int64)
        short = rows - int(counts.sum())
        counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
        return np.repeat(np.arange(MONTHS), counts)

    def draw_features(
        self, months: Ints, rng: np.random.Generator
    ) -> tuple[dict[str, Floats | Ints], Floats]:
        """Draw every column but the label for rows of the given months; also return their codes."""
        basis = np.zeros((len(months), self.width), dtype=np.float32)
        basis[np.arange(len(months)), months] = 1.0
        columns: dict[str, Floats | Ints] = {MONTH: months}
        for feature in self.features:
            bins = feature.draw_bins(basis, rng)
            columns[feature.name] = feature.draw_values(bins, rng)
            basis[:, feature.start : feature.stop] = feature.code[bins]
        return columns, basis

    def draw(self, months: Ints, rng: np.random.Generator) -> dict[str, Floats | Ints]:
        """Draw all columns for rows of the given months."""
        columns, basis = self.draw_features(months, rng)
        columns[LABEL] = self.fraud.draw(basis, months, rng)
        return columns


def _matrix(rows: Any) -> Floats:
    return np.asarray(rows, dtype=np.float32)


def _stack(parts: dict[str, Any], codes: dict[str, slice], width: int, outputs: int) -> Floats:
    """Weights of the named parents, at their places in the basis; other parents have none."""
    weights = np.zeros((width, outputs), dtype=np.float32)
    for parent, block in parts.items():
        weights[codes[parent]] = _matrix(block).reshape(-1, outputs)
    return weights


def _parse_feature(item: dict[str, Any], codes: dict[str, slice], start: int) -> Feature:
    score = _matrix(item["score"])
    size = max((len(b) for b in item["bins"] if isinstance(b, list)), default=2)
    nodes = [b if isinstance(b, list) else [b] * size for b in item["bins"]]
    if item["name"] in CATEGORIES:
        nodes = [[k] * size for k in range(len(nodes))]
    return Feature(
        name=item["name"],
        nodes=np.asarray(nodes, dtype=np.float64),
        base=_matrix(item["base"]),
        score=score,
        weights=_stack(item["weights"], codes, start, score.shape[1]),
        code=_matrix(item.get("code", item["score"])),
        start=start,
    )


def _parse_fraud(item: dict[str, Any], codes: dict[str, slice], width: int) -> Fraud:
    return Fraud(
        weights=_stack(item["weights"], codes, width, 1)[:, 0],
        offset=np.asarray(item["offset"]),
        scale=np.asarray(item["scale"]),
    )


@cache
def load_world() -> World:
    """Read the packaged constants, once."""
    return World.parse(resources.files(__package__).joinpath("world.json").read_text("utf-8"))


def generate_applications(rows: int = 1_000_000, *, seed: int = 0, jobs: int = 2) -> pd.DataFrame:
    """Generate bank-account applications in the layout of BAF's ``Base.csv``.

    Parameters
    ----------
    rows
        Number of applications, divided among the eight months as in BAF; ordered by month.
    seed
        The same `rows` and `seed` give the same table, whatever `jobs` is.
    jobs
        Threads to use.

    Returns
    -------
    The 32 columns of :data:`deccaf.simulate.baf.COLUMNS`: integers as ``int64``, numbers as
    ``float64``, strings as categories with the levels of :data:`deccaf.simulate.baf.CATEGORIES`.
    """
    if rows < 1:
        raise ConfigError(f"rows is {rows}; at least 1 application is needed")
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}; at least 1 thread is needed")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must not be negative")
    world = load_world()
    months = world.months(rows)
    starts = range(0, rows, BLOCK)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    table = _allocate(rows)

    def fill(start: int, child: np.random.SeedSequence) -> None:
        block = slice(start, start + BLOCK)
        for name, values in world.draw(months[block], np.random.default_rng(child)).items():
            table[name][block] = values

    # Many small products: threads of the BLAS under our own threads would only wait for each other.
    with one_thread(), ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(fill, starts, seeds):
            pass
    return _frame(table)


def _allocate(rows: int) -> dict[str, npt.NDArray[Any]]:
    """One array per column, in BAF's order, so that the blocks need no concatenation."""
    kinds: dict[str, type[np.generic]] = {c: np.int64 if c in INTEGERS else np.float64 for c in COLUMNS}
    kinds |= dict.fromkeys(CATEGORIES, np.int8)
    return {name: np.zeros(rows, dtype=kind) for name, kind in kinds.items()}


def _frame(table: dict[str, npt.NDArray[Any]]) -> pd.DataFrame:
    columns: dict[str, Any] = dict(table)
    for name, levels in CATEGORIES.items():
        columns[name] = pd.Categorical.from_codes(table[name], categories=pd.Index(levels))
    return pd.DataFrame(columns, copy=False)
