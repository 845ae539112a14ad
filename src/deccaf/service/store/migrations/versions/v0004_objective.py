"""What a choice minimised, where that is not the expected loss (methods `paper` and `ova`)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0004"
down_revision = "v0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of choices before it, losses are all that is known."""
    op.add_column("assignments", sa.Column("objective", sa.Text(), nullable=True))
