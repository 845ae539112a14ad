"""The ledger, whole: tables, constraints, and triggers that keep the record append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_APPEND_ONLY = ("history", "labels", "decisions", "activations", "pricings")


def upgrade() -> None:
    """Make everything."""
    _history()
    _keys()
    _models()
    _settings()
    _teams()
    _activations()
    _answers()
    _experts()
    _imports()
    _jobs()
    _shifts()
    _cases()
    _plans()
    _pricings()
    _roster()
    _assignments()
    _decisions()
    _labels()
    _keep_the_record()


def downgrade() -> None:
    """Remove everything."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION deccaf_append_only() CASCADE")
    for name in (
        "labels",
        "decisions",
        "assignments",
        "roster",
        "pricings",
        "plans",
        "cases",
        "shifts",
        "jobs",
        "imports",
        "experts",
        "answers",
        "activations",
        "teams",
        "settings",
        "models",
        "keys",
        "history",
    ):
        op.drop_table(name)


def _keep_the_record() -> None:
    """Rows of the record can be added, not changed and not removed, whoever asks."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION deccaf_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
        for name in _APPEND_ONLY:
            op.execute(
                f"CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE ON {name} "
                "FOR EACH ROW EXECUTE FUNCTION deccaf_append_only()"
            )
        return
    for name in _APPEND_ONLY:
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {name}_no_{change.lower()} BEFORE {change} ON {name} "
                f"BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"
            )


def _history() -> None:
    op.create_table(
        "history",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("case_id", sa.Text(), nullable=True),
        sa.Column("shift_id", _ID, nullable=True),
        sa.Column("maker", sa.Text(), nullable=True),
        sa.Column("key_id", _ID, nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history")),
    )
    op.create_index("ix_history_case", "history", ["case_id"], unique=False)


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("expert", sa.Text(), nullable=True),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "role <> 'reviewer' OR expert IS NOT NULL", name=op.f("ck_keys_reviewer_is_somebody")
        ),
        sa.CheckConstraint("role IN ('lead', 'reviewer', 'machine')", name=op.f("ck_keys_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("hash", name=op.f("uq_keys_hash")),
    )


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("sha256", name=op.f("uq_models_sha256")),
    )


def _settings() -> None:
    op.create_table(
        "settings",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_settings")),
    )


def _teams() -> None:
    op.create_table(
        "teams",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("name", name=op.f("uq_teams_name")),
    )


def _activations() -> None:
    op.create_table(
        "activations",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("model_id", _ID, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_activations_key_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_activations_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activations")),
    )


def _answers() -> None:
    op.create_table(
        "answers",
        sa.Column("key_id", _ID, autoincrement=False, nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_answers_key_id")),
        sa.PrimaryKeyConstraint("key_id", "idempotency_key", name=op.f("pk_answers")),
    )
    op.create_index("ix_answers_at", "answers", ["at"], unique=False)


def _experts() -> None:
    op.create_table(
        "experts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("team_id", _ID, nullable=False),
        sa.Column("display", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_experts_team_id")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_experts")),
    )


def _imports() -> None:
    op.create_table(
        "imports",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("rejected", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_imports_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imports")),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.CheckConstraint("state IN ('queued', 'running', 'done', 'failed')", name=op.f("ck_jobs_state")),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_jobs_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )


def _shifts() -> None:
    op.create_table(
        "shifts",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("team_id", _ID, nullable=False),
        sa.Column("starts_at", sa.Double(), nullable=False),
        sa.Column("ends_at", sa.Double(), nullable=False),
        sa.Column("expected_cases", sa.Integer(), nullable=True),
        sa.Column("random_share", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("pricing_id", _ID, nullable=True),
        sa.Column("priced_at", sa.Double(), nullable=True),
        sa.CheckConstraint("state IN ('open', 'closed')", name=op.f("ck_shifts_state")),
        sa.CheckConstraint("ends_at > starts_at", name=op.f("ck_shifts_ends_after_start")),
        sa.CheckConstraint("random_share >= 0 AND random_share <= 1", name=op.f("ck_shifts_random_share")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_shifts_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shifts")),
        sa.UniqueConstraint("name", name=op.f("uq_shifts_name")),
    )


def _cases() -> None:
    op.create_table(
        "cases",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("features", sa.Text(), nullable=False),
        sa.Column("given", sa.Text(), nullable=True),
        sa.Column("excluded", sa.Text(), nullable=False),
        sa.Column("import_id", _ID, nullable=True),
        sa.Column("arrived_at", sa.Double(), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("labelled_at", sa.Double(), nullable=True),
        sa.CheckConstraint("status IN ('waiting', 'assigned', 'decided')", name=op.f("ck_cases_status")),
        sa.ForeignKeyConstraint(["import_id"], ["imports.id"], name=op.f("fk_cases_import_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cases")),
        sa.UniqueConstraint("case_id", name=op.f("uq_cases_case_id")),
    )
    op.create_index("ix_cases_status", "cases", ["status", "id"], unique=False)


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("shift_id", _ID, nullable=False),
        sa.Column("model_id", _ID, nullable=True),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("committed_at", sa.Double(), nullable=True),
        sa.Column("cases", sa.Integer(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("state IN ('draft', 'committed', 'discarded')", name=op.f("ck_plans_state")),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_plans_key_id")),
        sa.ForeignKeyConstraint(["shift_id"], ["shifts.id"], name=op.f("fk_plans_shift_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )


def _pricings() -> None:
    op.create_table(
        "pricings",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("shift_id", _ID, nullable=False),
        sa.Column("model_id", _ID, nullable=True),
        sa.Column("makers", sa.Text(), nullable=False),
        sa.Column("prices", sa.Text(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["shift_id"], ["shifts.id"], name=op.f("fk_pricings_shift_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pricings")),
    )
    op.create_index("ix_pricings_shift", "pricings", ["shift_id"], unique=False)


def _roster() -> None:
    op.create_table(
        "roster",
        sa.Column("shift_id", _ID, autoincrement=False, nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=True),
        sa.Column("lower", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("absent", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "capacity IS NULL OR used <= capacity", name=op.f("ck_roster_used_within_capacity")
        ),
        sa.CheckConstraint(
            "lower >= 0 AND (capacity IS NULL OR lower <= capacity)", name=op.f("ck_roster_lower")
        ),
        sa.CheckConstraint("used >= 0", name=op.f("ck_roster_used_from_0")),
        sa.ForeignKeyConstraint(["shift_id"], ["shifts.id"], name=op.f("fk_roster_shift_id")),
        sa.PrimaryKeyConstraint("shift_id", "maker", name=op.f("pk_roster")),
    )


def _assignments() -> None:
    op.create_table(
        "assignments",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("shift_id", _ID, nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("plan_id", _ID, nullable=True),
        sa.Column("pricing_id", _ID, nullable=False),
        sa.Column("model_id", _ID, nullable=True),
        sa.Column("losses", sa.Text(), nullable=False),
        sa.Column("machine_says", sa.Text(), nullable=True),
        sa.Column("expected_loss", sa.Double(), nullable=False),
        sa.Column("price", sa.Double(), nullable=False),
        sa.Column("propensity", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("claimed_until", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "state IN ('assigned', 'claimed', 'decided', 'returned', 'expired', 'released')",
            name=op.f("ck_assignments_state"),
        ),
        sa.CheckConstraint("propensity > 0 AND propensity <= 1", name=op.f("ck_assignments_propensity")),
        sa.ForeignKeyConstraint(["case_id"], ["cases.case_id"], name=op.f("fk_assignments_case_id")),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name=op.f("fk_assignments_plan_id")),
        sa.ForeignKeyConstraint(["pricing_id"], ["pricings.id"], name=op.f("fk_assignments_pricing_id")),
        sa.ForeignKeyConstraint(["shift_id"], ["shifts.id"], name=op.f("fk_assignments_shift_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignments")),
    )
    op.create_index("ix_assignments_case", "assignments", ["case_id"], unique=False)
    op.create_index("ix_assignments_claims", "assignments", ["state", "claimed_until"], unique=False)
    op.create_index("ix_assignments_pricing", "assignments", ["pricing_id"], unique=False)
    op.create_index("ix_assignments_plan", "assignments", ["plan_id"], unique=False)
    op.create_index("ix_assignments_queue", "assignments", ["maker", "state", "id"], unique=False)
    op.create_index("ix_assignments_shift", "assignments", ["shift_id", "id"], unique=False)
    op.create_index(
        "uq_assignments_live_case",
        "assignments",
        ["case_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('assigned', 'claimed', 'decided')"),
        postgresql_where=sa.text("state IN ('assigned', 'claimed', 'decided')"),
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.case_id"], name=op.f("fk_decisions_case_id")),
        sa.PrimaryKeyConstraint("case_id", name=op.f("pk_decisions")),
    )
    op.create_index("ix_decisions_maker", "decisions", ["maker", "at"], unique=False)


def _labels() -> None:
    op.create_table(
        "labels",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.case_id"], name=op.f("fk_labels_case_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_labels")),
    )
    op.create_index("ix_labels_case", "labels", ["case_id"], unique=False)
