"""Which golden case somebody gets next: the one that tells most about them, as in `deccaf onboard`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.errors import DeccafError
from deccaf.service.decide import registry
from deccaf.service.decide.registry import Model
from deccaf.service.ledger import shifts
from deccaf.service.ledger.review import golden
from deccaf.service.ledger.review.golden import Candidate, Chosen, Due
from deccaf.service.store import database
from deccaf.service.store.writer import Writer


def hand_out(
    engine: sa.Engine, writer: Writer, model: Model | None, rng: np.random.Generator, at: float | None = None
) -> list[str]:
    """Give out what is due, and write down the labels of what was decided; gives the new golden cases."""
    now = time.time() if at is None else at
    with database.reading(engine) as connection:
        waiting = golden.due(connection, now, rng)
        revealing = bool(golden.to_reveal(connection, now))
    if revealing:
        writer.submit(lambda connection: golden.reveal(connection, now)).result()
    made: list[str] = []
    for one in waiting if model is not None else ():
        assert model is not None
        chosen = choose(engine, model, one, rng) if one.count else []
        made += writer.submit(_giving(one, chosen, now, rng)).result()
    return made


def choose(engine: sa.Engine, model: Model, due: Due, rng: np.random.Generator) -> list[Chosen]:
    """The most telling candidates first; by lot where the model cannot say what they tell."""
    with database.reading(engine) as connection:
        there = golden.candidates(connection, due.maker)
        experts = [name for name in shifts.roster_makers(connection, due.shift_id) if name != MACHINE]
    usable = [one for one in there if _is_usable(model, one)]
    if not usable:
        return []
    order, how = _telling(model, due, usable, rng)
    picked = [usable[row] for row in order]
    scored = model.score_rows([golden.parsed(one)[0] for one in picked], experts)
    beliefs = [registry.belief(scored, row) for row in range(len(picked))]
    return [
        Chosen(one, believed.losses, believed.says, model.id, how)
        for one, believed in zip(picked, beliefs, strict=True)
    ]


def _telling(
    model: Model, due: Due, usable: Sequence[Candidate], rng: np.random.Generator
) -> tuple[list[int], str]:
    count = min(due.count, len(usable))
    rows = [golden.parsed(one) for one in usable]
    frame = pd.DataFrame([features for features, _ in rows])
    label = pd.Series([truth for _, truth in rows])
    try:
        found = model.system.onboard(frame, label, due.maker, count=count)
    except DeccafError:
        return rng.choice(len(usable), count, replace=False).tolist(), "lot"
    return [int(row) for row in found["case_id"]], "telling"


def _is_usable(model: Model, candidate: Candidate) -> bool:
    features, label = golden.parsed(candidate)
    try:
        model.check(features)
    except DeccafError:
        return False
    return label in model.classes


def _giving(due: Due, chosen: Sequence[Chosen], at: float, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    return lambda connection: golden.give(connection, due, chosen, at, rng)
