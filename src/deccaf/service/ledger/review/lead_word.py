"""The lead's word on cases that people could not agree on: the list of them, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import RefusedError, conflict, invalid, not_found
from deccaf.service.ledger import assignments, case_records, desk, letting, placing, trail
from deccaf.service.ledger.assignments import Live
from deccaf.service.ledger.review.second import (
    SECOND,
    Opinion,
    excluded_from,
    opinions_of,
    row_of,
    set_state,
    to_place,
)
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.listing import from_json

MOST_LISTED = 200


@dataclass(frozen=True)
class Listed:
    """A case on the lead's list, with the answers side by side."""

    case_id: str
    since: float
    why: str
    features: dict[str, Any]
    label: int | str | None
    machine: int | str | None
    answers: list[Opinion]


def lead_list(connection: sa.Connection, most: int = MOST_LISTED) -> list[Listed]:
    """What waits for the lead's word, the oldest first."""
    s, c = t.second_opinions.c, t.cases.c
    query = (
        sa.select(s.case_id, s.at, s.why, c.features, c.label)
        .join_from(t.second_opinions, t.cases, c.case_id == s.case_id)
        .where(s.state == "lead")
        .order_by(s.at, s.case_id)
        .limit(most)
    )
    rows = connection.execute(query).all()
    answers = _answers(connection, [row.case_id for row in rows])
    says = _machine_says(connection, [given[0].assignment_id for given in answers.values()])
    found = []
    for row in rows:
        given = answers[row.case_id]
        facts = (from_json(row.features), from_json(row.label), from_json(says[given[0].assignment_id]))
        found.append(Listed(row.case_id, row.at, row.why, *facts, given))
    return found


def waiting_for_lead(connection: sa.Connection) -> int:
    """How many cases are on the lead's list."""
    s = t.second_opinions.c
    query = sa.select(sa.func.count()).select_from(t.second_opinions).where(s.state == "lead")
    return int(connection.execute(query).scalar_one())


def settle(
    connection: sa.Connection, case_id: str, decision: str, actor: Actor, at: float
) -> tuple[Opinion, float | None]:
    """The lead makes an answer the decision; that answer, and the chance if it was let through by lot."""
    row, mine = _on_list(connection, case_id)
    chosen = next((one for one in mine if one.decision == decision), None)
    if chosen is None:
        given = ", ".join(sorted({one.decision for one in mine}))
        raise invalid("nobody-said-so", f"nobody answered {decision} on case {case_id!r}, but {given}")
    assignments.set_state(connection, [chosen.assignment_id], "decided", chosen.at)
    facts = {"case_id": case_id, "maker": chosen.maker, "decision": chosen.decision}
    connection.execute(sa.insert(t.decisions).values(**facts, seconds=chosen.seconds, at=chosen.at))
    connection.execute(sa.delete(t.opinions).where(t.opinions.c.id == chosen.id))
    case_records.set_status(connection, [case_id], "decided")
    set_state(connection, case_id, "settled", row.why, at)
    trail.record(
        connection, "settled", at, actor, case_id, None, chosen.maker, decision=json.loads(chosen.decision)
    )
    return chosen, letting.draw(connection, case_id, chosen.maker, chosen.decision, actor, at)


def ask_one_more(connection: sa.Connection, case_id: str, to: str | None, actor: Actor, at: float) -> str:
    """The lead asks one more person about a case on the list: `to`, or the best with room; who it is."""
    mine = opinions_of(connection, case_id)
    if not mine:
        raise _not_on_list(connection, case_id)
    a = t.assignments.c
    last = Live(*connection.execute(assignments.any_where(a.id == mine[-1].assignment_id)).one())
    at_desk = desk.open_desk(connection, last.shift_id, at)
    row, mine = _on_list(connection, case_id)
    excluded = excluded_from(connection, case_id)
    item = to_place(connection, last, excluded)
    if to is None:
        to = placing.best(at_desk, item)
        if to is None:
            raise conflict("no-room", "nobody else in the shift of this case has room")
    elif to in excluded or to not in at_desk.makers or to not in item.losses:
        raise conflict("may-not-get-it", f"{to} cannot be asked about case {case_id!r}")
    placing.give(connection, at_desk, [(item, to)], SECOND, actor, at)
    set_state(connection, case_id, "open", row.why, at)
    return to


def _on_list(connection: sa.Connection, case_id: str) -> tuple[Any, list[Opinion]]:
    """A case on the lead's list with its answers, under lock."""
    mine = opinions_of(connection, case_id)
    a = t.assignments.c
    held = sa.select(a.id).where(a.id.in_([one.assignment_id for one in mine])).order_by(a.id)
    connection.execute(held.with_for_update(key_share=True)).all()
    case_records.lock(connection, [case_id])
    row = row_of(connection, case_id)
    if row is None or row.state != "lead":
        raise _not_on_list(connection, case_id)
    return row, opinions_of(connection, case_id)


def _not_on_list(connection: sa.Connection, case_id: str) -> RefusedError:
    if not case_records.known_cases(connection, [case_id]):
        return not_found("case", case_id)
    return conflict("not-on-list", f"case {case_id!r} does not wait for a lead's word")


def _answers(connection: sa.Connection, case_ids: Sequence[str]) -> dict[str, list[Opinion]]:
    o = t.opinions.c
    query = sa.select(t.opinions).where(o.case_id.in_(case_ids)).order_by(o.assignment_id)
    found: dict[str, list[Opinion]] = {}
    for row in connection.execute(query):
        found.setdefault(row.case_id, []).append(Opinion(*row))
    return found


def _machine_says(connection: sa.Connection, ids: Sequence[int]) -> dict[int, str | None]:
    """What the machine would decide, as JSON, by assignment."""
    a = t.assignments.c
    rows = connection.execute(sa.select(a.id, a.machine_says).where(a.id.in_(ids)))
    return {row.id: row.machine_says for row in rows}
