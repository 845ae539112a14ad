"""Who errs together: the dependence of decisions on the same case, given its truth and its features.

Where two makers decided the same cases with a known truth, each pair gets

- a *test* of independence: the errors that came less those that were expected, multiplied and summed over the
shared
  cases, against what chance alone would bring (a score test; p-values are Holm's over all pairs);
- a *correlation* of their latent difficulties (`deccaf.data.together`), by the likelihood of who was wrong
where.

Few shared cases say little, so correlations are shrunk towards the mean of their kind (two machines, a
machine and a person, two people), and that towards 0, as far as the pairs allow: the mean over all means and
spreads, each as likely as it makes the log. Pairs who never shared a case have the mean of their kind. What
is below 0 counts as 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from deccaf.data.together import CLOSEST, both_wrong

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST = 10
"""Cases that a pair must share to be shown."""
SURE = 0.01
"""A pair whose corrected p-value lies below this is said to err together."""
_GRID = np.sin(np.linspace(-0.65, np.arcsin(CLOSEST), 40))
"""Correlations that are tried."""
_MEANS = np.linspace(-0.4, 2.0, 25)
"""Of atanh(r), over pairs of one kind."""
_SPREADS = (0.05, 0.2, 0.5, 1.2)
_DOUBT = 0.35
"""How far from 0 the mean of a kind is expected to be, beforehand."""
_MOST_ROWS = 4_000
"""Shared cases of a pair that are looked at: more change nothing."""


@dataclass(frozen=True)
class Pair:
    """Two makers who decided the same cases."""

    first: str
    second: str
    cases: int
    both_wrong: int
    expected: float
    """How often both would have been wrong if their errors were independent."""
    correlation: float
    p_value: float
    """Of independence, corrected for the number of pairs."""


@dataclass(frozen=True, eq=False)
class Dependence:
    """How the errors of some makers go together."""

    experts: tuple[str, ...]
    table: Array
    """(experts, experts): correlations, 1 on the diagonal."""
    pairs: tuple[Pair, ...]
    """Those who shared enough cases, the most dependent first."""
    kinds: Mapping[str, float]
    """The mean correlation of a pair of each kind; also for somebody never seen."""
    machines: frozenset[str] = frozenset()

    @classmethod
    def learn(
        cls,
        experts: Sequence[str],
        case: Ints,
        expert: Ints,
        wrong: NDArray[np.bool_],
        error: Array,
        machines: Collection[str] = (),
    ) -> Dependence | None:
        """From one row per decision: its case, who decided, whether it was wrong, and how likely that was.

        None: no two makers decided the same case.
        """
        rows = pd.DataFrame({"case": case, "expert": expert, "wrong": wrong, "error": error})
        rows = rows.drop_duplicates(["case", "expert"], keep="last")
        rows = rows[rows["case"].duplicated(keep=False)]
        if not len(rows):
            return None
        by = {
            j: rows[rows["expert"] == j].set_index("case")[["wrong", "error"]]
            for j in np.unique(rows["expert"].to_numpy()).tolist()
        }
        found: dict[tuple[int, int], tuple[Array, Pair]] = {}
        for j, k in combinations(sorted(by), 2):
            shared = by[j].add_suffix("_j").join(by[k].add_suffix("_k"), how="inner")
            if len(shared):
                found[j, k] = _evidence(shared, experts[j], experts[k])
        if not found:
            return None
        named = frozenset(machines)
        table, kinds = _estimated(found, experts, named)
        shown = [(jk, pair) for jk, (_, pair) in found.items() if pair.cases >= FEWEST]
        corrected = _holm([pair.p_value for _, pair in shown])
        pairs = [
            Pair(**{**asdict(pair), "correlation": float(table[jk]), "p_value": p})
            for (jk, pair), p in zip(shown, corrected, strict=True)
        ]
        pairs.sort(key=lambda pair: (-pair.correlation, pair.first, pair.second))
        return cls(tuple(experts), table, tuple(pairs), kinds, named)

    def among(self, makers: Sequence[str]) -> Array:
        """(makers, makers): correlations; of somebody never seen the mean of their kind."""
        place = {name: j for j, name in enumerate(self.experts)}
        out = np.eye(len(makers))
        for a, b in combinations(range(len(makers)), 2):
            first, second = makers[a], makers[b]
            if first in place and second in place:
                r = float(self.table[place[first], place[second]])
            else:
                r = self.kinds.get(_kind(first, second, self.machines), 0.0)
            out[a, b] = out[b, a] = r
        return out

    def frame(self) -> pd.DataFrame:
        """One row per pair, for people."""
        return pd.DataFrame([asdict(pair) for pair in self.pairs], columns=list(Pair.__dataclass_fields__))

    def lines(self, most: int = 5) -> list[str]:
        """Sentences for people: who errs together beyond chance, or that nobody does."""
        sure = [pair for pair in self.pairs if pair.p_value < SURE and pair.correlation > 0]
        if not self.pairs:
            return []
        if not sure:
            return [
                f"errors go together no more than chance brings about ({len(self.pairs)} pairs who "
                "decided the same cases)"
            ]
        said = [
            f"{pair.first} and {pair.second} err together: both wrong on {pair.both_wrong:,} of "
            f"{pair.cases:,} cases, {pair.expected:,.1f} expected (correlation {pair.correlation:.2f})"
            for pair in sure[:most]
        ]
        more = len(sure) - most
        return [*said, f"and {more} more pairs who do"] if more > 0 else said

    def to_dict(self) -> dict[str, Any]:
        """Numbers, names and arrays, for a file."""
        return {
            "experts": list(self.experts),
            "table": self.table,
            "pairs": [asdict(pair) for pair in self.pairs],
            "kinds": dict(self.kinds),
            "machines": sorted(self.machines),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Dependence:
        """Rebuild what `to_dict` gave."""
        return cls(
            tuple(data["experts"]),
            np.asarray(data["table"], np.float64),
            tuple(Pair(**pair) for pair in data["pairs"]),
            {str(name): float(value) for name, value in data["kinds"].items()},
            frozenset(data["machines"]),
        )


def _evidence(shared: pd.DataFrame, first: str, second: str) -> tuple[Array, Pair]:
    """Log-likelihood of every correlation of the grid, and the pair with the p-value of independence."""
    wrong = shared[["wrong_j", "wrong_k"]].to_numpy(bool)
    chance = np.clip(shared[["error_j", "error_k"]].to_numpy(np.float64), 1e-6, 1.0 - 1e-6)
    rest = wrong - chance
    spread = np.sqrt((chance * (1.0 - chance)).prod(axis=1).sum())
    score = float(rest.prod(axis=1).sum() / max(spread, 1e-12))
    pair = Pair(
        first,
        second,
        len(shared),
        int(wrong.all(axis=1).sum()),
        float(chance.prod(axis=1).sum()),
        0.0,
        float(2.0 * scipy.special.ndtr(-abs(score))),
    )
    if len(wrong) > _MOST_ROWS:
        kept = np.linspace(0, len(wrong) - 1, _MOST_ROWS).astype(np.int64)
        wrong, chance = wrong[kept], chance[kept]
    a, b = chance[:, :1], chance[:, 1:]
    both = both_wrong(a, b, _GRID[None, :])
    w, v = wrong[:, :1], wrong[:, 1:]
    cell = np.where(w & v, both, np.where(w, a - both, np.where(v, b - both, 1.0 - a - b + both)))
    return np.log(np.maximum(cell, 1e-9)).sum(axis=0), pair


def _estimated(
    found: Mapping[tuple[int, int], tuple[Array, Pair]], experts: Sequence[str], machines: frozenset[str]
) -> tuple[Array, dict[str, float]]:
    """Correlations of all pairs, and the mean of each kind."""
    table, means = np.eye(len(experts)), {}
    of_kind: dict[str, list[tuple[int, int]]] = {}
    for j, k in combinations(range(len(experts)), 2):
        of_kind.setdefault(_kind(experts[j], experts[k], machines), []).append((j, k))
    for kind, pairs in of_kind.items():
        known = [jk for jk in pairs if jk in found]
        if not known:
            continue
        each, mean = _shrunk(np.stack([found[jk][0] for jk in known]))
        means[kind] = max(mean, 0.0)
        for jk in pairs:
            r = each[known.index(jk)] if jk in found else mean
            table[jk] = table[jk[::-1]] = min(max(float(r), 0.0), CLOSEST)
    return table, means


def _shrunk(logs: Array) -> tuple[Array, float]:
    """The mean of every pair's correlation, and that of a pair without evidence, over means and spreads."""
    z = np.arctanh(_GRID)
    weights, each, unseen = [], [], []
    for spread in _SPREADS:
        for mean in _MEANS:
            prior = -0.5 * ((z - mean) / spread) ** 2 + np.log(np.gradient(z))
            prior -= scipy.special.logsumexp(prior)
            joint = logs + prior
            evidence = scipy.special.logsumexp(joint, axis=1)
            weights.append(evidence.sum() - 0.5 * (mean / _DOUBT) ** 2)
            each.append(np.exp(joint - evidence[:, None]) @ _GRID)
            unseen.append(float(np.exp(prior) @ _GRID))
    share = np.exp(np.array(weights) - scipy.special.logsumexp(weights))
    return np.asarray(share @ np.array(each)), float(share @ np.array(unseen))


def _kind(first: str, second: str, machines: Collection[str]) -> str:
    return ("people", "mixed", "machines")[(first in machines) + (second in machines)]


def _holm(p_values: Sequence[float]) -> list[float]:
    order = np.argsort(p_values, kind="stable")
    out, worst = np.empty(len(order)), 0.0
    for rank, place in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p_values[place]))
        out[place] = worst
    return out.tolist()
