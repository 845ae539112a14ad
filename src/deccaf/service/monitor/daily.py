"""The watch day by day: one row for each measure and day, so that a page reads only what it shows.

A row holds the last value that a look found on that day, what was expected, from where on it is an alert, and
how many cases or labels it rests on. Measures are "drift <feature>", "score", "truth", "labels" and
"errors <name>".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.evaluate.sequential import Change
from deccaf.service.monitor.health import DAY, HealthReport
from deccaf.service.monitor.limits import Limits
from deccaf.service.store import tables as t

SHOWN_DAYS = 60


@dataclass(frozen=True)
class Measure:
    """One measure on one day."""

    name: str
    value: float
    expected: float | None
    alert_at: float | None
    count: int
    odd: bool


@dataclass(frozen=True)
class Series:
    """One measure over days."""

    name: str
    points: list[tuple[int, float]]
    """Days since 1970, and the value."""
    alert_at: float | None
    latest: Measure


def measures(report: HealthReport, limits: Limits, people: Mapping[str, Change]) -> list[Measure]:
    """What a look found, measure by measure; errors as the weight of the evidence, 1 being an alert."""
    found = [
        Measure(f"drift {name}", index, None, limits.drift, report.cases, odd)
        for name, index, odd in report.features
    ]
    if report.score is not None:
        found.append(Measure("score", report.score, None, limits.drift, report.cases, report.score_odd))
    if report.truth_seen is not None:
        found.append(
            Measure("truth", report.truth_seen, report.truth_expected, None, report.labels, report.truth_odd)
        )
    if report.late is not None:
        days = report.late / DAY
        odd = days > limits.label_days
        found.append(Measure("labels", days, None, limits.label_days, report.labels, odd))
    for name, change in sorted(people.items()):
        tally = change.tally
        expected = tally.expected / tally.count if tally.count else None
        found.append(Measure(f"errors {name}", weight(change), expected, 1.0, tally.count, change.is_odd))
    return [one for one in found if math.isfinite(one.value)]


def weight(change: Change) -> float:
    """The evidence on a scale on which 0 is none and 1 is enough for an alert."""
    return math.log1p(change.evidence) / math.log1p(change.needed)


def keep(connection: sa.Connection, found: Sequence[Measure], model_id: int | None, at: float) -> None:
    """Write a day's measures down; those that are as they were are left alone."""
    day, w = int(at // DAY), t.watch_days.c
    known = {row.measure: row for row in connection.execute(sa.select(t.watch_days).where(w.day == day))}
    new = []
    for one in found:
        values: dict[str, Any] = {
            "value": round(one.value, 6),
            "expected": one.expected,
            "alert_at": one.alert_at,
        }
        values |= {"count": one.count, "odd": one.odd, "model_id": model_id}
        row = known.get(one.name)
        if row is None:
            new.append({"day": day, "measure": one.name, "at": at, **values})
        elif any(row._mapping[name] != value for name, value in values.items()):
            connection.execute(
                sa.update(t.watch_days).where(w.day == day, w.measure == one.name).values(at=at, **values)
            )
    if new:
        connection.execute(sa.insert(t.watch_days), new)


def read_series(connection: sa.Connection, at: float, days: int = SHOWN_DAYS) -> list[Series]:
    """All measures of the last days; those in alert first, then by name."""
    w = t.watch_days.c
    first = int(at // DAY) - days + 1
    rows = connection.execute(sa.select(t.watch_days).where(w.day >= first).order_by(w.measure, w.day)).all()
    together: dict[str, list[Any]] = {}
    for row in rows:
        together.setdefault(row.measure, []).append(row)
    found = []
    for name, mine in together.items():
        last = mine[-1]
        latest = Measure(name, last.value, last.expected, last.alert_at, last._mapping["count"], last.odd)
        found.append(Series(name, [(row.day, row.value) for row in mine], last.alert_at, latest))
    return sorted(found, key=lambda one: (not one.latest.odd, one.name))
