"""The arms of cases that are planned together.

The lot of a plan is fixed by the trial's seed and by how many cases of a stratum were planned before, so that
drafting again draws nothing anew. Places are taken when the plan is committed; a draft whose places are gone
is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.evaluate.trial import arm_of
from deccaf.service.errors import conflict
from deccaf.service.ledger.trials import trial_records
from deccaf.service.ledger.trials.arms import SHADOW_BLOCK, stratum_of
from deccaf.service.ledger.trials.trial_records import Trial, planned_stratum
from deccaf.service.store import tables as t

NO_ARM = ""
"""The stratum of a case that is in no arm."""


@dataclass(frozen=True, eq=False)
class PlannedArms:
    """Which arm each case of a plan is in; one entry per case."""

    trial_id: int
    state: str
    model_id: int
    """Of the candidate."""
    stratum: Sequence[str]
    block: NDArray[np.int64]
    candidate: NDArray[np.bool_]
    chance: NDArray[np.float64]
    """Of the arm."""
    before: Mapping[str, int]
    """Cases of each stratum that were planned before."""

    @property
    def added(self) -> Counter[str]:
        """Cases of each stratum in this plan."""
        return (
            Counter(name for name in self.stratum if name != NO_ARM) if self.state == "trial" else Counter()
        )


def places_taken(connection: sa.Connection, trial: Trial) -> dict[str, int]:
    """How many cases of each stratum were planned so far."""
    c = t.trial_strata.c
    return {
        row.stratum: row.cases
        for row in connection.execute(sa.select(c.stratum, c.cases).where(c.trial_id == trial.id))
    }


def draw(trial: Trial, before: Mapping[str, int], losses: Sequence[float | None]) -> PlannedArms:
    """Arms for cases that today's model expects to cost so much; None: the case is in no arm."""
    count, place = len(losses), Counter(before)
    stratum, block = [NO_ARM] * count, np.full(count, SHADOW_BLOCK, np.int64)
    ours, chance = np.zeros(count, np.bool_), np.ones(count)
    for row, loss in enumerate(losses):
        if loss is None:
            continue
        stratum[row] = name = planned_stratum(stratum_of(loss, trial.rules.bound))
        if trial.state == "trial":
            block[row], ours[row] = arm_of(trial.seed, name, place[name], trial.rules.share)
            chance[row] = trial.rules.share if ours[row] else 1.0 - trial.rules.share
            place[name] += 1
    return PlannedArms(trial.id, trial.state, trial.model_id, stratum, block, ours, chance, dict(before))


def take_places(connection: sa.Connection, arms: PlannedArms | None) -> None:
    """Take the places of a plan's cases in their blocks; refused where the trial is not as it was drafted."""
    if arms is None:
        return
    state = trial_records.read_trial(connection, arms.trial_id).state
    if state != arms.state:
        raise conflict(
            "plan-stale", f"trial {arms.trial_id} was a {arms.state} and is {state} now; draft again"
        )
    c = t.trial_strata.c
    for name, count in arms.added.items():
        known = arms.before.get(name, 0)
        mine = sa.and_(c.trial_id == arms.trial_id, c.stratum == name, c.cases == known)
        moved = connection.execute(sa.update(t.trial_strata).where(mine).values(cases=known + count)).rowcount
        if not moved:
            raise conflict(
                "plan-stale", f"another plan drew arms of trial {arms.trial_id} since; draft again"
            )


def row_of(arms: PlannedArms, place: int, case_id: str, **choices: Any) -> dict[str, Any] | None:
    """A case of a plan as it is written down; None: it is in no arm."""
    if arms.stratum[place] == NO_ARM:
        return None
    return {
        "case_id": case_id,
        "trial_id": arms.trial_id,
        "stratum": arms.stratum[place],
        "block": int(arms.block[place]),
        "candidate": bool(arms.candidate[place]),
        "propensity": float(arms.chance[place]),
        **choices,
    }
