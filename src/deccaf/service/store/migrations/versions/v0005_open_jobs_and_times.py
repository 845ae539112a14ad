"""One open job of a kind, held by the database; indices for what pages read by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0005"
down_revision = "v0004"
branch_labels = None
depends_on = None

_OPEN = sa.text("state IN ('queued', 'running')")
_BY_LOT = sa.text("method = 'lot' AND state = 'decided'")
_LIVE = sa.text("state IN ('assigned', 'claimed', 'decided')")


def upgrade() -> None:
    """End all but the first open job of a kind, then forbid a second one."""
    op.execute(
        "UPDATE jobs SET state = 'failed', result = '{\"error\": \"another one of its kind was open\"}' "
        "WHERE state IN ('queued', 'running') AND id NOT IN "
        "(SELECT min(id) FROM jobs WHERE state IN ('queued', 'running') GROUP BY kind)"
    )
    op.create_index(
        "uq_jobs_open_kind", "jobs", ["kind"], unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN
    )
    op.create_index(
        "ix_assignments_live",
        "assignments",
        ["shift_id", "maker"],
        sqlite_where=_LIVE,
        postgresql_where=_LIVE,
    )
    op.create_index(
        "ix_assignments_lot",
        "assignments",
        ["case_id"],
        sqlite_where=_BY_LOT,
        postgresql_where=_BY_LOT,
    )
    op.create_index("ix_cases_arrived", "cases", ["arrived_at"])
    op.create_index("ix_cases_labelled", "cases", ["labelled_at"])
    op.create_index("ix_labels_at", "labels", ["at"])
    op.create_index("ix_decisions_at", "decisions", ["at"])
    op.create_index("ix_history_kind", "history", ["kind", "id"])
