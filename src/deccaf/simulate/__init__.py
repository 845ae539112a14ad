"""Worlds to run in: applications, the alert model that screens them, teams that review the alerts.

An *application* is a request for a bank account, with BAF's 30 features, a month and, later, a label
(`fraud_bool`). An *alert* is an application whose model score reaches a threshold; alerts are the cases
that a team reviews. `generate_applications` makes applications, `load_baf` reads the real ones, and
`build_alert_sets` turns either into the alert sets of the benchmark. A *team* is people who look at
different things and err with known chances (`SyntheticTeam`); a *history* is who decided what
(`random_history`); a *testbed* is batches and capacities (`Workload`, `paper_capacity`).
"""

from deccaf.simulate.alerts import (
    AlertModel,
    AlertSets,
    Roc,
    Tuning,
    build_alert_sets,
    cost_ratio,
    month_table,
    roc,
    tune_alert_model,
)
from deccaf.simulate.applications import generate_applications
from deccaf.simulate.baf import load_baf
from deccaf.simulate.history import history, random_history, skilled_propensity
from deccaf.simulate.teams.build import build_team, paper_group, threshold_cost
from deccaf.simulate.teams.config import Group, TeamConfig
from deccaf.simulate.teams.files import load_team, save_team
from deccaf.simulate.teams.team import SyntheticTeam
from deccaf.simulate.testbed import Workload, paper_capacity, sample_capacity

__all__ = [
    "AlertModel",
    "AlertSets",
    "Group",
    "Roc",
    "SyntheticTeam",
    "TeamConfig",
    "Tuning",
    "Workload",
    "build_alert_sets",
    "build_team",
    "cost_ratio",
    "generate_applications",
    "history",
    "load_baf",
    "load_team",
    "month_table",
    "paper_capacity",
    "paper_group",
    "random_history",
    "roc",
    "sample_capacity",
    "save_team",
    "skilled_propensity",
    "threshold_cost",
    "tune_alert_model",
]
