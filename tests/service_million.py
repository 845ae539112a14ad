"""A ledger of many cases, written by the database itself: fifty shifts that are over, and one that runs."""

from __future__ import annotations

import time

import sqlalchemy as sa

from deccaf.service.ledger import versions
from deccaf.service.store import database
from deccaf.service.store.keys import Actor
from service_world import EXPERTS, small_model

MAKERS = ("machine", *EXPERTS)
SHIFTS = 51
PAGES = ("/", "/today/numbers", "/what-if?team=120", "/queue", "/queue?expert=ann", "/cases", "/cases/c100")
MORE_PAGES = ("/team", "/models", "/watch", "/setup", "/cases?status=waiting", "/cases?find=c777")
LEAD_PAGES = (
    "/cases?find=c77777",
    "/cases?find=7777",
    "/cases?find=9&person=ann&status=assigned",
    "/cases?person=bob&sort=highest",
    "/cases?sort=lowest&loss_from=0.5",
    "/cases?disagreement=label&person=cat",
    "/cases?decision=1&loss_from=0.998",
    "/cases?disagreement=people",
    "/cases?status=waiting&since=2020-01-01",
    "/people",
    "/person?name=ann",
    "/absence?maker=ann",
    "/audit",
    "/opinions",
    "/audit?person=ann",
    "/audit?kind=signed+in",
    "/audit?since=2020-01-01&until=2020-02-01",
)
REPORTS = (
    "/v1/reports/shift",
    "/v1/reports/experts",
    "/v1/reports/ledger",
    "/metrics",
    "/v1/cases?limit=100",
)


def fill(engine: sa.Engine, cases: int, content: bytes) -> int:
    """Enter the cases; the id of the shift that runs."""
    now, last = time.time(), SHIFTS
    per_shift = -(-cases // SHIFTS)
    with database.writing(engine) as connection:

        def run(statement: str) -> None:
            connection.execute(sa.text(statement))

        run("INSERT INTO teams (id, name, created_at) VALUES (1, 'desk', 0)")
        for name in EXPERTS:
            run(
                "INSERT INTO experts (name, team_id, display, active, created_at) "
                f"VALUES ('{name}', 1, '{name}', {_true(engine)}, 0)"
            )
        made = versions.add_version(
            connection, "m", "upload", "0", content, small_model().training_, Actor(None), 0.0
        )
        run("INSERT INTO activations (model_id, key_id, kind, at) SELECT 1, min(id), 'activate', 0 FROM keys")
        for shift in range(1, SHIFTS + 1):
            starts = now - 3600.0 - 86400.0 * (last - shift)
            state = "open" if shift == last else "closed"
            run(
                "INSERT INTO shifts (id, name, team_id, starts_at, ends_at, random_share, state, pricing_id, "
                f"priced_at) VALUES ({shift}, 's{shift}', 1, {starts}, {starts + 28800}, 0.05, '{state}', "
                f"{shift}, {now})"
            )
            run(
                "INSERT INTO pricings (id, shift_id, model_id, makers, prices, basis, at) VALUES "
                f'({shift}, {shift}, {made.id}, \'["machine","ann","bob","cat"]\', \'[0,0.1,0.1,0.1]\', '
                f"'renewed', {starts})"
            )
        numbers = _numbers(engine, cases)
        shift_of = f"(k / {per_shift} + 1)"
        maker = "CASE k % 4 WHEN 0 THEN 'machine' WHEN 1 THEN 'ann' WHEN 2 THEN 'bob' ELSE 'cat' END"
        # of today's cases every third is still open, of the others none; a tenth has no label yet
        is_open = f"({shift_of} = {last} AND k % 3 = 0 AND k % 4 <> 0)"
        state = f"CASE WHEN {is_open} THEN 'assigned' ELSE 'decided' END"
        label = f"CASE WHEN {is_open} OR k % 10 = 0 THEN NULL WHEN k % 5 = 0 THEN '1' ELSE '0' END"
        came = f"({now} - 3600.0 - 86400.0 * ({last} - {shift_of}) + (k % {per_shift}) * 0.01)"
        channel = "CASE k % 3 WHEN 0 THEN 'web' WHEN 1 THEN 'phone' ELSE 'branch' END"
        features = f"""'{{"amount": ' || ((k % 997) / 300.0) || ', "channel": "' || {channel} || '"}}'"""
        run(
            "INSERT INTO cases (case_id, status, features, excluded, arrived_at, label, labelled_at) "
            f"SELECT 'c' || k, {state}, {features}, '[]', {came}, {label}, "
            f"CASE WHEN {label} IS NULL THEN NULL ELSE {came} + 900.0 END FROM {numbers}"
        )
        losses = " || ',' || ".join(f"(((k * {p}) % 1000) / 1000.0)" for p in (7, 11, 13, 17))
        run(
            "INSERT INTO assignments (case_id, shift_id, maker, state, method, pricing_id, model_id, losses, "
            "machine_says, expected_loss, price, propensity, created_at, changed_at) "
            f"SELECT 'c' || k, {shift_of}, {maker}, {state}, CASE WHEN k % 20 = 0 THEN 'lot' ELSE 'stream' END, "
            f"{shift_of}, 1, '[' || {losses} || ']', '0', ((k * 7) % 1000) / 1000.0, 0.1, 1.0, {came}, {came} "
            f"FROM {numbers}"
        )
        run(
            "INSERT INTO decisions (case_id, maker, decision, seconds, at) "
            f"SELECT 'c' || k, {maker}, CASE WHEN k % 7 = 0 THEN '1' ELSE '0' END, 40.0, {came} + 600.0 "
            f"FROM {numbers} WHERE NOT {is_open}"
        )
        run(
            "INSERT INTO labels (case_id, label, at) "
            f"SELECT 'c' || k, {label}, {came} + 900.0 FROM {numbers} WHERE {label} IS NOT NULL"
        )
        run(
            "INSERT INTO history (at, kind, case_id, shift_id, maker, data) "
            f"SELECT {came}, 'assigned', 'c' || k, {shift_of}, {maker}, '{{}}' FROM {numbers}"
        )
        false = "false" if engine.dialect.name == "postgresql" else "0"
        run(
            "INSERT INTO roster (shift_id, maker, capacity, lower, used, absent) "
            f"SELECT shift_id, maker, CASE WHEN maker = 'machine' THEN NULL ELSE count(*) + 50000 END, 0, "
            f"count(*), {false} FROM assignments GROUP BY shift_id, maker"
        )
        if engine.dialect.name == "postgresql":
            for table in ("teams", "shifts", "pricings"):
                run(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
            run("ANALYZE")  # its own does it within a minute; on SQLite that is the service's duty
    return last


def _numbers(engine: sa.Engine, count: int) -> str:
    if engine.dialect.name == "postgresql":
        return f"generate_series(0, {count - 1}) AS n(k)"
    rows = f"SELECT 0 AS k UNION ALL SELECT k + 1 FROM n WHERE k < {count - 1}"
    return f"(WITH RECURSIVE n(k) AS ({rows}) SELECT k FROM n)"


def _true(engine: sa.Engine) -> str:
    return "true" if engine.dialect.name == "postgresql" else "1"
