"""Trials on record: one at a time, first as a shadow, then with a share of the cases, until it ends."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from deccaf.data.config import ConstraintsTable
from deccaf.evaluate.trial import Rules, block_of
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger import trail, versions
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import read_setting, write_setting

_TURN = ["the trial"]
STRATA = tuple(str(power) for power in range(-8, 1))
"""Cases alike: what they are expected to cost, in powers of two of the bound."""

CONSTRAINTS = "constraints"
"""The setting that holds what plans grant unless they are asked for something else."""


def planned_stratum(name: str) -> str:
    """The same cases where they are planned together: blocks of plans are their own, whatever arrives."""
    return f"p{name}"


@dataclass(frozen=True)
class Trial:
    """A candidate beside today's practice."""

    id: int
    model_id: int
    state: str
    """`shadow`: it changes nothing; `trial`: a share of the cases goes by it; `ended`."""
    rules: Rules
    seed: int
    verdict: str | None
    """Why it ended."""
    at: float
    ended_at: float | None
    constraints: ConstraintsTable | None = None
    """What the candidate's plans grant; None: what they are asked for, as today's."""


def start(
    connection: sa.Connection,
    model_id: int | None,
    rules: Rules,
    who: Actor,
    at: float,
    constraints: ConstraintsTable | None = None,
    check: Callable[[sa.Connection, int, int | None], None] = lambda *_: None,
) -> Trial:
    """Let a version, or constraints on plans, run as the shadow of today's practice; one at a time.

    Without a version the candidate is the one in force, with the constraints. `check` refuses a candidate
    that cannot stand beside the version in force, which stays so until the trial is on record.
    """
    database.take_turns(connection, [*_TURN, *versions.TURN])
    block_of(rules.share)
    running = running_trial(connection)
    if running is not None:
        raise conflict("trial-runs", f"trial {running.id} runs already: end it first")
    active = versions.active_id(connection)
    model_id = active if model_id is None else model_id
    if model_id is None:
        raise conflict("no-model", "no model is in force: constraints are tried out with one")
    versions.read_version(connection, model_id)
    if active == model_id and constraints is None:
        raise conflict("in-force", f"model {model_id} is in force: a candidate is another one")
    check(connection, model_id, active)
    seed, asked = secrets.randbits(31), None if constraints is None else constraints.model_dump(mode="json")
    values = {"model_id": model_id, "key_id": who.key_id, "state": "shadow", "seed": seed, "at": at}
    values["constraints"] = None if asked is None else json.dumps(asked)
    made = connection.execute(
        sa.insert(t.trials).values(rules=json.dumps(asdict(rules)), **values).returning(t.trials.c.id)
    ).scalar_one()
    more: dict[str, Any] = {} if asked is None else {"constraints": asked}
    trail.record(connection, "shadow started", at, who, trial=int(made), model=model_id, **more)
    return Trial(int(made), model_id, "shadow", rules, seed, None, at, None, constraints)


def begin(connection: sa.Connection, trial_id: int, who: Actor, at: float) -> Trial:
    """Give the candidate its share of the cases, from the next one on."""
    found = _locked(connection, trial_id)
    if found.state != "shadow":
        raise conflict("not-a-shadow", f"trial {trial_id} is no shadow any more: {found.state}")
    connection.execute(sa.update(t.trials).where(t.trials.c.id == trial_id).values(state="trial"))
    names = [*STRATA, *map(planned_stratum, STRATA)]
    rows = [{"trial_id": trial_id, "stratum": name, "cases": 0} for name in names]
    connection.execute(sa.insert(t.trial_strata), rows)
    trail.record(connection, "trial started", at, who, trial=trial_id, share=found.rules.share)
    return replace(found, state="trial")


def end(connection: sa.Connection, trial_id: int, verdict: str, who: Actor, at: float) -> Trial:
    """All cases go by today's practice again."""
    found = _locked(connection, trial_id)
    if found.state == "ended":
        raise conflict("trial-ended", f"trial {trial_id} has ended: {found.verdict}")
    connection.execute(
        sa.update(t.trials)
        .where(t.trials.c.id == trial_id)
        .values(state="ended", verdict=verdict, ended_at=at)
    )
    trail.record(connection, "trial ended", at, who, trial=trial_id, verdict=verdict)
    return replace(found, state="ended", verdict=verdict, ended_at=at)


def stop(connection: sa.Connection, trial_id: int, verdict: str, at: float) -> None:
    """End it because a rule fires, unless another process or a lead was quicker."""
    if _locked(connection, trial_id).state == "trial":
        end(connection, trial_id, verdict, Actor(None), at)


def switch_on(connection: sa.Connection, trial_id: int, who: Actor, at: float) -> Trial:
    """Put the candidate in force for all cases; back again by rolling back the model, or the constraints."""
    found = end(connection, trial_id, "switched on", who, at)
    if versions.active_id(connection) != found.model_id:
        versions.put_in_force(connection, found.model_id, who, at)
    if found.constraints is not None:
        put_constraints_in_force(connection, found.constraints, who, at)
    return found


def put_constraints_in_force(
    connection: sa.Connection, constraints: ConstraintsTable | None, who: Actor, at: float
) -> None:
    """What plans grant from now on, unless they are asked for something else; None: nothing."""
    asked = None if constraints is None else constraints.model_dump(mode="json")
    write_setting(connection, CONSTRAINTS, asked)
    trail.record(connection, "constraints in force", at, who, constraints=asked)


def constraints_in_force(connection: sa.Connection) -> ConstraintsTable | None:
    """What plans grant where they are not asked for something else."""
    found = read_setting(connection, CONSTRAINTS)
    return None if found is None else ConstraintsTable.model_validate(found)


def running_trial(connection: sa.Connection) -> Trial | None:
    """The one that has not ended."""
    query = sa.select(t.trials).where(t.trials.c.state != "ended").order_by(t.trials.c.id.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else _trial(row)


def read_trial(connection: sa.Connection, trial_id: int) -> Trial:
    """One of all that there were."""
    row = connection.execute(sa.select(t.trials).where(t.trials.c.id == trial_id)).one_or_none()
    if row is None:
        raise not_found("trial", trial_id)
    return _trial(row)


def list_trials(connection: sa.Connection, most: int) -> list[Trial]:
    """The latest, newest first."""
    query = sa.select(t.trials).order_by(t.trials.c.id.desc()).limit(most)
    return [_trial(row) for row in connection.execute(query)]


def _locked(connection: sa.Connection, trial_id: int) -> Trial:
    database.take_turns(connection, _TURN)
    return read_trial(connection, trial_id)


def _trial(row: Any) -> Trial:
    rules = Rules(**json.loads(row.rules))
    asked = None if row.constraints is None else ConstraintsTable.model_validate_json(row.constraints)
    return Trial(row.id, row.model_id, row.state, rules, row.seed, row.verdict, row.at, row.ended_at, asked)
