"""Whether the ledger adds up.

What must hold is counted, which takes an index and no table; only where counts differ are rows compared, to
say which. That a case has at most one live assignment and one decision, and that both are of a case that
exists, are constraints of the database; so equal counts say that every case has its own.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa

from deccaf.service.store import tables as t

MOST_NAMED = 100
"""Cases of one kind that are named."""


def check(connection: sa.Connection) -> list[str]:
    """Everything about the ledger that does not add up; an empty list is what one wants to see."""
    return [*_loads(connection), *_doubled(connection), *_contradictions(connection)]


def _loads(connection: sa.Connection) -> list[str]:
    """Everybody's used capacity is the number of their live and answered assignments, within their limit."""
    a, r = t.assignments.c, t.roster.c
    counted: Counter[tuple[int, str]] = Counter()
    for which in (t.IS_LIVE, t.IS_ANSWERED):
        grouped = sa.select(a.shift_id, a.maker, sa.func.count()).where(which).group_by(a.shift_id, a.maker)
        for shift, maker, count in connection.execute(grouped):
            counted[shift, maker] += count
    wrong = []
    for row in connection.execute(sa.select(*r["shift_id", "maker", "capacity", "used"])):
        have = counted.pop((row.shift_id, row.maker), 0)
        if have != row.used:
            wrong.append(f"shift {row.shift_id}, {row.maker}: used is {row.used}, live assignments {have}")
        if row.capacity is not None and row.used > row.capacity:
            wrong.append(f"shift {row.shift_id}, {row.maker}: {row.used} used of {row.capacity}")
    return wrong + [
        f"shift {shift}, {maker}: {n} live cases, not on the roster" for (shift, maker), n in counted.items()
    ]


def _doubled(connection: sa.Connection) -> list[str]:
    a = t.assignments.c
    count = sa.select(sa.func.count(), sa.func.count(sa.distinct(a.case_id))).where(t.IS_LIVE)
    rows, cases = connection.execute(count).one()
    if rows == cases:
        return []
    doubled = sa.select(a.case_id).where(t.IS_LIVE).group_by(a.case_id).having(sa.func.count() > 1)
    found = connection.execute(doubled.limit(MOST_NAMED)).scalars()
    return [f"case {case!r} has two live assignments" for case in found]


def _contradictions(connection: sa.Connection) -> list[str]:
    """Whether a case waits, is in somebody's hands or decided, its assignment and its decision say too."""
    k = t.cases.c
    held = sa.exists().where(t.assignments.c.case_id == k.case_id, t.IS_LIVE)
    decided = sa.exists().where(t.decisions.c.case_id == k.case_id)
    by_status = sa.select(k.status, sa.func.count()).group_by(k.status)
    cases: dict[str, int] = dict(connection.execute(by_status).all())
    odd = [
        sa.and_(k.status == "waiting", held),
        sa.and_(k.status.in_(("waiting", "assigned")), decided),
    ]
    live = _count(connection, sa.select(sa.func.count()).select_from(t.assignments).where(t.IS_LIVE))
    s, o = t.second_opinions.c, t.opinions.c
    listed = sa.exists().where(s.case_id == k.case_id, s.state == "lead")
    on_list = _count(
        connection, sa.select(sa.func.count()).select_from(t.second_opinions).where(s.state == "lead")
    )
    if live + on_list != cases.get("assigned", 0) + cases.get("decided", 0):
        odd.append(sa.and_(k.status != "waiting", ~held, ~listed))
        odd.append(sa.and_(k.status != "assigned", listed))
    answered = _count(connection, sa.select(sa.func.count()).select_from(t.assignments).where(t.IS_ANSWERED))
    if answered != _count(connection, sa.select(sa.func.count()).select_from(t.opinions)):
        of_opinion = sa.exists().where(o.assignment_id == t.assignments.c.id)
        lost = sa.select(t.assignments.c.case_id).where(t.IS_ANSWERED, ~of_opinion)
        odd.append(k.case_id.in_(lost))
    if _count(connection, sa.select(sa.func.count()).select_from(t.decisions)) != cases.get("decided", 0):
        odd.append(sa.and_(k.status == "decided", ~decided))
    names: dict[str, None] = {}
    for condition in odd:
        found = connection.execute(sa.select(k.case_id).where(condition).limit(MOST_NAMED)).scalars()
        names |= dict.fromkeys(found)
    return [f"case {case!r}: its status contradicts its assignments" for case in names]


def _count(connection: sa.Connection, query: sa.Select[Any]) -> int:
    return int(connection.execute(query).scalar_one())
