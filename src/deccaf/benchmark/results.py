"""The results of a benchmark as one table: one row per variation and policy."""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from deccaf.benchmark.profile import GridTable, Profile
from deccaf.benchmark.store import Store
from deccaf.data.files import write_frame
from deccaf.errors import DataError

RESULTS: Final = "results.parquet"
VARIATION: Final = ("alert_rate", "ratio", "train_share", "training_seed", "capacity_seed", "workload")
TYPES: Final = {
    "alert_rate": "float64", "ratio": "float64", "train_share": "float64", "training_seed": "int64",
    "capacity_seed": "int64", "policy": "str", "n": "int64", "fp": "int64", "fn": "int64", "tp": "int64",
    "tn": "int64", "cost_per_100": "float64", "expected_cost_per_100": "float64", "assign_seconds": "float64",
    "workload": "str",
}  # fmt: skip
"""The columns of the results; `assign_seconds` is the only one that differs from run to run. A file has
`workload` only where the profile has workloads: without, it has the columns that others build on, no more."""

_CELL = re.compile(r"rate-(.+?)_ratio-(.+?)_share-(.+?)_seed-(\d+)(?:_workload-([^_]+))?_capacity-(\d+)")


def collect(store: Store) -> pd.DataFrame:
    """All finished cells, in the order of the variations and of the policies as they were asked for."""
    rows = []
    for key in store.finished("cells"):
        variation = variation_of(key)
        report = store.report(key)
        rows += [{**variation, "order": k, **row} for k, row in enumerate(report["outcomes"])]
    if not rows:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in TYPES.items()})
    table = pd.DataFrame(rows).sort_values([*VARIATION, "order"], kind="stable", ignore_index=True)
    table = table[list(TYPES)]
    return table.astype(TYPES)


def write_results(store: Store, profile: Profile) -> pd.DataFrame:
    """Write results.parquet of all finished cells; give the rows of the profile's grid."""
    table = collect(store)
    write_frame(as_stored(table), store.folder / RESULTS)
    grid = profile.grid
    inside = (
        table["alert_rate"].isin(grid.alert_rates)
        & table["ratio"].isin(grid.cost_ratios)
        & table["train_share"].isin(grid.shares)
        & table["training_seed"].isin(grid.seeds)
        & _shared_out(table, grid)
        & table["policy"].isin(grid.policies)
    )
    return table[inside].reset_index(drop=True)


def as_stored(table: pd.DataFrame) -> pd.DataFrame:
    """The results as results.parquet has them."""
    return table if table["workload"].any() else table.drop(columns="workload")


def _shared_out(table: pd.DataFrame, grid: GridTable) -> pd.Series:
    """Whether a row is of one of the grid's settings of the capacity, or of its workloads."""
    draws = {"": grid.capacities, **{workload.name: workload.draws for workload in grid.workloads}}
    inside = pd.Series(False, table.index)
    for name, numbers in draws.items():
        inside |= (table["workload"] == name) & table["capacity_seed"].isin(numbers)
    return inside


def variation_of(key: str) -> dict[str, Any]:
    """What the name of a cell's folder says."""
    found = _CELL.fullmatch(key.split("/")[-1])
    if found is None:
        raise DataError(f"{key}: not the folder of a cell")
    rate, ratio, share, seed, workload, capacity = found.groups()
    numbers = (float(rate), float(ratio), round(float(share) / 100, 6), int(seed), int(capacity))
    values = (*numbers, workload or "")
    return dict(zip(VARIATION, values, strict=True))
