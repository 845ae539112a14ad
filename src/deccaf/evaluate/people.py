"""How people decided: error rates, leaning, pace, and where they differ from the rest of the team.

`tally` counts at fit, and the counts go into the model file; `People` reads them. They are counts of what
happened, not the model's estimates: people who got harder cases err more often.

- *Error rate* given a truth: wrong decisions among cases of that truth, with Wilson's interval.
- *Leaning*: how much oftener than is true somebody says a class, in shares of their cases, with an interval.
- *Strong* and *weak*: a part of the cases (a third of a number's values, a level of a category) in which
  somebody errs less or more often than the others do in the same part on the same truths, by more than three
  standard deviations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.history import History
from deccaf.data.log_odds import deviations
from deccaf.evaluate.measures import wilson

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CONFIDENCE = 0.95
SURE = 3.0
"""Standard deviations from which on a part of the cases is named."""
MOST = 3
"""Parts of the cases that are remembered of one person, strong and weak each."""
FEWEST = 10
"""Cases of one person in a part, at least."""
LEVELS = 12


def tally(history: History, classes: int, features: pd.DataFrame) -> dict[str, Any]:
    """What a model file remembers of everybody's decisions, as plain data.

    By person: `said` (counts by truth and decision), `unlabelled` (decisions whose truth is not known yet)
    and `parts` (where, by these `features`, they differ from the others).
    """
    names, who = np.unique(history.expert.to_numpy(str), return_inverse=True)
    truth, said = history.label[history.case], history.decision
    known = truth >= 0
    counts = np.zeros((len(names), classes, classes), np.int64)
    np.add.at(counts, (who[known], truth[known], said[known]), 1)
    unlabelled = np.bincount(who[~known], minlength=len(names))
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    if len(names) > 1:
        wrong = (truth != said)[known].astype(np.int64)
        for found in _parts(features, history.case[known], who[known], truth[known], wrong, classes):
            for j, part in found:
                parts[names[j]].append(part)
    return {
        str(name): {
            "said": counts[j].tolist(),
            "unlabelled": int(unlabelled[j]),
            "parts": _strongest(parts[name]),
        }
        for j, name in enumerate(names)
    }


def _parts(
    features: pd.DataFrame, case: Ints, who: Ints, truth: Ints, wrong: Ints, classes: int
) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """By feature: who differs from the others in which part of the cases."""
    people = int(who.max(initial=-1)) + 1
    for name in features:
        codes, labels = _slices(features[name])
        part = codes[case]
        used = part >= 0
        size = people * len(labels) * classes * 2
        flat = ((who[used] * len(labels) + part[used]) * classes + truth[used]) * 2 + wrong[used]
        table = np.bincount(flat, minlength=size).reshape(people, len(labels), classes, 2).astype(np.float64)
        cases, errors = table.sum(axis=3), table[..., 1]
        usual = errors.sum(axis=(0, 1)) / np.maximum(cases.sum(axis=(0, 1)), 1)
        others = cases.sum(axis=0) - cases
        rate = (errors.sum(axis=0) - errors + usual) / (others + 1)
        expected = (cases * rate).sum(axis=2)
        variance = (cases * rate * (1 - rate) * (1 + cases / (others + 1))).sum(axis=2)
        surprise = (errors.sum(axis=2) - expected) / np.sqrt(np.maximum(variance, 1e-9))
        clear = (np.abs(surprise) >= SURE) & (cases.sum(axis=2) >= FEWEST)
        yield [
            (
                int(j),
                {
                    "feature": str(name),
                    "part": labels[s],
                    "cases": int(cases[j, s].sum()),
                    "errors": int(errors[j, s].sum()),
                    "expected": round(float(expected[j, s]), 2),
                    "surprise": round(float(surprise[j, s]), 2),
                },
            )
            for j, s in np.argwhere(clear)
        ]


def _slices(values: pd.Series) -> tuple[Ints, list[str]]:
    """A part of the cases for every case (-1: none), and the parts' names."""
    if values.isna().all():
        return np.full(len(values), -1, np.int64), []
    if isinstance(values.dtype, pd.CategoricalDtype):
        common = values.value_counts().index[:LEVELS].astype(str).tolist()
        codes = pd.Index(common).get_indexer(pd.Index(values.astype("object")))
        labels = [f"is {level}" for level in common]
    else:
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        present = numbers[np.isfinite(numbers)]
        edges = np.unique(np.quantile(present, [1 / 3, 2 / 3])) if len(present) else np.zeros(0)
        codes = np.searchsorted(edges, numbers, side="left")
        codes[np.isnan(numbers)] = -1
        ends = [f"{edge:.4g}" for edge in edges]
        labels = [f"up to {ends[0]}", *[f"{a} to {b}" for a, b in zip(ends, ends[1:], strict=False)]]  # noqa: RUF007
        labels = [*labels, f"above {ends[-1]}"] if ends else ["any"]
    absent = values.isna().to_numpy()
    return np.where(absent, len(labels), codes).astype(np.int64), [*labels, "is missing"]


def _strongest(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(parts, key=lambda part: part["surprise"])
    strong = [part for part in ordered if part["surprise"] < 0][:MOST]
    weak = [part for part in reversed(ordered) if part["surprise"] > 0][:MOST]
    return strong + weak


@dataclass(frozen=True, eq=False)
class People:
    """Everybody that a model learned from."""

    classes: tuple[Any, ...]
    table: pd.DataFrame
    """By person: `decisions`, `labelled`, `error_rate` with `low` and `high`, the same by truth
    (`error_rate_CLASS`, `low_CLASS`, `high_CLASS`), `leaning` (a class) with `leaning_by`, `leaning_low` and
    `leaning_high`, and `pace`, decisions an hour; what is not known is empty."""
    team: pd.Series
    """The same of all together."""
    parts: pd.DataFrame
    """Where somebody differs: `expert`, `kind` (strong, weak), `feature`, `part`, `cases`, `errors`,
    `expected`."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the model is: method, classes, costs, features, time."""
    missing: tuple[str, ...] = ()
    """What the model file does not know, and what to do."""

    @classmethod
    def of(
        cls,
        training: Mapping[str, Any],
        classes: Sequence[Any],
        pace: Mapping[str, float],
        about: Mapping[str, Any],
    ) -> People:
        """From what a model file remembers."""
        known, missing = training.get("people"), []
        counts = training.get("decisions", {})
        if known is None:
            missing.append(
                "error rates, leaning, strengths: the model file is from before they were kept; fit again"
            )
        size = len(classes)
        said = {
            name: np.array((known or {}).get(name, {}).get("said", np.zeros((size, size))), np.float64)
            for name in counts
        }
        rows = {
            name: {
                "decisions": int(counts[name]),
                **_rates(said[name], classes),
                "pace": pace.get(name, np.nan),
            }
            for name in counts
        }
        total = np.sum(list(said.values()), axis=0) if said else np.zeros((size, size))
        paces = [pace[name] for name in counts if name in pace]
        usual = float(np.median(paces)) if paces else np.nan
        if counts and not paces:
            missing.append("pace: the log had no seconds")
        columns = ["decisions", *_rates(total, classes), "pace"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("expert")
        team = pd.Series(
            {"decisions": int(sum(counts.values())), **_rates(total, classes), "pace": usual}, dtype=object
        )
        parts = [
            {"expert": name, "kind": "strong" if part["surprise"] < 0 else "weak", **part}
            for name, facts in (known or {}).items()
            for part in facts["parts"]
        ]
        wanted = ["expert", "kind", "feature", "part", "cases", "errors", "expected"]
        return cls(tuple(classes), table, team, pd.DataFrame(parts, columns=wanted), about, tuple(missing))

    def told(self, expert: str) -> dict[str, str]:
        """Where somebody is `strong` and `weak`, in words; empty where nothing is known."""
        mine = self.parts[self.parts["expert"] == expert]
        words = mine.assign(
            said=[f"{row.feature} {row.part} ({row.errors} of {row.cases} wrong, others {row.expected:.1f})"
                  for row in mine.itertuples()]
        )  # fmt: skip
        return {kind: "; ".join(words.loc[words["kind"] == kind, "said"]) for kind in ("strong", "weak")}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        people = [
            {
                "expert": name,
                **_plain(row),
                "parts": [_plain(part) for part in self._of(str(name)).to_dict("records")],
            }
            for name, row in self.rows()
        ]
        return {
            **self.about,
            "confidence": CONFIDENCE,
            "team": _plain(self.team.to_dict()),
            "people": people,
            "missing": list(self.missing),
        }

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Everybody with their row of the table; counts stay whole numbers."""
        records = self.table.astype(object).to_dict("records")
        return [
            (str(name), {str(key): value for key, value in row.items()})
            for name, row in zip(self.table.index, records, strict=True)
        ]

    def _of(self, expert: str) -> pd.DataFrame:
        return self.parts[self.parts["expert"] == expert].drop(columns="expert")


def _rates(said: Array, classes: Sequence[Any]) -> dict[str, Any]:
    """Error rates with intervals, and the leaning, of counts by truth and decision."""
    cases = said.sum()
    found: dict[str, Any] = {"labelled": int(cases), **_rate("", cases - np.trace(said), cases)}
    for y, name in enumerate(classes):
        found |= _rate(f"_{name}", said[y].sum() - said[y, y], said[y].sum())
    return found | _leaning(said, classes)


def _rate(suffix: str, errors: float, cases: float) -> dict[str, float]:
    if not cases:
        return {f"{name}{suffix}": np.nan for name in ("error_rate", "low", "high")}
    low, high = wilson(errors / cases, cases, CONFIDENCE)
    return {
        f"error_rate{suffix}": float(errors / cases),
        f"low{suffix}": float(low),
        f"high{suffix}": float(high),
    }


def _leaning(said: Array, classes: Sequence[Any]) -> dict[str, Any]:
    """The class that is said most beyond how often it is true."""
    cases = said.sum()
    if not cases:
        return {"leaning": None, "leaning_by": np.nan, "leaning_low": np.nan, "leaning_high": np.nan}
    too_often, too_seldom = said.sum(axis=0) - np.diag(said), said.sum(axis=1) - np.diag(said)
    beyond = too_often - too_seldom
    k = int(beyond.argmax())
    spread = np.sqrt(max(too_often[k] + too_seldom[k] - beyond[k] ** 2 / cases, 0.0)) / cases
    by, reach = float(beyond[k] / cases), float(deviations(0.5 + CONFIDENCE / 2) * spread)
    return {"leaning": classes[k], "leaning_by": by, "leaning_low": by - reach, "leaning_high": by + reach}


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row for JSON: numbers and names, None where there is none."""
    found = {}
    for name, value in row.items():
        plain = value.item() if hasattr(value, "item") else value
        found[str(name)] = None if isinstance(plain, float) and np.isnan(plain) else plain
    return found
