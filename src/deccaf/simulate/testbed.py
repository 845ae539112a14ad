"""Testbeds: cases in batches, and how much each maker may get of each batch.

`batches_by_size` and `batches_by_time` cut the cases; `sample_capacity` draws the limits of a `Workload`; the
paper's five settings have names: `paper_capacity("homogeneous", ...)`, `paper_capacity("variable-1", ...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.capacity import UNLIMITED, Capacity, apportion
from deccaf.data.cases import Cases
from deccaf.data.costs import MACHINE
from deccaf.errors import ConfigError, did_you_mean
from deccaf.simulate.seeds import Seed, root_of, stream

Array = NDArray[np.float64]

PAPER_SETTINGS = ("homogeneous", "variable-1", "variable-2", "variable-3", "variable-4")
"""A tenth each for the classifier and nine experts, and four draws from N(n/10, n/50)."""


@dataclass(frozen=True)
class Workload:
    """How the cases of a batch are shared out.

    The default is the paper's: machine and experts get exactly the same number each.
    """

    spread: float = 0.0
    """0: homogeneous. Else shares are drawn from N(1, spread) of the mean share."""
    deferral_rate: float | None = None
    """Share of each batch that goes to the experts together; None: the machine is one maker among equals."""
    absent: float = 0.0
    """Share of the experts that are away from a batch; the others do their work."""
    per_batch: bool = True
    """Whether shares and absences are drawn anew for each batch, or once for all."""
    exact: bool = True
    """Equalities (the paper's), or upper limits for the experts and no limit for the machine."""

    def __post_init__(self) -> None:
        if self.spread < 0:
            raise ConfigError(f"spread must not be negative, got {self.spread}")
        if self.deferral_rate is not None and not 0 <= self.deferral_rate <= 1:
            raise ConfigError(f"deferral_rate must lie between 0 and 1, got {self.deferral_rate}")
        if not 0 <= self.absent < 1:
            raise ConfigError(f"absent must be a share from 0 to below 1, got {self.absent}")


def batches_by_size(
    cases: Cases, size: int, seed: Seed | None = None, *, within_time: bool = True
) -> pd.Series:
    """A batch name for each case: `size` cases each, in order, or shuffled where a seed is given.

    Batches do not cross from one time to the next where the cases have times (`within_time`); the last batch
    of a time is smaller.
    """
    if size < 1:
        raise ConfigError(f"a batch must hold at least one case, got {size}")
    order = np.arange(len(cases)) if seed is None else np.random.default_rng(seed).permutation(len(cases))
    period = np.zeros(len(cases), np.int64)
    if within_time and cases.time is not None:
        period = pd.factorize(cases.time, sort=True)[0].astype(np.int64)
    table = pd.DataFrame({"period": period[order], "place": order})
    table = table.sort_values("period", kind="stable")
    table["chunk"] = table.groupby("period").cumcount() // size
    number = table.groupby(["period", "chunk"], sort=True).ngroup().to_numpy() + 1
    names = np.empty(len(cases), dtype=object)
    names[table["place"].to_numpy()] = number.astype(str)
    return pd.Series(names, index=cases.ids, name="batch").astype("str")


def batches_by_time(cases: Cases, every: float | str | None = None) -> pd.Series:
    """A batch name for each case: its time, or the interval of width `every` that holds it.

    `every` is a number for numeric times and a pandas frequency ("D", "W") for dates.
    """
    if cases.time is None:
        raise ConfigError("batches by time: the cases have no time column; name it under [columns] time")
    time = cases.time
    if every is None:
        names = time.astype(str)
    elif isinstance(every, str):
        if not pd.api.types.is_datetime64_any_dtype(time.dtype):
            raise ConfigError(f"batches by time: every = {every!r} needs dates, the times are {time.dtype}")
        names = time.dt.to_period(every).astype(str)
    else:
        if every <= 0 or not pd.api.types.is_numeric_dtype(time.dtype):
            raise ConfigError(f"batches by time: every = {every!r} needs a positive width and numeric times")
        names = (np.floor(time / every) * every).map("{:g}".format)
    return pd.Series(names.to_numpy(), index=cases.ids, name="batch").astype("str")


def sample_capacity(batch: pd.Series, experts: Sequence[str], workload: Workload, seed: Seed) -> Capacity:
    """Limits for every batch that `batch` names, in the order of first appearance."""
    if not experts:
        raise ConfigError("capacity needs at least one expert")
    root = root_of(seed)
    sizes = batch.value_counts(sort=False).reindex(batch.unique())
    rows = []
    for name, size in sizes.items():
        drawn = str(name) if workload.per_batch else "all"
        shares = _shares(experts, workload, stream(root, "share", drawn), stream(root, "absence", drawn))
        loads = apportion(shares, int(size))
        for maker, load in zip([MACHINE, *experts], loads.tolist(), strict=True):
            upper = load if workload.exact or maker != MACHINE else UNLIMITED
            rows.append((str(name), maker, upper, load if workload.exact else 0))
    return Capacity.from_frame(pd.DataFrame(rows, columns=["batch", "expert_id", "upper", "lower"]))


def paper_capacity(setting: str, cases: int, experts: Sequence[str], seed: int = 0) -> Capacity:
    """One of the paper's five settings, for one batch: exact loads that sum to the number of cases."""
    if setting not in PAPER_SETTINGS:
        raise ConfigError(
            f"unknown setting {setting!r}; known are {', '.join(PAPER_SETTINGS)}"
            + did_you_mean(setting, PAPER_SETTINGS)
        )
    makers = [MACHINE, *experts]
    if setting == PAPER_SETTINGS[0]:
        return Capacity.equal(makers, cases)
    return Capacity.sample(makers, cases, stream(seed, setting), spread=0.2)


def _shares(
    experts: Sequence[str], workload: Workload, rng: np.random.Generator, away: np.random.Generator
) -> Array:
    """Shares of machine and experts, summing to 1."""
    shares = np.clip(rng.normal(1.0, workload.spread, 1 + len(experts)), 0.0, None)
    absent = int(workload.absent * len(experts) + 1e-9)
    shares[1 + away.permutation(len(experts))[:absent]] = 0.0
    if not shares[1:].any():
        shares[1:] = 1.0  # every draw was cut off at 0: a spread so wide says nothing about anyone
    if workload.deferral_rate is None:
        return np.asarray(shares / shares.sum())
    of_experts = workload.deferral_rate * shares[1:] / shares[1:].sum()
    return np.concatenate([[1.0 - workload.deferral_rate], of_experts])
