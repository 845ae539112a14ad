"""The kinds of jobs. A new kind is a module with a `work` function and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import conflict
from deccaf.service.jobs import backtest, records, refit
from deccaf.service.jobs.records import Finish, Job
from deccaf.service.ledger import trail
from deccaf.service.store.keys import Actor


@dataclass(frozen=True)
class Kind:
    """What a job of a kind does: read and compute without holding the database up, then `Finish`."""

    work: Callable[[sa.Engine, Job], Finish]
    busy: str
    """What a job that is open is doing, in a sentence that begins with "job 7"."""


KINDS = {
    "refit": Kind(refit.work, "fits a model already"),
    "backtest": Kind(backtest.work, "runs a backtest already"),
}


def ask(connection: sa.Connection, kind: str, params: dict[str, Any], who: Actor, at: float) -> int:
    """Ask for a job, one of a kind at a time; its id."""
    known = records.open_job(connection, kind)
    if known is not None:
        raise conflict(f"{kind}-runs", f"job {known} {KINDS[kind].busy}", job=known)
    job = records.enqueue(connection, kind, params, who.key_id, at)
    trail.record(connection, f"{kind} asked for", at, who, job=job)
    return job
