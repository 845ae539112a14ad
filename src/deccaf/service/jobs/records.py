"""Jobs as rows that some process picks up, and another one if that process dies.

A running job shows by a heartbeat that it lives; one whose heartbeat stopped for long is taken up again, a
few times at most. Whoever has lost a job so can no longer end it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.store import tables as t
from deccaf.service.store.listing import Cut, Page, from_json, read_page

HEARTBEAT_SECONDS = 2.0
DEAD_SECONDS = 120.0
"""A job whose process was not heard of for so long is taken up again: a busy machine can be slow."""
MOST_ATTEMPTS = 3
OPEN = ("queued", "running")

Finish = Callable[[sa.Connection, float], dict[str, Any]]
"""Writes what a job made, in the transaction that ends it; the job's result, for JSON."""


@dataclass(frozen=True)
class Job:
    """A job on record."""

    id: int
    kind: str
    state: str
    attempts: int
    params: dict[str, Any]
    result: dict[str, Any] | None
    key_id: int | None
    created_at: float
    finished_at: float | None

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs."""
        return self.state in OPEN


def enqueue(
    connection: sa.Connection, kind: str, params: dict[str, Any], key_id: int | None, at: float
) -> int:
    """A new job, to be picked up within a second or two."""
    made = connection.execute(
        sa.insert(t.jobs)
        .values(
            kind=kind, state="queued", params=json.dumps(params), key_id=key_id, attempts=0, created_at=at
        )
        .returning(t.jobs.c.id)
    ).scalar_one()
    return int(made)


def take(
    connection: sa.Connection, worker: str, at: float, gone: Callable[[str], bool] = lambda worker: False
) -> int | None:
    """Take over the oldest job that waits or whose process died; None: there is none.

    `gone` says of a worker whether it is known to have ended.
    """
    c = t.jobs.c
    running = connection.execute(sa.select(*c["id", "worker"]).where(c.state == "running")).all()
    ended = [row.id for row in running if gone(row.worker)]
    dead = sa.and_(c.state == "running", sa.or_(c.heartbeat_at < at - DEAD_SECONDS, c.id.in_(ended)))
    query = (
        sa.select(*c["id", "attempts", "state"])
        .where(sa.or_(c.state == "queued", dead))
        .order_by(c.id)
        .limit(1)
    )
    row = connection.execute(query.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    if row.attempts >= MOST_ATTEMPTS:
        _end(connection, row.id, "failed", {"error": f"gave up after {row.attempts} attempts"}, at)
        return None
    connection.execute(
        sa.update(t.jobs)
        .where(c.id == row.id)
        .values(state="running", worker=worker, heartbeat_at=at, attempts=row.attempts + 1)
    )
    return int(row.id)


def beat(connection: sa.Connection, job_id: int, worker: str, at: float) -> bool:
    """Say that a job lives, and hold it until the transaction ends; False: somebody else has it now."""
    c = t.jobs.c
    done = connection.execute(
        sa.update(t.jobs)
        .where(c.id == job_id, c.worker == worker, c.state == "running")
        .values(heartbeat_at=at)
    )
    return done.rowcount == 1


def start(connection: sa.Connection, job_id: int, worker: str, process: str, at: float) -> bool:
    """A worker's process has begun, and has the job from now on; False: somebody else has it."""
    if not beat(connection, job_id, worker, at):
        return False
    connection.execute(sa.update(t.jobs).where(t.jobs.c.id == job_id).values(worker=process))
    return True


def finish(
    connection: sa.Connection,
    job_id: int,
    worker: str,
    state: str,
    work: Callable[[], dict[str, Any]],
    at: float,
) -> bool:
    """Write down how a job ended, with what `work` gives; False: somebody else has it, nothing is done."""
    if not beat(connection, job_id, worker, at):
        return False
    _end(connection, job_id, state, work(), at)
    return True


def _end(connection: sa.Connection, job_id: int, state: str, result: dict[str, Any], at: float) -> None:
    connection.execute(
        sa.update(t.jobs)
        .where(t.jobs.c.id == job_id)
        .values(state=state, result=json.dumps(result), finished_at=at, heartbeat_at=at)
    )


def read_job(connection: sa.Connection, job_id: int) -> Job:
    """One job."""
    row = connection.execute(sa.select(t.jobs).where(t.jobs.c.id == job_id)).one_or_none()
    if row is None:
        raise not_found("job", job_id)
    return _job(row)


def list_jobs(connection: sa.Connection, cut: Cut) -> Page[Job]:
    """All jobs."""
    return read_page(connection, sa.select(t.jobs), t.jobs.c.id, cut, _job)


def latest_jobs(connection: sa.Connection, most: int) -> list[Job]:
    """The newest jobs."""
    query = sa.select(t.jobs).order_by(t.jobs.c.id.desc()).limit(most)
    return [_job(row) for row in connection.execute(query)]


def latest_of_kind(connection: sa.Connection, kind: str, most: int) -> list[Job]:
    """The newest jobs of a kind."""
    query = sa.select(t.jobs).where(t.jobs.c.kind == kind).order_by(t.jobs.c.id.desc()).limit(most)
    return [_job(row) for row in connection.execute(query)]


def open_job(connection: sa.Connection, kind: str | None = None) -> int | None:
    """A job (of a kind, or any) that waits or runs; None: there is none."""
    c = t.jobs.c
    query = sa.select(c.id).where(c.state.in_(OPEN)).limit(1)
    if kind is not None:
        query = query.where(c.kind == kind)
    return connection.execute(query).scalar()


def asked_since(connection: sa.Connection, kind: str, since: float) -> bool:
    """Whether a job of a kind is open, or was asked for since then."""
    c = t.jobs.c
    query = sa.select(c.id).where(c.kind == kind, sa.or_(c.state.in_(OPEN), c.created_at > since)).limit(1)
    return connection.execute(query).scalar() is not None


def _job(row: Any) -> Job:
    return Job(
        id=row.id,
        kind=row.kind,
        state=row.state,
        attempts=row.attempts,
        params=from_json(row.params),
        result=from_json(row.result),
        key_id=row.key_id,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
