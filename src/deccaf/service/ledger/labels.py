"""Labels: what the truth turned out to be."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from deccaf.service.errors import not_found
from deccaf.service.ledger import case_records, trail
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor


def label(connection: sa.Connection, rows: Sequence[tuple[str, str]], actor: Actor, at: float) -> None:
    """Write down labels (case, label as JSON); a later label corrects an earlier one.

    Cases are locked before anything is written: the label of a case is the last one on its trail.
    """
    ids = {case_id for case_id, _ in rows}
    missing = sorted(ids - case_records.lock(connection, ids).keys())
    if missing:
        raise not_found("case", missing[0])
    connection.execute(
        sa.insert(t.labels), [{"case_id": case, "label": value, "at": at} for case, value in rows]
    )
    connection.execute(
        sa.update(t.cases)
        .where(t.cases.c.case_id == sa.bindparam("of_case"))
        .values(label=sa.bindparam("truth"), labelled_at=at),
        [{"of_case": case, "truth": value} for case, value in sorted(rows)],
    )
    lines = [trail.line("labelled", at, actor, case_id=case, label=json.loads(value)) for case, value in rows]
    trail.write(connection, lines)
