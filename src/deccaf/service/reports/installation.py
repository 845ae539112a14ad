"""How far an installation is on its way to the first plan."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from deccaf.service.imports import past_records
from deccaf.service.imports.past_records import Entry
from deccaf.service.jobs import records
from deccaf.service.jobs.records import Job
from deccaf.service.ledger import case_records, people, shifts, versions
from deccaf.service.ledger.versions import Version

MOST_ENTRIES = 20
STEPS = ("history", "model", "shift", "cases")


@dataclass(frozen=True)
class Installation:
    """What is there already."""

    left: list[str]
    labelled: int
    """Cases of the desk and of the past whose truth is known."""
    waiting: int
    experts: list[str]
    team: str | None
    active: Version | None
    job: Job | None
    """The latest background job."""
    shift: int | None
    entries: list[Entry]
    """Histories that were entered, the newest first."""

    @property
    def running(self) -> bool:
        """Whether a job waits or runs."""
        return self.job is not None and self.job.is_open

    @property
    def failed(self) -> str | None:
        """Why the latest job failed, if it did."""
        if self.job is None or self.job.state != "failed":
            return None
        return (self.job.result or {}).get("error")

    @property
    def stale(self) -> Entry | None:
        """A history that was taken back after the model in force was learned, from it maybe."""
        made = None if self.active is None else self.active.created_at
        if made is None:
            return None
        gone = [entry for entry in self.entries if entry.withdrawn_at is not None]
        return next((e for e in gone if e.at < made < (e.withdrawn_at or 0.0)), None)

    @property
    def candidate(self) -> int | None:
        """A model that the latest job made and that is not in force."""
        if self.job is None or self.job.kind != "refit":
            return None
        made = (self.job.result or {}).get("model")
        return None if made is None or (self.active is not None and made == self.active.id) else int(made)


def steps_left(connection: sa.Connection) -> list[str]:
    """What an installation lacks before its first day; empty once there was a shift with people on it."""
    if shifts.any_open(connection):
        return []
    done = {"history": people.anyone(connection), "model": versions.active_id(connection) is not None}
    return [step for step in STEPS if not done.get(step, False)]


def read_installation(connection: sa.Connection, at: float) -> Installation:
    """How far it is."""
    active, team = versions.active_id(connection), people.first_team(connection)
    latest = records.latest_jobs(connection, 1)
    return Installation(
        left=steps_left(connection),
        labelled=case_records.labelled_count(connection) + past_records.labelled_count(connection),
        waiting=case_records.waiting_count(connection),
        experts=people.active_experts(connection),
        team=None if team is None else team.name,
        active=None if active is None else versions.read_version(connection, active),
        job=latest[0] if latest else None,
        shift=shifts.current_shift(connection, at),
        entries=past_records.latest_entries(connection, MOST_ENTRIES),
    )
