"""Priority of cases, indices to find cases and to read the trail, the watch by day, and erasure of a name.

Rows of the record stay as they are; the one exception that the database allows is that a name which stands in
`erasures` gives way to its pseudonym. That table is filled and emptied in the transaction of an erasure.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0008"
down_revision = "v0007"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_LIVE = sa.text("state IN ('assigned', 'claimed', 'decided')")


def upgrade() -> None:
    """Add all of them."""
    op.add_column("cases", sa.Column("priority", sa.SmallInteger(), nullable=False, server_default="0"))
    op.drop_index("ix_cases_arrived", "cases")
    op.create_index("ix_cases_arrived", "cases", ["arrived_at", "id"])
    op.create_index("ix_cases_status_arrived", "cases", ["status", "arrived_at", "id"])
    op.create_index(
        "ix_cases_prefix",
        "cases",
        ["case_id"],
        postgresql_ops={"case_id": "text_pattern_ops"},
        sqlite_where=sa.text("id < 0"),
    )
    for name, columns in {
        "ix_assignments_person": ["maker", "id"],
        "ix_assignments_loss": ["expected_loss", "id"],
        "ix_assignments_person_loss": ["maker", "expected_loss", "id"],
    }.items():
        op.create_index(name, "assignments", columns, sqlite_where=_LIVE, postgresql_where=_LIVE)
    op.create_index("ix_history_at", "history", ["at", "id"])
    op.create_index("ix_history_kind_at", "history", ["kind", "at", "id"])
    op.create_index("ix_history_maker", "history", ["maker", "at", "id"])
    op.create_index("ix_history_key", "history", ["key_id", "at", "id"])
    op.create_table(
        "watch_days",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("model_id", _ID, nullable=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("expected", sa.Double(), nullable=True),
        sa.Column("alert_at", sa.Double(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("odd", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("day", "measure", name=op.f("pk_watch_days")),
    )
    op.create_table(
        "erasures",
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("before", name=op.f("pk_erasures")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_FUNCTION)
    else:
        kept = "SELECT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%_no_update'"
        for (table,) in op.get_bind().exec_driver_sql(kept).fetchall():
            _allow_erasure(table)


_FUNCTION = """
CREATE OR REPLACE FUNCTION deccaf_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was jsonb := to_jsonb(OLD);
    becomes jsonb;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        becomes := to_jsonb(NEW);
        IF was - 'maker' - 'data' - 'makers' = becomes - 'maker' - 'data' - 'makers' AND EXISTS (
            SELECT 1 FROM erasures e
            WHERE becomes->>'maker' IS NOT DISTINCT FROM
                    CASE WHEN was->>'maker' = e.before THEN e.after ELSE was->>'maker' END
            AND (becomes->>'data' IS NOT DISTINCT FROM was->>'data'
                OR becomes->>'data' = replace(was->>'data', e.before, e.after))
            AND (becomes->>'makers' IS NOT DISTINCT FROM was->>'makers'
                OR becomes->>'makers' = replace(was->>'makers', e.before, e.after))
        ) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END $$
"""


def _allow_erasure(table: str) -> None:
    """On SQLite: refuse every update but that of a name by its pseudonym."""
    columns = [row[1] for row in op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})").fetchall()]
    person = "maker" if "maker" in columns else None
    text = next((name for name in ("data", "makers") if name in columns), None)
    if person is None and text is None:
        return  # it names nobody
    same = [f"NEW.{name} IS OLD.{name}" for name in columns if name not in (person, text)]
    pair = []
    if person:
        pair.append(f"NEW.{person} IS CASE WHEN OLD.{person} = e.before THEN e.after ELSE OLD.{person} END")
    if text:
        pair.append(f"NEW.{text} IN (OLD.{text}, replace(OLD.{text}, e.before, e.after))")
    allowed = f"{' AND '.join(same)} AND EXISTS (SELECT 1 FROM erasures e WHERE {' AND '.join(pair)})"
    op.execute(f"DROP TRIGGER {table}_no_update")
    op.execute(
        f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} WHEN NOT ({allowed}) "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    )
