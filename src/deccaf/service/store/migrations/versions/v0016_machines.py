"""Machines among the makers: which experts are machines, and which of their cases are under way to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0016"
down_revision = "v0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make their tables."""
    whole = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "machines",
        sa.Column("maker", sa.Text, primary_key=True),
        sa.Column("configured", sa.Boolean, nullable=False),
        sa.Column("has_address", sa.Boolean, nullable=False),
        sa.Column("cases_per_minute", sa.Double),
        sa.Column("cases_per_day", sa.Integer),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("down_since", sa.Double),
        sa.Column("next_at", sa.Double),
        sa.Column("paced_until", sa.Double),
    )
    op.create_table(
        "sendings",
        sa.Column(
            "assignment_id",
            whole,
            sa.ForeignKey("assignments.id", name="fk_sendings_assignment_id"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Double, nullable=False),
    )
