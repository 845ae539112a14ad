"""What the machine thinks of a case, and whether somebody saw it before they decided.

The lead's word is in `[display.machine]` of the setting `display`. It is written down with every decision,
as it changes how people decide: `machine` is `shown`, `hidden` or `after`, and `first` the answer before it
was shown.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from deccaf.data.display import DisplayTable, Mode
from deccaf.service.errors import conflict
from deccaf.service.ledger import trail
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import read_setting, write_setting

DISPLAY = "display"
"""The setting that holds the table `[display]` of a configuration file."""
FIRST = "first answer"


def read_display(connection: sa.Connection) -> DisplayTable:
    """How cases are shown."""
    return DisplayTable.model_validate(read_setting(connection, DISPLAY) or {})


def write_display(connection: sa.Connection, display: DisplayTable, actor: Actor, at: float) -> None:
    """Show cases so from now on."""
    tables = display.model_dump(exclude_unset=True)
    write_setting(connection, DISPLAY, tables)
    trail.record(connection, "display changed", at, actor, **tables)


def mode_for(connection: sa.Connection, case_id: str, maker: str, display: DisplayTable) -> Mode:
    """Whether somebody sees what the machine thinks of a case that is theirs."""
    machine = display.machine
    if not machine.people and not machine.shifts:
        return machine.default
    a, s = t.assignments.c, t.shifts.c
    query = (
        sa.select(s.name)
        .join_from(t.assignments, t.shifts, s.id == a.shift_id)
        .where(a.case_id == case_id, a.maker == maker, a.state.in_(t.HELD))
    )
    return machine.mode(maker, connection.execute(query).scalar())


def first_answer(connection: sa.Connection, case_id: str, maker: str) -> Any:
    """What somebody answered before they saw what the machine thinks; None: nothing yet."""
    h = t.history.c
    query = (
        sa.select(h.data)
        .where(h.case_id == case_id, h.kind == FIRST, h.maker == maker)
        .order_by(h.id)
        .limit(1)
    )
    data = connection.execute(query).scalar()
    return None if data is None else json.loads(data)["decision"]


def answer_first(
    connection: sa.Connection, case_id: str, maker: str, decision: str, actor: Actor, at: float
) -> None:
    """Write down somebody's answer before they see what the machine thinks; the first one stays."""
    a = t.assignments.c
    mine = sa.select(a.shift_id).where(
        a.case_id == case_id, a.maker == maker, a.state.in_(("assigned", "claimed"))
    )
    shift = connection.execute(mine.with_for_update(key_share=True)).scalar()
    if shift is None:
        raise conflict("not-assigned", f"case {case_id!r} is not assigned to {maker}")
    if mode_for(connection, case_id, maker, read_display(connection)) != "after":
        raise conflict("no-first-answer", "only where the machine is shown after the first answer")
    if first_answer(connection, case_id, maker) is None:
        trail.record(connection, FIRST, at, actor, case_id, shift, maker, decision=json.loads(decision))


def seen(connection: sa.Connection, case_id: str, maker: str) -> dict[str, Any]:
    """What to write down with a decision: whether the machine's opinion was seen, and the first answer."""
    mode = mode_for(connection, case_id, maker, read_display(connection))
    if mode != "after":
        return {"machine": mode}
    return {"machine": mode, "first": first_answer(connection, case_id, maker)}


def visible(connection: sa.Connection, case_id: str, maker: str, says: str | None) -> Any:
    """What the machine would decide, as far as somebody may see it now; None: nothing."""
    if says is None:
        return None
    mode = mode_for(connection, case_id, maker, read_display(connection))
    if mode == "hidden" or (mode == "after" and first_answer(connection, case_id, maker) is None):
        return None
    return json.loads(says)
