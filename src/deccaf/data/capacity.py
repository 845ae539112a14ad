"""How much work each maker may and must get, batch by batch.

`capacity.upper` and `capacity.lower` are tables of batch x maker (the paper's H is `upper`). The machine has
no limit unless it is named; an expert who is not named in a batch is absent from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE
from deccaf.data.files import about, read_frame
from deccaf.data.frames import as_pandas
from deccaf.data.headers import check_spelling
from deccaf.data.marks import note_two_spellings
from deccaf.data.names import compared, names_of, note_odd_names, refuse_summary
from deccaf.data.wide import long_capacity
from deccaf.errors import CapacityError, ConfigError, DataError, did_you_mean, show

UNLIMITED = 2**62
ONE_BATCH = "all"
"""The batch of cases and rosters without batches."""

Limits = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Capacity:
    """Lower and upper limits for each batch and maker; where they meet, the paper's equality.

    Build it with `of`, `equal`, `sample`, `from_frame` or `read`.
    """

    upper: pd.DataFrame
    lower: pd.DataFrame
    eligible: pd.DataFrame | None = None
    """Cases x makers, False where a maker may not get a case; who is not named may get anything."""
    machines: frozenset[str] = frozenset()
    """Makers beside `machine` that the roster calls machines."""

    @classmethod
    def of(cls, upper: Mapping[str, int], lower: Mapping[str, int] | None = None) -> Capacity:
        """One batch: `Capacity.of({"analyst_1": 40, "analyst_2": 25})`; `lower` names minimum loads."""
        lower = dict(lower or {})
        stray = [name for name in lower if name not in upper and name != MACHINE]
        if stray:
            raise DataError(
                f"lower limit for {stray[0]!r}, who has no upper limit" + did_you_mean(stray[0], upper)
            )
        makers = list(dict.fromkeys([*upper, *lower]))
        return cls.from_frame(
            pd.DataFrame(
                {
                    "expert_id": makers,
                    "upper": [upper.get(name, UNLIMITED) for name in makers],
                    "lower": [lower.get(name, 0) for name in makers],
                }
            )
        )

    @classmethod
    def equal(cls, makers: Sequence[str], cases: int) -> Capacity:
        """Exactly as many cases for each maker as for the others, give or take one, summing to `cases`."""
        return cls._exactly(makers, np.ones(len(makers)), cases)

    @classmethod
    def sample(
        cls, makers: Sequence[str], cases: int, rng: np.random.Generator, *, spread: float = 0.2
    ) -> Capacity:
        """Exact loads drawn from N(n/J, spread n/J), scaled and rounded so that they sum to n.

        With ten makers and the default spread this is the paper's N(n/10, n/50).
        """
        if spread < 0:
            raise ConfigError(f"spread must not be negative, got {spread}")
        shares = np.clip(rng.normal(1.0, spread, len(makers)), 0.0, None)
        return cls._exactly(makers, shares if shares.any() else np.ones(len(makers)), cases)

    @classmethod
    def read(cls, path: str | Path) -> Capacity:
        """Read a capacity file: `batch`, `expert_id`, `upper`, optional `lower`; no batch means one batch.

        Optional `kind` says `person` or `machine`; the upper limit of a machine may be empty: it has none.
        """
        with about(path):
            frame = read_frame(path, text=("batch", "batch_id", "expert_id", "kind"))
            if frame.empty:
                raise DataError("no rows")
            return cls.from_frame(frame)

    @classmethod
    def from_frame(cls, frame: Any) -> Capacity:
        """Check a table with the columns of a capacity file, or with `batch_id` and a column per person."""
        frame = long_capacity(as_pandas(frame))
        check_spelling(frame.columns, dict.fromkeys(("batch", "expert_id", "upper", "lower", "kind")))
        for name in ("expert_id", "upper"):
            if name not in frame:
                raise DataError(
                    f"column {name!r}: missing in the capacity table" + did_you_mean(name, frame.columns)
                )
        stray = [name for name in frame if name not in {"batch", "expert_id", "upper", "lower", "kind"}]
        if stray:
            raise DataError(
                f"column {stray[0]!r}: a capacity table has batch, expert_id, upper and lower, and kind"
            )
        table = pd.DataFrame(
            {
                "batch": names_of(frame["batch"]) if "batch" in frame else ONE_BATCH,
                "maker": names_of(frame["expert_id"]),
            },
            index=frame.index,
        )
        for names in (table["batch"], table["maker"]):
            note_odd_names(names)
        refuse_summary(table["maker"].rename("expert_id"), "a person")
        note_two_spellings(table["maker"].unique(), "expert_id")
        machine = _machines(frame, table)
        room = frame["upper"].where(~(machine & frame["upper"].isna()), UNLIMITED)
        table["upper"] = _whole_numbers(room, table)
        table["lower"] = _whole_numbers(frame["lower"], table) if "lower" in frame else 0
        _check_rows(table)
        upper = _by_batch_and_maker(table, "upper")
        lower = _by_batch_and_maker(table, "lower")
        if MACHINE not in upper:
            upper.insert(0, MACHINE, UNLIMITED)
            lower.insert(0, MACHINE, 0)
        else:  # named in some batches only: unlimited in the others
            named = table.loc[table["maker"] == MACHINE, "batch"]
            upper.loc[~upper.index.isin(named), MACHINE] = UNLIMITED
        named_machines = frozenset(table["maker"][machine]) - {MACHINE}
        return cls(upper, lower, machines=named_machines)

    @property
    def makers(self) -> tuple[str, ...]:
        """The machine and everyone on the roster, as the table has them."""
        return tuple(self.upper.columns)

    @property
    def batches(self) -> tuple[str, ...]:
        """The batches that have limits, in order."""
        return tuple(self.upper.index)

    def absent(self, maker: str, batch: str | None = None) -> Capacity:
        """The same without `maker`, in one batch or in all."""
        self._known_maker(maker)
        rows = list(self.upper.index) if batch is None else [self._known_batch(batch)]
        upper, lower = self.upper.copy(), self.lower.copy()
        upper.loc[rows, maker] = 0
        lower.loc[rows, maker] = 0
        return replace(self, upper=upper, lower=lower)

    def only(self, eligible: pd.DataFrame) -> Capacity:
        """The same with an eligibility table: cases (index) x makers (columns), True where allowed."""
        for name in eligible.columns:
            self._known_maker(str(name))
            if not pd.api.types.is_bool_dtype(eligible[name].dtype) or eligible[name].isna().any():
                raise DataError(f"eligibility of {name!r}: must be True or False for every case")
        if not eligible.index.is_unique:
            first = eligible.index[eligible.index.duplicated()][0]
            raise DataError(f"eligibility: case {show(first)} stands more than once")
        return replace(self, eligible=eligible)

    def limits(self, makers: Sequence[str], cases: int, batch: str | None = None) -> tuple[Limits, Limits]:
        """(lower, upper) for `makers` in their order, in a batch of `cases`; 0 for who is not on the roster.

        Raises `CapacityError` where no plan can hold the batch.
        """
        row = self._known_batch(batch)
        lower = self.lower.loc[row].reindex(list(makers), fill_value=0).to_numpy(np.int64)
        upper = self.upper.loc[row].reindex(list(makers), fill_value=0).to_numpy(np.int64)
        if MACHINE in makers and MACHINE not in self.upper:
            upper[list(makers).index(MACHINE)] = cases
        upper = np.minimum(upper, max(cases, int(lower.max(initial=0))))
        name = "" if row == ONE_BATCH else f"batch {row}: "
        if upper.sum() < cases:
            raise CapacityError(
                f"{name}{cases} cases, capacity {upper.sum()}; raise upper limits or let the machine decide"
            )
        if lower.sum() > cases:
            raise CapacityError(f"{name}{cases} cases, but lower limits ask for {lower.sum()}; lower them")
        return lower, upper

    def mask(self, cases: pd.Index, makers: Sequence[str]) -> NDArray[np.bool_] | None:
        """Eligibility as a boolean array of cases x makers, or None where everyone may get everything."""
        if self.eligible is None:
            return None
        table = self.eligible.reindex(index=cases, columns=list(makers), fill_value=True)
        return table.to_numpy(bool)

    @classmethod
    def _exactly(cls, makers: Sequence[str], shares: NDArray[np.float64], cases: int) -> Capacity:
        if not makers or cases < 0:
            raise ConfigError(f"capacity needs makers and cases, got {len(makers)} makers and {cases} cases")
        loads = apportion(shares / shares.sum(), cases)
        table = {str(name): int(load) for name, load in zip(makers, loads, strict=True)}
        return cls.of(table, table)

    def _known_batch(self, batch: str | None) -> str:
        name = ONE_BATCH if batch is None else str(batch)
        if name not in self.upper.index:
            if self.batches == (ONE_BATCH,):
                return ONE_BATCH
            raise CapacityError(
                f"batch {name!r} has no row in the capacity table, which has {len(self.upper)}: "
                f"{', '.join(self.batches[:5])}{', ...' if len(self.upper) > 5 else ''}"
                + compared(pd.Index([name]), self.upper.index, "in the table")
            )
        return name

    def _known_maker(self, maker: str) -> None:
        if maker not in self.upper.columns:
            raise DataError(f"{maker!r} is not on the roster" + did_you_mean(maker, self.makers))


def apportion(shares: NDArray[np.float64], total: int) -> Limits:
    """Whole numbers in these shares (they sum to 1) that sum to `total`; leftovers go to large remainders."""
    exact = shares * total
    parts = np.floor(exact + 1e-9).astype(np.int64)  # a share of 3 units must not become 2 by rounding
    parts[np.argsort(parts - exact, kind="stable")[: total - parts.sum()]] += 1
    return parts


def _whole_numbers(values: pd.Series, table: pd.DataFrame) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = ~(np.isfinite(numbers) & (numbers >= 0) & (numbers % 1 == 0))
    if bad.any():
        first = int(bad.argmax())
        raise DataError(
            f"column {values.name!r}: {bad.sum()} value(s) are no whole numbers of cases from 0 on, "
            f"first: {show(values.iloc[first])} for {table['maker'].iloc[first]!r}"
        )
    return pd.Series(np.minimum(numbers, UNLIMITED).astype(np.int64), values.index)


def _machines(frame: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    """Which rows are of machines."""
    if "kind" not in frame:
        return pd.Series(False, frame.index)
    kind = frame["kind"].fillna("person").astype(str).str.strip().str.lower()
    odd = ~kind.isin(["person", "machine"])
    if odd.any():
        first = int(odd.to_numpy().argmax())
        raise DataError(
            f"column 'kind': {odd.sum()} value(s) are neither person nor machine, first: "
            f"{show(frame['kind'].iloc[first])} for {table['maker'].iloc[first]!r}"
        )
    machine = kind == "machine"
    both = set(table["maker"][machine]) & set(table["maker"][~machine]) - {MACHINE}
    if both:
        raise DataError(f"column 'kind': {sorted(both)[0]!r} is a person in one row and a machine in another")
    return machine


def _check_rows(table: pd.DataFrame) -> None:
    twice = table.duplicated(["batch", "maker"]).to_numpy()
    if twice.any():
        row = table.iloc[int(twice.argmax())]
        raise DataError(
            f"column 'expert_id': {twice.sum()} maker(s) have two rows for one batch, "
            f"first: {row['maker']!r} in batch {row['batch']!r}"
        )
    above = (table["lower"] > table["upper"]).to_numpy()
    if above.any():
        row = table.iloc[int(above.argmax())]
        raise DataError(
            f"column 'lower': {above.sum()} value(s) above 'upper', first: {row['lower']} > {row['upper']} "
            f"for {row['maker']!r}"
        )


def _by_batch_and_maker(table: pd.DataFrame, column: str) -> pd.DataFrame:
    wide = table.pivot(index="batch", columns="maker", values=column)
    wide = wide.reindex(index=table["batch"].unique(), columns=table["maker"].unique())
    return wide.fillna(0).astype("int64").rename_axis(index=None, columns=None)
