"""Quality audits: a random sample of decisions, and how good people and machine together are.

*Sample.* Decisions fall into strata, one for every decision (and maker, channel, ... where asked for). In
each a fixed number is drawn without replacement, so that every decision's inclusion probability is known
exactly: the number drawn / the number there. By default numbers go with the root of the stratum's size: rare
decisions are seen too; with an expected share of the positive class in each stratum as Neyman's
rule says, which narrows the intervals most.

*Estimates.* Somebody finds the truth of the sampled decisions. Of those that said k, *precision* is the share
for which k is true; of those for which k is true, *recall* is the share that said so; *accuracy* is the share
that is right. A group's cases in a stratum are a random sample of the group's cases there, whose number is
known: each stratum and group is a cell of its own.

*Intervals.* Each cell's share has Clopper and Pearson's exact interval, with the sample as large as it counts
among finitely many decisions (n (N - 1) / (N - n)); sums over cells, and the ratio of misses to hits behind
recall, are put together from these (MOVER: Zou and Donner 2008, Donner and Zou 2012). So a sample in which no
miss was found still leaves open as many as it could have overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import betaincinv

from deccaf.data.values import number_in
from deccaf.errors import ConfigError, DataError
from deccaf.evaluate.measures import POOLED

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST = 5
"""Decisions that are drawn from every stratum, or all where there are fewer."""
STRATUM, INCLUSION = "stratum", "inclusion"


def strata_of(decisions: pd.DataFrame, by: Sequence[str] = ()) -> pd.Series:
    """The stratum of every decision: its decision, and the values of further columns."""
    for name in ("case_id", "decision", *by):
        if name not in decisions:
            raise DataError(f"column {name!r}: missing; an audit's strata need it")
    if decisions.empty:
        raise DataError("no rows")
    for name in ("case_id", "decision", *by):
        if decisions[name].isna().any():
            first = decisions["case_id"][decisions[name].isna()].iloc[0]
            raise DataError(f"column {name!r}: {decisions[name].isna().sum()} missing, first: case {first!r}")
    if decisions["case_id"].duplicated().any():
        twice = decisions["case_id"][decisions["case_id"].duplicated()].iloc[0]
        raise DataError(f"column 'case_id': {twice!r} stands there twice; an audit needs one decision a case")
    parts = [decisions[name].astype(str) for name in ("decision", *by)]
    named = parts[0]
    for part in parts[1:]:
        named = named + " | " + part
    return named.rename(STRATUM)


def check_decisions(decisions: pd.DataFrame, by: Sequence[str] = (), group: str | None = None) -> None:
    """Refuse decisions that no sample can be drawn from, or nothing estimated for."""
    strata_of(decisions, by)
    if group is not None and group not in decisions:
        raise DataError(f"column {group!r}: missing; the groups of an audit are in the decisions")


def allocate(sizes: Ints, count: int, expected: Array | None = None) -> Ints:
    """How many to draw from strata of these sizes, `count` in all; by `expected` shares as Neyman did."""
    sizes = np.asarray(sizes, np.int64)
    least = np.minimum(sizes, FEWEST)
    if count < least.sum():
        raise ConfigError(
            f"audit: {len(sizes)} strata need a sample of at least {least.sum()}, got {count}; draw more, or "
            "take fewer columns for the strata"
        )
    want = np.sqrt(sizes)
    if expected is not None:
        share = np.clip(np.asarray(expected, np.float64), 0.01, 0.99)
        want = sizes * np.sqrt(share * (1 - share))
    drawn, total = least.copy(), min(count, int(sizes.sum()))
    while drawn.sum() < total:
        open_ = drawn < sizes
        # one at a time where the wish is least fulfilled: exact, and no stratum beyond what it has
        short = np.where(open_, want / (drawn + 0.5), -np.inf)
        drawn[int(short.argmax())] += 1
    return drawn


def draw(
    decisions: pd.DataFrame,
    count: int,
    seed: int,
    by: Sequence[str] = (),
    expected: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The sample: the decisions' rows with `stratum` and `inclusion`, in random order.

    `decisions` has one row per case: case_id, decision, and the columns `by`. `expected` gives the share of
    the positive class in a stratum, by its name.
    """
    strata = strata_of(decisions, by)
    names, codes, sizes = np.unique(strata.to_numpy(str), return_inverse=True, return_counts=True)
    shares = None
    if expected is not None:
        missing = [name for name in names if name not in expected]
        if missing:
            raise ConfigError(f"audit: no expected share for stratum {missing[0]!r}")
        stray = [name for name in expected if name not in names]
        if stray:
            raise ConfigError(
                f"audit: expected share for {stray[0]!r}: no such stratum; there are {', '.join(names)}"
            )
        shares = np.array([expected[name] for name in names])
    drawn, rng, rows = allocate(sizes, count, shares), np.random.default_rng(seed), []
    for one, wanted in enumerate(drawn):
        rows.append(rng.choice(np.flatnonzero(codes == one), wanted, replace=False))
    chosen = rng.permutation(np.concatenate(rows))
    sample = decisions.iloc[chosen].copy()
    sample[STRATUM] = strata.iloc[chosen]
    sample[INCLUSION] = (drawn / sizes)[codes[chosen]]
    return sample


def estimate(
    decisions: pd.DataFrame,
    sample: pd.DataFrame,
    positive: object,
    by: Sequence[str] = (),
    group: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Precision, recall and accuracy from an audited sample, with intervals, overall and by group.

    `sample` is what `draw` gave with a column `label`. Columns: `group` (`all`: everybody), `measure`,
    `cases` that were audited for it, `value`, `low`, `high`.
    """
    check_decisions(decisions, by, group)
    frame = decisions.assign(**{STRATUM: strata_of(decisions, by)}).set_index("case_id")
    audited = _checked(frame, sample)
    members: dict[str, pd.Series] = {POOLED: pd.Series(POOLED, frame.index)}
    found = [_measures(frame, audited, members[POOLED], POOLED, positive, confidence)]
    if group is not None:
        member = frame[group].astype(object).fillna("missing").astype(str)
        found += [
            _measures(frame, audited, member, str(name), positive, confidence) for name in sorted(set(member))
        ]
    return pd.concat(found, ignore_index=True)


@dataclass(frozen=True, eq=False)
class Cells:
    """Strata within a group: how many decisions there are, how many were audited, in how many it was so."""

    there: Array
    audited: Array
    so: Array
    elsewhere: Array
    """The share in the whole stratum, for a cell of which nothing was drawn."""

    def total(self, confidence: float) -> tuple[float, float, float]:
        """In how many decisions of all cells it is so, with the interval."""
        seen = self.audited > 0
        share = np.where(seen, self.so / np.maximum(self.audited, 1), self.elsewhere)
        with np.errstate(divide="ignore", invalid="ignore"):
            worth = self.audited * (self.there - 1) / (self.there - self.audited)
        whole = self.audited >= self.there
        low, high = _exact(share, np.where(seen & ~whole, worth, 1.0), confidence)
        low, high = np.where(whole, share, low), np.where(whole, share, high)
        low, high = np.where(seen, low, 0.0), np.where(seen, high, 1.0)
        value = float((self.there * share).sum())
        down = float(np.sqrt(((self.there * (share - low)) ** 2).sum()))
        up = float(np.sqrt(((self.there * (high - share)) ** 2).sum()))
        least, most = self.so.sum(), (self.there - self.audited + self.so).sum()
        return value, max(value - down, float(least)), min(value + up, float(most))


def _exact(share: Array, count: Array, confidence: float) -> tuple[Array, Array]:
    """Clopper and Pearson's interval of shares of so many (not always a whole number of) cases."""
    tail, so = (1 - confidence) / 2, share * count
    low = np.where(share > 0, betaincinv(np.maximum(so, 1e-9), count - so + 1, tail), 0.0)
    high = np.where(share < 1, betaincinv(so + 1, np.maximum(count - so, 1e-9), 1 - tail), 1.0)
    return np.minimum(low, share), np.maximum(high, share)


def _checked(frame: pd.DataFrame, sample: pd.DataFrame) -> pd.DataFrame:
    for name in ("case_id", "label", INCLUSION):
        if name not in sample:
            raise DataError(f"column {name!r}: missing in the audited sample")
    without = sample["label"].isna()
    if without.any():
        raise DataError(
            f"column 'label': {without.sum()} of {len(sample)} sampled cases have none, first: "
            f"{sample['case_id'][without].iloc[0]!r}; an estimate needs the truth of all of them"
        )
    twice = sample["case_id"].duplicated()
    if twice.any():
        raise DataError(f"column 'case_id': {sample['case_id'][twice].iloc[0]!r} is in the sample twice")
    number_in(sample, INCLUSION, sample["case_id"], 0.0, 1.0, open_below=True)
    audited = sample.set_index("case_id")
    unknown = audited.index.difference(frame.index)
    if len(unknown):
        raise DataError(f"audited case {unknown[0]!r}: not among the decisions ({len(unknown)} in all)")
    audited = frame[["decision", STRATUM]].loc[audited.index].join(audited[["label", INCLUSION]])
    drawn = audited.groupby(STRATUM).size() / frame.groupby(STRATUM).size()
    said = audited.groupby(STRATUM)[INCLUSION].first().reindex(drawn.index)
    wrong = ~np.isclose(drawn, said)
    if wrong.any():
        name = drawn.index[wrong][0]
        raise DataError(
            f"stratum {name!r}: the sample says inclusion {said[name]:.4g}, but {drawn[name]:.4g} of its "
            "decisions are there; give the decisions and strata that the sample was drawn with, and all of it"
        )
    return audited


def _measures(
    frame: pd.DataFrame,
    audited: pd.DataFrame,
    member: pd.Series,
    name: str,
    positive: object,
    confidence: float,
) -> pd.DataFrame:
    """The three measures of one group."""
    here, theirs = frame[member == name], audited[member.reindex(audited.index) == name]
    is_true = theirs["label"].astype(str) == str(positive)
    said = theirs["decision"].astype(str) == str(positive)
    right = theirs["label"].astype(str) == theirs["decision"].astype(str)
    true_everywhere = audited["label"].astype(str) == str(positive)
    right_everywhere = audited["label"].astype(str) == audited["decision"].astype(str)
    says = here["decision"].astype(str) == str(positive)
    hits = _cells(here[says], theirs[said], is_true[said], true_everywhere, audited)
    misses = _cells(here[~says], theirs[~said], is_true[~said], true_everywhere, audited)
    every = _cells(here, theirs, right, right_everywhere, audited)
    rows = [
        ("precision", int(said.sum()), *share_of(hits, confidence)),
        ("recall", len(theirs), *recall_of(hits, misses, confidence)),
        ("accuracy", len(theirs), *share_of(every, confidence)),
    ]
    table = pd.DataFrame(rows, columns=["measure", "cases", "value", "low", "high"])
    table.insert(0, "group", name)
    return table


def _cells(
    here: pd.DataFrame, theirs: pd.DataFrame, so: pd.Series, everywhere: pd.Series, audited: pd.DataFrame
) -> Cells:
    there = here.groupby(STRATUM).size()
    count = theirs.groupby(STRATUM).size().reindex(there.index, fill_value=0)
    yes = so.groupby(theirs[STRATUM]).sum().reindex(there.index, fill_value=0)
    whole = everywhere.groupby(audited[STRATUM]).mean().reindex(there.index, fill_value=0.5)
    there_, count_, yes_, whole_ = (np.asarray(part, np.float64) for part in (there, count, yes, whole))
    return Cells(there_, count_, yes_, whole_)


def share_of(cells: Cells, confidence: float = 0.95) -> tuple[float, float, float]:
    """The share of all decisions of the cells for which it is so, with the interval."""
    size = float(cells.there.sum())
    if not size:
        return np.nan, np.nan, np.nan
    value, low, high = (part / size for part in cells.total(confidence))
    return value, low, high


def recall_of(hits: Cells, misses: Cells, confidence: float = 0.95) -> tuple[float, float, float]:
    """Hits / (hits + misses): both come from different strata, so they are independent."""
    a, a_low, a_high = hits.total(confidence) if len(hits.there) else (0.0, 0.0, 0.0)
    b, b_low, b_high = misses.total(confidence) if len(misses.there) else (0.0, 0.0, 0.0)
    value = a / (a + b) if a + b > 0 else np.nan
    low = 1.0 / (1.0 + _ratio(b, b_high, a, a_low))
    high = 1.0 - 1.0 / (1.0 + _ratio(a, a_high, b, b_low))
    return value, low, high


def _ratio(top: float, top_end: float, bottom: float, bottom_end: float) -> float:
    """The upper end of the interval of top / bottom."""
    if bottom_end <= 0:
        return np.inf if top_end > 0 else 0.0
    under = bottom_end * (2 * bottom - bottom_end)
    inside = (top * bottom) ** 2 - top_end * (2 * top - top_end) * under
    return float((top * bottom + np.sqrt(max(inside, 0.0))) / under)
