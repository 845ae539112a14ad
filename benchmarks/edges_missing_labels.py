"""Missing labels: how often it is said that they are missing because of the decision, and if they are not.

Cases with a decision each; labels are missing after a rejection with the chance in the first column and after
anything else with the one in the second. Late labels are missing after every decision alike.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from deccaf import Costs, Decisions, History
from deccaf.data.cases import Cases
from deccaf.evaluate.selective import missing_labels_by_decision

SHARES = ((0.97, 0.02), (0.60, 0.30), (0.20, 0.05), (0.13, 0.10), (0.30, 0.30), (0.02, 0.02))


def desk(rows: int, rejected: float, other: float, rng: np.random.Generator) -> History:
    """A desk that rejects three in ten."""
    said = (rng.random(rows) < 0.3).astype(int)
    lost = rng.random(rows) < np.where(said == 1, rejected, other)
    label = pd.Series(rng.integers(0, 2, rows)).astype("Int64").mask(lost)
    frame = pd.DataFrame({"case_id": np.arange(rows), "x": rng.normal(size=rows), "label": label})
    cases = Cases.from_frame(frame, costs=Costs.binary(1.0))
    log = pd.DataFrame({"case_id": frame["case_id"], "expert_id": "ann", "decision": said})
    return History.of(cases, Decisions.from_frame(log, cases=cases))


def main(arguments: list[str]) -> None:
    """Print the shares of desks whose pattern is named."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--worlds", type=int, default=200, help="desks of each kind")
    options = parser.parse_args(arguments)
    rows = []
    for rejected, other in SHARES:
        row: dict[str, object] = {"missing, rejected": f"{rejected:.0%}", "missing, others": f"{other:.0%}"}
        for size in (100, 500, 5000):
            rng = np.random.default_rng(size)
            named = [
                missing_labels_by_decision(desk(size, rejected, other, rng)).selective
                for _ in range(options.worlds)
            ]
            row[f"named, {size} cases"] = f"{np.mean(named):.1%}"
        rows.append(row)
    print(pd.DataFrame(rows).to_string(index=False))
