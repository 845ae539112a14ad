"""The tables of the ledger, the same on SQLite and PostgreSQL.

What must never be broken is written into the database itself: `used <= capacity` is a constraint of `roster`,
one live assignment a case is a unique index, and rows of `history`, `labels`, `decisions` and `activations`
can be added but neither changed nor removed (triggers, see `migrations`). A decision that is taken back moves
to `undone`, whole: the database lets no other go.

Times are seconds since 1970 (UTC); lists and objects are JSON text.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")

LIVE = ("assigned", "claimed", "decided")
"""States of an assignment that still holds its case and its unit of capacity."""
ANSWERED = "answered"
"""State of an assignment whose answer is not the case's decision, as others were asked too: it keeps its unit
of capacity, and holds no case."""
HELD = (*LIVE, ANSWERED)
"""States of an assignment that takes a unit of capacity."""


def _table(name: str, *parts: sa.Column[Any] | sa.Constraint | sa.Index) -> sa.Table:
    return sa.Table(name, metadata, *parts)


def _id() -> sa.Column[int]:
    return sa.Column("id", _Id, primary_key=True, autoincrement=True)


def _at(name: str = "at", nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=nullable)


def _ref(name: str, target: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, _Id, sa.ForeignKey(target), nullable=nullable)


settings = _table(
    "settings", sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)

keys = _table(
    "keys",
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("expert", sa.Text),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    _at("created_at"),
    _at("revoked_at", nullable=True),
    _at("expires_at", nullable=True),
    sa.CheckConstraint("role IN ('lead', 'reviewer', 'machine')", name="role"),
    sa.CheckConstraint("role <> 'reviewer' OR expert IS NOT NULL", name="reviewer_is_somebody"),
)

teams = _table("teams", _id(), sa.Column("name", sa.Text, nullable=False, unique=True), _at("created_at"))

experts = _table(
    "experts",
    sa.Column("name", sa.Text, primary_key=True),
    _ref("team_id", "teams.id"),
    sa.Column("display", sa.Text, nullable=False),
    sa.Column("active", sa.Boolean, nullable=False),
    _at("created_at"),
)

shifts = _table(
    "shifts",
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    _ref("team_id", "teams.id"),
    _at("starts_at"),
    _at("ends_at"),
    sa.Column("expected_cases", sa.Integer),
    sa.Column("random_share", sa.Double, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("pricing_id", _Id),
    _at("priced_at", nullable=True),
    sa.CheckConstraint("state IN ('open', 'closed')", name="state"),
    sa.CheckConstraint("ends_at > starts_at", name="ends_after_start"),
    sa.CheckConstraint("random_share >= 0 AND random_share <= 1", name="random_share"),
)

roster = _table(
    "roster",
    sa.Column("shift_id", _Id, sa.ForeignKey("shifts.id"), primary_key=True, autoincrement=False),
    sa.Column("maker", sa.Text, primary_key=True),
    sa.Column("capacity", sa.Integer),
    sa.Column("lower", sa.Integer, nullable=False),
    sa.Column("used", sa.Integer, nullable=False),
    sa.Column("absent", sa.Boolean, nullable=False),
    sa.CheckConstraint("used >= 0", name="used_from_0"),
    sa.CheckConstraint("capacity IS NULL OR used <= capacity", name="used_within_capacity"),
    sa.CheckConstraint("lower >= 0 AND (capacity IS NULL OR lower <= capacity)", name="lower"),
)

pricings = _table(
    "pricings",
    _id(),
    _ref("shift_id", "shifts.id"),
    sa.Column("model_id", _Id),
    sa.Column("makers", sa.Text, nullable=False),
    sa.Column("prices", sa.Text, nullable=False),
    sa.Column("basis", sa.Text, nullable=False),
    _at(),
    sa.Index("ix_pricings_shift", "shift_id"),
)

imports = _table(
    "imports",
    _id(),
    _at(),
    _ref("key_id", "keys.id"),
    sa.Column("filename", sa.Text, nullable=False),
    sa.Column("rows", sa.Integer, nullable=False),
    sa.Column("accepted", sa.Integer, nullable=False),
    sa.Column("rejected", sa.Integer, nullable=False),
    sa.Column("errors", sa.Text, nullable=False),
)

cases = _table(
    "cases",
    _id(),
    sa.Column("case_id", sa.Text, nullable=False, unique=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("features", sa.Text, nullable=False),
    sa.Column("given", sa.Text),
    sa.Column("excluded", sa.Text, nullable=False),
    _ref("import_id", "imports.id", nullable=True),
    _at("arrived_at"),
    sa.Column("label", sa.Text),
    _at("labelled_at", nullable=True),
    sa.Column("priority", sa.SmallInteger, nullable=False, server_default="0"),
    _at("due", nullable=True),
    sa.Column("waiting_cost", sa.Double),
    sa.CheckConstraint("status IN ('waiting', 'assigned', 'decided')", name="status"),
    sa.Index("ix_cases_status", "status", "id"),
    sa.Index("ix_cases_arrived", "arrived_at", "id"),
    sa.Index("ix_cases_status_arrived", "status", "arrived_at", "id"),
    sa.Index("ix_cases_labelled", "labelled_at"),
)

plans = _table(
    "plans",
    _id(),
    _ref("shift_id", "shifts.id"),
    sa.Column("model_id", _Id),
    _ref("key_id", "keys.id"),
    sa.Column("state", sa.Text, nullable=False),
    _at("created_at"),
    _at("committed_at", nullable=True),
    sa.Column("cases", sa.Integer, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
    sa.Column("payload", sa.LargeBinary),
    sa.CheckConstraint("state IN ('draft', 'committed', 'discarded')", name="state"),
)

assignments = _table(
    "assignments",
    _id(),
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), nullable=False),
    _ref("shift_id", "shifts.id"),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    _ref("plan_id", "plans.id", nullable=True),
    _ref("pricing_id", "pricings.id"),
    sa.Column("model_id", _Id),
    sa.Column("losses", sa.Text, nullable=False),
    sa.Column("objective", sa.Text),
    sa.Column("machine_says", sa.Text),
    sa.Column("expected_loss", sa.Double, nullable=False),
    sa.Column("price", sa.Double, nullable=False),
    sa.Column("propensity", sa.Double, nullable=False),
    _at("created_at"),
    _at("changed_at"),
    _at("claimed_until", nullable=True),
    _at("parked_until", nullable=True),
    sa.CheckConstraint(
        "state IN ('assigned', 'claimed', 'decided', 'returned', 'expired', 'released', 'answered')",
        name="state",
    ),
    sa.CheckConstraint("propensity > 0 AND propensity <= 1", name="propensity"),
    sa.Index("ix_assignments_case", "case_id"),
    sa.Index("ix_assignments_queue", "maker", "state", "id"),
    sa.Index("ix_assignments_shift", "shift_id", "id"),
    sa.Index("ix_assignments_plan", "plan_id"),
    sa.Index("ix_assignments_pricing", "pricing_id"),
)
# The first letters of an id are looked up bytewise whatever the collation; SQLite's own index does that.
sa.Index(
    "ix_cases_prefix",
    cases.c.case_id,
    postgresql_ops={"case_id": "text_pattern_ops"},
    sqlite_where=sa.text("id < 0"),
)
WAITS = sa.text("(cases.due IS NOT NULL OR cases.waiting_cost IS NOT NULL)")
"""Cases that say themselves what their waiting costs, or when they are late."""
_WAITS = sa.text("due IS NOT NULL OR waiting_cost IS NOT NULL")
sa.Index("ix_cases_waits", cases.c.status, sqlite_where=_WAITS, postgresql_where=_WAITS)
IS_LIVE = sa.text("assignments.state IN ('assigned', 'claimed', 'decided')")
"""Spelled out: with a parameter in its place no database would see that the indices below fit."""


def _partial(name: str, where: str, *columns: str, unique: bool = False) -> None:
    """An index of some assignments alone."""
    only = sa.text(where)
    some = [assignments.c[column] for column in columns]
    sa.Index(name, *some, unique=unique, sqlite_where=only, postgresql_where=only)


_LIVE = "state IN ('assigned', 'claimed', 'decided')"
_partial("uq_assignments_live_case", _LIVE, "case_id", unique=True)
_partial("ix_assignments_live", _LIVE, "shift_id", "maker", "state", "expected_loss")
_partial("ix_assignments_person", _LIVE, "maker", "id")
_partial("ix_assignments_loss", _LIVE, "expected_loss", "id")
_partial("ix_assignments_person_loss", _LIVE, "maker", "expected_loss", "id")

IS_CLAIMED = sa.text("assignments.state = 'claimed'")
_partial("ix_assignments_claims", "state = 'claimed'", "claimed_until")

IS_ANSWERED = sa.text("assignments.state = 'answered'")
_partial("ix_assignments_answered", "state = 'answered'", "shift_id", "maker")

DECIDED_BY_LOT = sa.text("assignments.method = 'lot' AND assignments.state = 'decided'")
_partial("ix_assignments_lot", "method = 'lot' AND state = 'decided'", "case_id")

decisions = _table(
    "decisions",
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), primary_key=True),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("seconds", sa.Double),
    _at(),
    sa.Index("ix_decisions_maker", "maker", "at", "seconds"),
    sa.Index("ix_decisions_at", "at"),
)

undone = _table(
    "undone",
    _id(),
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), nullable=False),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("seconds", sa.Double),
    _at("decided_at"),
    _at(),
    sa.Index("ix_undone_case", "case_id"),
)

opinions = _table(
    "opinions",
    _id(),
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), nullable=False),
    sa.Column("assignment_id", _Id, nullable=False),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("seconds", sa.Double),
    _at(),
    sa.Index("ix_opinions_case", "case_id"),
    sa.Index("ix_opinions_maker", "maker", "at"),
)
"""Answers of people on cases that others were asked about too, beside the one that is the case's decision."""

ANSWERS = ((decisions, "decided"), (opinions, ANSWERED))
"""Where people's answers are, and the state of the assignment of each: what counts by person is in both."""

second_opinions = _table(
    "second_opinions",
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("machine_barred", sa.Boolean, nullable=False),
    _at(),
    sa.CheckConstraint("state IN ('wanted', 'open', 'lead', 'agreed', 'settled')", name="state"),
    sa.CheckConstraint("why IN ('lot', 'loss', 'lead')", name="why"),
    sa.Index("ix_second_opinions_state", "state", "at"),
)
"""Cases that more than one person is asked about, and how far that is: a lead wants it; somebody is asked; it
is on the lead's list; two agreed; the lead has settled it."""

labels = _table(
    "labels",
    _id(),
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    _at(),
    sa.Index("ix_labels_case", "case_id"),
    sa.Index("ix_labels_at", "at"),
)

history = _table(
    "history",
    _id(),
    _at(),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("case_id", sa.Text),
    sa.Column("shift_id", _Id),
    sa.Column("maker", sa.Text),
    sa.Column("key_id", _Id),
    sa.Column("data", sa.Text, nullable=False),
    sa.Index("ix_history_case", "case_id"),
    sa.Index("ix_history_kind", "kind", "id"),
    sa.Index("ix_history_at", "at", "id"),
    sa.Index("ix_history_kind_at", "kind", "at", "id"),
    sa.Index("ix_history_maker", "maker", "at", "id"),
    sa.Index("ix_history_key", "key_id", "at", "id"),
)

models = _table(
    "models",
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
    _at("created_at"),
)

activations = _table(
    "activations",
    _id(),
    _ref("model_id", "models.id"),
    _ref("key_id", "keys.id"),
    sa.Column("kind", sa.Text, nullable=False),
    _at(),
)

jobs = _table(
    "jobs",
    _id(),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("params", sa.Text, nullable=False),
    _ref("key_id", "keys.id"),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("worker", sa.Text),
    _at("created_at"),
    _at("heartbeat_at", nullable=True),
    _at("finished_at", nullable=True),
    sa.Column("result", sa.Text),
    sa.CheckConstraint("state IN ('queued', 'running', 'done', 'failed')", name="state"),
)

sa.Index(
    "uq_jobs_open_kind",
    jobs.c.kind,
    unique=True,
    sqlite_where=sa.text("state IN ('queued', 'running')"),
    postgresql_where=sa.text("state IN ('queued', 'running')"),
)

answers = _table(
    "answers",
    sa.Column("key_id", _Id, sa.ForeignKey("keys.id"), primary_key=True, autoincrement=False),
    sa.Column("idempotency_key", sa.Text, primary_key=True),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    _at(),
    sa.Index("ix_answers_at", "at"),
)

unfinished = _table(
    "unfinished",
    _id(),
    _at(),
    sa.Column("key_id", _Id),
    sa.Column("import_id", _Id),
    sa.Column("plan_id", _Id),
    sa.Column("shift_id", _Id),
    sa.Column("pricing_id", _Id),
    sa.Column("units", sa.Text, nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
    sa.Column("after_id", _Id, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)
"""A large change on SQLite that is written in pieces, until its last piece (see `unfinished.py`)."""

sessions = _table(
    "sessions",
    sa.Column("hash", sa.Text, primary_key=True),
    _ref("key_id", "keys.id"),
    _at("created_at"),
    _at("expires_at"),
    sa.Index("ix_sessions_expires", "expires_at"),
)

backtest_reports = _table(
    "backtest_reports",
    sa.Column("job_id", _Id, sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    sa.Column("html", sa.LargeBinary, nullable=False),
)

past_entries = _table(
    "past_entries",
    _id(),
    _at(),
    _ref("key_id", "keys.id"),
    sa.Column("filename", sa.Text, nullable=False),
    sa.Column("facts", sa.Text, nullable=False),
    _at("withdrawn_at", nullable=True),
    sa.Column("withdrawn_by", _Id),
)

past_cases = _table(
    "past_cases",
    _id(),
    _ref("entry_id", "past_entries.id"),
    sa.Column("case_id", sa.Text, nullable=False),
    sa.Column("features", sa.Text, nullable=False),
    sa.Column("label", sa.Text),
    _at("came_at"),
    _at("labelled_at", nullable=True),
    sa.Index("ix_past_cases_case", "case_id"),
    sa.Index("uq_past_cases_entry", "entry_id", "case_id", unique=True),
)

past_decisions = _table(
    "past_decisions",
    _id(),
    _ref("entry_id", "past_entries.id"),
    sa.Column("case_id", sa.Text, nullable=False),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    _at("decided_at", nullable=True),
    sa.Column("seconds", sa.Double),
    sa.Index("ix_past_decisions_entry", "entry_id", "case_id"),
    sa.Index("ix_past_decisions_maker", "maker"),
)

watch_days = _table(
    "watch_days",
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("measure", sa.Text, primary_key=True),
    sa.Column("model_id", _Id),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("expected", sa.Double),
    sa.Column("alert_at", sa.Double),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("odd", sa.Boolean, nullable=False),
    _at(),
)

hooks = _table(
    "hooks",
    _id(),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("kinds", sa.Text, nullable=False),
    sa.Column("secret", sa.Text, nullable=False),
    _ref("key_id", "keys.id"),
    _at("created_at"),
    _at("ended_at", nullable=True),
)
"""Addresses of programs that are told what happens."""

deliveries = _table(
    "deliveries",
    _id(),
    sa.Column("uid", sa.Text, nullable=False),
    _ref("hook_id", "hooks.id"),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("case_id", sa.Text),
    sa.Column("maker", sa.Text),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    _at(),
    _at("next_at"),
    sa.Column("status", sa.Integer),
    sa.Column("said", sa.Text),
    _at("done_at", nullable=True),
    sa.CheckConstraint("state IN ('waiting', 'sent', 'given up')", name="state"),
    sa.Index("ix_deliveries_due", "state", "hook_id", "id"),
    sa.Index("ix_deliveries_case", "hook_id", "case_id", "state", "id"),
    sa.Index("ix_deliveries_done", "done_at"),
)
"""What they are told, written with the line of the trail that it is about."""

machines = _table(
    "machines",
    sa.Column("maker", sa.Text, primary_key=True),
    sa.Column("configured", sa.Boolean, nullable=False),
    sa.Column("has_address", sa.Boolean, nullable=False),
    sa.Column("cases_per_minute", sa.Double),
    sa.Column("cases_per_day", sa.Integer),
    sa.Column("failures", sa.Integer, nullable=False),
    _at("down_since", nullable=True),
    _at("next_at", nullable=True),
    _at("paced_until", nullable=True),
)
"""Which experts are machines. One that is not `configured` any more, or that does not answer (`down_since`),
gets no cases; after `failures` in a row it is left alone until `next_at`."""

sendings = _table(
    "sendings",
    sa.Column("assignment_id", _Id, sa.ForeignKey("assignments.id"), primary_key=True, autoincrement=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    _at("next_at"),
)
"""Cases that were sent to a machine and are not answered yet: the id that stays the same however often one is
sent, how often it was in vain, and when it may be sent again."""

golden_sources = _table(
    "golden_sources",
    _id(),
    sa.Column("features", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    _ref("key_id", "keys.id"),
    _at(),
    _at("withdrawn_at", nullable=True),
)
"""Cases with a known truth that a lead entered to be given out again."""

golden_rates = _table(
    "golden_rates",
    sa.Column("maker", sa.Text, primary_key=True),
    sa.Column("rate", sa.Double, nullable=False),
    sa.Column("looked", _Id, nullable=False),
    sa.CheckConstraint("rate >= 0 AND rate <= 0.5", name="rate"),
)
"""How many golden cases somebody gets per case, and up to which assignment that has been seen to."""

golden_cases = _table(
    "golden_cases",
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("chosen", sa.Text, nullable=False),
    _at(),
    sa.Index("ix_golden_cases_maker", "maker", "source"),
)
"""Which cases of the ledger are golden ones, whose, and what their truth is."""

trials = _table(
    "trials",
    _id(),
    _ref("model_id", "models.id"),
    _ref("key_id", "keys.id"),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("rules", sa.Text, nullable=False),
    sa.Column("seed", _Id, nullable=False),
    sa.Column("verdict", sa.Text),
    _at(),
    _at("ended_at", nullable=True),
    sa.Column("constraints", sa.Text),
    sa.CheckConstraint("state IN ('shadow', 'trial', 'ended')", name="state"),
)
"""A candidate beside today's practice: first as its shadow, then with a share of the cases."""

trial_strata = _table(
    "trial_strata",
    sa.Column("trial_id", _Id, sa.ForeignKey("trials.id"), primary_key=True, autoincrement=False),
    sa.Column("stratum", sa.Text, primary_key=True),
    sa.Column("cases", sa.Integer, nullable=False),
)
"""How many cases of a stratum have come in a trial: the next one's place in its block."""

trial_cases = _table(
    "trial_cases",
    sa.Column("case_id", sa.Text, sa.ForeignKey("cases.case_id"), primary_key=True),
    _ref("trial_id", "trials.id"),
    sa.Column("stratum", sa.Text, nullable=False),
    sa.Column("block", sa.Integer, nullable=False),
    sa.Column("candidate", sa.Boolean, nullable=False),
    sa.Column("propensity", sa.Double, nullable=False),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("expert", sa.Text, nullable=False),
    sa.Column("today_loss", sa.Double, nullable=False),
    sa.Column("candidate_loss", sa.Double, nullable=False),
    sa.Column("same_plan", sa.Double, nullable=False),
    sa.Index("ix_trial_cases_trial", "trial_id", "case_id"),
)
"""A case's arm and its chance; whom today's practice (`maker`) and the candidate (`expert`) would choose, and
what each model expects of its own choice, and what the candidate's expects of today's (`same_plan`)."""

erasures = _table(
    "erasures",
    sa.Column("before", sa.Text, primary_key=True),
    sa.Column("after", sa.Text, nullable=False),
)
"""Filled only while somebody's name is replaced, and empty again when that is committed."""

APPEND_ONLY = ("history", "labels", "decisions", "opinions", "undone", "activations", "pricings")
"""Tables whose rows can be added but neither changed nor removed. A decision may move to `undone`, whole, an
opinion to either of them; and
the name of somebody who is erased gives way to a pseudonym, while nothing else changes (see `migrations`)."""
