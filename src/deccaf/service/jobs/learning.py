"""What jobs learn from: the ledger's labelled cases, people's decisions, and how to learn."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd
import sqlalchemy as sa

from deccaf.data.config import Config
from deccaf.data.costs import MACHINE, Costs
from deccaf.errors import DataError
from deccaf.service.decide import registry
from deccaf.service.ledger import versions
from deccaf.service.store import tables as t
from deccaf.service.store.settings import read_setting

SETTING = "learning"
"""The setting that holds the tables `columns`, `costs` and `model` of a configuration file."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """A history and how to learn from it."""

    cases: pd.DataFrame
    """`case_id`, features, `label`, `time`."""
    decisions: pd.DataFrame
    """`case_id`, `expert_id`, `decision`."""
    config: Config | None
    costs: Costs | None
    """Of the model in force, where no configuration was set."""

    def check(self, remedy: str) -> None:
        """Refuse a history that nothing can be learned from."""
        if self.config is None and self.costs is None:
            raise DataError(f"nobody said what errors cost: {remedy}, or activate a model that knows it")


def read_lesson(connection: sa.Connection) -> Lesson:
    """Labelled cases, the decisions of people, and how to learn (as set, else like the active model)."""
    tables = read_setting(connection, SETTING)
    config = None if tables is None else Config.model_validate(tables)
    costs = None
    active = versions.active_id(connection)
    if config is None and active is not None:
        costs = registry.load(versions.read_content(connection, active)[1]).costs_
    return Lesson(_cases(connection), _decisions(connection), config, costs)


def _cases(connection: sa.Connection) -> pd.DataFrame:
    c = t.cases.c
    rows = connection.execute(
        sa.select(*c["case_id", "features", "label", "arrived_at"]).where(c.label.is_not(None)).order_by(c.id)
    ).all()
    cases = pd.DataFrame([json.loads(row.features) for row in rows])
    cases["case_id"] = [row.case_id for row in rows]
    cases["label"] = [json.loads(row.label) for row in rows]
    cases["time"] = [row.arrived_at for row in rows]
    return cases


def _decisions(connection: sa.Connection) -> pd.DataFrame:
    c, d, a = t.cases.c, t.decisions.c, t.assignments.c
    query = (
        sa.select(*d["case_id", "maker", "decision"])
        .join_from(t.decisions, t.assignments, sa.and_(a.case_id == d.case_id, a.state == "decided"))
        .join(t.cases, c.case_id == d.case_id)
        .where(d.maker != MACHINE, c.label.is_not(None))
        .order_by(c.id)
    )
    made = connection.execute(query).all()
    return pd.DataFrame(
        {
            "case_id": [row.case_id for row in made],
            "expert_id": [row.maker for row in made],
            "decision": [json.loads(row.decision) for row in made],
        }
    )
