"""Large changes on SQLite are written in pieces, and a row says so until the last one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0009"
down_revision = "v0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make its table."""
    whole = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "unfinished",
        sa.Column("id", whole, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("key_id", whole),
        sa.Column("import_id", whole),
        sa.Column("plan_id", whole),
        sa.Column("shift_id", whole),
        sa.Column("pricing_id", whole),
        sa.Column("units", sa.Text, nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("after_id", whole, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
