"""Golden cases: cases with a known truth among everybody's others, which nobody can tell apart.

A golden case is entered like any other: a row of `cases` with an id of its own, an assignment that takes a
unit of its person's capacity (it takes their time), a decision. `golden_cases` says that it is one. Whatever
counts the day's cost leaves it out (`is_golden`); its label is written down once the decision cannot be taken
back any more, and then counts for calibration, for the watch and for a newcomer's first days.

Where they come from: a table that a lead entered, and labelled cases of the ledger and of histories that were
entered which the person has not seen. How many: `rate` golden cases for each other case that somebody gets,
drawn by lot one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.errors import not_found
from deccaf.service.ledger import case_records, desk, labels, people, placing, shifts, trail
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.ledger.placing import ToPlace
from deccaf.service.ledger.review.golden_ids import new_id
from deccaf.service.ledger.review.undo import UNDO_SECONDS
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor

METHOD = "golden"
MOST_GOLDEN = 0.5
"""Golden cases for each other case, at most."""
CANDIDATES = 300
"""Labelled cases among which the next one is chosen, the latest first."""
_REVEALED_AT_ONCE = 200


@dataclass(frozen=True)
class Candidate:
    """A case with a known truth that somebody has not seen."""

    source: str
    """`table NUMBER`, `case ID`, or `past ID` of a history that was entered."""
    features: str
    label: str
    barred: tuple[str, ...] = ()
    """Who has seen it."""


@dataclass(frozen=True)
class Due:
    """Somebody who is due golden cases."""

    maker: str
    shift_id: int
    count: int
    before: int
    """The last assignment that was looked at, before and after."""
    after: int


@dataclass(frozen=True)
class Chosen:
    """A golden case to give, with what is believed about it."""

    candidate: Candidate
    losses: dict[str, float]
    says: str
    model_id: int
    how: str
    """`telling`, or `lot`."""


@dataclass(frozen=True)
class GoldenRecord:
    """How somebody did on golden cases, and what these cost in time."""

    maker: str
    rate: float
    given: int
    decided: int
    right: int
    seconds: float | None
    """All of their time that is on record."""


def is_golden(case_id: Any) -> sa.ColumnElement[bool]:
    """Of a column with case ids: that the case is a golden one."""
    return sa.exists().where(t.golden_cases.c.case_id == case_id)


def add_sources(
    connection: sa.Connection, rows: Sequence[tuple[str, str]], actor: Actor, at: float
) -> list[int]:
    """Enter cases (features, label, both JSON) to be given out as golden ones; gives their numbers."""
    made = []
    for features, label in rows:
        values = {"features": features, "label": label, "key_id": actor.key_id, "at": at}
        key = connection.execute(sa.insert(t.golden_sources).values(**values)).inserted_primary_key
        made.append(int(key[0]))  # type: ignore[index]
    trail.record(connection, "golden added", at, actor, cases=len(made))
    return made


def set_rate(connection: sa.Connection, maker: str, rate: float, actor: Actor, at: float) -> None:
    """How many golden cases somebody gets for each other case, from now on."""
    if not people.is_active(connection, maker):
        raise not_found("expert", maker)
    latest = int(connection.execute(sa.select(sa.func.max(t.assignments.c.id))).scalar() or 0)
    done = connection.execute(
        sa.update(t.golden_rates).where(t.golden_rates.c.maker == maker).values(rate=rate, looked=latest)
    )
    if not done.rowcount:
        connection.execute(sa.insert(t.golden_rates).values(maker=maker, rate=rate, looked=latest))
    trail.record(connection, "golden rate", at, actor, maker=maker, rate=rate)


def due(connection: sa.Connection, at: float, rng: np.random.Generator) -> list[Due]:
    """Who has got cases since the last look, and how many golden ones the lot gives them for these."""
    shift = shifts.current_shift(connection, at)
    if shift is None:
        return []
    a, g = t.assignments.c, t.golden_rates.c
    found = []
    for row in connection.execute(sa.select(t.golden_rates).where(g.rate > 0)).all():
        mine = (a.maker == row.maker, a.shift_id == shift, a.id > row.looked, a.method != METHOD)
        count, last = connection.execute(sa.select(sa.func.count(), sa.func.max(a.id)).where(*mine)).one()
        if count:
            drawn = int(rng.binomial(int(count), row.rate))
            found.append(Due(row.maker, shift, drawn, int(row.looked), int(last)))
    return found


def candidates(connection: sa.Connection, maker: str, most: int = CANDIDATES) -> list[Candidate]:
    """Labelled cases that somebody has neither decided nor got as golden ones, entered ones first.

    Then the latest of the ledger, then those of histories that were entered.
    """
    s, g, c, d = t.golden_sources.c, t.golden_cases.c, t.cases.c, t.decisions.c
    mine = sa.select(g.source).where(g.maker == maker)
    entered = sa.select(s.id, s.features, s.label).where(
        s.withdrawn_at.is_(None), (sa.literal("table ") + sa.cast(s.id, sa.Text)).not_in(mine)
    )
    found = [
        Candidate(f"table {row.id}", row.features, row.label)
        for row in connection.execute(entered.order_by(s.id.desc()).limit(most))
    ]
    past = (
        sa.select(c.case_id, c.features, c.label, d.maker)
        .join_from(t.cases, t.decisions, d.case_id == c.case_id)
        .where(
            c.label.is_not(None),
            c.given.is_(None),
            d.maker != maker,
            ~is_golden(c.case_id),
            (sa.literal("case ") + c.case_id).not_in(mine),
        )
    )
    rows = connection.execute(past.order_by(c.id.desc()).limit(max(most - len(found), 0)))
    found += [Candidate(f"case {row.case_id}", row.features, row.label, _people(row.maker)) for row in rows]
    return found + _past(connection, maker, mine, most - len(found))


def _past(connection: sa.Connection, maker: str, mine: sa.Select[tuple[str]], most: int) -> list[Candidate]:
    """Labelled cases of histories that stand."""
    if most <= 0:
        return []
    k, e, p = t.past_cases.c, t.past_entries.c, t.past_decisions.c
    seen = sa.exists().where(p.entry_id == k.entry_id, p.case_id == k.case_id, p.maker == maker)
    query = (
        sa.select(k.case_id, k.features, k.label)
        .join_from(t.past_cases, t.past_entries, e.id == k.entry_id)
        .where(
            e.withdrawn_at.is_(None),
            k.label.is_not(None),
            ~seen,
            (sa.literal("past ") + k.case_id).not_in(mine),
        )
        .order_by(k.id.desc())
        .limit(most)
    )
    rows = connection.execute(query)
    return [Candidate(f"past {row.case_id}", row.features, row.label) for row in rows]


def give(
    connection: sa.Connection, due: Due, chosen: Sequence[Chosen], at: float, rng: np.random.Generator
) -> list[str]:
    """Put golden cases into somebody's queue, as far as they have room; gives their ids.

    Nothing where another process has looked meanwhile.
    """
    at_desk = desk.open_desk(connection, due.shift_id, at)
    g = t.golden_rates.c
    mine = sa.update(t.golden_rates).where(g.maker == due.maker, g.looked == due.before)
    if connection.execute(mine.values(looked=due.after)).rowcount != 1:
        return []
    if not at_desk.is_open or due.maker not in at_desk.makers:
        return []
    room = at_desk.room[at_desk.makers.index(due.maker)]
    made = []
    for one in chosen[: int(min(room, len(chosen)))]:
        case_id = new_id(connection, rng)
        barred = one.candidate.barred
        arrival = Arrival(
            case_id, one.candidate.features, one.losses, one.says, one.model_id, excluded=barred
        )
        case_records.add(connection, [(arrival, "assigned")], at)
        facts = {"source": one.candidate.source, "chosen": one.how}
        connection.execute(  # before it is given: nobody outside is told of it
            sa.insert(t.golden_cases).values(
                case_id=case_id, maker=due.maker, label=one.candidate.label, at=at, **facts
            )
        )
        item = ToPlace(case_id, one.losses, one.says, one.model_id)
        placing.give(connection, at_desk, [(item, due.maker)], METHOD, Actor(None), at)
        trail.record(connection, METHOD, at, Actor(None), case_id, due.shift_id, due.maker, **facts)
        made.append(case_id)
    return made


def to_reveal(connection: sa.Connection, at: float) -> list[tuple[str, str]]:
    """Golden cases (id, label) whose decision stands by now and whose label is not written down yet."""
    g, c, d = t.golden_cases.c, t.cases.c, t.decisions.c
    query = (
        sa.select(g.case_id, g.label)
        .join_from(t.golden_cases, t.cases, c.case_id == g.case_id)
        .join(t.decisions, d.case_id == g.case_id)
        .where(c.label.is_(None), d.at < at - UNDO_SECONDS)
        .order_by(g.case_id)
        .limit(_REVEALED_AT_ONCE)
    )
    return [(row.case_id, row.label) for row in connection.execute(query)]


def reveal(connection: sa.Connection, at: float) -> int:
    """Write their labels down; how many."""
    rows = to_reveal(connection, at)
    if rows:
        labels.label(connection, rows, Actor(None), at)
    return len(rows)


def records(connection: sa.Connection) -> list[GoldenRecord]:
    """How everybody did, and what it cost in time."""
    g, d, r = t.golden_cases.c, t.decisions.c, t.golden_rates.c
    rates: dict[str, float] = dict(connection.execute(sa.select(r.maker, r.rate)).all())
    right = sa.case((d.decision == g.label, 1), else_=0)
    query = (
        sa.select(
            g.maker, sa.func.count(), sa.func.count(d.case_id), sa.func.sum(right), sa.func.sum(d.seconds)
        )
        .outerjoin_from(t.golden_cases, t.decisions, sa.and_(d.case_id == g.case_id, d.maker == g.maker))
        .group_by(g.maker)
    )
    done = {row[0]: row[1:] for row in connection.execute(query)}
    found = []
    for name in sorted({*rates, *done}):
        given, decided, hits, seconds = done.get(name, (0, 0, 0, None))
        took = None if seconds is None else float(seconds)
        found.append(GoldenRecord(name, rates.get(name, 0.0), given, decided, int(hits or 0), took))
    return found


def _people(maker: str) -> tuple[str, ...]:
    """Who has seen a case: nobody, where the machine decided it."""
    return () if maker == MACHINE else (maker,)


def parsed(candidate: Candidate) -> tuple[dict[str, Any], int | str]:
    """Features and label."""
    return json.loads(candidate.features), json.loads(candidate.label)
