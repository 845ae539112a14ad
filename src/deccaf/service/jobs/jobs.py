"""Background jobs: rows in the database that some process picks up, and another one if that process dies.

A refit runs as a process of its own at low priority, so that routing stays quick while models are fitted. It
says that it lives by a heartbeat; a job whose heart stopped is taken up again, a few times at most.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import sqlalchemy as sa

from deccaf.service.store import database
from deccaf.service.store import tables as t

HEARTBEAT_SECONDS = 2.0
DEAD_SECONDS = 15.0
MOST_ATTEMPTS = 3


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


def take(connection: sa.Connection, worker: str, at: float) -> int | None:
    """Take over the oldest job that waits or whose process died; None: there is none."""
    c = t.jobs.c
    dead = sa.and_(c.state == "running", c.heartbeat_at < at - DEAD_SECONDS)
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
        finish(connection, row.id, "failed", {"error": f"gave up after {row.attempts} attempts"}, at)
        return None
    connection.execute(
        sa.update(t.jobs)
        .where(c.id == row.id)
        .values(state="running", worker=worker, heartbeat_at=at, attempts=row.attempts + 1)
    )
    return int(row.id)


def beat(connection: sa.Connection, job_id: int, worker: str, at: float) -> bool:
    """Say that a job lives; False: somebody else has it now."""
    c = t.jobs.c
    done = connection.execute(
        sa.update(t.jobs)
        .where(c.id == job_id, c.worker == worker, c.state == "running")
        .values(heartbeat_at=at)
    )
    return done.rowcount == 1


def finish(connection: sa.Connection, job_id: int, state: str, result: dict[str, Any], at: float) -> None:
    """Write down how a job ended."""
    connection.execute(
        sa.update(t.jobs)
        .where(t.jobs.c.id == job_id)
        .values(state=state, result=json.dumps(result), finished_at=at, heartbeat_at=at)
    )


class Worker:
    """Starts jobs of this process, one at a time."""

    def __init__(self, engine: sa.Engine, url: str) -> None:
        self._engine, self._url = engine, url
        self._name = f"{os.uname().nodename}:{os.getpid()}:{time.time():.0f}"
        self._process: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        """Start a job if one waits and none of ours runs."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process = None
        at = time.time()
        with database.reading(self._engine) as connection:
            c = t.jobs.c
            open_jobs = sa.select(c.id).where(c.state.in_(("queued", "running"))).limit(1)
            if connection.execute(open_jobs).scalar() is None:
                return
        with database.writing(self._engine) as connection:
            job = take(connection, self._name, at)
        if job is not None:
            command = [sys.executable, "-m", "deccaf.service.jobs.refit", str(job), self._name]
            environment = {
                **os.environ,
                "DECCAF_DATABASE": self._url,
            }  # not an argument: it may hold a password
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """End our job; it is taken up again after the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=10)
