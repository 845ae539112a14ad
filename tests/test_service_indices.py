"""Pages of a large ledger read what they show by an index, also where SQLite has never looked at its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.service.store import database
from service_world import World, world

PATHS = (
    "/v1/reports/shift",
    "/v1/reports/ledger",
    "/v1/shifts",
    "/v1/plans",
    "/v1/models",
    "/v1/reports/cases?sort=lowest&loss_from=0.5",
    "/v1/reports/cases?decision=1",
    "/v1/reports/trail?limit=10",
    "/v1/reports/experts",
    "/v1/reports/person?name=ann",
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 9, "bob": 99}, housekeeping=False) as desk:
        yield desk


def plans_of(desk: World, ask: Any) -> dict[str, list[str]]:
    """Every query that is made meanwhile, and how SQLite goes about it."""
    engine, found, seen = desk.service.engine, dict[str, list[str]](), list[tuple[str, Any]]()

    def note(_conn: Any, _cursor: Any, statement: str, values: Any, _context: Any, many: bool) -> None:
        if statement.startswith("SELECT") and not many:
            seen.append((statement, values))

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        ask()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    with engine.connect() as connection:
        for statement, values in seen:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            found[statement] = [str(row[3]) for row in rows]
    return found


def test_todays_sums_are_read_from_indices_alone(desk: World) -> None:
    desk.machine.post("/v1/cases", json=desk.case("c0", bob=0.1))
    plans = plans_of(desk, lambda: desk.lead.get("/v1/reports/shift"))
    sums = {text: steps for text, steps in plans.items() if "sum(assignments.expected_loss)" in text}
    live = [steps for text, steps in sums.items() if "golden" not in text and "'decided'" in text]
    golden = [steps for text, steps in sums.items() if "golden" in text]
    assert live == [
        ["SEARCH assignments USING COVERING INDEX ix_assignments_live (shift_id=?)"],
    ]
    assert "uq_assignments_live_case" in golden[0][0] or "golden_cases" in golden[0][0]


def test_no_query_goes_through_all_of_one_state(desk: World) -> None:
    """An index that begins with the state of all assignments led through a million that are decided."""
    desk.machine.post("/v1/cases", json=desk.case("c0", bob=0.1))
    steps: list[str] = []
    for path in PATHS:
        for found in plans_of(desk, lambda path=path: desk.lead.get(path).raise_for_status()).values():
            steps += found
    assert steps
    assert not [step for step in steps if "(state=?)" in step and "assignments" in step]


def test_sqlite_looks_at_its_tables_by_itself(desk: World) -> None:
    for k in range(30):
        desk.machine.post("/v1/cases", json=desk.case(f"c{k}", bob=0.1))
    database.look_at_sizes(desk.service.engine)
    with desk.service.engine.connect() as connection:
        known = connection.exec_driver_sql("SELECT DISTINCT tbl FROM sqlite_stat1").scalars().all()
    assert {"assignments", "cases"} <= set(known)
