"""A trial's candidate may be a set of constraints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0014"
down_revision = "v0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep it with the trial, as JSON."""
    op.add_column("trials", sa.Column("constraints", sa.Text(), nullable=True))
