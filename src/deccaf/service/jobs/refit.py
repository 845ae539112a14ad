"""`python -m deccaf.service.refit JOB WORKER`: fit a model on the ledger, in a process of its own.

It says every two seconds that it lives; if the service dies it goes on, and if it dies itself the job is
taken up again by whichever process looks next.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import sqlalchemy as sa

from deccaf.data.config import Config
from deccaf.data.costs import MACHINE, Costs
from deccaf.errors import DataError, DeccafError
from deccaf.estimator import DeCCaF
from deccaf.service.decide import registry
from deccaf.service.jobs import jobs
from deccaf.service.jobs.backtests import backtest
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.web.api.models import add_model, put_in_force, read_setting


def run(url: str, job_id: int, worker: str) -> None:
    """Do one job, and write down how it ended."""
    engine = database.connect(url)
    ended = threading.Event()
    threading.Thread(target=_keep_beating, args=(engine, job_id, worker, ended), daemon=True).start()
    try:
        with database.reading(engine) as connection:
            job = connection.execute(sa.select(t.jobs).where(t.jobs.c.id == job_id)).one()
            data = read_history(connection)
        params = json.loads(job.params)
        if job.kind == "backtest":
            found, html = backtest(*data)
            with database.writing(engine) as connection:
                if jobs.beat(connection, job_id, worker, time.time()):
                    connection.execute(sa.insert(t.backtest_reports).values(job_id=job_id, html=html))
                    jobs.finish(connection, job_id, "done", found, time.time())
            return
        model = fit(*data)
        content = _bytes(model)
        with database.writing(engine) as connection:
            at = time.time()
            who = Actor(job.key_id)
            if not jobs.beat(connection, job_id, worker, at):
                return  # another process took the job over: its model counts
            digest = hashlib.sha256(content).hexdigest()
            made = add_model(connection, params["name"], "refit", digest, content, model.training_, who, at)
            if params["activate"]:
                put_in_force(connection, made["id"], "activate", who, at)
            jobs.finish(connection, job_id, "done", {"model": made["id"], **model.training_}, at)
    except Exception as error:
        said = str(error) if isinstance(error, DeccafError) else f"{type(error).__name__}: {error}"
        with database.writing(engine) as connection:
            jobs.finish(connection, job_id, "failed", {"error": said[:2000]}, time.time())
    finally:
        ended.set()
        engine.dispose()


def read_history(connection: sa.Connection) -> tuple[pd.DataFrame, pd.DataFrame, Config | None, Costs | None]:
    """Labelled cases, the decisions of people, and how to learn (as set, else like the active model)."""
    c, d, a = t.cases.c, t.decisions.c, t.assignments.c
    rows = connection.execute(
        sa.select(*c["case_id", "features", "label", "arrived_at"]).where(c.label.is_not(None)).order_by(c.id)
    ).all()
    cases = pd.DataFrame([json.loads(row.features) for row in rows])
    cases["case_id"] = [row.case_id for row in rows]
    cases["label"] = [json.loads(row.label) for row in rows]
    cases["time"] = [row.arrived_at for row in rows]
    query = (
        sa.select(*d["case_id", "maker", "decision", "at", "seconds"], a.propensity)
        .join_from(t.decisions, t.assignments, sa.and_(a.case_id == d.case_id, a.state == "decided"))
        .join(t.cases, c.case_id == d.case_id)
        .where(d.maker != MACHINE, c.label.is_not(None))
        .order_by(c.id)
    )
    made = connection.execute(query).all()
    decisions = pd.DataFrame(
        {
            "case_id": [row.case_id for row in made],
            "expert_id": [row.maker for row in made],
            "decision": [json.loads(row.decision) for row in made],
        }
    )
    text = read_setting(connection, "learning")
    config = None if text is None else Config.model_validate(json.loads(text))
    costs = None
    active = registry.active_model(connection)
    if config is None and active is not None:
        content = connection.execute(
            sa.select(t.models.c.content).where(t.models.c.id == active)
        ).scalar_one()
        costs = registry.load(content).costs_
    return cases, decisions, config, costs


def fit(cases: pd.DataFrame, decisions: pd.DataFrame, config: Config | None, costs: Costs | None) -> DeCCaF:
    """A model of the ledger's history."""
    if config is None and costs is None:
        raise DataError("nobody said what errors cost: PUT /v1/settings, or activate a model that knows it")
    if len(cases) == 0 or cases["label"].nunique() < 2:
        raise DataError(f"{len(cases)} case(s) have labels; a model needs cases of at least two classes")
    if not len(decisions):
        raise DataError("no person has decided a case whose label is known")
    method = "deccaf" if config is None else config.model.method
    categorical = () if config is None else config.columns.categorical
    price = config.costs.build() if config is not None else costs
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


def _keep_beating(engine: sa.Engine, job_id: int, worker: str, ended: threading.Event) -> None:
    while not ended.wait(jobs.HEARTBEAT_SECONDS):
        try:
            with database.writing(engine) as connection:
                jobs.beat(connection, job_id, worker, time.time())
        except sa.exc.SQLAlchemyError as error:
            if not database.passes_by_itself(error):
                raise


def main(arguments: list[Any]) -> None:
    """The command line of the background process."""
    os.nice(10)  # routing comes first
    run(os.environ["DECCAF_DATABASE"], int(arguments[0]), str(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
