"""The model in force: what it believes about cases, and how every process keeps in step with the ledger."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import sqlalchemy as sa

from deccaf.data.config import ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.data.review import amounts_of
from deccaf.data.rows import CaseRows, check_row
from deccaf.fitted import FittedTeam
from deccaf.models.trees.stored_trees import expect_many
from deccaf.planning.scored import Scored
from deccaf.service.decide import newcomers
from deccaf.service.ledger import versions
from deccaf.service.ledger.machines import seats
from deccaf.service.store import database
from deccaf.service.store.scratch import scratch_folder
from deccaf.tracing import traced


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model with its number in the ledger."""

    id: int
    name: str
    system: FittedTeam
    machines: frozenset[str] = frozenset()
    """Who is a machine: one that the model has not learned from is not asked, as nobody's average tells how
    it decides."""

    def _asked(self, experts: Sequence[str]) -> list[str]:
        if not self.system.experts_:
            return []
        known = self.system.experts_
        return [name for name in experts if name not in self.machines or name in known]

    @property
    def classes(self) -> tuple[int | str, ...]:
        """What can be decided."""
        return tuple(self.system.costs_.classes)

    def check(self, row: Mapping[str, Any]) -> None:
        """A case that the model cannot score is a `DataError`."""
        check_row(self.system.schema_, row)
        columns = self.system.costs_.columns
        if columns:
            self.system.costs_.check_amounts(pd.DataFrame([{name: row.get(name) for name in columns}]))
        paid = self.system.review_columns
        for name in paid:
            amounts_of(pd.DataFrame([{name: row.get(name) for name in paid if name in row}]), name)

    @traced("score")
    def score_rows(self, rows: Sequence[Mapping[str, Any]], experts: Sequence[str]) -> Scored:
        """A few cases, quickly: the numbers of `FittedTeam.scored` without a table."""
        system = self.system
        known = self._asked(experts)
        cases = CaseRows(system.schema_, rows)
        columns = list(system.costs_.columns)
        amounts = None
        if columns:
            amounts = pd.DataFrame([{name: row.get(name) for name in columns} for row in rows]).astype(
                "float64"
            )
        scores = system.learned_.score(
            cases,  # type: ignore[arg-type]
            known,
            system.costs_.array(amounts),
            system.review_costs(known, _columns(rows, system.review_columns)),
        )
        ids = pd.RangeIndex(len(rows))
        return Scored(ids, (MACHINE, *known), scores.loss, scores.objective, scores.says, self.classes)

    def score_frame(
        self, frame: pd.DataFrame, experts: Sequence[str], constraints: ConstraintsTable | None = None
    ) -> Scored:
        """Many cases, with what constraints ask of them."""
        known = self._asked(experts)
        return self.system.scored(frame, known, constraints=constraints)


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pd.DataFrame | None:
    """The columns that review costs name; None: there are none."""
    return pd.DataFrame([{name: row.get(name) for name in names} for row in rows]) if names else None


_KEPT = 2


class Registry:
    """The model in force, loaded once per process and kept in step with the ledger."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._fitted: Model | None = None
        self._digest = ""
        self._counted = newcomers.NOTHING
        self.active: Model | None = None
        self._others: dict[tuple[int, str], Model] = {}

    def version(self, model_id: int) -> Model:
        """Any version on record, loaded; the last few are kept."""
        with database.reading(self._engine) as connection:
            versions.read_version(connection, model_id)
            key = model_id, versions.digest_of(connection, model_id)  # it changes when somebody is erased
        with self._lock:
            found = self._others.get(key)
        if found is None:
            with database.reading(self._engine) as connection:
                name, content = versions.read_content(connection, model_id)
                machines = seats.machine_names(connection)
            found = Model(model_id, name, load(content), machines)
            with self._lock:
                self._others[key] = found
                for old in list(self._others)[:-_KEPT]:
                    del self._others[old]
        return found

    def classes_of(self, connection: sa.Connection, model_id: int) -> tuple[Any, ...]:
        """What a version decides between, in the middle of a change."""
        with self._lock:
            known = [self.active, *self._others.values()]
        for model in known:
            if model is not None and model.id == model_id:
                return model.classes
        name, content = versions.read_content(connection, model_id)
        return Model(model_id, name, load(content)).classes

    def refresh(self) -> Model | None:
        """Read which model is in force and load it if it is another one; newcomers count at once."""
        with self._lock, database.reading(self._engine) as connection:
            wanted = versions.active_id(connection)
            if wanted is None:
                return self.active
            digest = versions.digest_of(connection, wanted)  # a file is written anew when somebody is erased
            if self._fitted is None or (self._fitted.id, self._digest) != (wanted, digest):
                name, content = versions.read_content(connection, wanted)
                self.active = self._fitted = Model(wanted, name, load(content))
                self._digest = digest
                self._counted = newcomers.NOTHING
            there = newcomers.known(connection, self._fitted.system)
            if there != self._counted:
                system = newcomers.with_newcomers(connection, self._fitted.system)
                self.active, self._counted = replace(self._fitted, system=system), there
            machines = seats.machine_names(connection)
            if self.active is not None and self.active.machines != machines:
                self.active = replace(self.active, machines=machines)
            return self.active


def load(content: bytes) -> FittedTeam:
    """A model from the bytes of its file; checked before anything of it is used."""
    expect_many()
    with scratch_folder() as folder:
        path = folder / "uploaded.deccaf"
        path.write_bytes(content)
        return FittedTeam.load(path)


@dataclass(frozen=True)
class Belief:
    """What is believed about one case."""

    losses: dict[str, float]
    """Expected loss by maker."""
    objective: dict[str, float] | None
    """What the model's method minimises, where that is not the expected loss."""
    says: str
    """What the machine would decide, as JSON."""


def belief(scored: Scored, row: int) -> Belief:
    """One of the cases that were scored."""
    own = scored.objective is not scored.loss
    return Belief(
        losses=dict(zip(scored.makers, scored.loss[row].tolist(), strict=True)),
        objective=dict(zip(scored.makers, scored.objective[row].tolist(), strict=True)) if own else None,
        says=json.dumps(scored.classes[int(scored.says[row])]),
    )
