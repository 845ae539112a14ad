"""Whether new cases still look like those that a model was fitted on.

A *profile* is what is remembered of a column: the shares of its deciles or of its most common levels. The
*population stability index* compares shares p (then) and q (now): sum (q - p) ln(q / p). Below 0.1 little has
changed, above 0.25 much has. With few cases it is large by chance alone, so `is_real` asks whether chance
could have done it.

A mix of cases that is new (a weekend, a campaign) moves shares, and a model copes. `Comparison` looks for
what no mix explains and no model survives: another unit, a column that came empty, a category that was never
there, texts of other words. Its tests hold for any distribution and any number of cases: of n new values,
those beyond the r outermost of N old ones are beta-binomial, BB(n; r, N - r + 1), if new and old are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

BINS = 10
LEVELS = 12
CHANCE = 1e-6
"""Drift that chance would bring up more often than this is no drift."""
_OUTER = 0.01
"""Share of the old values on each side that new values seldom go beyond."""
_FAR = 10.0
"""A value so many times as large as any old one is in another unit, however few there are."""
_MOST, _NEVER_SEEN, _SELDOM = 0.5, 0.05, 0.05
"""Shares of a batch: most values beyond the old ones, levels never seen; and of old cases: zeros seldom."""
_MIX = 3
"""So many times as often may a value be missing because other kinds of cases come."""
_RARE = 0.02
"""A value that fewer old cases had is worth a look."""
_COUNTED = 1_000
"""Tests look at no more cases than this: with more, everything that matters is certain."""


def profile(values: pd.Series) -> dict[str, Any]:
    """What to remember of a column, as plain data: its bins, their shares, and of how many cases."""
    numeric = pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)
    known: dict[str, Any]
    if numeric:
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        inner = np.nanquantile(numbers, np.arange(1, BINS) / BINS) if np.isfinite(numbers).any() else []
        known = {"edges": [float(edge) for edge in np.unique(inner)], **_limits(numbers)}
    else:
        found = values.dropna().astype("str").value_counts()
        known = {
            "levels": sorted(str(level) for level in found.index[:LEVELS]),
            "once": int((found == 1).sum()),
        }
    filled = counts(known, values)
    return {**known, "shares": (filled / max(filled.sum(), 1)).tolist(), "cases": int(filled.sum())}


def is_complete(known: Mapping[str, Any]) -> bool:
    """Whether a profile has all that `Comparison` looks at; those of older model files do not."""
    return "zeros" in known or "once" in known


def _limits(numbers: Array) -> dict[str, Any]:
    """Where old numbers lay: zeros apart, since many columns are 0 unless something happened."""
    present = numbers[np.isfinite(numbers)]
    other = np.sort(present[present != 0])
    found: dict[str, Any] = {"zeros": int(len(present) - len(other)), "other": len(other)}
    if len(other):
        outer = max(1, int(_OUTER * len(other)))
        found |= {
            "outer": outer,
            "usual": [float(other[outer - 1]), float(other[-outer])],
            "small": float(np.sort(np.abs(other))[outer - 1]),
            "range": [float(present.min()), float(present.max())],
        }
    return found


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


def unusual(known: Mapping[str, Any], value: Any) -> str | None:
    """What a profile has to say of one value, where few old cases were like it; None: nothing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        share = known["shares"][-1]
        return f"missing in {_percent(share)} of past cases" if share < _RARE else None
    if "levels" not in known:
        return _far_out(known, value)
    levels = known["levels"]
    if str(value) in levels:
        share = known["shares"][levels.index(str(value))]
        return f"in {_percent(share)} of past cases" if share < _RARE else None
    share = known["shares"][-2]
    return f"like this or rarer in {_percent(share)} of past cases" if share < _RARE else None


def _far_out(known: Mapping[str, Any], value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or "usual" not in known or value == 0:
        return None
    (low, high), (least, most) = known["usual"], known["range"]
    if value > most or value < least:
        return f"{'higher' if value > most else 'lower'} than in any past case"
    if low < high and (value > high or value < low):
        return f"{'higher' if value > high else 'lower'} than in 99 % of past cases"
    return None


def _percent(share: float) -> str:
    return "none" if share <= 0 else f"{100 * share:.1f} %" if share >= 0.001 else "fewer than 0.1 %"


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
    return bool(scaled > 2.0 * scipy.special.gammaincinv((bins - 1) / 2, 1.0 - chance))


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


@dataclass(frozen=True)
class Unlike:
    """One way in which new cases are unlike those that a model learned from."""

    column: str
    kind: Literal["scale", "empty", "zero", "unseen", "unfamiliar"]
    cases: int
    """How many of the new cases show it."""
    of: int
    said: str

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        return {
            "column": self.column,
            "kind": self.kind,
            "cases": self.cases,
            "of": self.of,
            "said": self.said,
        }


@dataclass
class _Column:
    """What was counted of one column of the new cases."""

    cases: int = 0
    missing: int = 0
    unseen: int = 0
    zeros: int = 0
    beyond: int = 0
    far: int = 0
    least: float = np.inf
    greatest: float = -np.inf
    first_unseen: str = ""

    @property
    def other(self) -> int:
        """Values that are there and not 0."""
        return self.cases - self.missing - self.zeros

    def add_numbers(self, known: Mapping[str, Any], numbers: Array) -> None:
        """Count numbers that lie where old ones did not."""
        present = numbers[np.isfinite(numbers)]
        values = present[present != 0]
        self.zeros += len(present) - len(values)
        if not len(values) or "usual" not in known:
            return
        size, (low, high) = np.abs(values), known["usual"]
        self.beyond += int(((values < low) | (values > high) | (size < known["small"])).sum())
        self.far += int((size > _FAR * max(abs(end) for end in known["range"])).sum())
        self.least = min(self.least, float(present.min()))
        self.greatest = max(self.greatest, float(present.max()))


@dataclass
class Comparison:
    """New cases, some rows at a time, against the profiles of the cases that a model learned from."""

    profiles: Mapping[str, Mapping[str, Any]]
    columns: dict[str, _Column] = field(default_factory=dict)

    def add(self, raw: pd.DataFrame, cast: pd.DataFrame) -> None:
        """Look at more cases: as they came, and as the model sees them (levels never seen are missing)."""
        for name, known in self.profiles.items():
            if name not in cast:
                continue
            column = self.columns.setdefault(name, _Column())
            absent = (raw if name in raw else cast)[name].isna().to_numpy()
            column.cases += len(absent)
            column.missing += int(absent.sum())
            if "edges" in known:
                column.add_numbers(known, cast[name].to_numpy(np.float64, na_value=np.nan))
                continue
            new = cast[name].isna().to_numpy() & ~absent
            if new.any() and not column.unseen:
                column.first_unseen = str(raw[name].iloc[int(new.argmax())])
            column.unseen += int(new.sum())

    def found(self) -> list[Unlike]:
        """What is off; nothing where the cases could be like the old ones."""
        tests = (_scale, _empty, _zero, _unseen, _unfamiliar)
        every = [
            test(name, self.profiles[name], seen) for name, seen in self.columns.items() for test in tests
        ]
        return [one for one in every if one is not None]


def _scale(name: str, known: Mapping[str, Any], seen: _Column) -> Unlike | None:
    if "of" in known or "usual" not in known or seen.beyond < _MOST * max(seen.other, 1):
        return None
    sides = 3 * int(known["outer"])  # too low, too high, too near to 0
    odd = _by_chance(seen.beyond, seen.other, sides, int(known["other"]) - sides + 1)
    if not (odd < CHANCE or seen.far >= _MOST * seen.other):
        return None
    low, high = known["range"]
    said = (
        f"{name}: {seen.beyond:,} of {seen.other:,} values lie where those learned from do not (there "
        f"{low:,.6g} to {high:,.6g}, here {seen.least:,.6g} to {seen.greatest:,.6g}); is it in another unit?"
    )
    return Unlike(name, "scale", seen.beyond, seen.cases, said)


def _empty(name: str, known: Mapping[str, Any], seen: _Column) -> Unlike | None:
    before = round(known["shares"][-1] * known["cases"])
    share = before / max(known["cases"], 1)
    if not seen.missing or not (seen.missing == seen.cases or seen.missing >= (share + _MOST) * seen.cases):
        return None
    mixed = min(_MIX * before, before + known["cases"] // 4)  # what another mix of cases may bring
    if _by_chance(seen.missing, seen.cases, mixed + 1, known["cases"] - mixed + 1) >= CHANCE:
        return None
    name = known.get("of", name)
    said = f"{name}: empty in {seen.missing:,} of {seen.cases:,} cases, in {share:.1%} of those learned from"
    return Unlike(name, "empty", seen.missing, seen.cases, said)


def _zero(name: str, known: Mapping[str, Any], seen: _Column) -> Unlike | None:
    present = seen.zeros + seen.other
    if "of" in known or "zeros" not in known or not present or seen.zeros < present:
        return None
    before, old = int(known["zeros"]), int(known["zeros"]) + int(known["other"])
    if before > _SELDOM * old or _by_chance(seen.zeros, present, before + 1, old - before + 1) >= CHANCE:
        return None
    share = before / max(old, 1)
    said = f"{name}: 0 in all of {present:,} cases, in {share:.1%} of those learned from"
    return Unlike(name, "zero", seen.zeros, seen.cases, said)


def _unseen(name: str, known: Mapping[str, Any], seen: _Column) -> Unlike | None:
    if "once" not in known or not seen.unseen or seen.unseen < _NEVER_SEEN * seen.cases:
        return None
    # levels that came once tell how often a new one comes up (Good and Turing)
    if _by_chance(seen.unseen, seen.cases, known["once"] + 1, known["cases"] - known["once"]) >= CHANCE:
        return None
    said = (
        f"{name}: {seen.unseen:,} of {seen.cases:,} cases have a level that was never learned from, "
        f"first: {seen.first_unseen!r}"
    )
    return Unlike(name, "unseen", seen.unseen, seen.cases, said)


def _unfamiliar(name: str, known: Mapping[str, Any], seen: _Column) -> Unlike | None:
    """Texts of other words, vectors from elsewhere: by the column that says how familiar each is."""
    if "of" not in known or "usual" not in known:
        return None
    count, present = seen.beyond + seen.zeros, seen.zeros + seen.other
    outer = 3 * int(known["outer"]) + int(known["zeros"])
    if not present or count < _MOST * present:
        return None
    if _by_chance(count, present, outer, int(known["other"]) + int(known["zeros"]) - outer + 1) >= CHANCE:
        return None
    what = {
        "text": "texts have few or no words in common with those learned from; another language?",
        "vector": "vectors lie far from those learned from; from another model, or on another scale?",
    }[known["kind"]]
    return Unlike(
        known["of"], "unfamiliar", count, seen.cases, f"{known['of']}: {count:,} of {present:,} {what}"
    )


def _by_chance(count: int, of: int, outer: int, inner: int) -> float:
    """The chance that so many of the new values are beyond, if they are like the old ones."""
    from scipy.stats import betabinom

    if of > _COUNTED:
        count, of = count * _COUNTED // of, _COUNTED
    return float(betabinom.sf(count - 1, of, outer, max(inner, 1)))
