"""Golden cases, with a known truth, among everybody's others; trials: a candidate beside today's practice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0012"
down_revision = "v0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make their tables."""
    whole = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "golden_sources",
        sa.Column("id", whole, primary_key=True, autoincrement=True),
        sa.Column("features", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("key_id", whole, sa.ForeignKey("keys.id", name="fk_golden_sources_key_id"), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("withdrawn_at", sa.Double),
    )
    op.create_table(
        "golden_rates",
        sa.Column("maker", sa.Text, primary_key=True),
        sa.Column("rate", sa.Double, nullable=False),
        sa.Column("looked", whole, nullable=False),
        sa.CheckConstraint("rate >= 0 AND rate <= 0.5", name="ck_golden_rates_rate"),
    )
    op.create_table(
        "golden_cases",
        sa.Column(
            "case_id",
            sa.Text,
            sa.ForeignKey("cases.case_id", name="fk_golden_cases_case_id"),
            primary_key=True,
        ),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("maker", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("chosen", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("ix_golden_cases_maker", "golden_cases", ["maker", "source"])
    op.create_table(
        "trials",
        sa.Column("id", whole, primary_key=True, autoincrement=True),
        sa.Column("model_id", whole, sa.ForeignKey("models.id", name="fk_trials_model_id"), nullable=False),
        sa.Column("key_id", whole, sa.ForeignKey("keys.id", name="fk_trials_key_id"), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("rules", sa.Text, nullable=False),
        sa.Column("seed", whole, nullable=False),
        sa.Column("verdict", sa.Text),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.CheckConstraint("state IN ('shadow', 'trial', 'ended')", name="ck_trials_state"),
    )
    op.create_table(
        "trial_strata",
        sa.Column(
            "trial_id",
            whole,
            sa.ForeignKey("trials.id", name="fk_trial_strata_trial_id"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("stratum", sa.Text, primary_key=True),
        sa.Column("cases", sa.Integer, nullable=False),
    )
    op.create_table(
        "trial_cases",
        sa.Column(
            "case_id",
            sa.Text,
            sa.ForeignKey("cases.case_id", name="fk_trial_cases_case_id"),
            primary_key=True,
        ),
        sa.Column(
            "trial_id", whole, sa.ForeignKey("trials.id", name="fk_trial_cases_trial_id"), nullable=False
        ),
        sa.Column("stratum", sa.Text, nullable=False),
        sa.Column("block", sa.Integer, nullable=False),
        sa.Column("candidate", sa.Boolean, nullable=False),
        sa.Column("propensity", sa.Double, nullable=False),
        sa.Column("maker", sa.Text, nullable=False),
        sa.Column("expert", sa.Text, nullable=False),
        sa.Column("today_loss", sa.Double, nullable=False),
        sa.Column("candidate_loss", sa.Double, nullable=False),
        sa.Column("same_plan", sa.Double, nullable=False),
    )
    op.create_index("ix_trial_cases_trial", "trial_cases", ["trial_id", "case_id"])
