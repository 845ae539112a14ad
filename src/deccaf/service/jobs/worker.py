"""Starts a process for each job, at low priority, so that routing stays quick while models are fitted."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import sqlalchemy as sa

from deccaf.service.jobs import records
from deccaf.service.jobs.process import is_gone, process_name
from deccaf.service.store import database


class Worker:
    """Starts jobs of this process, one at a time."""

    def __init__(self, engine: sa.Engine, url: str) -> None:
        self._engine, self._url = engine, url
        self._name = process_name()
        self._process: subprocess.Popen[bytes] | None = None

    def start_next(self) -> None:
        """Start a job if one waits and none of ours runs."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process = None
        at = time.time()
        with database.reading(self._engine) as connection:
            if records.open_job(connection) is None:
                return
        with database.writing(self._engine) as connection:
            job = records.take(connection, self._name, at, is_gone)
        if job is not None:
            command = [sys.executable, "-m", "deccaf.service.jobs.process", str(job), self._name]
            # the address is not an argument: it may hold a password
            environment = {**os.environ, "DECCAF_DATABASE": self._url}
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """End our job; it is taken up again after the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=10)
