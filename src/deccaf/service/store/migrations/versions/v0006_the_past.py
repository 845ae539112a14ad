"""Histories from elsewhere: entries that can be taken back, with any number of decisions for a case."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0006"
down_revision = "v0005"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables; what earlier versions entered stays where it is."""
    op.create_table(
        "past_entries",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("withdrawn_at", sa.Double(), nullable=True),
        sa.Column("withdrawn_by", _ID, nullable=True),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_past_entries_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_past_entries")),
    )
    op.create_table(
        "past_cases",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("entry_id", _ID, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("features", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("came_at", sa.Double(), nullable=False),
        sa.Column("labelled_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["entry_id"], ["past_entries.id"], name=op.f("fk_past_cases_entry_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_past_cases")),
    )
    op.create_index("ix_past_cases_case", "past_cases", ["case_id"])
    op.create_index("uq_past_cases_entry", "past_cases", ["entry_id", "case_id"], unique=True)
    op.create_table(
        "past_decisions",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("entry_id", _ID, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["entry_id"], ["past_entries.id"], name=op.f("fk_past_decisions_entry_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_past_decisions")),
    )
    op.create_index("ix_past_decisions_entry", "past_decisions", ["entry_id", "case_id"])
    op.create_index("ix_past_decisions_maker", "past_decisions", ["maker"])
