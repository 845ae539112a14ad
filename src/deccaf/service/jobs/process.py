"""`python -m deccaf.service.jobs.process JOB WORKER`: do one job, in a process of its own.

It shows every two seconds that it lives; if the service dies it goes on, and if it dies itself the job is
taken up again by whichever process checks next.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import sqlalchemy as sa

from deccaf.errors import DeccafError
from deccaf.service.jobs import records
from deccaf.service.jobs.kinds import KINDS
from deccaf.service.store import database

_LONGEST_ERROR = 2000


def run(url: str, job_id: int, worker: str) -> None:
    """Do one job, and write down how it ended."""
    engine = database.connect(url)
    ended = threading.Event()
    threading.Thread(target=_keep_beating, args=(engine, job_id, worker, ended), daemon=True).start()
    try:
        with database.reading(engine) as connection:
            job = records.read_job(connection, job_id)
        finish = KINDS[job.kind].work(engine, job)
        with database.writing(engine) as connection:
            at = time.time()
            if records.beat(connection, job_id, worker, at):  # else another process took the job over
                records.finish(connection, job_id, "done", finish(connection, at), at)
    except Exception as error:
        text = str(error) if isinstance(error, DeccafError) else f"{type(error).__name__}: {error}"
        with database.writing(engine) as connection:
            records.finish(connection, job_id, "failed", {"error": text[:_LONGEST_ERROR]}, time.time())
    finally:
        ended.set()
        engine.dispose()


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
