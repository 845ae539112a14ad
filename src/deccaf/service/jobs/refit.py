"""A refit: a new version of the model, learned from everything that is labelled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from deccaf.fitted import FittedTeam
from deccaf.service.jobs.learning import Lesson, read_lesson
from deccaf.service.jobs.records import Finish, Job
from deccaf.service.ledger import versions
from deccaf.service.store import database
from deccaf.service.store.keys import Actor
from deccaf.service.store.scratch import scratch_folder


def work(engine: sa.Engine, job: Job) -> Finish:
    """Fit the model; then store it, and put it in force where that was asked for."""
    with database.reading(engine) as connection:
        lesson = read_lesson(connection)
    notes: list[str] = []
    model = fit(lesson, notes.append)
    content = file_bytes(model)
    digest, who = hashlib.sha256(content).hexdigest(), Actor(job.key_id)

    def finish(connection: sa.Connection, at: float) -> dict[str, Any]:
        known = versions.find_version(connection, digest)
        if known is None:
            made = versions.add_version(
                connection, job.params["name"], "refit", digest, content, model.training_, who, at
            )
            number = made.id
        else:
            number = known
            notes.append(f"nothing new to learn from: this is model {known} again")
        active = versions.active_id(connection)
        wanted = job.params["activate"] or (active is None and job.params.get("if_none", False))
        if wanted and active != number:
            versions.put_in_force(connection, number, who, at)
        return {"model": number, **model.training_, "new": known is None, "notes": notes}

    return finish


def fit(lesson: Lesson, note: Callable[[str], None]) -> FittedTeam:
    """A model of the ledger's history, as `deccaf fit` would learn it from files."""
    # takes long to import, and only the process of a refit needs it
    from deccaf.estimator import learn_from

    return learn_from(lesson.history(), lesson.config, note)


def file_bytes(model: FittedTeam) -> bytes:
    """The model as a file has it."""
    with scratch_folder() as folder:
        path = folder / "refit.deccaf"
        model.save(path)
        return path.read_bytes()
