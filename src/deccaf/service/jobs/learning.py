"""What jobs learn from: the ledger's labelled cases and people's decisions as a `History`, and how to learn.

From here on a refit and a backtest go the way of `deccaf fit` and `deccaf backtest`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import sqlalchemy as sa

from deccaf.data.config import Config, ModelTable
from deccaf.data.costs import MACHINE
from deccaf.data.history import History
from deccaf.data.review import plain_review
from deccaf.errors import DataError
from deccaf.fitted import FittedTeam
from deccaf.service.decide import registry
from deccaf.service.imports import past_records
from deccaf.service.imports.past_records import PastLesson
from deccaf.service.ledger import letting, versions
from deccaf.service.ledger.review.golden import is_golden
from deccaf.service.store import tables as t
from deccaf.service.store.settings import LEARNING, read_setting

SETTING = LEARNING


@dataclass(frozen=True, eq=False)
class Lesson:
    """The ledger's history as files would have it, and the configuration to learn with."""

    cases: pd.DataFrame
    """The columns that the configuration names for case, label and time, and all features."""
    decisions: pd.DataFrame
    """`case_id`, `expert_id`, `decision`; `time`, `seconds`, `propensity` where all are known."""
    config: Config

    def history(self) -> History:
        """Checked, or a `DataError` that says what is missing to learn from."""
        if not len(self.cases):
            raise DataError("no case has a label yet; models learn from labels: POST /v1/labels")
        if not len(self.decisions):
            raise DataError("no person has decided a case whose label is known")
        return History.from_frames(self.cases, self.decisions, self.config)


def read_lesson(connection: sa.Connection, like: int | None = None) -> Lesson:
    """Labelled cases, the decisions of people on them, and how to learn: as set, or `like` a version.

    Where labels are selective, also the cases that people decided and that have no label.
    """
    config = read_config(connection)
    if like is not None:
        own = config_of(registry.load(versions.read_content(connection, like)[1]))
        config = own.model_copy(update={"labels": config.labels})
    wanted: sa.ColumnElement[bool] = t.cases.c.label.is_not(None)
    if config.labels.selective:
        people = sa.select(t.decisions.c.case_id).where(t.decisions.c.maker != MACHINE)
        wanted = sa.or_(wanted, t.cases.c.case_id.in_(people))
    # a golden case stands there with its source already, and was chosen for its truth
    wanted = sa.and_(wanted, ~is_golden(t.cases.c.case_id))
    past = past_records.lesson(connection, only_labelled=not config.labels.selective)
    cases, own_time = _cases(connection, config, wanted, past)
    return Lesson(cases, _decisions(connection, wanted, past, with_time=not own_time), config)


def read_config(connection: sa.Connection) -> Config:
    """As it was set; else like the model in force."""
    tables = read_setting(connection, SETTING)
    if tables is not None:
        return Config.model_validate(tables)
    active = versions.active_id(connection)
    if active is None:
        raise DataError(
            "nobody said what errors cost: do it under Set-up or by PUT /v1/settings, "
            "or activate a model that knows it"
        )
    return config_of(registry.load(versions.read_content(connection, active)[1]))


def config_of(model: FittedTeam) -> Config:
    """The configuration that a model was fitted with."""
    settings = {name: getattr(model, name) for name in ModelTable.model_fields}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return Config.model_validate(
        {
            "columns": model.columns_.model_dump(exclude_unset=True),
            "costs": {**model.costs_.to_dict(), "review_cost": plain_review(model.review_cost)},
            **({"makers": dict(model.makers)} if model.makers else {}),
            "model": plain,
            "labels": {"selective": model.selective or []},
        }
    )


def _cases(
    connection: sa.Connection, config: Config, wanted: sa.ColumnElement[bool], past: PastLesson
) -> tuple[pd.DataFrame, bool]:
    """The past that was entered, then the wanted cases; and whether they bring their own time.

    A feature with the name of the time column is the time where every case has it; else the time is when the
    case arrived.
    """
    c, roles = t.cases.c, config.columns
    query = sa.select(*c["case_id", "features", "label"], c.arrived_at.label("came_at")).where(wanted)
    rows = [*past.cases, *connection.execute(query.order_by(c.id))]
    cases = pd.DataFrame([json.loads(row.features) for row in rows])
    own_time = bool(len(cases)) and roles.time in cases and bool(cases[roles.time].notna().all())
    cases[roles.case] = [row.case_id for row in rows]
    labels = [None if row.label is None else json.loads(row.label) for row in rows]
    cases[roles.label] = pd.Series(labels, dtype=object).convert_dtypes() if None in labels else labels
    if config.labels.selective:
        chances = letting.chances(connection)
        cases[roles.let_through] = [chances.get(row.case_id, float("nan")) for row in rows]
    if not own_time:
        cases[roles.time] = [row.came_at for row in rows]
    return cases, own_time


class _Made(NamedTuple):
    """A decision of a person; the chance with which they got the case is not known of the past."""

    case_id: str
    maker: str
    decision: str
    at: float
    seconds: float | None
    propensity: float | None


def _decisions(
    connection: sa.Connection, wanted: sa.ColumnElement[bool], past: PastLesson, with_time: bool
) -> pd.DataFrame:
    """People's decisions on these cases: those of the past, then in the order of the cases."""
    came = {row.case_id: row.came_at for row in past.cases}
    rows = [
        _Made(r.case_id, r.maker, r.decision, r.decided_at or came[r.case_id], r.seconds, None)
        for r in past.decisions
    ]
    rows += _made_here(connection, wanted)
    columns: dict[str, list[Any]] = {
        "case_id": [row.case_id for row in rows],
        "expert_id": [row.maker for row in rows],
        "decision": [json.loads(row.decision) for row in rows],
    }
    if with_time:
        columns["time"] = [row.at for row in rows]
    if all(row.seconds is not None for row in rows):
        columns["seconds"] = [row.seconds for row in rows]
    if all(row.propensity is not None for row in rows):
        columns["propensity"] = [row.propensity for row in rows]
    return pd.DataFrame(columns)


def _made_here(connection: sa.Connection, wanted: sa.ColumnElement[bool]) -> Iterator[_Made]:
    c, a = t.cases.c, t.assignments.c
    rows: list[Any] = []
    for made, state in t.ANSWERS:
        d = made.c
        query = (
            sa.select(*d["case_id", "maker", "decision", "at", "seconds"])
            .add_columns(c.id, c.arrived_at, a.propensity, a.method)
            .join_from(made, t.assignments, sa.and_(a.case_id == d.case_id, a.maker == d.maker))
            .join(t.cases, c.case_id == d.case_id)
            .where(d.maker != MACHINE, a.state == state, wanted)
        )
        rows += connection.execute(query).all()
    for row in sorted(rows, key=lambda row: (row.id, row.at)):
        # the clocks of two machines may differ by a moment: nobody decides before a case is there
        at = max(row.at, row.arrived_at)
        # a history that an earlier version entered as a shift: nobody knows its chances
        chance = None if row.method == "history" else row.propensity
        yield _Made(row.case_id, row.maker, row.decision, at, row.seconds, chance)
