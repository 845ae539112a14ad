"""Labels: what the truth turned out to be."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.ledger import case_records, trail
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.idempotency import Answer, Call, remember
from deccaf.service.store.keys import Actor
from deccaf.service.store.unfinished import Unfinished

Labelled = tuple[str, str]
"""A case and its label, as JSON."""
AT_ONCE = 500
"""Labels that are written together on SQLite."""


def label(connection: sa.Connection, rows: Sequence[Labelled], actor: Actor, at: float) -> dict[str, int]:
    """Write down labels; a later label corrects an earlier one. What their sender is told.

    Cases are locked before anything is written: the label of a case is the last one on its trail.
    """
    need_cases(connection, rows)
    _write(connection, rows, actor, at)
    return accepted(rows)


def accepted(rows: Sequence[Labelled]) -> dict[str, int]:
    """What the sender of labels is told."""
    return {"accepted": len(rows)}


def begin(
    connection: sa.Connection, rows: Sequence[Labelled], call: Call, answer: Answer, at: float
) -> Unfinished:
    """Begin to write labels in pieces; what has begun is done, if need be by the next process.

    Each case is whole at any time, so nothing is hidden meanwhile. That the cases are there is looked at
    before (`need_cases`), outside this transaction: none goes away again.
    """
    return unfinished.begin(
        connection,
        at,
        key_id=call.actor.key_id,
        idempotency_key=call.key,
        request=call.request,
        body=answer.body,
        units=json.dumps(list(rows)),
    )


def write_piece(connection: sa.Connection, change: Unfinished, done: int, at: float) -> int | None:
    """The next labels; how many are written then; None: that was the last piece, or another's."""
    rows = [(str(case), str(value)) for case, value in json.loads(change.units)]
    part, actor = rows[done : done + AT_ONCE], Actor(change.key_id)
    if not unfinished.move_on(connection, change, done, len(part)):
        return None
    known = case_records.lock(connection, {case for case, _ in part})
    _write(connection, [row for row in part if row[0] in known], actor, at)
    if done + len(part) < len(rows):
        return done + len(part)
    unfinished.end(connection, change)
    call = Call(actor, change.idempotency_key, change.request)
    remember(connection, [(call, Answer(200, change.body))], at)
    return None


def need_cases(connection: sa.Connection, rows: Sequence[Labelled]) -> None:
    """Refuses labels of cases that nobody knows; locks the others."""
    ids = {case_id for case_id, _ in rows}
    missing = sorted(ids - case_records.lock(connection, ids).keys())
    if missing:
        raise not_found("case", missing[0])


def _write(connection: sa.Connection, rows: Sequence[Labelled], actor: Actor, at: float) -> None:
    many.add(connection, t.labels, [{"case_id": case, "label": value, "at": at} for case, value in rows])
    connection.execute(
        sa.update(t.cases)
        .where(t.cases.c.case_id == sa.bindparam("of_case"))
        .values(label=sa.bindparam("truth"), labelled_at=at),
        [{"of_case": case, "truth": value} for case, value in sorted(rows)],
    )
    lines = [trail.line("labelled", at, actor, case_id=case, label=json.loads(value)) for case, value in rows]
    trail.write(connection, lines)
