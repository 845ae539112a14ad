"""Whether the ledger adds up."""

from __future__ import annotations

import sqlalchemy as sa

from deccaf.service.store import tables as t


def check(connection: sa.Connection) -> list[str]:
    """Everything about the ledger that does not add up; an empty list is what one wants to see."""
    a, r = t.assignments.c, t.roster.c
    wrong = []
    live = (
        sa.select(a.shift_id, a.maker, sa.func.count().label("live"))
        .where(a.state.in_(t.LIVE))
        .group_by(a.shift_id, a.maker)
    )
    counted = {(row.shift_id, row.maker): row.live for row in connection.execute(live)}
    for row in connection.execute(sa.select(*r["shift_id", "maker", "capacity", "used"])):
        have = counted.pop((row.shift_id, row.maker), 0)
        if have != row.used:
            wrong.append(f"shift {row.shift_id}, {row.maker}: used is {row.used}, live assignments {have}")
        if row.capacity is not None and row.used > row.capacity:
            wrong.append(f"shift {row.shift_id}, {row.maker}: {row.used} used of {row.capacity}")
    wrong += [
        f"shift {shift}, {maker}: {n} live cases, not on the roster" for (shift, maker), n in counted.items()
    ]
    doubled = sa.select(a.case_id).where(a.state.in_(t.LIVE)).group_by(a.case_id).having(sa.func.count() > 1)
    wrong += [f"case {case!r} has two live assignments" for case in connection.execute(doubled).scalars()]
    held = sa.select(a.case_id).where(a.state.in_(t.LIVE))
    decided = sa.select(t.decisions.c.case_id)
    k = t.cases.c
    odd = sa.select(k.case_id).where(
        sa.or_(
            sa.and_(k.status == "waiting", k.case_id.in_(held)),
            sa.and_(k.status != "waiting", k.case_id.not_in(held)),
            sa.and_(k.status == "decided", k.case_id.not_in(decided)),
            sa.and_(k.status != "decided", k.case_id.in_(decided)),
        )
    )
    wrong += [
        f"case {case!r}: its status contradicts its assignments" for case in connection.execute(odd).scalars()
    ]
    return wrong
