"""A backtest on the ledger's own history: what plans would have cost, against what really happened."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.jobs.learning import Lesson, read_lesson
from deccaf.service.jobs.records import Finish, Job
from deccaf.service.store import database
from deccaf.service.store import tables as t


def work(engine: sa.Engine, job: Job) -> Finish:
    """Run the backtest, with the settings of a version where one is named; then keep its report."""
    with database.reading(engine) as connection:
        lesson = read_lesson(connection, job.params.get("model"))
    result, page = run_backtest(lesson)

    def finish(connection: sa.Connection, at: float) -> dict[str, Any]:
        values = {"job_id": job.id, "html": page.encode()}
        connection.execute(sa.insert(t.backtest_reports).values(**values))
        return result

    return finish


def run_backtest(lesson: Lesson) -> tuple[dict[str, Any], str]:
    """What was found, as `deccaf backtest --json` prints it; and the report as a page."""
    # takes long to import, and only the process of a backtest needs it
    from deccaf.backtest import Options, backtest, backtest_report

    found = backtest(lesson.history(), lesson.config, Options(seed=lesson.config.model.seed))
    return found.to_dict(), backtest_report(found, "Backtest on the ledger").html()


def read_report(connection: sa.Connection, job_id: int) -> bytes:
    """The report of a backtest, as a page of its own."""
    r = t.backtest_reports.c
    found = connection.execute(sa.select(r.html).where(r.job_id == job_id)).scalar()
    if found is None:
        raise not_found("report of a backtest", job_id)
    return bytes(found)
