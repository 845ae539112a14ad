"""Numbers as people read them, for the tables of a benchmark's report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from deccaf.benchmark.sections import figures as pictures

PAPER_ROW = "paper"
MEASURED = "measured"


def heads(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a scenario, written for people."""
    shown = table.copy().rename_axis(columns=None)
    for name, title, fmt in (("alert_rate", "Alerts", "{:.0%}"), ("ratio", "Ratio", "{:g}"),
                             ("train_share", "Data", "{:.0%}")):  # fmt: skip
        if name in shown:
            shown[name] = shown[name].map(fmt.format)
            shown = shown.rename(columns={name: title})
    return shown


def plus(mean: float, half: float | None) -> str:
    """A mean with the half-width of its interval."""
    digits = 3 if abs(mean) < 2 else 2
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def scenario_of(row: Mapping[str, float] | pd.Series) -> str:
    """The name of a row's scenario; 'mean' where it has none."""
    if np.isnan(row["alert_rate"]):
        return "mean"
    return pictures.scenario_name(float(row["alert_rate"]), float(row["ratio"]))
