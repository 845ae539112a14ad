"""A plan that starts from the prices of another is the plan without them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deccaf.data.capacity import Capacity
from deccaf.data.costs import MACHINE
from deccaf.planning.planner import make_plan
from deccaf.planning.scored import Scored

MAKERS = (MACHINE, *(f"e{j}" for j in range(12)))


def believed(cases: int, seed: int, batches: int = 1) -> Scored:
    rng = np.random.default_rng(seed)
    loss = rng.random((cases, len(MAKERS))) * rng.gamma(2.0, size=(cases, 1))
    ids = pd.Index([f"c{k}" for k in range(cases)])
    batch = None if batches == 1 else pd.Series([f"b{k % batches}" for k in range(cases)], index=ids)
    return Scored(ids, MAKERS, loss, loss, np.zeros(cases, np.int64), (0, 1), batch=batch)


def room(each: int, batches: int = 1, **other: int) -> Capacity:
    upper = dict.fromkeys(MAKERS[1:], each) | other
    if batches == 1:
        return Capacity.of(upper)
    rows = [(name, f"b{k}", limit) for k in range(batches) for name, limit in upper.items()]
    return Capacity.from_frame(pd.DataFrame(rows, columns=["expert_id", "batch", "upper"]))


@pytest.mark.parametrize("batches", [1, 3])
def test_an_absence_is_planned_from_the_prices_before_as_without_them(batches: int) -> None:
    scored = believed(1500, 1, batches)
    before = make_plan(scored, room(60, batches))
    away = room(60, batches, e3=0)
    anew, started = make_plan(scored, away), make_plan(scored, away, start=before.prices)
    assert started.frame.equals(anew.frame)
    assert started.summary.gap == pytest.approx(0.0, abs=1e-9)


def test_cases_that_came_since_and_a_person_who_came_to_the_roster() -> None:
    few = believed(1500, 2)
    before = make_plan(few.of(MAKERS[:-1]), room(60, e11=0))
    more = believed(1550, 2)
    assert "e11" not in before.prices
    started = make_plan(more, room(60), start=before.prices)
    assert started.frame.equals(make_plan(more, room(60)).frame)
