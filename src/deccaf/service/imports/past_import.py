"""A history from elsewhere: cases that people have decided and whose truth is known, to learn from.

It enters the ledger as a closed shift, so that models are fitted, and people judged, on one record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.data.times import parse_times
from deccaf.errors import DataError
from deccaf.service.errors import invalid
from deccaf.service.imports import case_import
from deccaf.service.imports.case_import import Checked, RowError
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import tables as t

TEAM = "team"
NEEDED = ("case_id", "label", "expert_id", "decision")
_CHUNK = 2_000


@dataclass(frozen=True, eq=False)
class Past:
    """A file of history that was looked at."""

    checked: Checked
    labels: list[str]
    experts: list[str]
    decisions: list[str]
    ages: list[int]
    """Rank in time: by the column `time` where there is one, else by the order of the file."""


def check_past(frame: pd.DataFrame) -> Past:
    """Look at every row; the columns `label`, `expert_id` and `decision` are kept apart from the features."""
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        raise invalid("missing-columns", f"column {missing[0]!r}: missing; a history has {', '.join(NEEDED)}")
    frame = frame.reset_index(drop=True)
    features = frame.drop(columns=["label", "expert_id", "decision", "time"], errors="ignore")
    checked = case_import.check_frame(features, None)
    errors = [*checked.errors, *_errors(frame)]
    bad = {error.row for error in errors}
    keep = [k for k, place in enumerate(checked.places) if place not in bad]
    rows = [checked.places[k] - 1 for k in keep]
    part = frame.iloc[rows]
    return Past(
        Checked(
            arrivals=[checked.arrivals[k] for k in keep],
            places=[checked.places[k] for k in keep],
            errors=sorted(errors, key=lambda error: error.row),
            rows=len(frame),
            rejected=len(bad),
            columns=checked.columns,
        ),
        [_as_class(value) for value in part["label"]],
        [str(value) for value in part["expert_id"]],
        [_as_class(value) for value in part["decision"]],
        _ranks(frame)[rows].tolist(),
    )


def enter_past(connection: sa.Connection, past: Past, filename: str, who: Actor, at: float) -> int:
    """Enter a history; how many cases."""
    checked = case_import.without_known(connection, past.checked)
    kept = {arrival.case_id for arrival in checked.arrivals}
    rows = [
        (arrival, label, expert, decision)
        for arrival, label, expert, decision in zip(
            past.checked.arrivals, past.labels, past.experts, past.decisions, strict=True
        )
        if arrival.case_id in kept
    ]
    latest = max(past.ages, default=0)
    came = {
        arrival.case_id: at - 10.0 - (latest - age)
        for arrival, age in zip(past.checked.arrivals, past.ages, strict=True)
    }
    if not rows:
        raise invalid("nothing-new", "no row of the file can be entered: see the preview")
    made = case_import.enter(connection, checked, filename, who, at)
    people = sorted({expert for _, _, expert, _ in rows})
    _know_people(connection, people, who, at)
    shift, pricing = _closed_shift(connection, made["id"], people, [row[2] for row in rows], at)
    unknown = ledger.numbers([None] * (len(people) + 1))
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        connection.execute(
            sa.insert(t.assignments), [_assignment(r, shift, pricing, unknown, at) for r in part]
        )
        connection.execute(
            sa.insert(t.decisions),
            [
                {"case_id": a.case_id, "maker": e, "decision": m, "seconds": None, "at": at}
                for a, _, e, m in part
            ],
        )
        connection.execute(
            sa.update(t.cases)
            .where(t.cases.c.case_id == sa.bindparam("of_case"))
            .values(status="decided", arrived_at=sa.bindparam("came")),
            [{"of_case": a.case_id, "came": came[a.case_id]} for a, *_ in part],
        )
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        ledger.label(connection, [(a.case_id, y) for a, y, _, _ in part], who, at)
    return len(rows)


def _assignment(
    row: tuple[Any, str, str, str], shift: int, pricing: int, unknown: str, at: float
) -> dict[str, Any]:
    arrival, _, expert, _ = row
    return {
        "case_id": arrival.case_id,
        "shift_id": shift,
        "maker": expert,
        "state": "decided",
        "method": "history",
        "pricing_id": pricing,
        "losses": unknown,
        "expected_loss": 0.0,
        "price": 0.0,
        "propensity": 1.0,
        "created_at": at,
        "changed_at": at,
    }


def _know_people(connection: sa.Connection, people: list[str], who: Actor, at: float) -> None:
    known = set(connection.execute(sa.select(t.experts.c.name)).scalars())
    team = connection.execute(sa.select(t.teams.c.id).order_by(t.teams.c.id).limit(1)).scalar()
    if team is None:
        made = sa.insert(t.teams).values(name=TEAM, created_at=at).returning(t.teams.c.id)
        team = connection.execute(made).scalar_one()
        ledger.record(connection, "team added", at, who, team=TEAM)
    for name in people:
        if name not in known:
            facts = {"name": name, "display": name, "active": True, "team_id": team, "created_at": at}
            connection.execute(sa.insert(t.experts).values(**facts))
            ledger.record(connection, "expert added", at, who, None, None, name)


def _closed_shift(
    connection: sa.Connection, number: int, people: list[str], experts: list[str], at: float
) -> tuple[int, int]:
    """A shift that is over, with everybody on it; its id and that of its (empty) prices."""
    team = connection.execute(sa.select(t.teams.c.id).order_by(t.teams.c.id).limit(1)).scalar_one()
    facts = {"starts_at": at - 2.0, "ends_at": at - 1.0, "random_share": 0.0, "state": "closed"}
    values = {"name": f"history {number}", "team_id": team, **facts}
    shift = connection.execute(sa.insert(t.shifts).values(**values).returning(t.shifts.c.id)).scalar_one()
    load = pd.Series(experts).value_counts()
    rows = [
        {
            "shift_id": shift,
            "maker": maker,
            "capacity": None,
            "lower": 0,
            "used": int(load.get(maker, 0)),
            "absent": False,
        }
        for maker in (MACHINE, *people)
    ]
    connection.execute(sa.insert(t.roster), rows)
    makers = (MACHINE, *people)
    pricing = ledger.write_prices(connection, shift, makers, np.zeros(len(makers)), "history", None, at)
    return int(shift), pricing


def _errors(frame: pd.DataFrame) -> list[RowError]:
    from deccaf.service.web.api.common import MAKER

    errors = []
    ids = frame["case_id"].astype("str")
    for name in ("label", "decision", "expert_id"):
        for row in np.flatnonzero(frame[name].isna().to_numpy()).tolist():
            errors.append(RowError(row + 1, ids.iloc[row], name, "is empty"))
    odd = frame["expert_id"].notna() & ~frame["expert_id"].astype("str").str.fullmatch(MAKER.strip("^$"))
    odd |= frame["expert_id"].astype("str") == MACHINE
    for row in np.flatnonzero(odd.fillna(False).to_numpy(bool)).tolist():
        errors.append(RowError(row + 1, ids.iloc[row], "expert_id", "is no name for a person"))
    return errors


def _ranks(frame: pd.DataFrame) -> np.ndarray:
    """0 for the oldest; cases of one time have one rank."""
    if "time" not in frame:
        return np.arange(len(frame))
    try:
        times = parse_times(frame["time"]).values
    except DataError as error:
        raise invalid("unreadable-times", str(error)) from error
    ranks = times.rank(method="dense", na_option="top").to_numpy(np.float64)
    return np.asarray(ranks, np.int64)


def _as_class(value: Any) -> str:
    """A label or decision as JSON: whole numbers as such, all else as text."""
    if isinstance(value, bool | np.bool_):
        return json.dumps(int(value))
    if isinstance(value, int | np.integer):
        return json.dumps(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return json.dumps(int(value))
    return json.dumps(str(value))
