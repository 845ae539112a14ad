"""Many rows at once: what a compiled statement would have written, and its errors."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service.store import database, rows
from deccaf.service.store import tables as t

LABELS = [
    {"case_id": f"c{k}\t\\N '\"ä\n", "label": text, "at": 0.1 + k / 3}
    for k, text in enumerate(['"a\\tb"', "1", '"\\\\N"', '"é"'] * 8)
]


def case(label: dict[str, Any]) -> dict[str, Any]:
    return {
        "case_id": label["case_id"],
        "status": "waiting",
        "features": "{}",
        "excluded": "[]",
        "arrived_at": 0.5,
    }


def test_values_come_back_as_they_went_in(database_url: str) -> None:
    engine = database.connect(database_url)
    database.migrate(engine)
    with database.writing(engine) as connection:
        rows.add(connection, t.cases, [{**case(label), "import_id": None} for label in LABELS])
        rows.add(connection, t.labels, LABELS)
        rows.add(connection, t.labels, [])
    with database.reading(engine) as connection:
        c = t.labels.c
        found = connection.execute(sa.select(c.case_id, c.label, c.at).order_by(c.id))
        assert [row._asdict() for row in found] == LABELS
        assert set(connection.execute(sa.select(t.cases.c.priority)).scalars()) == {0}
    engine.dispose()


def test_what_goes_wrong_is_an_error_of_sqlalchemy_and_leaves_nothing(database_url: str) -> None:
    engine = database.connect(database_url)
    database.migrate(engine)
    twice = [case(label) for label in [*LABELS, LABELS[0]]]
    with pytest.raises(sa.exc.IntegrityError), database.writing(engine) as connection:
        rows.add(connection, t.cases, twice)
    with pytest.raises(ValueError, match="different columns"), database.writing(engine) as connection:
        rows.add(connection, t.cases, [*twice, {"case_id": "x"}])
    with database.reading(engine) as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(t.cases)).scalar_one() == 0
    engine.dispose()
