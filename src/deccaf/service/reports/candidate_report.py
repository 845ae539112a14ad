"""A version of the model beside the one in force: is it right, how did its backtest end, what was noted?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.decide import comparing
from deccaf.service.decide.comparing import Moves
from deccaf.service.decide.registry import Model
from deccaf.service.imports import past_records
from deccaf.service.jobs import records
from deccaf.service.jobs.records import Job
from deccaf.service.ledger import trail, versions
from deccaf.service.monitor import checks, windows
from deccaf.service.monitor.health import CalibrationPoint
from deccaf.service.monitor.windows import LabelledCase
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

FEWEST = 100
"""Labels that neither version has learned from, from which on only such are looked at."""
_MOST_EVENTS = 1_000


@dataclass(frozen=True)
class Calibration:
    """What a version expects of labelled cases, and what was true."""

    cases: int
    expected: float
    seen: float
    name: str
    """The class that is meant."""
    bins: list[CalibrationPoint]


@dataclass(frozen=True)
class Note:
    """What somebody wrote about a version."""

    at: float
    by: str
    text: str


def labelled_cases(connection: sa.Connection, since: float, at: float) -> tuple[list[LabelledCase], bool]:
    """The labels since then, and True; where they are few the latest, of the past too, and False."""
    fresh = windows.freshly_labelled(connection, since, at)
    if len(fresh) >= FEWEST:
        return fresh, True
    every = windows.freshly_labelled(connection, 0.0, at)
    if len(every) < windows.WINDOW:
        every += [
            LabelledCase(row.case_id, row.features, row.label)
            for row in past_records.latest_labelled(connection, windows.WINDOW - len(every))
        ]
    return every, False


def calibration(model: Model, labelled: list[LabelledCase]) -> Calibration | None:
    """Whether a version's chances are right; None without labels."""
    known = [case for case in labelled if case.label in model.classes]
    if not known:
        return None
    found: dict[str, Any] = checks.calibration(model, known, {})
    return Calibration(
        cases=len(known),
        expected=found["truth_expected"],
        seen=found["truth_seen"],
        name=found["truth_name"],
        bins=list(found.get("bins", [])),
    )


@dataclass(frozen=True)
class Compared:
    """Two versions on the same cases."""

    calibration: dict[int, Calibration | None]
    """By version."""
    fresh: bool
    """Whether neither can have learned from the labels."""
    moves: Moves | None
    """What would change today; None where nothing is open, or there is no other version."""


def compare(
    read: Callable[[Callable[[sa.Connection], Any]], Any], before: Model | None, after: Model, at: float
) -> Compared:
    """The version in force, where there is one, and another; `read` asks the ledger."""
    both = [model for model in (before, after) if model is not None]

    def look(connection: sa.Connection) -> Any:
        made = max(versions.read_version(connection, model.id).created_at for model in both)
        return labelled_cases(connection, made, at), comparing.open_cases(connection, at)

    (labelled, fresh), opened = read(look)
    found = {model.id: calibration(model, labelled) for model in both}
    moves = None
    if before is not None and before.id != after.id and opened is not None:
        waiting, count = opened
        moves = comparing.moves(waiting, count, before, after)
    return Compared(found, fresh, moves)


def backtest_of(connection: sa.Connection, model_id: int) -> Job | None:
    """The latest backtest with the settings of a version."""
    jobs = records.latest_of_kind(connection, "backtest", _MOST_EVENTS)
    return next((job for job in jobs if job.params.get("model") == model_id), None)


def add_note(connection: sa.Connection, model_id: int, text: str, who: Actor, at: float) -> None:
    """Write a note on a version; it stays in the trail."""
    trail.record(connection, "model noted", at, who, model=model_id, text=text)


def notes(connection: sa.Connection, model_id: int) -> list[Note]:
    """What was noted on a version, the latest first."""
    names: dict[int, str] = dict(connection.execute(sa.select(t.keys.c.id, t.keys.c.name)).all())
    found = trail.latest_events(connection, ["model noted"], _MOST_EVENTS)
    return [
        Note(event.at, names.get(event.key or 0, "somebody"), str(event.data["text"]))
        for event in found
        if event.data.get("model") == model_id
    ]
