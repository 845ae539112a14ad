"""A backtest on the ledger's own history: what plans would have cost, against what really happened."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from deccaf.data.config import Config
from deccaf.data.costs import Costs
from deccaf.data.files import write_frame, write_text
from deccaf.errors import DataError
from deccaf.service.errors import not_found
from deccaf.service.jobs.learning import Lesson, read_lesson
from deccaf.service.jobs.records import Finish, Job
from deccaf.service.store import database
from deccaf.service.store import tables as t

_COMMAND = (sys.executable, "-c", "from deccaf.cli import main; main()", "backtest")
_LONGEST = 3600.0


def work(engine: sa.Engine, job: Job) -> Finish:
    """Run the backtest; then keep its report."""
    with database.reading(engine) as connection:
        lesson = read_lesson(connection)
    result, html = run_backtest(lesson)

    def finish(connection: sa.Connection, at: float) -> dict[str, Any]:
        connection.execute(sa.insert(t.backtest_reports).values(job_id=job.id, html=html))
        return result

    return finish


def read_report(connection: sa.Connection, job_id: int) -> bytes:
    """The report of a backtest, as a page of its own."""
    r = t.backtest_reports.c
    found = connection.execute(sa.select(r.html).where(r.job_id == job_id)).scalar()
    if found is None:
        raise not_found("report of a backtest", job_id)
    return bytes(found)


def run_backtest(lesson: Lesson) -> tuple[dict[str, Any], bytes]:
    """The verdict in sentences, the notes, the costs per 100 cases by policy; and the report as a page."""
    lesson.check("do it under Set-up")
    with tempfile.TemporaryDirectory(prefix="deccaf-backtest-") as name:
        folder = Path(name)
        write_frame(lesson.cases, folder / "cases.parquet")
        write_frame(lesson.decisions, folder / "decisions.parquet")
        write_text(_toml(lesson.config, lesson.costs), folder / "config.toml")
        files = ("--cases", "cases.parquet", "--decisions", "decisions.parquet", "--config", "config.toml")
        done = subprocess.run(
            [*_COMMAND, *files, "--out", "report", "--json"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
        if done.returncode:
            raise DataError(done.stderr.strip()[-1000:] or "the backtest failed")
        found: dict[str, Any] = json.loads(done.stdout)
        return found, (folder / "report" / "report.html").read_bytes()


def _toml(config: Config | None, costs: Costs | None) -> str:
    """A configuration file; JSON's scalars and lists are TOML's too."""
    tables: dict[str, Any] = {}
    if config is not None:
        tables = config.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    elif costs is not None:
        tables = {"costs": costs.to_dict()}
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"
