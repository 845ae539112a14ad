"""What is to be decided, and what was: `AssignmentProblem` and `Assignment`.

Inputs are checked here, once; everything behind trusts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.assign.exact.scan import Floats, Ints, map_chunks
from deccaf.data.frames import as_pandas, plain_columns
from deccaf.data.notebook import card
from deccaf.errors import ConfigError, DataError

LARGEST_TOTAL = 1e306  # sums of losses and prices must stay finite

LimitsLike = ArrayLike | Mapping[Any, float] | pd.Series | None


@dataclass(frozen=True, eq=False)
class AssignmentProblem:
    """Cases, makers, what each pair costs, and how many cases each maker must and may get.

    Build it with `of`, which checks; `upper` and `lower` are whole numbers, `upper` at most the number of
    cases.
    """

    loss: Any
    """Cases x makers: an array, or a `StoredMatrix`."""
    upper: Ints
    lower: Ints
    eligible: Any = None
    """The same of truth values, or None where everybody may do everything."""
    cases: pd.Index | None = None
    makers: pd.Index | None = None
    name: str = ""

    @classmethod
    def of(
        cls,
        loss: pd.DataFrame | ArrayLike,
        upper: LimitsLike,
        lower: LimitsLike = None,
        eligible: pd.DataFrame | ArrayLike | None = None,
        name: str = "",
    ) -> AssignmentProblem:
        """Check the inputs. Frames keep their labels; limits by label are put in the frame's order."""
        cases = makers = None
        loss, eligible = _tabular(loss), None if eligible is None else _tabular(eligible)
        if isinstance(loss, pd.DataFrame):
            cases, makers = loss.index, loss.columns
            _check_unique(makers)
        values = _loss_values(loss)
        n, count = values.shape
        mask = _mask(eligible, values.shape, cases, makers)
        if np.ma.is_masked(loss):  # a cell without a loss: nobody may be given that case there
            shown = ~np.ma.getmaskarray(np.ma.asarray(loss))
            mask = shown if mask is None else mask & shown
        most = _limits(upper, "upper", count, makers, n)
        least = np.zeros(count, np.int64) if lower is None else _limits(lower, "lower", count, makers, None)
        problem = cls(values, np.minimum(most, n), least, mask, cases, makers, name)
        problem._check_limits(most)
        problem._check_losses()
        return problem

    @property
    def shape(self) -> tuple[int, int]:
        """Cases and makers."""
        return self.loss.shape[0], self.loss.shape[1]

    def maker_name(self, position: int) -> str:
        """A maker as the user calls it."""
        return f"maker {position}" if self.makers is None else str(self.makers[position])

    def case_name(self, position: int) -> str:
        """A case as the user calls it."""
        return f"case {position}" if self.cases is None else f"case {self.cases[position]!r}"

    def _check_limits(self, most: Ints) -> None:
        wrong = np.flatnonzero(self.lower > most)
        if len(wrong):
            j = int(wrong[0])
            raise ConfigError(
                f"{self.maker_name(j)}: lower limit {self.lower[j]} above upper limit {most[j]}"
                f" ({len(wrong)} makers in all)"
            )

    def _check_losses(self) -> None:
        """Every loss that counts is finite, and their sum too. One pass, no copy."""

        def work(start: int, stop: int) -> float:
            block = self.loss[start:stop]
            if self.eligible is not None:
                block = np.where(self.eligible[start:stop], block, 0)
            return float(max(-block.min(), block.max())) if block.size else 0.0  # NaN comes through

        largest = np.array(map_chunks(work, self.loss))
        if not np.isfinite(largest).all():
            self._name_offenders()
        if largest.size and largest.max() * self.shape[0] > LARGEST_TOTAL:
            raise DataError(
                f"loss: values up to {largest.max():.3g} add up beyond what a float can hold; rescale"
            )

    def _name_offenders(self) -> None:
        def work(start: int, stop: int) -> tuple[int, int]:
            wrong = ~np.isfinite(self.loss[start:stop])
            if self.eligible is not None:
                wrong &= self.eligible[start:stop]
            flat = np.flatnonzero(wrong)
            return len(flat), int(flat[0]) + start * self.shape[1] if len(flat) else -1

        parts = map_chunks(work, self.loss)
        first = next(where for _, where in parts if where >= 0)
        i, j = divmod(first, self.shape[1])
        raise DataError(
            f"loss: {sum(count for count, _ in parts):,} values are not finite, first: {self.loss[i, j]}"
            f" for {self.case_name(i)}, {self.maker_name(j)}; say who may not do what with `eligible`"
        )


@dataclass(frozen=True, eq=False)
class Assignment:
    """A plan and its certificate.

    `maker` is the column of every case. `objective` is the plan's total loss, and no plan is cheaper than
    `objective - gap`: the bound follows from `prices` alone (see `verify`), integer and floating-point
    rounding included, so it is seldom exactly 0.

    `prices[j]` is what one more unit of maker j's upper limit saves; 0 where there is room. It is negative
    where a lower limit forces cases onto a maker: one more unit of that costs `-prices[j]`. Where lower and
    upper limit are equal, one more unit of both saves `prices[j]`. Two cases are special: with equalities
    throughout only differences mean something, the smallest price is 0, and `prices[j]` is what a unit moved
    to j from the best other maker saves; with all makers at their lower limits and room above, one unit less
    of the lower limit saves `-prices[j]`.

    `stopped` is true if the time limit ended the search: then there may be a better plan, by `gap` at most,
    and a run on a quieter machine may find it. Otherwise the same input and seed give the same plan.
    """

    maker: NDArray[np.int32]
    objective: float
    prices: Floats
    gap: float
    method: str
    seconds: float
    cases: pd.Index | None = field(default=None, repr=False)
    makers: pd.Index | None = field(default=None, repr=False)
    stopped: bool = False

    def _repr_html_(self) -> str:
        names = [f"maker {j}" for j in range(len(self.prices))] if self.makers is None else self.makers
        table = pd.DataFrame({"cases": self.load, "price": self.prices}, index=pd.Index(names))
        lines = [
            f"{len(self.maker):,} cases, total loss {self.objective:,.6g}",
            f"proved: no plan within the limits is better by more than {self.gap:.3g}",
            f"{self.method}, {self.seconds:.3f} s" + (", stopped by the time limit" if self.stopped else ""),
        ]
        return card("Assignment", lines, table)

    @property
    def load(self) -> Ints:
        """Cases by maker."""
        return np.bincount(self.maker, minlength=len(self.prices))

    @property
    def labels(self) -> pd.Series:
        """The maker of every case by name, on the frame's index (positions where there was no frame)."""
        index = pd.RangeIndex(len(self.maker)) if self.cases is None else self.cases
        names = pd.RangeIndex(len(self.prices)) if self.makers is None else self.makers
        return pd.Series(names.take(self.maker), index=index, name="maker")


def _tabular(table: Any) -> Any:
    """Frames of any kind as pandas with plain columns; arrays as they are."""
    if isinstance(table, pd.DataFrame):
        return plain_columns(table)
    return as_pandas(table) if hasattr(table, "columns") else table


def _loss_values(loss: pd.DataFrame | ArrayLike) -> NDArray[Any]:
    values = loss.to_numpy() if isinstance(loss, pd.DataFrame) else np.asarray(loss)
    if values.ndim != 2:
        raise DataError(f"loss: expected cases x makers, got {values.ndim} dimensions")
    if values.shape[1] == 0:
        raise DataError("loss: no makers")
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype.kind not in "biuf":
        raise DataError(f"loss: expected numbers, got {values.dtype}")
    return values.astype(np.float64)


def _mask(
    eligible: pd.DataFrame | ArrayLike | None,
    shape: tuple[int, int],
    cases: pd.Index | None,
    makers: pd.Index | None,
) -> NDArray[np.bool_] | None:
    if eligible is None:
        return None
    if isinstance(eligible, pd.DataFrame) and makers is not None and cases is not None:
        if set(eligible.columns) != set(makers) or len(eligible) != len(cases):
            raise DataError("eligible: rows and columns must be those of loss")
        if not eligible.index.equals(cases) or not eligible.columns.equals(makers):
            if not (eligible.index.is_unique and eligible.index.isin(cases).all()):
                raise DataError("eligible: rows must be those of loss")
            eligible = eligible.loc[cases, makers]
    mask = eligible.to_numpy() if isinstance(eligible, pd.DataFrame) else np.ma.filled(eligible, False)
    if mask.shape != shape:
        raise DataError(f"eligible: shape {mask.shape}, but loss has {shape}")
    if mask.dtype != np.bool_:
        if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
            raise DataError("eligible: expected True or False for every case and maker")
        mask = mask.astype(np.bool_)
    return mask


def _limits(given: LimitsLike, what: str, count: int, makers: pd.Index | None, unlimited: int | None) -> Ints:
    """Whole numbers, one per maker; `inf` means no upper limit."""
    if np.ma.is_masked(given):
        raise ConfigError(f"{what}: some limits are masked; say `inf` for no limit, 0 for nobody")
    if isinstance(given, pd.Series | Mapping):
        given = _in_order(given, what, count, makers)
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: expected numbers, got {given!r}") from error
    if values.ndim == 0:
        values = np.full(count, float(values))
    if values.shape != (count,):
        raise ConfigError(f"{what}: {values.shape} limits for {count} makers")
    if unlimited is not None:
        values = np.where(values == np.inf, float(unlimited), values)
    wrong = np.flatnonzero(~((values >= 0) & (values == np.floor(values)) & (values < 2.0**53)))
    if len(wrong):
        j = int(wrong[0])
        label = f"maker {j}" if makers is None else str(makers[j])
        raise ConfigError(
            f"{what}: {len(wrong)} limits are not whole numbers of at least 0, first: {values[j]} for {label}"
        )
    return values.astype(np.int64)


def _in_order(
    given: pd.Series | Mapping[Any, float], what: str, count: int, makers: pd.Index | None
) -> Sequence[float]:
    names = list(makers) if makers is not None else list(range(count))
    if makers is None and isinstance(given, pd.Series):
        return [float(value) for value in given]
    missing = [name for name in names if name not in given]
    unknown = [name for name in given.keys() if name not in set(names)]  # noqa: SIM118 (a Series iterates values)
    if missing or unknown:
        raise ConfigError(f"{what}: no limit for {missing[:5]}; unknown makers {unknown[:5]}")
    return [float(given[name]) for name in names]


def _check_unique(makers: pd.Index) -> None:
    if not makers.is_unique:
        raise DataError(f"loss: maker {makers[makers.duplicated()][0]!r} has more than one column")
