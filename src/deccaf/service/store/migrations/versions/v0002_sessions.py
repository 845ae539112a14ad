"""Sign-ins of people in a browser."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0002"
down_revision = "v0001"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "sessions",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_sessions_key_id")),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_expires", "sessions", ["expires_at"], unique=False)
