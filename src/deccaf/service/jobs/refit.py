"""A refit: a new version of the model, learned from everything that is labelled."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from deccaf.errors import DataError
from deccaf.estimator import DeCCaF
from deccaf.service.jobs.learning import Lesson, read_lesson
from deccaf.service.jobs.records import Finish, Job
from deccaf.service.ledger import versions
from deccaf.service.store import database
from deccaf.service.store.keys import Actor


def work(engine: sa.Engine, job: Job) -> Finish:
    """Fit the model; then store it, and put it in force where that was asked for."""
    with database.reading(engine) as connection:
        lesson = read_lesson(connection)
    model = fit(lesson)
    content = _bytes(model)
    digest, who = hashlib.sha256(content).hexdigest(), Actor(job.key_id)

    def finish(connection: sa.Connection, at: float) -> dict[str, Any]:
        made = versions.add_version(
            connection, job.params["name"], "refit", digest, content, model.training_, who, at
        )
        if job.params["activate"]:
            versions.put_in_force(connection, made.id, who, at)
        return {"model": made.id, **model.training_}

    return finish


def fit(lesson: Lesson) -> DeCCaF:
    """A model of the ledger's history."""
    lesson.check("PUT /v1/settings")
    cases, decisions, config = lesson.cases, lesson.decisions, lesson.config
    if len(cases) == 0 or cases["label"].nunique() < 2:
        raise DataError(f"{len(cases)} case(s) have labels; a model needs cases of at least two classes")
    if not len(decisions):
        raise DataError("no person has decided a case whose label is known")
    method = "deccaf" if config is None else config.model.method
    categorical = () if config is None else config.columns.categorical
    price = config.costs.build() if config is not None else lesson.costs
    model = DeCCaF(price, method=method, categorical=categorical)
    features = cases.drop(columns=["label", "time"])
    if config is not None and config.columns.features is not None:
        keep = ["case_id", *config.columns.features, *(price.columns if price is not None else ())]
        features = features[list(dict.fromkeys(keep))]
    return model.fit(features, cases["label"], decisions=decisions, time=cases["time"])


def _bytes(model: DeCCaF) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "refit.deccaf"
        model.save(path)
        return path.read_bytes()
