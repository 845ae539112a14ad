"""Reports of backtests, whole."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0003"
down_revision = "v0002"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "backtest_reports",
        sa.Column("job_id", _ID, autoincrement=False, nullable=False),
        sa.Column("html", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_backtest_reports_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_backtest_reports")),
    )
