"""PostgreSQL looks after tables that grow all day by what came in, not by a share of what is there.

Of a million rows its usual fifth are four busy days, in which a page that counts today's decisions would have
to look at each of them in the table, because only what was looked after can be counted by an index alone.
"""

from __future__ import annotations

from alembic import op

revision = "v0017"
down_revision = "v0016"
branch_labels = None
depends_on = None

_TABLES = ("assignments", "cases", "decisions", "history", "labels")
_ROWS = 5_000


def upgrade() -> None:
    """Say so for each of them."""
    if op.get_bind().dialect.name == "postgresql":
        for table in _TABLES:
            op.execute(
                f"ALTER TABLE {table} SET (autovacuum_vacuum_insert_scale_factor = 0,"
                f" autovacuum_vacuum_insert_threshold = {_ROWS}, autovacuum_vacuum_scale_factor = 0.02,"
                f" autovacuum_analyze_scale_factor = 0.02)"
            )
