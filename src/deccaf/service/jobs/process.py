"""`python -m deccaf.service.jobs.process JOB WORKER`: do one job, in a process of its own.

It shows every two seconds that it lives; if the service dies it goes on, and if it dies itself the job is
taken up again by whichever process checks next.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import sqlalchemy as sa

from deccaf.errors import DeccafError
from deccaf.service.jobs import records
from deccaf.service.jobs.kinds import KINDS
from deccaf.service.store import database
from deccaf.service.store.scratch import is_alive

_LONGEST_ERROR = 2000
_TRIES, _PAUSE_SECONDS = 30, 1.0


def run(url: str, job_id: int, worker: str) -> None:
    """Do one job, and write down how it ended."""
    engine = database.connect(url, statement_seconds=None)
    me, ended = process_name(), threading.Event()
    try:
        if not _write(engine, lambda connection, at: records.start(connection, job_id, worker, me, at)):
            return  # another process was quicker
        threading.Thread(target=_keep_beating, args=(engine, job_id, me, ended), daemon=True).start()
        with database.reading(engine) as connection:
            job = records.read_job(connection, job_id)
        made = KINDS[job.kind].work(engine, job)
        _end(engine, job_id, me, "done", made)
    except Exception as error:
        text = str(error) if isinstance(error, DeccafError) else f"{type(error).__name__}: {error}"
        _end(engine, job_id, me, "failed", lambda connection, at: {"error": text[:_LONGEST_ERROR]})
    finally:
        ended.set()
        engine.dispose()


def process_name() -> str:
    """This process, as `is_gone` understands it."""
    return f"{os.uname().nodename}:{os.getpid()}:{time.time():.0f}"


def is_gone(name: str) -> bool:
    """Whether a process of this machine has ended; of other machines nobody knows."""
    node, _, rest = name.rpartition(":")[0].rpartition(":")
    return node == os.uname().nodename and rest.isdigit() and not is_alive(int(rest))


def _end(engine: sa.Engine, job_id: int, me: str, state: str, made: records.Finish) -> None:
    def change(connection: sa.Connection, at: float) -> bool:
        return records.finish(connection, job_id, me, state, lambda: made(connection, at), at)

    _write(engine, change)


def _write(engine: sa.Engine, change: Callable[[sa.Connection, float], bool]) -> bool:
    """A change of the job's record, again and again while the database is away: work of hours is at stake."""
    for left in reversed(range(_TRIES)):
        try:
            with database.writing(engine) as connection:
                return change(connection, time.time())
        except sa.exc.SQLAlchemyError as error:
            if not (left and database.passes_by_itself(error)):
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _keep_beating(engine: sa.Engine, job_id: int, worker: str, ended: threading.Event) -> None:
    while not ended.wait(records.HEARTBEAT_SECONDS):
        try:
            with database.writing(engine) as connection:
                records.beat(connection, job_id, worker, time.time())
        except sa.exc.SQLAlchemyError as error:
            if not database.passes_by_itself(error):
                raise


def main(arguments: list[str]) -> None:
    """The command line of the background process."""
    os.nice(10)  # routing comes first
    run(os.environ["DECCAF_DATABASE"], int(arguments[0]), arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
