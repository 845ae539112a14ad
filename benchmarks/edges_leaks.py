"""Leaks: planted ones that are found, what they cost if nothing is said, and alarms where there are none.

The harm is the machine's: a classifier learns from months 3 to 6 of the embedded alerts with the column as it
stands in the file, and decides month 7, where the column is not known yet (or, for a number of the row, goes
on). Before: nothing is left out. After: what the look at the history is certain of is left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from deccaf import Cases, Costs, DeCCaF, DeccafWarning, Decisions, History
from deccaf.data.schema import Columns
from deccaf.evaluate.audit import audit
from deccaf.evaluate.leaks import find_leaks
from deccaf.evaluate.sentinels import find_sentinels
from deccaf.simulate import (
    SyntheticTeam,
    build_alert_sets,
    generate_applications,
    paper_group,
    random_history,
    threshold_cost,
)

ROLES = Columns(label="fraud_bool", time="month")
COSTS = Costs.binary(false_positive=0.057, false_negative=1.0)
Planted = Callable[[pd.DataFrame, pd.DataFrame, np.random.Generator], object]


def _row_number(cases: pd.DataFrame, log: pd.DataFrame, rng: np.random.Generator) -> object:
    del log, rng
    return np.argsort(np.argsort(cases["fraud_bool"].to_numpy(), kind="stable"))


PLANTED: dict[str, Planted] = {
    "the label": lambda c, _, __: c["fraud_bool"].to_numpy() * 10 + 3,
    "filled only for fraud": lambda c, _, __: np.where(c["fraud_bool"] == 1, 1.0, np.nan),
    "97 % proxy of the label": lambda c, _, r: np.abs(c["fraud_bool"].to_numpy() - (r.random(len(c)) < 0.03)),
    "the decision": lambda _, log, __: log["decision"].to_numpy() + 5,
    "row number, sorted by label": _row_number,
    "who decided": lambda _, log, __: log["expert_id"].to_numpy(),
    "one value per expert": lambda _, log, __: log["expert_id"].str[-1].astype(int).to_numpy() % 3,
}


def world(rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Alerts of the embedded world, and one decision of a random analyst on each."""
    frame = build_alert_sets(generate_applications(rows, seed=seed), (0.05,), seed=seed).sets[0.05]
    cases = Cases.from_frame(frame, columns=ROLES, costs=COSTS)
    cost = threshold_cost(cases, COSTS)
    team = SyntheticTeam.sample([paper_group()], cases, COSTS, seed, classifier_cost=cost)
    return frame, random_history(team, cases, seed)


def history(frame: pd.DataFrame, log: pd.DataFrame | None, roles: Columns = ROLES) -> History:
    """Both tables, checked."""
    cases = Cases.from_frame(frame, columns=roles, costs=COSTS)
    return History.of(cases, None if log is None else Decisions.from_frame(log, cases=cases))


def machine_cost(past: History, later: pd.DataFrame) -> float:
    """Cost per 100 later cases of a machine that learned from the past."""
    model = DeCCaF(COSTS, columns=ROLES).fit_history(past)
    cases = Cases.from_frame(later, columns=ROLES, costs=COSTS, schema=past.schema)
    said, truth = model.predict_decision(cases), later["fraud_bool"].to_numpy()
    return float(100 * (0.057 * ((said == 1) & (truth == 0)) + 1.0 * ((said == 0) & (truth == 1))).mean())


def harm(frame: pd.DataFrame, log: pd.DataFrame, seed: int) -> pd.DataFrame:
    """One row per planted leak."""
    early = frame["month"] < 7
    mine = log[log["case_id"].isin(frame.index[early])]
    clean = machine_cost(history(frame[early], None), frame[~early])
    rows = []
    for name, plant in PLANTED.items():
        column = plant(frame[early], mine, np.random.default_rng(seed))
        past = history(frame[early].assign(planted=column), mine)
        looked = audit(past, ROLES)
        found = next((leak for leak in looked.leaks.found if leak.column == "planted"), None)
        later = frame[~early].assign(planted=np.nan)
        if name.startswith("row number"):
            later = frame[~early].assign(planted=np.arange((~early).sum()) + early.sum())
        rows.append(
            {
                "planted": name,
                "found": "no" if found is None else "left out" if found.certain else "said",
                "before": machine_cost(History.of(past.cases), later),
                "after": machine_cost(History.of(looked.history.cases), later),
                "without the column": clean,
            }
        )
    return pd.DataFrame(rows)


def alarms(rows: int, worlds: int, shared: Path) -> pd.DataFrame:
    """Where nothing is planted: columns called leaks, values called sentinels, highest AUC of one alone."""
    found = []
    for seed in range(worlds):
        found.append((f"embedded world, seed {seed}", *_looked(history(*world(rows, seed)))))
    alerts = shared / "baf_alerts_months_3_to_6.parquet"
    viper = shared / "viper_mammography"
    if alerts.is_file():
        found.append(("real alerts", *_looked(history(pd.read_parquet(alerts), None))))
    if viper.is_dir():
        women = Columns(group=("group",))
        cases, log = pd.read_parquet(viper / "cases.parquet"), pd.read_parquet(viper / "decisions.parquet")
        found.append(("VIPER", *_looked(history(cases, log, women))))
        count = log["case_id"].value_counts().reindex(cases["case_id"]).to_numpy()
        found.append(("VIPER + readings", *_looked(history(cases.assign(readings=count), log, women))))
    return pd.DataFrame(
        found,
        columns=["data", "cases", "columns", "called leaks or sentinels", "best label", "best decision"],
    )


def _looked(past: History) -> tuple[int, int, str, str, str]:
    leaks = find_leaks(past)
    label = max(leaks.alone, key=lambda one: one.label)
    decision = max(leaks.alone, key=lambda one: np.nan_to_num(one.decision))
    named = [leak.column for leak in leaks.found]
    named += [f"{one.column} = {one.value}" for one in find_sentinels(past)]
    said = ", ".join(named) or "none"
    best = f"{label.label:.3f} {label.column}"
    return len(past.cases), len(leaks.alone), said, best, f"{decision.decision:.3f} {decision.column}"


def main(arguments: list[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="applications of the embedded world")
    parser.add_argument("--worlds", type=int, default=5, help="worlds without a leak")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the real data")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", DeccafWarning)
    frame, log = world(options.rows, 100)
    print(f"Cost per 100 cases of the machine in month 7, {len(frame):,} alerts of the embedded world")
    print(harm(frame, log, 100).to_string(index=False, float_format="{:.2f}".format))
    print("\nWhere nothing is planted")
    print(alarms(options.rows, options.worlds, options.shared).to_string(index=False))
