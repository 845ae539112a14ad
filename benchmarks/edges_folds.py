"""Calibration by group: VIPER split by woman, with corrections chosen by row (before) and by woman (after).

Five folds of women; in each the decision model learns from the others, and the same parts are corrected as
held-out rows chose, row by row or woman by woman. Log-loss of decisions given the truth, and of the truth.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from deccaf import Cases, Columns
from deccaf.data.folds import fold_of
from deccaf.errors import DeccafWarning
from deccaf.models.blending.calibrate import Calibrator
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.decisions.model import DecisionModel

VIPER = Path(__file__).parents[2] / "shared" / "data" / "viper_mammography"


def both(fit: Any) -> tuple[Any, list[Calibrator]]:
    """A fitted model, and the corrections that it would have by row."""
    calls, real = [], Calibrator.fit

    def recorded(self: Calibrator, log_p: Any, target: Any, weight: Any, group: Any, time: Any) -> Calibrator:
        calls.append((log_p, target, weight))
        return real(self, log_p, target, weight, group, time)

    with mock.patch.object(Calibrator, "fit", recorded):
        model = fit()
    return model, [Calibrator(seed=model.seed).fit(*call) for call in calls]


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, default=VIPER)
    parser.add_argument("--parts", nargs="*", default=["rates", "pooled"])
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", DeccafWarning)
    cases = Cases.read(options.data / "cases.parquet", columns=Columns(group=("group",)), require=("label",))
    log = pd.read_parquet(options.data / "decisions.parquet")
    women, at = cases.groups["group"], cases.positions(log["case_id"])
    fold = fold_of(len(cases), 5, group=women)
    who, said, truth = log["expert_id"].to_numpy(str), log["decision"].to_numpy(np.int64), cases.label
    rows: list[dict[str, object]] = []

    def score(what: str, model: Any, by_row: list[Calibrator], loss: Any) -> None:
        by_group = model.calibrators_
        for way, chosen in (("by row (before)", by_row), ("by woman", by_group)):
            model.calibrators_ = chosen
            kinds = "/".join(one.kind_ for one in chosen)
            rows.append({"what": what, "folds": way, "log-loss": loss(model), "chosen": kinds})

    for k in range(5):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        table, label, group = cases.features.iloc[train], truth[train], women.iloc[train]
        classifier = CaseClassifier(parts=("logistic",))
        model, by_row = both(partial(classifier.fit, table, label, group=group))

        def of_truth(m: CaseClassifier, test: Any = test) -> float:
            return float(
                -np.log(m.predict(cases.features.iloc[test])[np.arange(len(test)), truth[test]]).mean()
            )

        score("truth", model, by_row, of_truth)
        out = np.flatnonzero(fold[at] == k)
        order = np.random.default_rng(k).permutation(np.flatnonzero(fold[at] != k))
        for what, mine in (
            ("decisions, one per case", order[np.unique(at[order], return_index=True)[1]]),
            ("decisions, all", np.sort(order)),
        ):
            place = at[mine]
            fit = DecisionModel(parts=options.parts).fit
            told = (cases.features.iloc[place], truth[place], who[mine], said[mine])
            model, by_row = both(partial(fit, *told, group=women.iloc[place]))

            def of(m: DecisionModel, out: Any = out) -> float:
                q = m.predict_rows(cases.features.iloc[at[out]], truth[at[out]], who[out].tolist())
                return float(-np.log(q[np.arange(len(out)), said[out]]).mean())

            score(what, model, by_row, of)
    table = pd.DataFrame(rows)
    shown = table.groupby(["what", "folds"], sort=False).agg(
        {"log-loss": "mean", "chosen": lambda kinds: ", ".join(sorted(set(kinds)))}
    )
    print(shown.round(4).to_string())
