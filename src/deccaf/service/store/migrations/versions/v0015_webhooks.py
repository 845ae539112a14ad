"""Webhooks: addresses that are told what happens, and what is still to be told them; keys that expire."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0015"
down_revision = "v0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make their tables."""
    whole = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "hooks",
        sa.Column("id", whole, primary_key=True, autoincrement=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("kinds", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("key_id", whole, sa.ForeignKey("keys.id", name="fk_hooks_key_id"), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", whole, primary_key=True, autoincrement=True),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("hook_id", whole, sa.ForeignKey("hooks.id", name="fk_deliveries_hook_id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("case_id", sa.Text),
        sa.Column("maker", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("next_at", sa.Double, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("said", sa.Text),
        sa.Column("done_at", sa.Double),
        sa.CheckConstraint("state IN ('waiting', 'sent', 'given up')", name="ck_deliveries_state"),
    )
    op.create_index("ix_deliveries_due", "deliveries", ["state", "hook_id", "id"])
    op.create_index("ix_deliveries_case", "deliveries", ["hook_id", "case_id", "state", "id"])
    op.create_index("ix_deliveries_done", "deliveries", ["done_at"])
    op.add_column("keys", sa.Column("expires_at", sa.Double))
