"""Indices for a shift of many cases: of claims alone, of loads with their losses, of pace.

An index that begins with the state of all assignments was taken by SQLite wherever a state was named, and led
through all that are decided.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0013"
down_revision = "v0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace three of them."""
    live = sa.text("state IN ('assigned', 'claimed', 'decided')")
    claimed = sa.text("state = 'claimed'")
    op.drop_index("ix_assignments_claims", "assignments")
    op.create_index(
        "ix_assignments_claims",
        "assignments",
        ["claimed_until"],
        sqlite_where=claimed,
        postgresql_where=claimed,
    )
    op.drop_index("ix_assignments_live", "assignments")
    op.create_index(
        "ix_assignments_live",
        "assignments",
        ["shift_id", "maker", "state", "expected_loss"],
        sqlite_where=live,
        postgresql_where=live,
    )
    op.drop_index("ix_decisions_maker", "decisions")
    op.create_index("ix_decisions_maker", "decisions", ["maker", "at", "seconds"])
