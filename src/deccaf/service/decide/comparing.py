"""What another model would change today: the open cases, planned with both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.capacity import UNLIMITED
from deccaf.service.decide.drafting import Waiting, left_of_roster, make_draft
from deccaf.service.decide.registry import Model
from deccaf.service.ledger import shifts
from deccaf.service.store import tables as t

MOST_OPEN = 1_000
"""Open cases that are planned with both models; of more the latest, with limits in proportion."""


@dataclass(frozen=True)
class Moves:
    """How a plan of the open cases would differ under another model."""

    cases: int
    of: int
    """How many are open."""
    moved: int
    pairs: list[tuple[str, str, int]]
    """From whom, to whom, how many; the most first."""
    loads: list[tuple[str, int, int]]
    """Everybody's cases before and after."""
    cost_before: float
    """Of the plan of the model in force, as it expects it."""
    cost_after: float
    """Of the other model's plan, as that one expects it."""
    same_plan: float
    """Of the plan of the model in force, as the other model expects it."""


def open_cases(connection: sa.Connection, at: float, most: int = MOST_OPEN) -> tuple[Waiting, int] | None:
    """Cases of the running shift that nobody has begun, those that wait too; and how many there are.

    None where no shift runs, or nothing is open.
    """
    shift = shifts.current_shift(connection, at)
    if shift is None:
        return None
    c, a = t.cases.c, t.assignments.c
    roster = left_of_roster(connection, shift)
    mine = (a.maker.in_(list(roster["maker"])), a.state == "assigned", a.shift_id == shift)
    held = connection.execute(sa.select(a.maker, sa.func.count()).where(*mine).group_by(a.maker)).all()
    freed = {str(name): int(cases) for name, cases in held}
    waits = (c.status == "waiting", c.label.is_(None))
    count = int(
        connection.execute(sa.select(sa.func.count()).select_from(t.cases).where(*waits)).scalar_one()
    )
    count += sum(freed.values())
    if not count:
        return None
    latest = sa.select(a.case_id).where(*mine).order_by(a.id.desc()).limit(most)
    query = sa.select(*c["id", "case_id", "features", "given", "excluded"])
    given = connection.execute(query.where(c.case_id.in_(latest))).all()
    unplanned = connection.execute(query.where(*waits).order_by(c.id.desc()).limit(most)).all()
    rows = sorted([*given, *unplanned], key=lambda row: row.id)[-most:]
    waiting = Waiting(
        shift_id=shift,
        case_ids=[row.case_id for row in rows],
        features=[row.features for row in rows],
        given=[row.given for row in rows],
        excluded=[row.excluded for row in rows],
        roster=_in_proportion(roster, freed, len(rows) / count),
        random_share=0.0,
        labelled=[False] * len(rows),
    )
    return waiting, count


def moves(waiting: Waiting, of: int, before: Model, after: Model) -> Moves:
    """Plan the same cases with both models."""
    old, new = make_draft(waiting, before), make_draft(waiting, after)
    makers = list(old.scored.makers)
    was = [makers[j] for j in old.maker]
    will = [new.scored.makers[j] for j in new.maker]
    changed = Counter((a, b) for a, b in zip(was, will, strict=True) if a != b)
    loads = (Counter(was), Counter(will))
    place = [new.scored.makers.index(name) for name in was]
    return Moves(
        cases=len(was),
        of=of,
        moved=sum(changed.values()),
        pairs=[(a, b, n) for (a, b), n in changed.most_common()],
        loads=[(name, loads[0][name], loads[1][name]) for name in makers if loads[0][name] or loads[1][name]],
        cost_before=float(old.summary["cost"]),
        cost_after=float(new.summary["cost"]),
        same_plan=float(new.scored.loss[np.arange(len(place)), place].sum()),
    )


def _in_proportion(roster: pd.DataFrame, freed: dict[str, int], share: float) -> pd.DataFrame:
    """Everybody's room with their open cases given back, for a share of all open cases."""
    room = roster["upper"].to_numpy(np.int64)
    back = roster["maker"].map(freed).fillna(0).to_numpy(np.int64)
    upper = np.where(room >= UNLIMITED, UNLIMITED, np.ceil((room + back) * share).astype(np.int64))
    lower = np.floor(roster["lower"].to_numpy(np.int64) * share).astype(np.int64)
    return roster.assign(upper=upper, lower=lower)
