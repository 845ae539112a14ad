"""Why a search can make the paper's classifier dearer: log-loss and cost of every setting that is tried.

    python benchmarks/classifier_alone.py --alerts FILE [--ratio 0.057] [--trials 24]

FILE are alerts of months 3 to 7 (`world/rate-0.05/alerts.parquet` of a benchmark's folder). The fixed
settings with every initial score, and the search of the profile `standard`, learn from months 3 to 5;
log-loss, cost per 100 cases and the share of cases let pass are those of month 6, which chooses, and
(`_test`) of month 7, which does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deccaf.benchmark.profile import MonthsTable, TeamTable
from deccaf.benchmark.scene import Setting
from deccaf.benchmark.search import Wanted, paper_features
from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.data.files import read_frame
from deccaf.data.schema import Columns
from deccaf.models.paper.paper_classifier import OFFSETS, QUICK, ClassifierRows
from deccaf.models.paper.searching import split_offset, with_offset
from deccaf.models.paper.spaces import SEARCHES
from deccaf.models.paper.tuning import tune
from deccaf.models.trees import boosting

COLUMNS = Columns(label="fraud_bool", time="month")


def main() -> int:
    """Print every setting, and which one each way to choose takes."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--alerts", type=Path, required=True)
    parser.add_argument("--ratio", type=float, default=0.057)
    parser.add_argument("--trials", type=int, default=24)
    options = parser.parse_args()
    cases = Cases.from_frame(read_frame(options.alerts), columns=COLUMNS, require=("label", "time"))
    trials = Trials(Setting(cases, MonthsTable(), TeamTable(), "model_score"), options.ratio)
    for params in QUICK:
        for offset in OFFSETS:
            trials.tried("fixed", params, offset)
    budget = Wanted("classifier", "classifier", options.trials, 1).trials
    search = with_offset(SEARCHES["classifier"], None)
    tune(lambda params: trials.tried("search", *split_offset(params)), search, budget)
    table = pd.DataFrame(trials.rows)
    print(table.round(4).to_string())
    for kind, rows in (("fixed", table[table["kind"] == "fixed"]), ("all", table)):
        for by in ("loss", "cost"):
            best = rows.loc[rows[by].idxmin()].to_dict()
            print(f"{kind}, least {by}: {best}")
    return 0


class Trials:
    """Settings tried on the cases of a benchmark, and what came of each."""

    def __init__(self, setting: Setting, ratio: float) -> None:
        scene, costs = setting.scene(), Costs.binary(ratio)
        features, weight = paper_features(setting, scene), costs.case_weights(scene.label)
        self.data = ClassifierRows.of(features, scene.label, weight, validation=scene.held)
        month_6, label, on_held = self.data.held
        month_7 = self.data.encoder.transform(scene.test.features[list(features)])
        self.months = (
            (month_6, label, on_held),
            (month_7, scene.truth, costs.case_weights(scene.truth)),
        )
        self.rows: list[dict[str, Any]] = []
        for name, (_, truth, weights) in zip(("6", "7"), self.months, strict=True):
            rejecting = 100 * float((weights * (truth == 0)).mean())
            print(f"month {name}: {truth.mean():.1%} fraud; rejecting everything costs {rejecting:.2f}")

    def tried(self, kind: str, params: Mapping[str, Any], offset: float) -> float:
        """Fit, note, and give the log-loss of month 6."""
        booster, start, loss = self.data.tried(params, offset)
        row: dict[str, Any] = {"kind": kind, "depth": params["max_depth"], "rate": params["learning_rate"],
                               "trees": params["n_estimators"], "offset": offset, "loss": loss}  # fmt: skip
        for name, (matrix, truth, weights) in zip(("", "_test"), self.months, strict=True):
            says = boosting.log_chances(booster, matrix, 2, start).argmax(axis=1)
            row[f"cost{name}"] = 100 * float((weights * (says != truth)).mean())
            row[f"passed{name}"] = float(np.mean(says == 0))
        self.rows.append(row)
        return loss


if __name__ == "__main__":
    sys.exit(main())
