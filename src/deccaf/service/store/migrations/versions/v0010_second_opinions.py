"""Second opinions: answers beside a case's decision, and which cases more than one person is asked about.

An opinion may leave `opinions` only if it stands, whole, in `decisions` or in `undone`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0010"
down_revision = "v0009"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_BEFORE = "'returned', 'expired', 'released')"
_AFTER = "'returned', 'expired', 'released', 'answered')"
_SAME = "x.case_id = OLD.case_id AND x.maker = OLD.maker AND x.decision = OLD.decision AND x.{at} = OLD.at"
_KEPT = (
    f"(EXISTS (SELECT 1 FROM decisions x WHERE {_SAME.format(at='at')}) "
    f"OR EXISTS (SELECT 1 FROM undone x WHERE {_SAME.format(at='decided_at')}))"
)
_NAME_ERASED = (
    "NEW.id IS OLD.id AND NEW.case_id IS OLD.case_id AND NEW.assignment_id IS OLD.assignment_id "
    "AND NEW.decision IS OLD.decision AND NEW.seconds IS OLD.seconds AND NEW.at IS OLD.at AND EXISTS "
    "(SELECT 1 FROM erasures e WHERE OLD.maker = e.before AND NEW.maker = e.after)"
)


def upgrade() -> None:
    """Make the tables, the triggers, and one more state of assignments."""
    op.create_table(
        "opinions",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("assignment_id", _ID, nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.case_id"], name=op.f("fk_opinions_case_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_opinions")),
    )
    op.create_index("ix_opinions_case", "opinions", ["case_id"])
    op.create_index("ix_opinions_maker", "opinions", ["maker", "at"])
    op.create_table(
        "second_opinions",
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("machine_barred", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "state IN ('wanted', 'open', 'lead', 'agreed', 'settled')", name=op.f("ck_second_opinions_state")
        ),
        sa.CheckConstraint("why IN ('lot', 'loss', 'lead')", name=op.f("ck_second_opinions_why")),
        sa.ForeignKeyConstraint(["case_id"], ["cases.case_id"], name=op.f("fk_second_opinions_case_id")),
        sa.PrimaryKeyConstraint("case_id", name=op.f("pk_second_opinions")),
    )
    op.create_index("ix_second_opinions_state", "second_opinions", ["state", "at"])
    if op.get_bind().dialect.name == "postgresql":
        _postgresql()
    else:
        _sqlite()
    answered = sa.text("state = 'answered'")
    op.create_index(
        "ix_assignments_answered",
        "assignments",
        ["shift_id", "maker"],
        sqlite_where=answered,
        postgresql_where=answered,
    )


def _postgresql() -> None:
    op.execute("ALTER TABLE assignments DROP CONSTRAINT ck_assignments_state")
    op.execute(
        "ALTER TABLE assignments ADD CONSTRAINT ck_assignments_state "
        f"CHECK (state IN ('assigned', 'claimed', 'decided', {_AFTER})"
    )
    op.execute(
        "CREATE FUNCTION deccaf_opinion_kept() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF {_KEPT} THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    op.execute(
        "CREATE TRIGGER opinions_append_only BEFORE UPDATE ON opinions "
        "FOR EACH ROW EXECUTE FUNCTION deccaf_append_only()"
    )
    op.execute(
        "CREATE TRIGGER opinions_kept BEFORE DELETE ON opinions "
        "FOR EACH ROW EXECUTE FUNCTION deccaf_opinion_kept()"
    )


def _sqlite() -> None:
    """The table is written anew, as SQLite changes no constraint; everything else about it stays."""
    op.execute(
        f"CREATE TRIGGER opinions_no_update BEFORE UPDATE ON opinions WHEN NOT ({_NAME_ERASED}) "
        "BEGIN SELECT RAISE(ABORT, 'opinions is append-only'); END"
    )
    op.execute(
        f"CREATE TRIGGER opinions_no_delete BEFORE DELETE ON opinions WHEN NOT {_KEPT} "
        "BEGIN SELECT RAISE(ABORT, 'opinions is append-only'); END"
    )
    connection = op.get_bind()
    parts = connection.exec_driver_sql(
        "SELECT type, sql FROM sqlite_master WHERE tbl_name = 'assignments' AND sql IS NOT NULL"
    ).fetchall()
    (made,) = [sql for kind, sql in parts if kind == "table"]
    if _BEFORE not in made:
        raise RuntimeError("the table of assignments is not as migrations made it; restore a backup")
    _, columns = made.split("(", 1)
    op.execute(sa.text(_literal(f"CREATE TABLE assignments_new ({columns.replace(_BEFORE, _AFTER)}")))
    op.execute("INSERT INTO assignments_new SELECT * FROM assignments")
    op.execute("DROP TABLE assignments")
    op.execute("ALTER TABLE assignments_new RENAME TO assignments")
    for kind, sql in parts:
        if kind != "table":
            op.execute(sa.text(_literal(sql)))


def _literal(sql: str) -> str:
    """SQL as it stands: a colon in it names no parameter."""
    return sql.replace(":", "\\:")
