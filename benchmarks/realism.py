"""How close the embedded world is to BAF: every figure beside the published or measured one.

    python benchmarks/realism.py --data PATH

PATH is the folder with ``baf_facts/``, the uniform sample and the alerts; by default the environment
variable DECCAF_SHARED_DATA. Exit code 0 if every bar holds, 1 if one fails, 2 without the data.

The constants of the world were fitted without every fifth row of the sample; the discriminator trains on the
other rows and is judged on that fifth and on freshly generated rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from deccaf.simulate import build_alert_sets, generate_applications
from deccaf.simulate.baf import CATEGORIES, COLUMNS, FEATURES, LABEL, MONTH

FILES = {
    "facts": "baf_facts/baf_facts.json",
    "numeric": "baf_facts/base_numeric_describe.csv",
    "sample": "baf_applications_uniform_1pct_months_0_to_5.parquet",
    "alerts": "baf_alerts_months_3_to_6.parquet",
}
DISCRIMINATOR = {"n_estimators": 300, "learning_rate": 0.04, "num_leaves": 15, "is_unbalance": True}
CLASSIFIER = {"n_estimators": 150, "learning_rate": 0.05, "max_depth": 3, "min_child_samples": 60}
PUBLISHED_SHARES = {3: 0.097, 4: 0.109, 5: 0.137, 6: 0.130, 7: 0.160}


@dataclass
class Report:
    """Prints rows as they come and counts the bars that fail."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)

    def section(self, title: str) -> None:
        """Print a heading."""
        print(f"\n{title}\n{'':44s} {'BAF':>12s} {'world':>12s} {'bar':>16s}  result", flush=True)

    def row(self, name: str, real: str, made: str, bar: str = "", held: bool | None = None) -> None:
        """Print one figure; `held` is None where there is no bar."""
        verdict = "" if held is None else "pass" if held else "FAIL"
        print(f"{name:44s} {real:>12s} {made:>12s} {bar:>16s}  {verdict}", flush=True)
        self.passed += held is True
        if held is False:
            self.failed.append(name)

    def close_to(self, name: str, real: float, made: float, within: float, bar: str, digits: int = 4) -> None:
        """A row whose bar is a distance from the published figure."""
        self.row(name, f"{real:.{digits}f}", f"{made:.{digits}f}", bar, bool(abs(made - real) <= within))


def marginals(report: Report, made: pd.DataFrame, facts: dict, numeric: pd.DataFrame) -> None:
    """Quartiles, category shares, missing codes."""
    report.section("Quartiles of numeric features (25 %, 50 %, 75 %)")
    for name in (c for c in numeric.index if c in FEATURES):
        row = numeric.loc[name]
        for label, share in (("25%", 0.25), ("50%", 0.5), ("75%", 0.75)):
            within = 0.1 * (row["max"] - row["min"])
            report.close_to(
                f"{name} {label}", row[label], made[name].quantile(share), within, "10 % of range", 3
            )
    report.section("Category shares")
    for name, counts in facts["categorical_counts"].items():
        for level, count in counts.items():
            report.close_to(f"{name} {level}", count / 1e6, made[name].eq(level).mean(), 0.02, "2 points")
    report.section("Missing codes (-1)")
    for name, count in facts["missing_minus_one"].items():
        column = name.removesuffix("_train_share")
        part, real = (made, count / 1e6) if column == name else (made[made[MONTH] < 6], count)
        report.close_to(column, real, part[column].eq(-1).mean(), 0.02, "2 points")


def frauds(report: Report, made: pd.DataFrame, facts: dict) -> None:
    """Fraud rate of every month."""
    report.section("Fraud rate")
    rates = made.groupby(MONTH)[LABEL].mean()
    for month in facts["per_month"]:
        real = month["fraud_rate"]
        report.close_to(
            f"month {month['month']}", real, rates[month["month"]], 0.1 * real, "10 % relative", 5
        )
    report.row("all months", "0.01103", f"{made[LABEL].mean():.5f}")


def alert_model(report: Report, made: pd.DataFrame, facts: dict) -> pd.DataFrame:
    """The alert model's behaviour on the world; returns its 5 % alerts."""
    report.section("Alert model at the 5 % threshold of month 3")
    sets = build_alert_sets(made)
    months = sets.months[0.05]
    caught = (months["tpr"] * months["frauds"]).sum() / months["frauds"].sum()
    published = facts["tpr_at_5pct_fpr"]["deccaf_paper_alert_model"]
    for name, real, found, low, high in (
        ("recall, month 3", published["month3_validation"], months.loc[3, "tpr"], 0.50, 0.62),
        ("recall, months 3-7", published["months3to7"], caught, 0.45, 0.58),
    ):
        report.row(
            name, f"{real:.3f}", f"{found:.3f}", f"{low:.2f} to {high:.2f}", bool(low <= found <= high)
        )
    for month, real in PUBLISHED_SHARES.items():
        found = months.loc[month, "fraud_share"]
        report.close_to(f"fraud share of alerts, month {month}", real, found, 0.3 * real, "30 % relative")
    for key, column in (("alert_TPR_by_month", "tpr"), ("alert_FPR_by_month", "fpr")):
        for month, real in facts[key].items():
            report.row(f"{column}, month {month}", f"{real:.4f}", f"{months.loc[int(month), column]:.4f}")
    report.row("threshold", f"{published['threshold']:.4f}", f"{sets.thresholds[0.05]:.4f}")
    return sets.sets[0.05]


def clean(sample: pd.DataFrame) -> pd.DataFrame:
    """The sample without the rows that its publisher damaged."""
    damaged = sample[["employment_status", "has_other_cards", "source"]].isna().any(axis=1)
    return sample[~(damaged | (sample["customer_age"] == -1) | (sample["velocity_24h"] == -1))]


def plain(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Same types for real and generated rows, so that types tell nothing."""
    return pd.DataFrame(
        {
            name: pd.Categorical(table[name], categories=list(CATEGORIES[name]))
            if name in CATEGORIES
            else table[name].to_numpy(dtype=float)
            for name in columns
        }
    )


def auc_between(
    train: list[pd.DataFrame], test: list[pd.DataFrame], columns: list[str], **params: float
) -> float:
    """AUC on `test` of a LightGBM that learns on `train` to tell the first table from the second."""
    labels = [np.repeat([1, 0], [len(first), len(second)]) for first, second in (train, test)]
    x_train, x_test = (pd.concat([plain(t, columns) for t in pair]) for pair in (train, test))
    model = lgb.LGBMClassifier(**params, random_state=0, n_jobs=2, verbose=-1).fit(x_train, labels[0])
    return float(roc_auc_score(labels[1], model.predict_proba(x_test)[:, 1]))


def like_months(table: pd.DataFrame, real: pd.DataFrame, times: int, seed: int) -> pd.DataFrame:
    """Generated rows with the month mix of the real ones, `times` as many."""
    counts = real[MONTH].value_counts() * times
    parts = [table[table[MONTH] == m].sample(n, random_state=seed) for m, n in counts.items()]
    return pd.concat(parts)


def discriminate(report: Report, made: pd.DataFrame, fresh: pd.DataFrame, sample: pd.DataFrame) -> None:
    """Can a LightGBM tell generated applications from real ones?"""
    report.section("Discriminator: AUC of telling the world from BAF (0.5 is indistinguishable)")
    held_back = sample.index % 5 == 0
    train = [sample[~held_back], like_months(made, sample[~held_back], 5, 1)]
    test = [sample[held_back], like_months(fresh, sample[held_back], 5, 2)]
    auc = auc_between(train, test, list(COLUMNS), **DISCRIMINATOR)
    report.row("applications, all 32 columns", "0.500", f"{auc:.3f}", "at most 0.85", auc <= 0.85)
    report.row("  below the bar by", "", f"{0.85 - auc:.3f}")


def alert_sets(report: Report, real: pd.DataFrame, made: pd.DataFrame) -> None:
    """Without bars: are alerts alike, and is fraud as hard to find among them?"""
    tables = [t[t[MONTH] < 7] for t in (real, made)]
    train, test = ([t[(t.index % 5 == 0) == held_back] for t in tables] for held_back in (False, True))
    auc = auc_between(train, test, list(COLUMNS), **DISCRIMINATOR)
    report.row("5 % alerts of months 3-6", "0.500", f"{auc:.3f}")
    found = []
    for table in tables:
        frauds_first = [table[table[LABEL] == label] for label in (1, 0)]
        train, test = [t[t[MONTH] < 6] for t in frauds_first], [t[t[MONTH] == 6] for t in frauds_first]
        found.append(auc_between(train, test, list(FEATURES), **CLASSIFIER))
    report.row("AUC of fraud among alerts, month 6", f"{found[0]:.3f}", f"{found[1]:.3f}", "(paper: 0.70)")


def main() -> int:
    """Print the whole table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("DECCAF_SHARED_DATA"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = args.data
    missing = [f for f in FILES.values() if folder is None or not (folder / f).is_file()]
    if missing:
        print(
            f"no data: {missing[0]} is not in {folder}; give --data or set DECCAF_SHARED_DATA",
            file=sys.stderr,
        )
        return 2
    facts = json.loads((folder / FILES["facts"]).read_text(encoding="utf-8"))
    numeric = pd.read_csv(folder / FILES["numeric"], index_col="feature")
    sample, alerts = (
        clean(pd.read_parquet(folder / FILES["sample"])),
        pd.read_parquet(folder / FILES["alerts"]),
    )
    made = generate_applications(1_000_000, seed=args.seed)
    fresh = generate_applications(200_000, seed=args.seed + 1)
    report = Report()
    marginals(report, made, facts, numeric)
    frauds(report, made, facts)
    made_alerts = alert_model(report, made, facts)
    discriminate(report, made, fresh, sample)
    alert_sets(report, alerts, made_alerts)
    print(
        f"\n{report.passed} bars hold, {len(report.failed)} fail" + "".join(f"\n  {f}" for f in report.failed)
    )
    return int(bool(report.failed))


if __name__ == "__main__":
    sys.exit(main())
