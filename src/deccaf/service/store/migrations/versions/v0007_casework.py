"""Decisions that were taken back, and cases that were put aside.

A decision may leave `decisions` only if it stands, whole, in `undone`, which is append-only.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0007"
down_revision = "v0006"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEPT = (
    "EXISTS (SELECT 1 FROM undone u WHERE u.case_id = OLD.case_id AND u.maker = OLD.maker "
    "AND u.decision = OLD.decision AND u.decided_at = OLD.at)"
)


def upgrade() -> None:
    """Make the table, the column and the triggers."""
    op.create_table(
        "undone",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("decided_at", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.case_id"], name=op.f("fk_undone_case_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_undone")),
    )
    op.create_index("ix_undone_case", "undone", ["case_id"], unique=False)
    op.add_column("assignments", sa.Column("parked_until", sa.Double(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        _postgresql()
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER undone_no_{change.lower()} BEFORE {change} ON undone "
            "BEGIN SELECT RAISE(ABORT, 'undone is append-only'); END"
        )
    op.execute("DROP TRIGGER decisions_no_delete")
    op.execute(
        f"CREATE TRIGGER decisions_no_delete BEFORE DELETE ON decisions WHEN NOT {_KEPT} "
        "BEGIN SELECT RAISE(ABORT, 'decisions is append-only'); END"
    )


def _postgresql() -> None:
    op.execute(
        "CREATE TRIGGER undone_append_only BEFORE UPDATE OR DELETE ON undone "
        "FOR EACH ROW EXECUTE FUNCTION deccaf_append_only()"
    )
    op.execute(
        "CREATE FUNCTION deccaf_kept_when_undone() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF {_KEPT} THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    op.execute("DROP TRIGGER decisions_append_only ON decisions")
    op.execute(
        "CREATE TRIGGER decisions_append_only BEFORE UPDATE ON decisions "
        "FOR EACH ROW EXECUTE FUNCTION deccaf_append_only()"
    )
    op.execute(
        "CREATE TRIGGER decisions_kept BEFORE DELETE ON decisions "
        "FOR EACH ROW EXECUTE FUNCTION deccaf_kept_when_undone()"
    )
