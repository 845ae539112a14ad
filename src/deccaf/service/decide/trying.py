"""The candidate that runs beside the model in force, loaded once and kept in step with the ledger."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from deccaf.service.decide.registry import Model, Registry
from deccaf.service.errors import conflict
from deccaf.service.ledger.trials import trial_records
from deccaf.service.ledger.trials.trial_records import Trial
from deccaf.service.store import database


class Running(NamedTuple):
    """A trial with its candidate."""

    trial: Trial
    model: Model


class Trying:
    """What runs now, if anything does."""

    def __init__(self, engine: sa.Engine, models: Registry) -> None:
        self._engine, self._models = engine, models
        self.current: Running | None = None

    def check(self, connection: sa.Connection, model_id: int, active_id: int | None) -> None:
        """A candidate decides what the model in force decides, or it cannot stand beside it."""
        if active_id is None or active_id == model_id:
            return
        theirs, ours = (list(self._models.classes_of(connection, each)) for each in (model_id, active_id))
        if theirs != ours:
            raise conflict("other-classes", f"model {model_id} decides {theirs}, the one in force {ours}")

    def refresh(self) -> None:
        """Read which trial runs, and load its candidate where it is another one."""
        with database.reading(self._engine) as connection:
            trial = trial_records.running_trial(connection)
        active = self._models.active
        in_force = active is not None and trial is not None and active.id == trial.model_id
        if trial is None or (in_force and trial.constraints is None):
            self.current = None  # nothing runs, or somebody put the candidate in force
            return
        candidate = self._models.version(trial.model_id)
        # a model in force that decides something else has no candidate beside it
        apart = active is not None and active.classes != candidate.classes
        self.current = None if apart else Running(trial, candidate)
