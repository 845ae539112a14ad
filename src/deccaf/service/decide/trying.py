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
        self.aside: str | None = None
        """Why a trial that is on record does not run."""

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
        self.current, self.aside = self._beside(trial)

    def _beside(self, trial: Trial | None) -> tuple[Running | None, str | None]:
        if trial is None:
            return None, None
        active, candidate = self._models.active, self._models.version(trial.model_id)
        if active is not None and active.id == trial.model_id and trial.constraints is None:
            return None, f"version {active.id}, its candidate, is in force"
        if active is not None and active.classes != candidate.classes:
            theirs, ours = list(candidate.classes), list(active.classes)
            return None, f"version {active.id}, in force, decides {ours} and the candidate {theirs}"
        return Running(trial, candidate), None
