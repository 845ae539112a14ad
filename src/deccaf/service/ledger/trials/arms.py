"""Which arm an arriving case is in: drawn in blocks within strata, in the transaction that enters the case.

Both arms choose at the same moment, with the same room and the same prices, so neither gets the better hours.
The stratum is how much today's model expects the case to cost, in powers of two of the bound. The chance on
record is exact: of an arm its share, and of whoever gets the case the chance over both arms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from deccaf.evaluate.trial import arm_of
from deccaf.service.ledger.case_records import Arrival, Rival
from deccaf.service.ledger.placing import Placed
from deccaf.service.ledger.trials.trial_records import STRATA, Trial
from deccaf.service.store import tables as t

SHADOW_BLOCK = -1
"""The block of a case that came while the candidate was a shadow."""


@dataclass(frozen=True)
class Drawn:
    """A case in its arm."""

    arrival: Arrival
    """With what its arm believes, and what the other does (`rival`)."""
    today: Arrival
    candidate: Arrival
    in_candidate: bool
    stratum: str
    block: int
    chance: float
    """Of the arm."""


def draw(
    connection: sa.Connection, trial: Trial, pairs: Sequence[tuple[Arrival, Arrival]]
) -> list[Drawn] | None:
    """Arms for cases as today's model and the candidate see them; None where the trial has ended."""
    c = t.trials.c
    state = connection.execute(sa.select(c.state).where(c.id == trial.id)).scalar()
    if state not in ("shadow", "trial"):
        return None
    found = []
    for today, candidate in pairs:
        stratum = stratum_of(min((today.losses or {"": 0.0}).values()), trial.rules.bound)
        block, ours, chance = SHADOW_BLOCK, False, 1.0
        if state == "trial":
            place = _place(connection, trial.id, stratum)
            block, ours = arm_of(trial.seed, stratum, place, trial.rules.share)
            chance = trial.rules.share if ours else 1.0 - trial.rules.share
        own, other = (candidate, today) if ours else (today, candidate)
        rival = Rival(other.losses or {}, other.objective, chance)
        found.append(Drawn(replace(own, rival=rival), today, candidate, ours, stratum, block, chance))
    return found


def stratum_of(loss: float, bound: float) -> str:
    """Cases alike: within a factor of two of what they are expected to cost."""
    power = math.floor(math.log2(max(loss, 1e-12) / bound))
    return str(max(int(STRATA[0]), min(0, power)))


def write(
    connection: sa.Connection, trial: Trial, drawn: Sequence[Drawn], placed: Sequence[Placed | None]
) -> None:
    """Put the arms on record, once the cases are; a case that nobody had room for is in no arm."""
    rows = [
        _row(trial, one, where)
        for one, where in zip(drawn, placed, strict=True)
        if where is not None and where.other is not None
    ]
    if rows:
        connection.execute(sa.insert(t.trial_cases), rows)


def _row(trial: Trial, drawn: Drawn, placed: Placed) -> dict[str, Any]:
    other = placed.other or placed.maker
    today, candidate = (other, placed.maker) if drawn.in_candidate else (placed.maker, other)
    ours, theirs = drawn.candidate.losses or {}, drawn.today.losses or {}
    return {
        "case_id": drawn.arrival.case_id,
        "trial_id": trial.id,
        "stratum": drawn.stratum,
        "block": drawn.block,
        "candidate": drawn.in_candidate,
        "propensity": drawn.chance,
        "maker": today,
        "expert": candidate,
        "today_loss": theirs.get(today, 0.0),
        "candidate_loss": ours.get(candidate, 0.0),
        "same_plan": ours.get(today, 0.0),
    }


def _place(connection: sa.Connection, trial_id: int, stratum: str) -> int:
    """The case's number in its stratum, from 0; whoever asks next gets the next."""
    c = t.trial_strata.c
    mine = sa.and_(c.trial_id == trial_id, c.stratum == stratum)
    count = connection.execute(
        sa.update(t.trial_strata).where(mine).values(cases=c.cases + 1).returning(c.cases)
    ).scalar_one()
    return int(count) - 1
