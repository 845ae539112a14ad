"""When a case is due, and what an hour of its waiting costs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0011"
down_revision = "v0010"
branch_labels = None
depends_on = None

_WAITS = sa.text("due IS NOT NULL OR waiting_cost IS NOT NULL")


def upgrade() -> None:
    """Add both, and an index that is empty where nobody uses them."""
    op.add_column("cases", sa.Column("due", sa.Double(), nullable=True))
    op.add_column("cases", sa.Column("waiting_cost", sa.Double(), nullable=True))
    op.create_index("ix_cases_waits", "cases", ["status"], sqlite_where=_WAITS, postgresql_where=_WAITS)
